//! Tuning records: which kernels were measured for which problem on one card, and how long they took.
//!
//! Plain data. This module does not measure: module `driver::tune` and `falchion tune` do. Every [`Family`] of kernels has
//! records of its own: [`RecordsOf`]. Those of GEMM are [`Records`].
//!
//! ```
//! use collective::Form;
//! use cute_rs::atom::Major;
//! use kernel::KernelSpec;
//! use kernel::disk::records::{Measurement, Problem, Records};
//! use kernel::disk::{Cache, Key};
//!
//! # let folder = std::env::temp_dir().join(format!("falchion-records-{}", std::process::id()));
//! let (cache, key) = (Cache::at(&folder), Key::new("NVIDIA H200", "580.159.04, CUDA 13.0", Records::digest())?);
//! let problem = Problem::single("bf16", [Major::K; 2], [4096, 4096, 4096]);
//!
//! let (mut records, warnings) = Records::load(&cache, &key);
//! assert!(records.lookup(&problem).is_empty() && warnings.is_empty());
//! records.insert(problem.clone(), Measurement::now(KernelSpec::DEFAULT, 172.4))?;
//! records.save(&cache, &key)?; // what others have saved meanwhile stays
//!
//! let (records, _) = Records::load(&cache, &key);
//! let fastest = records.lookup(&problem).first().expect("it was saved");
//! assert_eq!((fastest.spec, fastest.microseconds), (KernelSpec::DEFAULT, 172.4));
//! # std::fs::remove_dir_all(folder).expect("it is there");
//! # Ok::<(), kernel::disk::CacheError>(())
//! ```
//!
//! # The text
//!
//! The payload of the entry is one line of JSON per problem. Problems and specs are their texts. `us` is in microseconds, `at` in
//! seconds since 1970. Measurements of families from outside this library have also the digest of what was measured, as
//! `program`:
//!
//! ```text
//! {"problem":"single 4096x4096x4096 bf16 kk epilogue=linear","measured":[{"spec":"tile=128x256x64","us":172.4,"at":1764000000,"version":"0.1.0"}]}
//! ```

mod text;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::{Cache, CacheError, Digest, Key, Kind};
pub use crate::family::Problem;
use crate::family::{Family, Predicted};
use crate::gemm::AnyGemm;
use crate::select::Machine;
use crate::spec::KernelSpec;

/// The measured time of a kernel.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Measurement<S = KernelSpec> {
    /// The kernel.
    pub spec: S,
    /// Time per launch in microseconds; finite and greater than 0.
    #[serde(rename = "us")]
    pub microseconds: f64,
    /// When it was measured, in seconds since 1970.
    pub at: u64,
    /// The version of this library that measured it.
    pub version: String,
    /// The digest of the kernel's programs, where the library's version does not say them
    /// ([`Family::VERSIONED`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<Digest>,
}

impl<S> Measurement<S> {
    /// A measurement made now by this version of the library.
    pub fn now(spec: S, microseconds: f64) -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let at = since.map_or(0, |since| since.as_secs());
        Self { spec, microseconds, at, version: env!("CARGO_PKG_VERSION").to_owned(), program: None }
    }

    /// The measurement, of a kernel that is written in another way.
    fn with<T>(&self, spec: T) -> Measurement<T> {
        let Self { microseconds, at, ref version, program, .. } = *self;
        Measurement { spec, microseconds, at, version: version.clone(), program }
    }

    fn check(&self) -> Result<(), CacheError> {
        if self.microseconds.is_finite() && self.microseconds > 0.0 {
            return Ok(());
        }
        Err(CacheError::Record {
            field: "microseconds",
            value: self.microseconds.to_string(),
            needed: "a finite number above 0".to_owned(),
        })
    }

    /// Whether it replaces another measurement of the same kernel. The later one wins, in whatever order they
    /// are compared.
    fn replaces(&self, other: &Self) -> bool {
        let rank = |of: &Self| (of.at, core::cmp::Reverse(of.microseconds.to_bits()));
        (rank(self), &self.version) > (rank(other), &other.version)
    }
}

/// All measurements of GEMMs on one card.
pub type Records = RecordsOf<AnyGemm>;

/// All measurements of a family's kernels on one card.
#[derive(Clone, Debug)]
pub struct RecordsOf<K: Family> {
    /// The measurements of each problem, the fastest first, one per kernel.
    problems: BTreeMap<K::Problem, Vec<Measurement<K::Spec>>>,
}

impl<K: Family> Default for RecordsOf<K> {
    fn default() -> Self {
        Self { problems: BTreeMap::new() }
    }
}

impl<K: Family> PartialEq for RecordsOf<K> {
    fn eq(&self, other: &Self) -> bool {
        self.problems == other.problems
    }
}

impl<K: Family> RecordsOf<K> {
    /// The digest in the key of tuning records.
    pub fn digest() -> Digest {
        Digest::of(format!("tuning records of {}", K::NAME))
    }

    /// Reads what is saved in a folder under a key. Also returns what could not be used. If nothing is saved,
    /// there are no records.
    pub fn load(cache: &Cache, key: &Key) -> (Self, Vec<CacheError>) {
        let path = cache.path(Kind::Records, key);
        match cache.get(Kind::Records, key) {
            Ok(None) => (Self::default(), Vec::new()),
            Ok(Some(payload)) => match String::from_utf8(payload) {
                Ok(text) => Self::of_lines(&text, &path),
                Err(error) => (Self::default(), vec![CacheError::damaged(&path, error)]),
            },
            Err(error) => (Self::default(), vec![error]),
        }
    }

    /// Merges what is saved already into these records, and saves the result. Returns what of the saved
    /// records could not be used.
    ///
    /// Only one process at a time reads, merges and writes, so nothing that another process saves is lost.
    ///
    /// # Errors
    /// The file cannot be written, or another process holds the folder's lock too long.
    pub fn save(&mut self, cache: &Cache, key: &Key) -> Result<Vec<CacheError>, CacheError> {
        let _lock = cache.lock()?;
        let (saved, warnings) = Self::load(cache, key);
        self.merge(saved);
        cache.put(Kind::Records, key, self.to_lines().as_bytes())?;
        Ok(warnings)
    }

    /// Adds the time of a kernel that was measured now. Nothing is added of a kernel without a spec.
    ///
    /// # Errors
    /// As [`insert`](Self::insert); or the kernel has no program.
    pub fn keep(&mut self, problem: K::Problem, kernel: &K, microseconds: f64) -> Result<(), CacheError> {
        let Some(spec) = kernel.spec() else { return Ok(()) };
        let program = programs(kernel)?;
        self.insert(problem, Measurement { program, ..Measurement::now(spec, microseconds) })
    }

    /// The fastest kernel that was measured for a request and can compute it. What was measured of other programs does not
    /// count.
    pub fn best(&self, request: &K::Request<'_>, machine: &Machine) -> Option<Predicted<K>> {
        let mut measured = self.lookup(&K::problem(request)).to_vec();
        // Programs cost milliseconds: only those of kernels that would be chosen are made.
        loop {
            let times: Vec<_> = measured.iter().map(|of| (of.spec.clone(), of.microseconds)).collect();
            let best = K::measured(request, machine, &times)?;
            let (spec, program, count) = (best.kernel.spec(), programs(&best.kernel).ok()?, measured.len());
            measured.retain(|of| spec.as_ref() != Some(&of.spec) || of.program == program);
            if measured.len() == count {
                return Some(best);
            }
        }
    }

    /// Adds a measurement. Of two measurements of one kernel for one problem, the later one is kept; and what was measured
    /// of other programs at an earlier time is dropped.
    ///
    /// # Errors
    /// [`CacheError::Record`] if the time is not finite or not above 0.
    pub fn insert(
        &mut self,
        problem: K::Problem,
        measurement: Measurement<K::Spec>,
    ) -> Result<(), CacheError> {
        measurement.check()?;
        let measured = self.problems.entry(problem).or_default();
        let of_spec = |known: &Measurement<K::Spec>| known.spec == measurement.spec;
        if measured.iter().any(|known| of_spec(known) && known.at > measurement.at) {
            return Ok(());
        }
        measured.retain(|known| !of_spec(known) || known.at == measurement.at);
        match measured.iter_mut().find(|known| of_spec(known) && known.program == measurement.program) {
            Some(known) if measurement.replaces(known) => *known = measurement,
            Some(_) => return Ok(()),
            None => measured.push(measurement),
        }
        // The order must not depend on the order of insertion.
        measured.sort_by(|a, b| {
            let text = |of: &Measurement<K::Spec>| (of.spec.to_string(), of.program);
            a.microseconds.total_cmp(&b.microseconds).then_with(|| text(a).cmp(&text(b)))
        });
        Ok(())
    }

    /// Adds all measurements of other records. The order in which records are merged makes no difference.
    pub fn merge(&mut self, others: Self) {
        for (problem, measured) in others.problems {
            for measurement in measured {
                // Measurements were checked when they were added to the other records.
                let _ = self.insert(problem.clone(), measurement);
            }
        }
    }

    /// The measurements of a problem, the fastest first; empty if it was not measured.
    pub fn lookup(&self, problem: &K::Problem) -> &[Measurement<K::Spec>] {
        self.problems.get(problem).map_or(&[], Vec::as_slice)
    }

    /// The records of one problem alone.
    #[cfg(feature = "tune")]
    pub(crate) fn of_problem(&self, problem: &K::Problem) -> Self {
        let own = self.problems.get_key_value(problem).map(|(key, all)| (key.clone(), all.clone()));
        Self { problems: own.into_iter().collect() }
    }

    /// All problems with their measurements, in a fixed order.
    pub fn iter(&self) -> impl Iterator<Item = (&K::Problem, &[Measurement<K::Spec>])> {
        self.problems.iter().map(|(problem, measured)| (problem, measured.as_slice()))
    }

    /// Number of problems.
    pub fn len(&self) -> usize {
        self.problems.len()
    }

    /// Whether there are no problems.
    pub fn is_empty(&self) -> bool {
        self.problems.is_empty()
    }

    /// The records as lines of JSON: one per problem, in a fixed order.
    pub fn to_lines(&self) -> String {
        self.iter().map(|(problem, measured)| text::line(problem, measured)).collect()
    }

    /// Reads records from such lines. Also returns what could not be used: lines that are not records, and
    /// measurements whose spec cannot be parsed or is illegal in this version. `path` is the file's name in
    /// these warnings.
    pub fn of_lines(lines: &str, path: &Path) -> (Self, Vec<CacheError>) {
        let (mut records, mut warnings) = (Self::default(), Vec::new());
        for (index, line) in lines.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let mut warn =
                |why: String| warnings.push(CacheError::Line { path: path.to_owned(), line: index + 1, why });
            match text::read::<K::Problem, K::Spec>(line) {
                Err(why) => warn(why),
                Ok((problem, measured)) => {
                    for measurement in measured {
                        let added = measurement.and_then(|measurement| {
                            records.insert(problem.clone(), measurement).map_err(|error| error.to_string())
                        });
                        added.unwrap_or_else(&mut warn);
                    }
                }
            }
        }
        (records, warnings)
    }
}

/// The digest of a kernel's programs; `None` where the version of the library says them.
fn programs<K: Family>(kernel: &K) -> Result<Option<Digest>, CacheError> {
    if K::VERSIONED {
        return Ok(None);
    }
    let all = kernel.programs().map_err(|error| CacheError::Record {
        field: "program",
        value: error.to_string(),
        needed: "one that the verifier accepts".to_owned(),
    })?;
    let texts: Vec<_> = all.iter().map(|program| program.text().as_bytes()).collect();
    Ok(Some(Digest::of_parts(&texts)))
}

#[cfg(test)]
mod tests;
