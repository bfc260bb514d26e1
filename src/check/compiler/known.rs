//! What earlier processes have found: the same compiler makes the same code.

use std::time::{Duration, Instant};

use kernel::Gpu;
use kernel::disk::{Cache, Kind};

use super::{CompilerReport, compiler, compiler_program};
use crate::check::CheckError;

/// First line of an entry.
const TITLE: &str = "self-test of the compiler";

/// What is known of a compiler.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownCompiler {
    /// The names of the micro-kernels with wrong bits.
    pub wrong: Vec<String>,
    /// The report, if this call has run the self-test.
    pub report: Option<CompilerReport>,
    /// The time of this call.
    pub time: Duration,
}

/// As [`compiler`], once per card, driver, assembler and version of this library: the result is kept in the folder of
/// [`kernel::disk`], and later processes read it there. If there is no folder, each call runs the self-test.
///
/// # Errors
/// As [`compiler`].
pub fn known_compiler(gpu: &mut Gpu) -> Result<KnownCompiler, CheckError> {
    let start = Instant::now();
    let key = gpu.context().kernel_key(&compiler_program()?)?;
    let cache = Cache::of_environment().ok().flatten();
    // What is wrong with an entry counts as none, and the next one replaces it.
    let entry = cache.as_ref().and_then(|cache| cache.get(Kind::Records, &key).ok().flatten());
    if let Some(wrong) = entry.and_then(|entry| read(&entry)) {
        return Ok(KnownCompiler { wrong, report: None, time: start.elapsed() });
    }
    let report = compiler(gpu)?;
    let wrong: Vec<_> = report.wrong().map(|micro| micro.name.to_owned()).collect();
    // Without an entry the next process runs it again.
    let _ = cache.map(|cache| cache.put(Kind::Records, &key, &written(&wrong)));
    Ok(KnownCompiler { wrong, report: Some(report), time: start.elapsed() })
}

fn written(wrong: &[String]) -> Vec<u8> {
    [TITLE]
        .into_iter()
        .chain(wrong.iter().map(String::as_str))
        .flat_map(|line| [line, "\n"])
        .collect::<String>()
        .into()
}

fn read(entry: &[u8]) -> Option<Vec<String>> {
    let mut lines = core::str::from_utf8(entry).ok()?.lines();
    (lines.next() == Some(TITLE)).then(|| lines.map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::{read, written};

    #[test]
    fn entries_are_read_back() {
        for wrong in [vec![], vec!["packed-add".to_owned()], vec!["a".to_owned(), "b".to_owned()]] {
            assert_eq!(read(&written(&wrong)), Some(wrong));
        }
        assert_eq!((read(b"another text\n"), read(&[0xFF])), (None, None));
    }
}
