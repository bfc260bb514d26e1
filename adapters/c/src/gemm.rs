//! The kernel object of the C interface: chosen, loaded, launched, emulated.

use core::ffi::{c_char, c_int, c_void};
use std::ffi::CString;

use falchion::collective::tree::{DropoutArgument, Scratch};
use falchion::collective::{BlockScales, GroupScales, Input, LinearArguments, MatrixRef};
use falchion::kernel::driver::Context;
use falchion::kernel::{Buffer, Call, EngineError, GroupedProblem, Machine};
use falchion_core::{Epilogue, Kind, Run, Slot};

use crate::description::{Asked, Description, sized, words};
use crate::{DRIVER, FAULT, Failure, INVALID, invalid, text};

/// The arguments of a run: `falchion_gemm_args`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Arguments {
    /// Address of A.
    pub a: *const c_void,
    /// Address of B.
    pub b: *const c_void,
    /// Address of C; not read where `beta` is 0.
    pub c: *const c_void,
    /// Address of D.
    pub d: *mut c_void,
    /// Factor of `A * B`.
    pub alpha: f32,
    /// Factor of C.
    pub beta: f32,
    /// Workspace in device memory, in addition to the matrices.
    pub workspace: *mut c_void,
    /// Size of the workspace in bytes.
    pub workspace_bytes: u64,
    /// The end of the structure's first version. Scales of A's blocks.
    pub scale_a: *const c_void,
    /// Scales of B's blocks.
    pub scale_b: *const c_void,
    /// Scales of groups of weights.
    pub group_scales: *const c_void,
    /// Zero points of groups of weights.
    pub group_zeros: *const c_void,
    /// Metadata of a sparse operand.
    pub metadata: *const c_void,
    /// Where groups begin, or how many rows they use.
    pub groups: *const c_void,
    /// The arguments of the epilogue's text.
    pub inputs: *const NamedInput,
    /// Number of these.
    pub input_count: usize,
}

/// Size of the structure's first version.
const FIRST: usize = core::mem::offset_of!(Arguments, scale_a);

/// An argument of the epilogue's text: `falchion_input`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NamedInput {
    /// Its name in the text.
    pub name: *const c_char,
    /// Address of a vector or a matrix.
    pub address: *const c_void,
    /// Elements from one row of a matrix to the next; 0 is packed.
    pub ld: u64,
    /// Bytes from one GEMM's to the next one's; 0 is packed.
    pub stride: u64,
    /// A number, or the probability of a mask.
    pub value: f32,
    /// Zero.
    pub reserved: u32,
    /// Seed and offset of a mask.
    pub mask: [u64; 2],
}

/// A kernel for GEMMs of one shape: `falchion_gemm`.
pub struct Gemm {
    pub(crate) name: CString,
    pub(crate) ptx: CString,
    gemm: falchion_core::Gemm,
    asked: Asked,
}

impl core::fmt::Debug for Gemm {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Gemm").field("name", &self.name).finish_non_exhaustive()
    }
}

pub(crate) fn failed(error: &EngineError) -> Failure {
    let status = match error {
        EngineError::Call { .. } => INVALID,
        EngineError::Trap { .. } => FAULT,
        _ => DRIVER,
    };
    Failure(status, error.to_string())
}

/// The number of a card that is counted from 1.
pub(crate) fn card_of(card: u32) -> Option<usize> {
    card.checked_sub(1).map(|ordinal| ordinal as usize)
}

/// The numbers from which kernels are chosen for a card; without one, those of an H200.
pub(crate) fn machine_of(card: Option<usize>) -> Result<Machine, Failure> {
    let Some(ordinal) = card else { return Ok(Machine::h200()) };
    let context = Context::primary(ordinal).map_err(|error| failed(&error))?;
    context.machine().map_err(|error| failed(&error))
}

/// The number of a device.
pub(crate) fn ordinal_of(device: c_int) -> Result<usize, Failure> {
    usize::try_from(device).or_else(|_| invalid(format!("device is {device}, 0 or more was needed")))
}

impl Gemm {
    /// A kernel that is chosen, or with a budget measured.
    ///
    /// # Safety
    /// The strings are null or end in a zero.
    pub(crate) unsafe fn new(description: &Description, budget: Option<u32>) -> Result<Self, Failure> {
        // SAFETY: the caller guarantees it.
        let (asked, spec) = unsafe { description.asked() }?;
        let request = &asked.request;
        let gemm = match (budget, card_of(description.card)) {
            (None, None) => falchion_core::Gemm::new(request, spec, &machine_of(None)?),
            (None, Some(card)) => {
                // What was measured on this card comes first.
                let recorded = match spec {
                    None => falchion_core::Gemm::recorded(request, card)?,
                    Some(_) => None,
                };
                match recorded {
                    Some(recorded) => Ok(recorded),
                    None => falchion_core::Gemm::new(request, spec, &machine_of(Some(card))?),
                }
            }
            (Some(_), None) => return invalid("card is 0, 1 or more was needed to tune on".to_owned()),
            (Some(_), Some(_)) if spec.is_some() => {
                return invalid("spec is given, NULL was needed to tune".to_owned());
            }
            (Some(budget), Some(card)) => falchion_core::Gemm::tuned(request, card, budget),
        }?;
        let ordered = gemm.slots().iter().find(|slot| matches!(slot.kind, Kind::Scratch(_)));
        if let Some(Slot { name, .. }) = ordered {
            return invalid(format!(
                "epilogue: `{name}` is memory for sums in a fixed order, which this interface does not pass: use reduce_sum"
            ));
        }
        let own = ["alpha", "beta", "c"];
        let types = request.types;
        let products = request.call.products;
        let later = match products {
            GroupedProblem::One | GroupedProblem::Batched { .. } => None,
            _ => Some("groups"),
        };
        let later = later
            .or(gemm.slots().iter().any(|slot| !own.contains(&slot.name)).then_some("inputs"))
            .or(types.has_weights().then_some("group_scales"))
            .or(types.is_scaled().then_some("scale_a and scale_b"))
            .or(types.has_sparse().then_some("metadata"));
        if let Some(field) = later.filter(|_| asked.args_size == 0) {
            let needed = size_of::<Arguments>();
            return invalid(format!(
                "args_size is 0, sizeof(falchion_gemm_args), {needed}, was needed, which covers {field}"
            ));
        }
        Ok(Self { name: text(&gemm.name()), ptx: text(gemm.program().text()), gemm, asked })
    }

    /// The call for the memory at these addresses.
    ///
    /// # Safety
    /// As many inputs as are counted can be read, and their names end in a zero.
    unsafe fn call(&self, arguments: &Arguments) -> Result<Call<Epilogue>, Failure> {
        let Arguments { a, b, c, d, alpha, beta, .. } = *arguments;
        let address = |pointer: *const c_void| pointer.expose_provenance() as u64;
        let at = |matrix: MatrixRef, pointer| MatrixRef { address: address(pointer), ..matrix };
        let call = self.asked.request.call;
        let c = at(self.asked.c, c);
        let epilogue = match self.asked.request.fusion {
            None => Epilogue::Linear(LinearArguments { alpha, beta, c: (beta != 0.0).then_some(c) }),
            Some(_) => {
                // SAFETY: the caller guarantees it.
                let inputs = unsafe { self.inputs(arguments, c) }?;
                let count = call.products.count();
                Epilogue::Fused(self.gemm.slots().clone(), inputs, count)
            }
        };
        let table = address(arguments.groups);
        let products = match call.products {
            GroupedProblem::GroupedContiguous { count, .. } => {
                GroupedProblem::GroupedContiguous { count, offsets: table }
            }
            GroupedProblem::GroupedMasked { count, room, .. } => {
                GroupedProblem::GroupedMasked { count, rows: table, room }
            }
            GroupedProblem::KGrouped { count, .. } => GroupedProblem::KGrouped { count, offsets: table },
            GroupedProblem::PointerArray { count, .. } => {
                GroupedProblem::PointerArray { count, records: table }
            }
            other => other,
        };
        let workspace = Some(Buffer::new(address(arguments.workspace), arguments.workspace_bytes));
        let call = Call {
            a: at(call.a, a),
            b: at(call.b, b),
            d: at(call.d, d.cast_const()),
            products,
            scales: call
                .scales
                .map(|of| BlockScales { a: at(of.a, arguments.scale_a), b: at(of.b, arguments.scale_b) }),
            group_scales: call.group_scales.map(|of| GroupScales {
                scales: at(of.scales, arguments.group_scales),
                zeros: at(of.zeros, arguments.group_zeros),
            }),
            metadata: call.metadata.map(|of| at(of, arguments.metadata)),
            workspace,
            ..call
        };
        Ok(call.with(epilogue))
    }

    /// The inputs of the slots.
    ///
    /// # Safety
    /// As [`call`](Self::call).
    unsafe fn inputs(&self, arguments: &Arguments, c: MatrixRef) -> Result<Vec<Option<Input>>, Failure> {
        let Arguments { inputs, input_count, alpha, beta, .. } = *arguments;
        if inputs.is_null() && input_count > 0 {
            return invalid(format!("inputs is NULL and input_count {input_count}, an array was needed"));
        }
        let given: &[NamedInput] = match input_count {
            0 => &[],
            // SAFETY: the caller guarantees that number of them.
            count => unsafe { core::slice::from_raw_parts(inputs, count) },
        };
        let slots = self.gemm.slots();
        let mut all = vec![None; slots.len()];
        let names = || {
            let names: Vec<&str> = slots.iter().map(|slot| slot.name).collect();
            if names.is_empty() { "none".to_owned() } else { names.join(", ") }
        };
        for input in given {
            // SAFETY: the caller guarantees that the name ends in a zero.
            let name = unsafe { words(input.name, "name") }?.unwrap_or("NULL");
            let Some(i) = slots.iter().position(|slot| slot.name == name) else {
                return invalid(format!(
                    "input `{name}` is no argument of the epilogue: they are {}",
                    names()
                ));
            };
            if matches!(name, "alpha" | "beta" | "c") {
                return invalid(format!("input `{name}`: it is a field of falchion_gemm_args"));
            }
            all[i] = Some(of_slot(slots[i], input)?);
        }
        for (slot, input) in slots.iter().zip(&mut all) {
            match slot.name {
                "alpha" => *input = Some(Input::Scalar(alpha)),
                "beta" => *input = Some(Input::Scalar(beta)),
                "c" if beta != 0.0 => *input = Some(Input::matrix(c.address, c.ld)),
                "c" => {}
                name if input.is_none() => {
                    return invalid(format!("input `{name}` is not given: the epilogue's are {}", names()));
                }
                _ => {}
            }
        }
        let factor = |name: &str, value: f32| {
            let unused = value != 0.0 && !(name == "alpha" && value == 1.0);
            if unused && !slots.iter().any(|slot| slot.name == name) {
                return invalid(format!("{name} is {value}, and the epilogue does not use it: leave it out"));
            }
            Ok(())
        };
        factor("alpha", alpha)?;
        factor("beta", beta)?;
        Ok(all)
    }

    /// The caller's arguments.
    ///
    /// # Safety
    /// They have as many bytes as the description said.
    unsafe fn arguments(&self, arguments: *const Arguments) -> Result<Arguments, Failure> {
        let size = if self.asked.args_size == 0 { FIRST } else { self.asked.args_size };
        // SAFETY: the caller guarantees it.
        unsafe { sized(arguments, size, (FIRST, "falchion_gemm_args")) }
    }

    pub(crate) fn load(&self, device: c_int) -> Result<(), Failure> {
        self.gemm.load(ordinal_of(device)?).map_err(|error| failed(&error))
    }

    pub(crate) fn microseconds(&self) -> f64 {
        self.gemm.microseconds()
    }

    fn card(&self) -> Result<usize, Failure> {
        let missing =
            || Failure(INVALID, "the kernel is not loaded: call falchion_gemm_load first".to_owned());
        self.gemm.card().ok_or_else(missing)
    }

    pub(crate) fn workspace(&self) -> Result<u64, Failure> {
        self.card()?;
        let linear = Epilogue::Linear(LinearArguments::default());
        Ok(self.gemm.workspace(&self.asked.request.call.with(linear)).unwrap_or(0))
    }

    /// # Safety
    /// As `falchion_gemm_launch`.
    pub(crate) unsafe fn launch(
        &self,
        stream: *mut c_void,
        arguments: *const Arguments,
    ) -> Result<(), Failure> {
        let card = self.card()?;
        // SAFETY: the caller guarantees all of it.
        unsafe {
            let call = self.call(&self.arguments(arguments)?)?;
            self.gemm.launch(card, stream, &call).map_err(|error| failed(&error))
        }
    }

    /// # Safety
    /// As `falchion_gemm_emulate`.
    pub(crate) unsafe fn emulate(&self, arguments: *const Arguments) -> Result<(), Failure> {
        // SAFETY: the caller guarantees all of it.
        unsafe {
            let call = self.call(&self.arguments(arguments)?)?;
            self.gemm.emulate(&call, Run::default()).map_err(|error| failed(&error))?;
        }
        Ok(())
    }
}

/// The argument of a slot.
fn of_slot(Slot { name, kind }: Slot, input: &NamedInput) -> Result<Input, Failure> {
    let NamedInput { ld, stride, value, mask, .. } = *input;
    let address = input.address.expose_provenance() as u64;
    let memory = matches!(kind, Kind::Memory { .. } | Kind::Scratch(_));
    if memory == (address == 0) {
        let needed = if memory { "an address" } else { "value, and no address," };
        return invalid(format!("input `{name}` has address {address:#x}, {needed} was needed"));
    }
    Ok(match kind {
        Kind::Scalar => Input::Scalar(value),
        Kind::Mask => Input::Dropout(DropoutArgument { probability: value, seed: mask[0], offset: mask[1] }),
        Kind::Scratch(bytes) => Input::Scratch(Scratch { address, bytes }),
        Kind::Memory { format, extents: [rows, columns], matrix, each, .. } => {
            let ld = if ld == 0 { columns.into() } else { ld };
            let packed = u64::from(rows) * ld * u64::from(format.bytes());
            match (each, matrix) {
                (true, _) => Input::Each { address, ld, stride: if stride == 0 { packed } else { stride } },
                (false, true) => Input::matrix(address, ld),
                (false, false) => Input::Address(address),
            }
        }
    })
}
