//! The laws of the algebra as checks. Needs the cargo feature `proptest`.
//!
//! Use them to test your own layouts, or to state a law of your own. A law is a function of the arguments of
//! an operation. It runs the operation and reads the result as text. Then it compares the result, coordinate
//! by coordinate, with the operation's equation in plain integer arithmetic. The expected value needs no
//! operation of the algebra: [`Oracle`] parses `shape:stride` and adds up digits times strides.
//!
//! [`check`] runs a law on many cases. If a case breaks the law, `check` shrinks the case and panics with its
//! layouts and the paths of their pictures. In a `proptest!` block, apply `?` to a law instead: [`Broken`]
//! converts into the error of the block.
//!
//! ```
//! use cute_rs::Layout;
//! use cute_rs::laws::{Broken, Oracle, Verdict, check};
//! use cute_rs::strategies::composable_pairs;
//!
//! // A law of one's own: a composition maps 0 where the outer layout maps what the inner one maps 0 to.
//! check(100, 50, composable_pairs(), |(a, b): (Layout, Layout)| {
//!     let Ok(both) = a.composition(&b) else { return Ok(Verdict::NoResult) };
//!     let (found, wanted) = (Oracle::of(&both).at(0), Oracle::of(&a).at(Oracle::of(&b).at(0)));
//!     if found == wanted { Ok(Verdict::Held) } else { Err(Broken::new("not at 0", [a, b])) }
//! });
//! ```

mod algebra;
mod boxes;
mod coordinates;
mod edits;
mod oracle;
mod owners;
mod partitions;
mod swizzles;
mod tiling;
mod tuples;

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cell::Cell;
use core::fmt;
use core::panic::Location;
use std::path::PathBuf;

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, FileFailurePersistence, TestCaseError, TestError, TestRunner};

use crate::draw::Picture;
use crate::layout::Layout;

pub use algebra::*;
pub use boxes::*;
pub use coordinates::*;
pub use edits::*;
pub use oracle::Oracle;
pub use owners::*;
pub use partitions::*;
pub use swizzles::*;
pub use tiling::*;
pub use tuples::*;

/// The result of a law that is not broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The equation holds.
    Held,
    /// The operation has no result, so there is nothing to check.
    NoResult,
}

/// The error of a law: an equation that does not hold.
#[derive(Clone, Debug)]
pub struct Broken {
    message: String,
    layouts: Vec<Layout>,
}

impl Broken {
    /// Creates the error of your own law. `message` describes the equation that does not hold; `layouts` are
    /// the layouts that it is about.
    pub fn new(message: impl Into<String>, layouts: impl Into<Vec<Layout>>) -> Self {
        Self { message: message.into(), layouts: layouts.into() }
    }

    /// The layouts that the equation is about.
    pub fn layouts(&self) -> &[Layout] {
        &self.layouts
    }

    /// Draws the layouts as SVG files in `cute-rs-laws` under the system's temporary folder, and returns the
    /// paths. Layouts that cannot be drawn are left out.
    fn draw(&self) -> Vec<PathBuf> {
        let folder = std::env::temp_dir().join("cute-rs-laws");
        let drawn = |(i, layout): (usize, &Layout)| {
            let picture = Picture::of_layout(layout).ok()?.titled(&layout.to_string());
            let path = folder.join(format!("{}-{i}.svg", std::process::id()));
            std::fs::create_dir_all(&folder).ok()?;
            std::fs::write(&path, picture.svg()).ok()?;
            Some(path)
        };
        self.layouts.iter().enumerate().filter_map(drawn).collect()
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl core::error::Error for Broken {}

/// Returns an error with this sentence and these layouts unless `holds` is true.
fn ensure(holds: bool, layouts: &[&Layout], sentence: impl FnOnce() -> String) -> Result<(), Broken> {
    if holds {
        return Ok(());
    }
    Err(Broken { message: sentence(), layouts: layouts.iter().map(|&layout| *layout).collect() })
}

/// Returns an error unless the value `got` is equal to `want`.
fn equal<T: PartialEq + fmt::Debug>(
    got: &T,
    want: &T,
    layouts: &[&Layout],
    what: impl fmt::Display,
) -> Result<(), Broken> {
    ensure(got == want, layouts, || {
        let layouts: Vec<_> = layouts.iter().map(ToString::to_string).collect();
        format!("{what} of {}: got {got:?}, want {want:?}", layouts.join(" and "))
    })
}

/// Checks a law on random cases until it has held for `cases` of them. At least `accepted` per cent of all
/// cases must have a result.
///
/// The environment variable `PROPTEST_RNG_SEED` sets the seed of the random cases; without it, each run has a
/// new seed. A case that breaks the law is kept in a file `*.proptest-regressions` next to the caller's
/// source. Later runs try it first.
///
/// ```
/// use cute_rs::laws::{check, composition};
/// use cute_rs::strategies::composable_pairs;
///
/// check(100, 100, composable_pairs(), |(a, b)| composition(&a, &b));
/// ```
///
/// # Panics
/// If a case breaks the law: the message has the shrunk case and the paths of the pictures of its layouts.
/// Also if too few cases have a result.
#[track_caller]
pub fn check<S: Strategy>(
    cases: u32,
    accepted: u32,
    strategy: S,
    law: impl Fn(S::Value) -> Result<Verdict, Broken>,
) {
    let last = Cell::new(None);
    let refusals =
        u64::from(cases) * u64::from(100_u32.saturating_sub(accepted)) / u64::from(accepted.max(1));
    let config = Config {
        cases,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("proptest-regressions"))),
        source_file: Some(Location::caller().file()),
        max_shrink_iters: 10_000,
        max_global_rejects: u32::try_from(refusals).unwrap_or(u32::MAX),
        ..Config::default()
    };
    let result = TestRunner::new(config).run(&strategy, |case| match law(case) {
        Ok(Verdict::Held) => Ok(()),
        Ok(Verdict::NoResult) => Err(TestCaseError::reject("no result")),
        Err(broken) => {
            let failure = TestCaseError::fail(broken.message.clone());
            last.set(Some(broken));
            Err(failure)
        }
    });
    match result {
        Ok(()) => {}
        Err(TestError::Fail(reason, case)) => {
            let pictures = last.take().map(|broken| broken.draw()).unwrap_or_default();
            panic!("{reason}\n  the case: {case:?}\n  pictures: {pictures:?}")
        }
        Err(TestError::Abort(_)) => panic!("more than {refusals} cases had no result before {cases} held"),
    }
}
