//! The error of a program's `main`.

use core::error::Error;
use core::fmt;

/// Any error or text, as `main` returns it: the error's sentence, and those of its causes.
///
/// Rust prints the error of `main` in its `Debug` form. For most errors these are the names and the fields of
/// a type; for this one it is the sentence.
///
/// ```
/// use falchion::Report;
/// use falchion::prelude::*;
///
/// fn launch() -> Result<(), Report> {
///     let mut engine = Emulator::new();
///     falchion::kernel::Engine::allocate(&mut engine, 64)?;
///     Err(falchion::kernel::LaunchError::MissingC { beta: 0.5 })?
/// }
/// let report = launch().expect_err("there is no C");
/// assert_eq!(format!("{report:?}"), "beta is 0.5 but there is no C: pass C, or beta = 0");
/// ```
pub struct Report(Box<dyn Error>);

impl<E: Into<Box<dyn Error>>> From<E> for Report {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.0.to_string();
        f.write_str(&text)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            let next = error.to_string();
            // Many sentences contain that of their cause.
            if !text.contains(&next) {
                write!(f, ": {next}")?;
            }
            (text, cause) = (next, error.source());
        }
        Ok(())
    }
}

impl fmt::Debug for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::Report;
    use crate::kernel::{EngineError, LaunchError};
    use crate::prelude::*;

    type Mine = Composed<
        TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U128, U64, U64>, Cooperative<U2>>,
        LinearCombination<bf16, TmaStore>,
        Persistent<AlongM>,
    >;

    /// What a program returns from `main` when something is wrong with its call or its machine.
    #[test]
    fn main_prints_sentences() {
        let call = |m| -> Result<(), Report> {
            Gemm::<Mine>::launch(
                &Call::of(GemmProblem { m, n: 8, k: 8 }).a(256, 8).b(256, 8).d(256, 8),
                132,
            )?;
            Ok(())
        };
        let launch = LaunchError::MissingC { beta: 0.5 };
        let driver = EngineError::NoDriver { library: "libcuda.so.1" };
        for (why, report, sentence) in [
            ("an extent that no kernel takes", call(u32::MAX), "M is 4294967295"),
            ("a call", Err(launch.into()), "beta is 0.5 but there is no C: pass C, or beta = 0"),
            ("no GPU", Err(driver.into()), "no CUDA driver: libcuda.so.1 could not be loaded"),
            ("a library", Err(EngineError::EmptyGraph.into()), "a graph of no launches cannot be captured"),
        ] {
            let report = report.expect_err(why);
            let text = format!("{report:?}");
            assert!(text.contains(sentence), "{why}: {text}");
            assert!(!text.contains('{') && !text.contains("\\n"), "{why}: {text}");
        }
    }
}
