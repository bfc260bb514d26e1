//! The kernel object of the C interface: chosen, loaded, launched, emulated.

use core::ffi::{c_char, c_void};
use std::ffi::CString;

use falchion::collective::tree::{DropoutArgument, Scratch};
use falchion::collective::{BlockScales, GroupScales, Input, LinearArguments, MatrixRef};
use falchion::kernel::{AnyGemm, Call, GroupedProblem};
use falchion_core::{Epilogue, Kind, Part, Picked, Slot, refuse_unused};

use crate::description::{Asked, Description, sized, words};
use crate::object::{Choice, Object, failed, refuse_numbers, refuse_pointers, workspace};
use crate::{Failure, invalid, text};

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
    /// Size of one of them, or 0: that of [`NamedInput`] today, or of its first version if the arguments are of a version without this field.
    pub input_size: usize,
    /// Alpha in `f64`; 0 if it is `alpha`.
    pub alpha_f64: f64,
    /// Beta in `f64`; 0 if it is `beta`.
    pub beta_f64: f64,
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
    /// The end of the structure's first version. A number in `f64`; 0 if it is `value`.
    pub value_f64: f64,
}

/// Size of the structure's first version.
const FIRST_INPUT: usize = core::mem::offset_of!(NamedInput, value_f64);

/// A number that is given in `f32`, and perhaps in `f64` too.
fn number(name: &str, single: f32, double: f64) -> Result<f64, Failure> {
    match double {
        0.0 => Ok(single.into()),
        _ if single == 0.0 || single == double as f32 => Ok(double),
        _ => invalid(format!(
            "{name} is {single} and {name}_f64 {double}: the same number, or 0 for one of them, was needed"
        )),
    }
}

/// A kernel for GEMMs of one shape: `falchion_gemm`.
pub struct Gemm {
    pub(crate) name: CString,
    pub(crate) ptx: CString,
    gemm: Picked<AnyGemm>,
    asked: Asked,
}

impl core::fmt::Debug for Gemm {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Gemm").field("name", &self.name).finish_non_exhaustive()
    }
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
        let gemm = Choice { budget, card: description.card, spec }.kernel::<AnyGemm>(request)?;
        let ordered = gemm.kernel().slots().iter().find(|slot| matches!(slot.kind, Kind::Scratch(_)));
        if let Some(Slot { name, .. }) = ordered {
            return invalid(format!(
                "epilogue: `{name}` is memory for sums in a fixed order, which this interface does not pass: use reduce_sum"
            ));
        }
        let why = Part::C.unused(request, gemm.kernel().slots());
        let shared = request.fusion.is_some()
            && !gemm.kernel().slots().iter().any(|slot| slot.name == "c" && is_each(*slot));
        let of_stride =
            shared.then_some("the epilogue's c is one matrix for all GEMMs; c[l,m,n] is one for each");
        refuse_numbers([("ldc", description.lds[2])], why)?;
        refuse_numbers([("stride_c", description.strides[2])], why.or(of_stride))?;
        let own = ["alpha", "beta", "c"];
        let types = request.types;
        let products = request.call.products;
        let later = match products {
            GroupedProblem::One | GroupedProblem::Batched { .. } => None,
            _ => Some("groups"),
        };
        let later = later
            .or(gemm.kernel().slots().iter().any(|slot| !own.contains(&slot.name)).then_some("inputs"))
            .or(types.has_weights().then_some("group_scales"))
            .or(types.is_scaled().then_some("scale_a and scale_b"))
            .or(types.has_sparse().then_some("metadata"));
        if let Some(field) = later.filter(|_| asked.args_size == 0) {
            let needed = size_of::<Arguments>();
            return invalid(format!(
                "args_size is 0, sizeof(falchion_gemm_args), {needed}, was needed, which covers {field}"
            ));
        }
        let program = gemm.program().map_err(|error| failed(&error))?;
        Ok(Self { name: text(gemm.name()), ptx: text(program.text()), gemm, asked })
    }

    /// The inputs of the slots.
    ///
    /// # Safety
    /// As [`call`](Self::call).
    unsafe fn inputs(
        &self,
        arguments: &Arguments,
        [alpha, beta]: [f64; 2],
        c: MatrixRef,
    ) -> Result<Vec<Option<Input>>, Failure> {
        let Arguments { inputs, input_count, input_size, .. } = *arguments;
        if inputs.is_null() && input_count > 0 {
            return invalid(format!("inputs is NULL and input_count {input_count}, an array was needed"));
        }
        // Who knows the field has the structure of today, who does not has that of the first version.
        let known = self.asked.args_size > core::mem::offset_of!(Arguments, input_size);
        let size = match input_size {
            0 if known => size_of::<NamedInput>(),
            0 => FIRST_INPUT,
            size => size,
        };
        let given = (0..input_count).map(|i| {
            // SAFETY: the caller guarantees that number of them, of that size.
            unsafe { sized(inputs.byte_add(i * size), size, (FIRST_INPUT, "falchion_input")) }
        });
        let slots = self.gemm.kernel().slots();
        let mut all = vec![None; slots.len()];
        let names = || {
            let names: Vec<&str> = slots.iter().map(|slot| slot.name).collect();
            if names.is_empty() { "none".to_owned() } else { names.join(", ") }
        };
        for input in given {
            let input = &input?;
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
            if all[i].replace(of_slot(slots[i], input)?).is_some() {
                return invalid(format!("input `{name}` is given twice, once was needed"));
            }
        }
        let factor = slots.iter().any(|slot| slot.name == "beta");
        for (slot, input) in slots.iter().zip(&mut all) {
            match slot.name {
                "alpha" => *input = Some(Input::Scalar(alpha)),
                "beta" => *input = Some(Input::Scalar(beta)),
                "c" if factor && beta == 0.0 => {}
                "c" if c.address == 0 => {
                    return invalid("c is NULL, an address was needed: the epilogue adds it".to_owned());
                }
                "c" => *input = Some(of_c(*slot, c)),
                name if input.is_none() => {
                    return invalid(format!("input `{name}` is not given: the epilogue's are {}", names()));
                }
                _ => {}
            }
        }
        let factor = |name: &str, value: f64| {
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

    /// Refuses what is given and not used.
    fn refuse(&self, of: &Arguments) -> Result<(), Failure> {
        let why = |part: Part| part.unused(&self.asked.request, self.gemm.kernel().slots());
        refuse_pointers([("a", of.a), ("b", of.b), ("d", of.d.cast_const())], why(Part::Matrices))?;
        for (field, pointer, part) in [
            ("c", of.c, Part::C),
            ("scale_a", of.scale_a, Part::Scales(0)),
            ("scale_b", of.scale_b, Part::Scales(1)),
            ("group_scales", of.group_scales, Part::GroupScales),
            ("group_zeros", of.group_zeros, Part::GroupZeros),
            ("metadata", of.metadata, Part::Metadata),
            ("groups", of.groups, Part::Groups),
        ] {
            refuse_pointers([(field, pointer)], why(part))?;
        }
        refuse_numbers([("input_count", of.input_count as u64)], why(Part::Inputs))
    }

    pub(crate) fn microseconds(&self) -> f64 {
        self.gemm.microseconds()
    }

    pub(crate) fn workspace(&self) -> Result<u64, Failure> {
        self.card()?;
        let linear = Epilogue::Linear(LinearArguments::default());
        Ok(self.gemm.workspace(&self.asked.request.call.with(linear)).unwrap_or(0))
    }
}

impl Object for Gemm {
    const NAME: &'static str = "gemm";
    const NOT_LOADED: &'static str = "the kernel is not loaded: call falchion_gemm_load first";
    type Family = AnyGemm;
    type Arguments = Arguments;

    fn picked(&self) -> &Picked<AnyGemm> {
        &self.gemm
    }

    unsafe fn call(&self, arguments: *const Arguments) -> Result<Call<Epilogue>, Failure> {
        let size = if self.asked.args_size == 0 { FIRST } else { self.asked.args_size };
        // SAFETY: the caller guarantees it.
        let arguments = unsafe { sized(arguments, size, (FIRST, "falchion_gemm_args")) }?;
        let Arguments { a, b, c, d, .. } = arguments;
        let alpha = number("alpha", arguments.alpha, arguments.alpha_f64)?;
        let beta = number("beta", arguments.beta, arguments.beta_f64)?;
        self.refuse(&arguments)?;
        let address = |pointer: *const c_void| pointer.expose_provenance() as u64;
        let at = |matrix: MatrixRef, pointer| MatrixRef { address: address(pointer), ..matrix };
        let call = self.asked.request.call;
        let c = at(self.asked.c, c);
        let epilogue = match self.asked.request.fusion {
            None => Epilogue::Linear(LinearArguments { alpha, beta, c: (beta != 0.0).then_some(c) }),
            Some(_) => {
                // SAFETY: the caller guarantees it.
                let inputs = unsafe { self.inputs(&arguments, [alpha, beta], c) }?;
                let count = call.products.count();
                Epilogue::Fused(self.gemm.kernel().slots().clone(), inputs, count)
            }
        };
        let workspace = workspace(arguments.workspace, arguments.workspace_bytes)?;
        let call = Call {
            a: at(call.a, a),
            b: at(call.b, b),
            d: at(call.d, d.cast_const()),
            products: call.products.at(address(arguments.groups)),
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
}

/// Whether each GEMM has its own.
fn is_each(slot: Slot) -> bool {
    matches!(slot.kind, Kind::Memory { each: true, .. })
}

/// C as an argument of the epilogue's text.
fn of_c(slot: Slot, MatrixRef { address, ld, stride }: MatrixRef) -> Input {
    match slot.kind {
        Kind::Memory { each: true, format, .. } => {
            Input::Each { address, ld, stride: stride.saturating_mul(format.bytes().into()) }
        }
        _ => Input::matrix(address, ld),
    }
}

/// The argument of a slot.
fn of_slot(Slot { name, kind }: Slot, input: &NamedInput) -> Result<Input, Failure> {
    let NamedInput { ld, stride, mask: [seed, offset], reserved, .. } = *input;
    let value = number(&format!("input `{name}`: value"), input.value, input.value_f64)?;
    let address = input.address.expose_provenance() as u64;
    let memory = matches!(kind, Kind::Memory { .. } | Kind::Scratch(_));
    if memory == (address == 0) {
        let needed = if memory { "an address" } else { "value, and no address," };
        return invalid(format!("input `{name}` has address {address:#x}, {needed} was needed"));
    }
    let (rows, each) = match kind {
        Kind::Memory { matrix, each, .. } => (matrix, each),
        Kind::Scalar | Kind::Mask | Kind::Scratch(_) => (false, false),
    };
    let mask = kind == Kind::Mask;
    let numeric = kind == Kind::Scalar || mask;
    for (field, given, used, why) in [
        ("ld", ld != 0, rows, "the epilogue has no matrix of this name"),
        ("stride", stride != 0, each, "its index has no l"),
        ("value", value != 0.0, numeric, "it is memory"),
        ("seed", seed != 0, mask, "it is no mask"),
        ("offset", offset != 0, mask, "it is no mask"),
        ("reserved", reserved != 0, false, "no version has a meaning for it"),
    ] {
        let why = (!used).then_some(why);
        refuse_unused(&format!("{field} of input `{name}`"), "given", given, why, "0")?;
    }
    Ok(match kind {
        Kind::Scalar => Input::Scalar(value),
        Kind::Mask => Input::Dropout(DropoutArgument { probability: value as f32, seed, offset }),
        Kind::Scratch(bytes) => Input::Scratch(Scratch { address, bytes }),
        Kind::Memory { format, extents: [rows, columns], matrix, each, .. } => {
            let ld = if ld == 0 { columns.into() } else { ld };
            let packed = u64::from(rows).saturating_mul(ld).saturating_mul(format.bytes().into());
            match (each, matrix) {
                (true, _) => Input::Each { address, ld, stride: if stride == 0 { packed } else { stride } },
                (false, true) => Input::matrix(address, ld),
                (false, false) => Input::Address(address),
            }
        }
    })
}
