//! The two machines: the same launch in the emulator's memory and in a device's.

use emulator::{Failure, Memory, Warnings};
use kernel::{Buffer, Engine};
use ptx::Function;
use ptx::abi::Grid;

use super::instrument::{Plan, Window};
use super::{BufferDifference, Recorded, version};
use crate::check::CheckError;
use crate::check::launch::{Argument as Given, Expect};
use crate::check::place::Placed;
use crate::check::run::Trial;

/// A launch on both machines.
pub(super) struct Machines<'a> {
    trial: &'a Trial<'a>,
    device: &'a mut dyn Engine,
    /// The kernels as the device runs them.
    programs: Vec<kernel::Program>,
    /// The launch in the device's memory, and that memory: allocation by allocation.
    placed: Placed<'a>,
    buffers: Vec<Buffer>,
    /// The emulator's memory.
    memory: Memory,
    /// What was done otherwise on the device.
    pub(super) notes: Vec<String>,
}

/// The elements of a buffer that differ.
pub(super) struct Differing {
    /// The buffer's address in the emulator.
    base: u64,
    size: usize,
    elements: Vec<usize>,
}

impl Differing {
    /// The address of each, and its bytes.
    pub(super) fn elements(&self) -> impl Iterator<Item = (u64, u64)> {
        let size = self.size as u64;
        self.elements.iter().map(move |&element| (self.base + element as u64 * size, size))
    }
}

impl<'a> Machines<'a> {
    pub(super) fn new(
        trial: &'a Trial<'a>,
        functions: &'a [Function],
        device: &'a mut dyn Engine,
    ) -> Result<Self, CheckError> {
        if trial.launch.buffers.iter().any(|buffer| !buffer.maps.is_empty()) {
            let why = "tensor maps in memory are not made for a device: only those among the arguments";
            return Err(CheckError::Argument(why.to_owned()));
        }
        let mut buffers = Vec::new();
        let placed = trial.placed.moved(functions, &mut |bytes| {
            let buffer = device.allocate(bytes.max(1))?;
            buffers.push(buffer);
            Ok(buffer.address)
        })?;
        let kernels = functions.iter().zip(&trial.launch.kernels);
        let programs = kernels.map(|(function, kernel)| {
            let program = program(function, &kernel.arguments, &kernel.file)?;
            // The variables of a module are parameters of the program that was read.
            Ok(if function.variables.is_empty() { program.with_text(&kernel.text) } else { program })
        });
        let programs = programs.collect::<Result<Vec<_>, CheckError>>()?;
        let memory = trial.placed.memory()?;
        for ((_, image), buffer) in placed.images().zip(&buffers) {
            device.write(*buffer, &image)?;
        }
        Ok(Self { trial, device, programs, placed, buffers, memory, notes: Vec::new() })
    }

    /// Writes again what buffers hold before a launch.
    pub(super) fn restore(&mut self, launch: u32) -> Result<(), CheckError> {
        if launch == 1 {
            return Ok(());
        }
        self.trial.placed.restore(&mut self.memory)?;
        let images: Vec<_> = self.placed.images().collect();
        for (number, buffer) in self.trial.launch.buffers.iter().enumerate() {
            let is_poisoned =
                self.placed.before(number).is_none() && matches!(buffer.expect, Expect::Values(_));
            if buffer.restore && self.placed.before(number).is_some() || is_poisoned {
                self.device.write(self.buffers[number], &images[number].1)?;
            }
        }
        Ok(())
    }

    /// The device's memory, allocation by allocation.
    pub(super) fn device_memory(&mut self) -> Result<Vec<Vec<u8>>, CheckError> {
        self.buffers.iter().map(|buffer| Ok(self.device.read(*buffer)?)).collect()
    }

    /// Runs a kernel on both machines.
    pub(super) fn run(&mut self, kernel: usize) -> Result<(), CheckError> {
        let grid = grid_of(self.trial, kernel);
        emulate(self.trial, kernel, &self.trial.programs[kernel], &self.memory)?;
        let launched = self.device.launch(&self.programs[kernel], grid, &self.placed.arguments[kernel]);
        let Err(error) = launched else { return Ok(()) };
        let supported = version::supported(&error.to_string(), &self.device.describe());
        let lower = supported.and_then(|to| Some((to, version::lowered(self.programs[kernel].text(), to)?)));
        let Some(((major, minor), (text, (had, of)))) = lower else { return Err(error.into()) };
        self.programs[kernel] = self.programs[kernel].clone().with_text(&text);
        let file = &self.trial.launch.kernels[kernel].file;
        self.notes.push(format!(
            "{file} is of PTX {had}.{of}, which the device does not read: it was compiled as of PTX {major}.{minor}"
        ));
        self.device.launch(&self.programs[kernel], grid, &self.placed.arguments[kernel])?;
        Ok(())
    }

    /// The buffers that differ.
    pub(super) fn differences(&mut self) -> Result<Vec<(BufferDifference, Differing)>, CheckError> {
        let mut differences = Vec::new();
        for (number, buffer) in self.trial.launch.buffers.iter().enumerate() {
            if matches!(buffer.expect, Expect::Anything) {
                continue;
            }
            let all = self.device.read(self.buffers[number])?;
            let (device, emulated) =
                (&all[self.placed.part(number)], self.trial.placed.held(&self.memory, number)?);
            let size = buffer.element.bytes();
            let is_known = emulated.missing.is_none();
            let base = self.trial.placed.buffer(number);
            let moved = self.trial.placed.address_in(&self.placed);
            // The word around an element may be an address, of the same byte on both.
            let is_address = |offset: usize| {
                let word = |bytes: &[u8]| {
                    bytes
                        .get(offset & !7..)
                        .and_then(|rest| rest.first_chunk())
                        .map(|&word| u64::from_le_bytes(word))
                };
                word(&emulated.bytes).and_then(&moved).is_some_and(|address| word(device) == Some(address))
            };
            let differs = |element: &usize| {
                let part = element * size..(element + 1) * size;
                device[part.clone()] != emulated.bytes[part.clone()]
                    && !is_address(part.start)
                    && (is_known || self.memory.written(base + part.start as u64, size))
            };
            let wrong: Vec<usize> = (0..buffer.count() as usize).filter(differs).collect();
            let Some(&first) = wrong.first() else { continue };
            let told = |bytes: &[u8]| {
                let bytes = &bytes[first * size..(first + 1) * size];
                let digits: String = bytes.iter().rev().map(|byte| format!("{byte:02x}")).collect();
                format!("{} (0x{digits})", buffer.element.value(bytes))
            };
            let told = BufferDifference {
                buffer: buffer.name.clone(),
                element: buffer.index(first as u64),
                on_device: told(device),
                emulated: told(&emulated.bytes),
                count: (wrong.len() as u64, buffer.count()),
            };
            differences.push((told, Differing { base, size, elements: wrong }));
        }
        Ok(differences)
    }

    /// Runs a kernel once more on both machines, with a record.
    pub(super) fn record(
        &mut self,
        (kernel, launch): (usize, u32),
        (before, plan): (&[Vec<u8>], &Plan<'_>),
        window: &Window,
    ) -> Result<Recorded, CheckError> {
        let bytes = window.bytes();
        let (given, file) =
            (&self.trial.launch.kernels[kernel].arguments, &self.trial.launch.kernels[kernel].file);
        let grid = grid_of(self.trial, kernel);
        // The emulator comes to the same bits again.
        let mut memory = self.trial.placed.memory()?;
        for number in 1..=launch {
            if number > 1 {
                self.trial.placed.restore(&mut memory)?;
            }
            for (index, earlier) in self.trial.programs.iter().enumerate() {
                if (number, index) == (launch, kernel) {
                    break;
                }
                emulate(self.trial, index, earlier, &memory)?;
            }
        }
        let record = memory.allocate(bytes);
        let changed = program(&plan.instrumented(record, window), given, file)?;
        let changed = emulator::Program::new(changed.function());
        emulate(self.trial, kernel, &changed, &memory)?;
        let emulated = memory.read(record, bytes)?;
        for (buffer, bytes) in self.buffers.iter().zip(before) {
            self.device.write(*buffer, bytes)?;
        }
        let record = self.device.upload(&vec![0; bytes])?;
        let changed = program(&plan.instrumented(record.address, window), given, file)?;
        let ran = self.device.launch(&changed, grid, &self.placed.arguments[kernel]);
        let device = ran.and_then(|_| self.device.read(Buffer { address: record.address, bytes }));
        self.device.free(record)?;
        let moved = Box::new(self.trial.placed.address_in(&self.placed));
        Ok(Recorded { device: device?, emulated, moved })
    }
}

fn grid_of(trial: &Trial<'_>, kernel: usize) -> Grid {
    Grid { ctas: trial.launch.kernels[kernel].grid }
}

/// A program for a device. What the launch does not give as an address is a number.
fn program(function: &Function, given: &[Given], file: &str) -> Result<kernel::Program, CheckError> {
    let mut function = function.clone();
    for (param, given) in function.params.iter_mut().zip(given) {
        param.number = !matches!(given, Given::Pointer(pointer) if pointer.buffer.is_some());
    }
    kernel::Program::new(function).map_err(|error| CheckError::Verify { file: file.to_owned(), error })
}

/// Runs a program, in place of a kernel or its own, in the emulator, in its plain order.
fn emulate(
    trial: &Trial<'_>,
    kernel: usize,
    program: &emulator::Program,
    memory: &Memory,
) -> Result<(), CheckError> {
    // What is debatable is no reason not to compare.
    let warnings = Warnings::new();
    let options =
        emulator::Options { numerics: emulator::Numerics::Exact, ..trial.bearing(kernel, &warnings) };
    match program.launch(grid_of(trial, kernel), &trial.placed.arguments[kernel], memory, &options) {
        Ok(_) => Ok(()),
        Err(Failure::Trap(trap)) => Err(CheckError::Faulty(trap)),
        Err(Failure::Emulator(error)) => Err(error.into()),
        Err(other) => Err(CheckError::Argument(other.to_string())),
    }
}

impl Drop for Machines<'_> {
    fn drop(&mut self) {
        for buffer in &self.buffers {
            // A device that has failed frees its memory itself.
            let _ = self.device.free(*buffer);
        }
    }
}
