//! Checks each form of an instruction with a small program, bit by bit, on every engine.
//!
//! An [`InstructionForm`] is a row of a table ([`forms`]). It has a function that emits the program, cases with their
//! inputs, and for some cases expected outputs from an independent calculation. Each case is a CTA (or a
//! cluster) with its own inputs and outputs, so a form is one launch. The emulator always runs, with
//! [`emulator::Numerics::Exact`]. Its outputs are compared with the expected outputs. The outputs of a GPU,
//! or of a recorded GPU run, are compared with the emulator's.
//!
//! # Adding a family
//! Write a module with a `pub(super) fn forms() -> Vec<InstructionForm>` and name it in [`forms`].
//!
//! ```
//! use falchion::verify::instructions::forms;
//!
//! let all = forms();
//! let form = all.iter().find(|form| form.name.starts_with("redux.sync")).expect("there is one");
//! let prepared = form.prepare(7)?;
//! // Without a GPU's outputs, the emulator is compared with the expected outputs only.
//! assert!(prepared.judge(None)?.passed());
//! # Ok::<(), falchion::verify::instructions::FormError>(())
//! ```

mod copies;
mod im2col;
mod lanes;
mod memory;
mod record;
mod tensors;
mod wgmma;

use core::fmt;

use emulator::Numerics;
use kernel::{Emulator, Engine, EngineError, Program};
use ptx::abi::{Argument, Grid};
use ptx::{Builder, Entry, Function, Special, Target, Value, VerifyError};
use serde::Serialize;

use super::fnv;

pub use record::{Record, RecordError};

/// Emits a program. Gets the global-memory addresses of its case's inputs and outputs, both multiples of 256.
pub type Emit = Box<dyn for<'f> Fn(&'f Builder, Value<'f, u64>, Value<'f, u64>) + Send + Sync>;

/// Makes the cases of a form from random numbers.
pub type Cases = Box<dyn Fn(&mut fastrand::Rng) -> Vec<InstructionCase> + Send + Sync>;

/// Makes tensor maps from the addresses of the inputs and outputs.
pub type Maps = Box<dyn Fn(u64, u64) -> Vec<Argument> + Send + Sync>;

/// One form of an instruction.
pub struct InstructionForm {
    /// The PTX name with its types. Reports group forms by family.
    pub family: String,
    /// The PTX name with the modifiers, and whatever else distinguishes the form. Unique.
    pub name: String,
    /// Number of threads per CTA.
    pub threads: u32,
    /// Bytes of shared memory per CTA.
    pub shared_bytes: u32,
    /// Number of CTAs per cluster, along x. Each case is one cluster; its CTAs get the same addresses.
    pub cluster: u32,
    /// The program.
    pub emit: Emit,
    /// Number of input bytes per case.
    pub input_bytes: usize,
    /// Number of output bytes per case. The program writes all of them.
    pub output_bytes: usize,
    /// Bytes per output element. Mismatches are counted in elements.
    pub element_bytes: usize,
    /// The tensor maps that the program declares as its last parameters; `None` for none.
    pub maps: Option<Maps>,
    /// The cases. A form with tensor maps has exactly one.
    pub cases: Cases,
}

/// Inputs of one run of a form.
pub struct InstructionCase {
    /// Name, which says what is special about the case.
    pub name: &'static str,
    /// The input, of the form's number of bytes.
    pub input: Vec<u8>,
    /// The expected output; `None` if only engines are compared.
    pub expected: Option<Vec<u8>>,
    /// Per element, whether the ISA or the calculation defines it; other elements are not compared. `None` if
    /// all are defined.
    pub defined: Option<Vec<bool>>,
    /// Describes the inputs of an output element.
    pub explain: Box<dyn Fn(usize) -> String + Send + Sync>,
}

impl fmt::Debug for InstructionForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InstructionForm").field("name", &self.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for InstructionCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InstructionCase").field("name", &self.name).finish_non_exhaustive()
    }
}

/// All forms.
pub fn forms() -> Vec<InstructionForm> {
    [wgmma::forms(), lanes::forms(), memory::forms(), copies::forms(), im2col::forms()]
        .into_iter()
        .flatten()
        .collect()
}

/// Why a form could not be run.
#[derive(Debug, thiserror::Error)]
pub enum FormError {
    /// The program is not legal.
    #[error(transparent)]
    Program(#[from] VerifyError),
    /// An engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A record of a GPU's outputs does not have the form.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The form contradicts itself.
    #[error("form `{form}`: {field} is {seen}, {needed} was needed")]
    Form {
        /// The form's name.
        form: String,
        /// The field's name.
        field: &'static str,
        /// Its value.
        seen: usize,
        /// What was needed.
        needed: usize,
    },
}

/// The reference that outputs are compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reference {
    /// The case's expected outputs, for the emulator's.
    Expected,
    /// The emulator's outputs, for a GPU's.
    Emulator,
}

/// An element that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The reference from which it differs.
    pub reference: Reference,
    /// The case's name.
    pub case: &'static str,
    /// The element's number in the output.
    pub element: usize,
    /// Its bits in hexadecimal.
    pub seen: String,
    /// The reference's bits.
    pub wanted: String,
    /// Its inputs.
    pub inputs: String,
}

/// The outcome of a form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FormVerdict {
    /// The form's family.
    pub family: String,
    /// The form's name.
    pub form: String,
    /// Number of cases run.
    pub cases: usize,
    /// Number of elements compared with each reference.
    pub elements: usize,
    /// Number of the emulator's elements that differ from the expected outputs.
    pub emulator_mismatches: usize,
    /// Number of the GPU's elements that differ from the emulator's; `None` without a GPU.
    pub gpu_mismatches: Option<usize>,
    /// FNV-1a hash of the GPU's outputs, or else of the emulator's, with zeros for undefined elements.
    pub digest: String,
    /// The first differences of each case and reference.
    pub differences: Vec<Difference>,
}

impl FormVerdict {
    /// Whether nothing differs.
    pub fn passed(&self) -> bool {
        self.emulator_mismatches == 0 && self.gpu_mismatches.unwrap_or(0) == 0
    }
}

/// A form with its program and its cases, ready to run.
#[derive(Debug)]
pub struct PreparedForm<'a> {
    form: &'a InstructionForm,
    program: Program,
    cases: Vec<InstructionCase>,
}

/// Alignment of a case's inputs and outputs in bytes.
const ALIGNMENT: usize = 256;

impl InstructionForm {
    /// A form of one CTA without shared memory and tensor maps. The sizes are bytes of input, of output and of an element.
    fn new(
        (family, name): (&str, String),
        threads: u32,
        [input, output, element]: [u32; 3],
        emit: impl for<'f> Fn(&'f Builder, Value<'f, u64>, Value<'f, u64>) + Send + Sync + 'static,
        cases: impl Fn(&mut fastrand::Rng) -> Vec<InstructionCase> + Send + Sync + 'static,
    ) -> Self {
        Self {
            family: family.to_owned(),
            name,
            threads,
            shared_bytes: 0,
            cluster: 1,
            emit: Box::new(emit),
            input_bytes: input as usize,
            output_bytes: output as usize,
            element_bytes: element as usize,
            maps: None,
            cases: Box::new(cases),
        }
    }

    /// Builds the program and the cases.
    ///
    /// # Errors
    /// [`FormError::Program`], or [`FormError::Form`] if a case's sizes are not the form's.
    pub fn prepare(&self, seed: u64) -> Result<PreparedForm<'_>, FormError> {
        let [input, output] = self.lds();
        let entry = Entry {
            name: "form".to_owned(),
            target: Target::Sm90a,
            threads: self.threads,
            shared_bytes: self.shared_bytes,
            cluster: [self.cluster, 1, 1],
        };
        let function = Function::build(entry, |f| {
            let (inputs, outputs) = (f.param::<u64>("inputs"), f.param::<u64>("outputs"));
            let case = f.special(Special::CtaX) / self.cluster.max(1);
            let offset = |ld: usize| case.mul_wide(u32::try_from(ld).unwrap_or(0));
            (self.emit)(f, inputs + offset(input), outputs + offset(output));
        });
        // A form's numbers depend on the seed and on its name alone.
        let cases = (self.cases)(&mut fastrand::Rng::with_seed(seed ^ fnv(self.name.as_bytes())));
        let sizes = cases.iter().flat_map(|case| {
            let expected =
                case.expected.as_ref().map(|bytes| ("expected bytes", bytes.len(), self.output_bytes));
            let input = ("input bytes", case.input.len(), self.input_bytes);
            let elements = self.output_bytes / self.element_bytes.max(1);
            let defined = case.defined.as_ref().map(|flags| ("defined flags", flags.len(), elements));
            [Some(input), expected, defined].into_iter().flatten()
        });
        for (field, seen, needed) in sizes {
            if seen != needed {
                return Err(FormError::Form { form: self.name.clone(), field, seen, needed });
            }
        }
        Ok(PreparedForm { form: self, program: Program::new(function)?, cases })
    }

    /// Strides in bytes between the inputs of consecutive cases, and between their outputs.
    fn lds(&self) -> [usize; 2] {
        [self.input_bytes, self.output_bytes].map(|bytes| bytes.next_multiple_of(ALIGNMENT).max(ALIGNMENT))
    }
}

impl PreparedForm<'_> {
    /// The form.
    pub fn form(&self) -> &InstructionForm {
        self.form
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Runs all cases on an engine, and returns their outputs, one after the other.
    ///
    /// # Errors
    /// The engine fails.
    pub fn run(&self, engine: &mut dyn Engine) -> Result<Vec<u8>, FormError> {
        let [input, output] = self.form.lds();
        let mut bytes = vec![0; input * self.cases.len()];
        for (place, case) in bytes.chunks_exact_mut(input).zip(&self.cases) {
            place[..case.input.len()].copy_from_slice(&case.input);
        }
        let inputs = engine.upload(&bytes)?;
        // Poison the outputs, so that a missing write shows.
        let outputs = engine.upload(&vec![0xA5; output * self.cases.len()])?;
        let ctas = u32::try_from(self.cases.len()).unwrap_or(0) * self.form.cluster;
        let grid = Grid { ctas: [ctas, 1, 1] };
        let mut arguments: Vec<Argument> = vec![inputs.address.into(), outputs.address.into()];
        let maps =
            self.form.maps.as_ref().map_or_else(Vec::new, |maps| maps(inputs.address, outputs.address));
        arguments.extend(maps);
        let launched = engine.launch(&self.program, grid, &arguments);
        let read = launched.and_then(|_| engine.read(outputs));
        engine.free(inputs)?;
        engine.free(outputs)?;
        let all = read?;
        let own = all.chunks_exact(output).flat_map(|case| &case[..self.form.output_bytes]);
        Ok(own.copied().collect())
    }

    /// The outputs, with zeros for undefined elements.
    fn defined(&self, outputs: &[u8]) -> Vec<u8> {
        let mut outputs = outputs.to_vec();
        for (case, outputs) in self.cases.iter().zip(outputs.chunks_mut(self.form.output_bytes.max(1))) {
            for (at, element) in outputs.chunks_mut(self.form.element_bytes).enumerate() {
                if case.defined.as_ref().is_some_and(|flags| !flags[at]) {
                    element.fill(0);
                }
            }
        }
        outputs
    }

    /// Runs the cases in the emulator. Compares its outputs with the expected ones, and `gpu`'s outputs with
    /// the emulator's.
    ///
    /// # Errors
    /// The emulator fails, or `gpu` has another size.
    pub fn judge(&self, gpu: Option<&[u8]>) -> Result<FormVerdict, FormError> {
        let emulated = self.run(&mut Emulator::new().with_numerics(Numerics::Exact))?;
        let (size, element) = (self.form.output_bytes, self.form.element_bytes);
        let mut verdict = FormVerdict {
            family: self.form.family.clone(),
            form: self.form.name.clone(),
            cases: self.cases.len(),
            elements: emulated.len() / element,
            emulator_mismatches: 0,
            gpu_mismatches: gpu.map(|_| 0),
            digest: format!("{:016x}", fnv(&self.defined(gpu.unwrap_or(&emulated)))),
            differences: Vec::new(),
        };
        if let Some(gpu) = gpu
            && gpu.len() != emulated.len()
        {
            let (seen, needed) = (gpu.len(), emulated.len());
            let (form, field) = (self.form.name.clone(), "bytes of GPU outputs");
            return Err(FormError::Form { form, field, seen, needed });
        }
        for (i, case) in self.cases.iter().enumerate() {
            let emulated = &emulated[i * size..(i + 1) * size];
            let mut compare = |reference, seen: &[u8], wanted: &[u8]| {
                let pairs = seen.chunks_exact(element).zip(wanted.chunks_exact(element)).enumerate();
                let mut count = 0;
                for (at, (seen, wanted)) in pairs {
                    let defined = case.defined.as_ref().is_none_or(|flags| flags[at]);
                    if seen != wanted && defined {
                        count += 1;
                        if count <= 3 {
                            verdict.differences.push(Difference {
                                reference,
                                case: case.name,
                                element: at,
                                seen: hex(seen),
                                wanted: hex(wanted),
                                inputs: (case.explain)(at),
                            });
                        }
                    }
                }
                count
            };
            if let Some(expected) = &case.expected {
                verdict.emulator_mismatches += compare(Reference::Expected, emulated, expected);
            }
            if let Some(gpu) = gpu {
                let count = compare(Reference::Emulator, &gpu[i * size..(i + 1) * size], emulated);
                verdict.gpu_mismatches = verdict.gpu_mismatches.map(|mismatches| mismatches + count);
            }
        }
        Ok(verdict)
    }
}

/// Little-endian bytes as one hexadecimal number.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().rev().fold("0x".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}
