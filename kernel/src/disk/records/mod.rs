//! Tuning records: which kernels were measured for which problem on one card, and how long they took.
//!
//! Plain data. Who measures, and how, is no matter of this module.
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
//! The payload of the entry is a line of JSON per problem. `us` counts microseconds, `at` seconds since 1970:
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

/// What is computed: all that decides which kernel is fastest.
///
/// [`of`](Self::of) makes one of a [`Request`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Problem {
    /// Products of a launch.
    pub form: Form,
    /// The [`Types`], as text: `bf16`, for example, `e4m3-1x128-128x128` or `bf16-sparse-a`. D's format is that which the epilogue stores.
    pub element: String,
    /// Contiguous directions of A and B.
    pub majors: [Major; 2],
    /// Rows of A and D; with groups, those of all groups.
    pub m: u32,
    /// Columns of B and D; of described products, the most.
    pub n: u32,
    /// Columns of A, rows of B; of described products, the most.
    pub k: u32,
    /// Number of products of the launch; 1 for [`Form::Single`].
    pub groups: u32,
    /// Name of the epilogue: `linear`, `linear+c` where C is read, or that of a fusion.
    pub epilogue: String,
    /// Whether all rows of A, of B and of D begin at multiples of 16 bytes, so that tensor copies reach them.
    pub aligned: [bool; 3],
}

impl Problem {
    /// One product `[m, n, k]` of packed matrices with the epilogue `linear`.
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
        let epilogue = match request.fusion {
            Some(fusion) => fusion.name(),
            None if call.epilogue.beta != 0.0 => "linear+c",
            None => "linear",
        };
        let is_aligned = |matrix: MatrixRef, bytes: u32| {
            let bytes = u64::from(bytes);
            let all = matrix.address | matrix.pitch.wrapping_mul(bytes) | matrix.stride.wrapping_mul(bytes);
            all.is_multiple_of(16)
        };
        let ([a, b, d], described) = (types.bytes(), call.products.form().described());
        Self {
            form: call.products.form(),
            element: types.to_string(),
            majors: request.majors,
            m: groups.iter().fold(0, |sum, group| sum.saturating_add(group.m)),
            n: most(|group| group.n),
            k: most(|group| group.k),
            groups: call.products.count(),
            epilogue: epilogue.to_owned(),
            // Where described matrices lie, nobody knows.
            aligned: [(call.a, a), (call.b, b), (call.d, d)]
                .map(|(matrix, bytes)| described || is_aligned(matrix, bytes)),
        }
    }

    /// Whether rows begin where those of packed matrices do.
    fn is_packed(&self) -> bool {
        self.aligned == packed(&self.element, self.majors, [self.m, self.n, self.k])
    }

    /// What problems are ordered by.
    fn rank(&self) -> impl Ord {
        let Self { form, element, majors, m, n, k, groups, epilogue, aligned } = self;
        (form_name(*form), element, layout_name(*majors), epilogue, [*m, *n, *k, *groups], aligned)
    }
}

/// Whether rows of packed A, B and D of `[m, n, k]` begin at multiples of 16 bytes; of types that are unknown, that they do.
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

/// How long a kernel took.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// The kernel.
    pub spec: KernelSpec,
    /// Microseconds of a launch; finite, and more than 0.
    pub microseconds: f64,
    /// When it was measured, in seconds since 1970.
    pub at: u64,
    /// The version of this library that measured it.
    pub version: String,
}

impl Measurement {
    /// What this version of the library measured just now.
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

    /// Whether it stands in place of another of the same kernel: the later one does, whoever asks.
    fn replaces(&self, other: &Self) -> bool {
        let rank = |of: &Self| (of.at, core::cmp::Reverse(of.microseconds.to_bits()));
        (rank(self), &self.version) > (rank(other), &other.version)
    }
}

/// What was measured on one card.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Records {
    /// The measurements of a problem, the fastest first, one of each kernel.
    problems: BTreeMap<Problem, Vec<Measurement>>,
}

impl Records {
    /// The digest in the key of tuning records.
    pub fn digest() -> Digest {
        Digest::of("tuning records")
    }

    /// What is saved in a folder under a key, and what of it could not be used. Where nothing is saved there are no records.
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

    /// Saves the records together with what is saved already, which it takes over; returns what of that could not be used.
    ///
    /// One process at a time reads, merges and writes: nothing is lost that another one saves.
    ///
    /// # Errors
    /// The file cannot be written, or another process keeps the folder's lock.
    pub fn save(&mut self, cache: &Cache, key: &Key) -> Result<Vec<CacheError>, CacheError> {
        let _lock = cache.lock()?;
        let (saved, warnings) = Self::load(cache, key);
        self.merge(saved);
        cache.put(Kind::Records, key, self.to_lines().as_bytes())?;
        Ok(warnings)
    }

    /// Adds a measurement. Of two of one kernel for one problem the later one stays.
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
        // The order must not depend on that of the calls.
        measured.sort_by(|a, b| {
            let text = |of: &Measurement| of.spec.to_string();
            a.microseconds.total_cmp(&b.microseconds).then_with(|| text(a).cmp(&text(b)))
        });
        Ok(())
    }

    /// Adds all measurements of other records. In which order records are merged makes no difference.
    pub fn merge(&mut self, others: Self) {
        for (problem, measured) in others.problems {
            for measurement in measured {
                // What records hold was legal when it came in.
                let _ = self.insert(problem.clone(), measurement);
            }
        }
    }

    /// The measurements of a problem, the fastest first; none for one that was not measured.
    pub fn lookup(&self, problem: &Problem) -> &[Measurement] {
        self.problems.get(problem).map_or(&[], Vec::as_slice)
    }

    /// All problems with their measurements, in a fixed order.
    pub fn iter(&self) -> impl Iterator<Item = (&Problem, &[Measurement])> {
        self.problems.iter().map(|(problem, measured)| (problem, measured.as_slice()))
    }

    /// How many problems there are.
    pub fn len(&self) -> usize {
        self.problems.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.problems.is_empty()
    }

    /// The records as lines of JSON: one per problem, in a fixed order.
    pub fn to_lines(&self) -> String {
        self.iter().map(|(problem, measured)| text::line(problem, measured)).collect()
    }

    /// The records of such lines, and what of them could not be used: lines that are none, and measurements whose spec no
    /// longer parses or is no longer legal. `path` is the file's name in these warnings.
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
