//! One small program for each form of an instruction, on every engine, compared bit by bit.
//!
//! A [`Form`] is a row of a table ([`forms`]): how to emit the program, cases with their inputs, and what an independent
//! reckoning expects where there is one. Each case is a CTA with inputs and outputs of its own, so that a form is one
//! launch. The emulator always runs (with [`emulator::Numerics::Exact`]); its outputs are compared with what is
//! expected, and the outputs of a GPU, or of a recorded run of one, with the emulator's.
//!
//! # Adding a family
//! Write a module with a `pub(super) fn forms() -> Vec<Form>` and name it in [`forms`].
//!
//! ```
//! use falchion::verify::instructions::forms;
//!
//! let all = forms();
//! let form = all.iter().find(|form| form.name.starts_with("redux.sync")).expect("there is one");
//! let prepared = form.prepare(7)?;
//! // Without a GPU's outputs, the emulator is held against the reckoning alone.
//! assert!(prepared.judge(None)?.passed());
//! # Ok::<(), falchion::verify::instructions::FormError>(())
//! ```

mod copies;
mod im2col;
mod lanes;
mod memory;
mod record;
mod wgmma;

use core::fmt;

use emulator::Numerics;
use kernel::{Emulator, Engine, EngineError, Program};
use ptx::abi::{Argument, Grid};
use ptx::{Builder, Entry, Function, Special, Target, Value, VerifyError};
use serde::Serialize;

use super::fnv;

pub use record::{Record, RecordError};

/// Emits a program: gets the addresses of its case's inputs and outputs in global memory, both multiples of 256.
pub type Emit = Box<dyn for<'f> Fn(&'f Builder, Value<'f, u64>, Value<'f, u64>) + Send + Sync>;

/// The cases of a form, the same for the same seed.
pub type Cases = Box<dyn Fn(u64) -> Vec<Case> + Send + Sync>;

/// Tensor maps from the addresses of the inputs and outputs.
pub type Maps = Box<dyn Fn(u64, u64) -> Vec<Argument> + Send + Sync>;

/// One form of an instruction.
pub struct Form {
    /// PTX's name with its types: what forms are summed up by.
    pub family: String,
    /// PTX's name with the modifiers, then what else tells it from its siblings; no other form has the same.
    pub name: String,
    /// Threads of a CTA.
    pub threads: u32,
    /// Bytes of shared memory.
    pub shared_bytes: u32,
    /// CTAs of a cluster along x: each case has a whole cluster, whose CTAs are given the same addresses.
    pub cluster: u32,
    /// The program.
    pub emit: Emit,
    /// Bytes that each case's program reads at its inputs' address.
    pub input_bytes: usize,
    /// Bytes that each case's program writes at its outputs' address; all of them.
    pub output_bytes: usize,
    /// Bytes of one element of the output: the unit in which mismatches are counted.
    pub element_bytes: usize,
    /// The tensor maps that the program declares, behind which come no other parameters; `None` for none.
    pub maps: Option<Maps>,
    /// The cases; one alone where there are maps.
    pub cases: Cases,
}

/// Inputs of one run of a form.
pub struct Case {
    /// What is special about it.
    pub name: &'static str,
    /// As many bytes as the form says.
    pub input: Vec<u8>,
    /// What the output has to be; `None` where only engines are compared.
    pub expected: Option<Vec<u8>>,
    /// Which elements the ISA or the model defines: the others are not compared. `None` for all.
    pub defined: Option<Vec<bool>>,
    /// Tells of an element of the output what went into it.
    pub explain: Box<dyn Fn(usize) -> String + Send + Sync>,
}

impl fmt::Debug for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Form").field("name", &self.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Every form there is.
pub fn forms() -> Vec<Form> {
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
        /// Which field.
        field: &'static str,
        /// Its value.
        seen: usize,
        /// What it had to be.
        needed: usize,
    },
}

/// What outputs are compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reference {
    /// The emulator's outputs with what the case expects.
    Expected,
    /// A GPU's outputs with the emulator's.
    Emulator,
}

/// An element that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The reference it differs from.
    pub reference: Reference,
    /// The case's name.
    pub case: &'static str,
    /// The element's number in the output.
    pub element: usize,
    /// Its bits in hexadecimal.
    pub seen: String,
    /// The reference's bits.
    pub wanted: String,
    /// What went into it.
    pub inputs: String,
}

/// The outcome of a form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// The form's family.
    pub family: String,
    /// The form's name.
    pub form: String,
    /// Cases run.
    pub cases: usize,
    /// Elements compared with each reference.
    pub elements: usize,
    /// Elements of the emulator that differ from what is expected.
    pub emulator_mismatches: usize,
    /// Elements of the GPU that differ from the emulator; `None` without a GPU.
    pub gpu_mismatches: Option<usize>,
    /// FNV-1a of the GPU's outputs, else of the emulator's, with zeros where the outcome is left open.
    pub digest: String,
    /// The first differences of each case and reference.
    pub differences: Vec<Difference>,
}

impl Verdict {
    /// Whether nothing differs.
    pub fn passed(&self) -> bool {
        self.emulator_mismatches == 0 && self.gpu_mismatches.unwrap_or(0) == 0
    }
}

/// A form with its program and its cases, ready to run.
#[derive(Debug)]
pub struct Prepared<'a> {
    form: &'a Form,
    program: Program,
    cases: Vec<Case>,
}

/// Inputs and outputs of a case begin at multiples of this.
const ALIGNMENT: usize = 256;

impl Form {
    /// Builds the program and the cases.
    ///
    /// # Errors
    /// [`FormError::Program`], or [`FormError::Form`] where a case's sizes are not the form's.
    pub fn prepare(&self, seed: u64) -> Result<Prepared<'_>, FormError> {
        let [input, output] = self.pitches();
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
            let offset = |pitch: usize| case.mul_wide(u32::try_from(pitch).unwrap_or(0));
            (self.emit)(f, inputs + offset(input), outputs + offset(output));
        });
        let cases = (self.cases)(seed);
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
        Ok(Prepared { form: self, program: Program::new(function)?, cases })
    }

    /// Bytes from one case's inputs to the next one's, and the same of the outputs.
    fn pitches(&self) -> [usize; 2] {
        [self.input_bytes, self.output_bytes].map(|bytes| bytes.next_multiple_of(ALIGNMENT).max(ALIGNMENT))
    }
}

impl Prepared<'_> {
    /// The form.
    pub fn form(&self) -> &Form {
        self.form
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The outputs of all cases in a row, as an engine computes them.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn run(&self, engine: &mut dyn Engine) -> Result<Vec<u8>, FormError> {
        let [input, output] = self.form.pitches();
        let mut bytes = vec![0; input * self.cases.len()];
        for (place, case) in bytes.chunks_exact_mut(input).zip(&self.cases) {
            place[..case.input.len()].copy_from_slice(&case.input);
        }
        let inputs = engine.upload(&bytes)?;
        // Poisoned, so that what the program leaves out shows.
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

    /// Outputs with zeros where the outcome is left open.
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

    /// Runs the cases in the emulator and compares: with what is expected, and `gpu`'s outputs with the emulator's.
    ///
    /// # Errors
    /// Those of the emulator, and outputs of another size.
    pub fn judge(&self, gpu: Option<&[u8]>) -> Result<Verdict, FormError> {
        let emulated = self.run(&mut Emulator::new().with_numerics(Numerics::Exact))?;
        let (size, element) = (self.form.output_bytes, self.form.element_bytes);
        let mut verdict = Verdict {
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

/// Little-endian bytes as one number.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().rev().fold("0x".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

/// Random numbers of a form: the same for the same seed and name.
fn random(seed: u64, name: &str) -> fastrand::Rng {
    fastrand::Rng::with_seed(seed ^ fnv(name.as_bytes()))
}
