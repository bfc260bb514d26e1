//! The laws of the algebra as checks. Needs the cargo feature `proptest`.
//!
//! A law is a function of the arguments of an operation. It computes the operation, reads the result as text, and compares
//! it, coordinate by coordinate, with what the operation's equation says in plain integer arithmetic. No operation of the
//! algebra takes part in that: [`Oracle`] parses `shape:stride` and adds up digits times strides.
//!
//! [`check`] runs a law on many cases, shrinks a case that breaks it, and panics with the layouts and the path of a picture
//! of them. In a `proptest!` block, `?` does, since [`Broken`] converts into its error.
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

/// What a law found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The equation holds.
    Held,
    /// The operation has no result, so there is nothing to hold.
    NoResult,
}

/// An equation that does not hold.
#[derive(Clone, Debug)]
pub struct Broken {
    message: String,
    layouts: Vec<Layout>,
}

impl Broken {
    /// The equation of a law of your own that does not hold: in words, and the layouts that it is about.
    pub fn new(message: impl Into<String>, layouts: impl Into<Vec<Layout>>) -> Self {
        Self { message: message.into(), layouts: layouts.into() }
    }

    /// The layouts that the equation is about.
    pub fn layouts(&self) -> &[Layout] {
        &self.layouts
    }

    /// Draws the layouts that can be drawn as SVG files beside the build's other temporary files; returns their paths.
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

/// Whether the law holds for these layouts, and the sentence to say if it does not.
fn ensure(holds: bool, layouts: &[&Layout], sentence: impl FnOnce() -> String) -> Result<(), Broken> {
    if holds {
        return Ok(());
    }
    Err(Broken { message: sentence(), layouts: layouts.iter().map(|&layout| *layout).collect() })
}

/// Whether two tables or texts are equal.
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

/// Checks a law on random cases until it has held for `cases` of them. At least `accepted` per cent of all cases must have a
/// result.
///
/// Cases are drawn from the number in `PROPTEST_RNG_SEED`, or else from a new one each time. A case that breaks the law is
/// kept in a file `*.proptest-regressions` beside the caller's source, and tried first from then on.
///
/// ```
/// use cute_rs::laws::{check, composition};
/// use cute_rs::strategies::composable_pairs;
///
/// check(100, 100, composable_pairs(), |(a, b)| composition(&a, &b));
/// ```
///
/// # Panics
/// For a case that breaks the law, shrunk, with the layouts and the paths of their pictures; and where too few cases have a
/// result.
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
