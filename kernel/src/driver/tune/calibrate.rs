//! Measures a card, so that the model's numbers are this card's.

use std::thread;
use std::time::Duration;

use collective::Format;
use ptx::WgmmaTypes;

use crate::bandwidth::{self, Moves, Traffic};
use crate::buffer::Buffer;
use crate::ceiling;
use crate::driver::gpu::Gpu;
use crate::driver::timing::Enqueue;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::operands::random;
use crate::program::Program;
use crate::select::Calibration;

/// Bytes of a copy, which no L2 holds, and bytes that every L2 holds.
const COPIED: u64 = 1 << 30;
const KEPT: u64 = 12 << 20;

/// Number of launches in a graph that do nearly nothing.
const EMPTY: u32 = 200;

/// Number of measurements of each speed; their median counts.
const TURNS: usize = 5;

/// Rest before a measurement.
const REST: Duration = Duration::from_millis(80);

impl Gpu {
    /// Measures this card in about two seconds: memory and L2 bandwidth, the time of a launch, and the rate of `wgmma`. It needs 2 GiB
    /// of device memory, which it frees. Other work on the card makes the numbers worse.
    ///
    /// # Errors
    /// Too little memory, or a driver error.
    pub fn calibrate(&mut self) -> Result<Calibration, EngineError> {
        let mut buffers = Vec::new();
        let measured = self.measured(&mut buffers);
        let freed = buffers.into_iter().try_for_each(|buffer| self.free(buffer));
        measured.and_then(|measured| freed.map(|()| measured))
    }

    fn measured(&mut self, buffers: &mut Vec<Buffer>) -> Result<Calibration, EngineError> {
        let multiprocessors = self.multiprocessors();
        let copy = Traffic::new(multiprocessors, COPIED, 1);
        let kept = Traffic::new(multiprocessors, KEPT, 64);
        let mut memory = |gpu: &mut Self| {
            let buffer = gpu.allocate(copy.bytes())?;
            buffers.push(buffer);
            Ok::<u64, EngineError>(buffer.address)
        };
        let [source, target] = [memory(self)?, memory(self)?];
        let operands = self.upload(&random(Format::Bf16)[..ceiling::OPERAND_BYTES])?;
        buffers.push(operands);

        let traffic = |gpu: &mut Self, moves, traffic: Traffic| {
            let (grid, arguments) = traffic.launch(source, target);
            gpu.prepare(&legal(bandwidth::program(moves))?, grid, &arguments)
        };
        let copies = traffic(self, Moves::Copies, copy)?;
        let reads = traffic(self, Moves::Reads, kept)?;
        // One CTA's worth: what it moves takes no time next to the launch.
        let nothing = traffic(self, Moves::Reads, Traffic::new(1, 1, 1))?;
        // As a graph, so that the host does not decide.
        let empty = self.capture(&[&nothing as &dyn Enqueue; EMPTY as usize])?;
        let rounds = 2000;
        let (grid, arguments) = ceiling::launch(multiprocessors, operands.address, target, rounds);
        let multiplies = self.prepare(&legal(ceiling::program(WgmmaTypes::Bf16F32))?, grid, &arguments)?;
        let operations = ceiling::operations(WgmmaTypes::Bf16F32, multiprocessors, rounds);
        Ok(Calibration {
            copy: 2.0 * copy.read() / self.median(&copies, 4)?,
            l2: kept.read() / self.median(&reads, 8)?,
            launch: self.median(&empty, 4)? / f64::from(EMPTY),
            multiply: operations / self.median(&multiplies, 4)?,
        })
    }

    /// The median time of a launch in microseconds, of `count` in a row after a rest.
    fn median(&mut self, launch: &dyn Enqueue, count: usize) -> Result<f64, EngineError> {
        let launches = [launch];
        self.time_many(&launches, 2)?;
        let mut turn = || {
            thread::sleep(REST);
            self.time_many(&launches, count)
        };
        let mut times = (0..TURNS).map(|_| turn()).collect::<Result<Vec<f64>, _>>()?;
        times.sort_by(f64::total_cmp);
        Ok(times[TURNS / 2] * 1e6)
    }
}

/// A program of this library. What the verifier finds is reported as the compiler's words would be.
fn legal(program: Result<Program, ptx::VerifyError>) -> Result<Program, EngineError> {
    program.map_err(|error| EngineError::Compile { kernel: "calibration".to_owned(), log: error.to_string() })
}
