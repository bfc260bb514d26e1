//! Tuning records: which kernels were measured for which problem on one card, and how long they took.
//!
//! Plain data. This module does not measure: module `driver::tune` and `falchion tune` do.
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
//! The payload of the entry is one line of JSON per problem. `us` is in microseconds, `at` in seconds since
//! 1970:
//!
//! ```text
//! {"form":"single","element":"bf16","layout":"kk","m":4096,"n":4096,"k":4096,"groups":1,"epilogue":"linear","measured":[{"spec":"dtype=bf16 layout=kk tile=128x256x64","us":172.4,"at":1764000000,"version":"0.1.0"}]}
//! ```

mod text;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::SystemTime;

use collective::{Form, MatrixRef};
use cute_rs::atom::Major;

use super::{Cache, CacheError, Digest, Key, Kind};
use crate::problem::GemmProblem;
use crate::select::Request;
use crate::spec::{KernelSpec, form_name, layout_name};
use crate::types::Types;

/// A problem: everything that decides which kernel is fastest.
///
/// [`of`](Self::of) makes one from a [`Request`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Problem {
    /// One GEMM per launch, or several.
    pub form: Form,
    /// The [`Types`], as text: `bf16`, for example, `e4m3-1x128-128x128` or `bf16-sparse-a`. D's format is that which the epilogue stores.
    pub element: String,
    /// Contiguous directions of A and B.
    pub majors: [Major; 2],
    /// Rows of A and D; for groups of rows, the sum over all groups.
    pub m: u32,
    /// Columns of B and D; for GEMMs described by records, the largest.
    pub n: u32,
    /// Columns of A, rows of B; for groups along K, of all groups; for GEMMs described by records, the largest.
    pub k: u32,
    /// Number of GEMMs of the launch; 1 for [`Form::Single`].
    pub groups: u32,
    /// Name of the epilogue: `linear`, `linear+c` if C is read, or the name of a fusion.
    pub epilogue: String,
    /// Whether all rows of A, of B and of D begin at multiples of 16 bytes, so that tensor copies can access
    /// them.
    pub aligned: [bool; 3],
}

impl Problem {
    /// One GEMM `[m, n, k]` of packed matrices with the epilogue `linear`.
    pub fn single(element: impl Into<String>, majors: [Major; 2], [m, n, k]: [u32; 3]) -> Self {
        let (element, epilogue) = (element.into(), "linear".to_owned());
        let aligned = packed(&element, majors, [m, n, k]);
        Self { form: Form::Single, element, majors, m, n, k, groups: 1, epilogue, aligned }
    }

    /// The problem of a request.
    pub fn of(request: &Request<'_>) -> Self {
        let (call, types) = (&request.call, request.stored());
        let groups = request.groups().unwrap_or_else(|| vec![call.problem]);
        let most = |of: fn(&GemmProblem) -> u32| groups.iter().map(of).max().unwrap_or(0);
        let sum = |of: fn(&GemmProblem) -> u32| groups.iter().map(of).fold(0, u32::saturating_add);
        let along_k = call.products.form().divides_k();
        let epilogue = match request.fusion {
            Some(fusion) => fusion.name(),
            None if call.epilogue.beta != 0.0 => "linear+c",
            None => "linear",
        };
        let is_aligned = |matrix: MatrixRef, bytes: u32| {
            let bytes = u64::from(bytes);
            let all = matrix.address | matrix.ld.wrapping_mul(bytes) | matrix.stride.wrapping_mul(bytes);
            all.is_multiple_of(16)
        };
        let ([a, b, d], described) = (types.bytes(), call.products.form().described());
        Self {
            form: call.products.form(),
            element: types.to_string(),
            majors: request.majors,
            m: if along_k { call.problem.m } else { sum(|group| group.m) },
            n: most(|group| group.n),
            k: if along_k { call.problem.k } else { most(|group| group.k) },
            groups: call.products.count(),
            epilogue: epilogue.to_owned(),
            // The host does not know where described matrices are.
            aligned: [(call.a, a), (call.b, b), (call.d, d)]
                .map(|(matrix, bytes)| described || is_aligned(matrix, bytes)),
        }
    }

    /// Whether `aligned` is the same as for packed matrices.
    fn is_packed(&self) -> bool {
        self.aligned == packed(&self.element, self.majors, [self.m, self.n, self.k])
    }

    /// The order of problems.
    fn rank(&self) -> impl Ord {
        let Self { form, element, majors, m, n, k, groups, epilogue, aligned } = self;
        (form_name(*form), element, layout_name(*majors), epilogue, [*m, *n, *k, *groups], aligned)
    }
}

/// Whether rows of packed A, B and D of `[m, n, k]` begin at multiples of 16 bytes. For unknown types: yes.
fn packed(element: &str, majors: [Major; 2], [m, n, k]: [u32; 3]) -> [bool; 3] {
    let Some(types) = Types::named(element) else { return [true; 3] };
    let kept = types.kept(k);
    let contiguous = |i: usize, mn| if majors[i] == Major::K { kept[i] } else { mn };
    let rows = [contiguous(0, m), contiguous(1, n), n];
    let [a, b, d] = types.bytes();
    [0, 1, 2].map(|i| (u64::from(rows[i]) * u64::from([a, b, d][i])).is_multiple_of(16))
}

impl Ord for Problem {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.rank().cmp(&other.rank())
    }
}

impl PartialOrd for Problem {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// The measured time of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// The kernel.
    pub spec: KernelSpec,
    /// Time per launch in microseconds; finite and greater than 0.
    pub microseconds: f64,
    /// When it was measured, in seconds since 1970.
    pub at: u64,
    /// The version of this library that measured it.
    pub version: String,
}

impl Measurement {
    /// A measurement made now by this version of the library.
    pub fn now(spec: KernelSpec, microseconds: f64) -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let at = since.map_or(0, |since| since.as_secs());
        Self { spec, microseconds, at, version: env!("CARGO_PKG_VERSION").to_owned() }
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

/// All measurements on one card.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Records {
    /// The measurements of each problem, the fastest first, one per kernel.
    problems: BTreeMap<Problem, Vec<Measurement>>,
}

impl Records {
    /// The digest in the key of tuning records.
    pub fn digest() -> Digest {
        Digest::of("tuning records")
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

    /// Adds a measurement. Of two measurements of one kernel for one problem, the later one is kept.
    ///
    /// # Errors
    /// [`CacheError::Record`] if the time is not finite or not above 0.
    pub fn insert(&mut self, problem: Problem, measurement: Measurement) -> Result<(), CacheError> {
        measurement.check()?;
        let measured = self.problems.entry(problem).or_default();
        match measured.iter_mut().find(|known| known.spec == measurement.spec) {
            Some(known) if measurement.replaces(known) => *known = measurement,
            Some(_) => return Ok(()),
            None => measured.push(measurement),
        }
        // The order must not depend on the order of insertion.
        measured.sort_by(|a, b| {
            let text = |of: &Measurement| of.spec.to_string();
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
    pub fn lookup(&self, problem: &Problem) -> &[Measurement] {
        self.problems.get(problem).map_or(&[], Vec::as_slice)
    }

    /// All problems with their measurements, in a fixed order.
    pub fn iter(&self) -> impl Iterator<Item = (&Problem, &[Measurement])> {
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
            match text::read(line) {
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

#[cfg(test)]
mod tests;
