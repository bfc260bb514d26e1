//! `falchion verify --suite instructions`: runs each form of an instruction, and compares the results bit by
//! bit.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::verify::instructions::{
    FormError, FormVerdict, InstructionForm, PreparedForm, Record, Reference, forms,
};
use kernel::{Emulator, Engine, Gpu};
use rayon::prelude::*;
use serde::Serialize;

use super::{Count, VerifyArgs};
use crate::cli::engine::{Engines, Progress};
use crate::cli::output::{out, shortened};
use crate::cli::{Failure, files};

/// Number of forms in memory at the same time.
const BATCH: usize = 64;
/// Largest number of failing forms that are printed one by one.
const TOLD: usize = 40;

/// The files of a run.
#[derive(Debug)]
pub(super) struct Files {
    /// The verdicts.
    pub(super) json: Option<PathBuf>,
    /// The GPU's outputs, to write.
    pub(super) record: Option<PathBuf>,
    /// The GPU's outputs, to read.
    pub(super) replay: Option<PathBuf>,
}

/// Where the outputs of a GPU come from.
enum Source {
    /// There is neither a GPU nor a record.
    None,
    Gpu(Box<Gpu>),
    Record(Record),
}

impl Source {
    fn outputs(&mut self, prepared: &PreparedForm<'_>) -> Result<Option<Vec<u8>>, FormError> {
        Ok(match self {
            Self::None => None,
            Self::Gpu(gpu) => Some(prepared.run(gpu.as_mut())?),
            Self::Record(record) => Some(record.get(&prepared.form().name)?.to_vec()),
        })
    }
}

/// All verdicts of a run.
#[derive(Serialize)]
struct Report {
    engine: String,
    seed: u64,
    seconds: f64,
    verdicts: Vec<FormVerdict>,
    /// Forms that could not be run: name and reason.
    errors: Vec<(String, String)>,
}

impl VerifyArgs {
    pub(super) fn instructions(&self, files: &Files) -> Result<(), Failure> {
        let forms: Vec<InstructionForm> =
            forms().into_iter().filter(|form| form.name.contains(&self.filter)).collect();
        if forms.is_empty() {
            refuse!("no form has `{}` in its name", shortened(&self.filter));
        }
        for path in [&files.json, &files.record].into_iter().flatten() {
            files::writable(path)?;
        }
        let (mut source, engine) = self.source(files.replay.as_deref(), &forms)?;
        if files.record.is_some() && matches!(source, Source::None) {
            refuse!("--record writes a GPU's outputs, and there is no GPU");
        }
        let start = Instant::now();
        let mut report =
            Report { engine, seed: self.seed, seconds: 0.0, verdicts: Vec::new(), errors: Vec::new() };
        let (mut record, progress) = (Record::default(), Progress::new("verifying"));
        for batch in forms.chunks(BATCH) {
            let prepared: Vec<_> = batch.par_iter().map(|form| form.prepare(self.seed)).collect();
            let outputs: Vec<_> = prepared
                .into_iter()
                .map(|prepared| {
                    let prepared = prepared?;
                    let outputs = source.outputs(&prepared)?;
                    Ok::<_, FormError>((prepared, outputs))
                })
                .collect();
            let judge = |ready: Result<(PreparedForm<'_>, Option<Vec<u8>>), FormError>| {
                let (prepared, outputs) = ready?;
                let verdict = prepared.judge(outputs.as_deref())?;
                Ok::<_, FormError>((verdict, outputs))
            };
            let verdicts: Vec<_> = outputs.into_par_iter().map(judge).collect();
            for (form, verdict) in batch.iter().zip(verdicts) {
                match verdict {
                    Ok((verdict, outputs)) => {
                        if let Some(outputs) = outputs {
                            record.insert(&form.name, outputs);
                        }
                        report.verdicts.push(verdict);
                    }
                    Err(error) => report.errors.push((form.name.clone(), error.to_string())),
                }
            }
            progress.show((report.verdicts.len() + report.errors.len()) as u64, forms.len() as u64);
        }
        report.seconds = start.elapsed().as_secs_f64();
        if let Some(path) = &files.record {
            files::write_text(path, &record.to_bytes())?;
        }
        let mut out = out();
        report.print(&mut out)?;
        if let Some(path) = &files.json {
            let text = serde_json::to_string_pretty(&report).map_err(Failure::environment)?;
            files::write_text(path, &(text + "\n"))?;
        }
        let passed = report.verdicts.iter().filter(|verdict| verdict.passed()).count();
        let failed = report.verdicts.len() - passed + report.errors.len();
        Count { passed, failed, skipped: 0 }.close(&mut out)
    }

    /// Chooses the source of the GPU's outputs. A file must have the outputs of every selected form.
    fn source(&self, replay: Option<&Path>, forms: &[InstructionForm]) -> Result<(Source, String), Failure> {
        if let Some(path) = replay {
            let (mut file, length) = files::open(path)?;
            let bytes = files::part(path, &mut file, 0, length)?;
            let record = Record::from_bytes(&bytes).map_err(|error| usage!("{}: {error}", path.display()))?;
            let missing: Vec<_> = forms.iter().filter_map(|form| record.get(&form.name).err()).collect();
            if let Some(first) = missing.first() {
                let (path, some, all) = (path.display(), missing.len(), forms.len());
                refuse!("{path}: {first}, nor of {} more of the {all} that --filter selects", some - 1);
            }
            return Ok((Source::Record(record), format!("a GPU's outputs in {}", path.display())));
        }
        let gpu = match self.engine {
            Engines::Emulator => return Ok((Source::None, Emulator::new().describe())),
            Engines::Gpu => Some(Gpu::new(0)?),
            Engines::Auto | Engines::All => Gpu::new(0).ok(),
        };
        Ok(match gpu {
            Some(gpu) => {
                let engine = gpu.describe();
                (Source::Gpu(Box::new(gpu)), engine)
            }
            None => (Source::None, Emulator::new().describe()),
        })
    }
}

/// The totals of a family of forms.
#[derive(Default)]
struct Sum {
    forms: usize,
    cases: usize,
    elements: usize,
    emulator: usize,
    gpu: Option<usize>,
}

impl Report {
    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "engine: {}", self.engine)?;
        let failed = self.verdicts.iter().filter(|verdict| !verdict.passed());
        for verdict in failed.clone().take(TOLD) {
            let gpu = verdict.gpu_mismatches.unwrap_or(0);
            let (form, expected) = (&verdict.form, verdict.emulator_mismatches);
            writeln!(out, "FAIL {form}: {gpu} elements off the emulator, {expected} off the definition")?;
            let mut seen: Vec<(Reference, &str)> = Vec::new();
            for difference in &verdict.differences {
                let key = (difference.reference, difference.case);
                if !seen.contains(&key) {
                    seen.push(key);
                    let (engine, other) = match difference.reference {
                        Reference::Expected => ("emulator", "definition"),
                        Reference::Emulator => ("gpu", "emulator"),
                    };
                    writeln!(
                        out,
                        "     {}, element {}: {engine} {}, {other} {}: {}",
                        difference.case,
                        difference.element,
                        difference.seen,
                        difference.wanted,
                        difference.inputs,
                    )?;
                }
            }
        }
        let more = failed.count().saturating_sub(TOLD);
        if more > 0 {
            writeln!(out, "     and {more} forms more")?;
        }
        for (form, error) in self.errors.iter().take(TOLD) {
            writeln!(out, "FAIL {form}: {error}")?;
        }
        let mut families: BTreeMap<&str, Sum> = BTreeMap::new();
        for verdict in &self.verdicts {
            let sum = families.entry(&verdict.family).or_default();
            sum.forms += 1;
            sum.cases += verdict.cases;
            sum.elements += verdict.elements;
            sum.emulator += verdict.emulator_mismatches;
            if let Some(gpu) = verdict.gpu_mismatches {
                *sum.gpu.get_or_insert(0) += gpu;
            }
        }
        writeln!(out, "{:44}  forms  cases   elements     gpu off   model off", "family")?;
        for (family, sum) in families {
            let gpu = sum.gpu.map_or("-".to_owned(), |gpu| gpu.to_string());
            let Sum { forms, cases, elements, emulator, .. } = sum;
            writeln!(out, "{family:44} {forms:6} {cases:6} {elements:10} {gpu:>11} {emulator:>11}")?;
        }
        writeln!(out, "{} forms in {:.1} s", self.verdicts.len() + self.errors.len(), self.seconds)
    }
}
