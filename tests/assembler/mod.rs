//! NVIDIA's assembler, named by `FALCHION_PTXAS`, and what it has said.
//!
//! What an assembler says of a text does not change, so `known.txt` has it: a digest of the assembler's version and the text, and `clean`
//! where nothing was said against it, or `refused`. A text that is there is not assembled again, but with `cargo xtask test --long`.
//! Whoever changes programs need do nothing: new texts are assembled in every run, until `ASSEMBLED=write cargo xtask test` adds them.
//! What is no longer needed goes when the table is emptied before that.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

/// The output of `ptxas -v` for one module.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) accepted: bool,
    pub(crate) log: String,
}

/// What `ptxas -v` says of a program that keeps all values in registers.
const CLEAN: &str = "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads";

const REFUSED: &str = "refused";

/// By digest, whether a text is clean; else it is refused.
static KNOWN: LazyLock<BTreeMap<u64, bool>> = LazyLock::new(|| {
    let line = |line: &str| {
        let (digest, verdict) = line.split_once(' ').expect("a digest and a verdict");
        (u64::from_str_radix(digest, 16).expect("a digest"), verdict != REFUSED)
    };
    include_str!("known.txt").lines().map(line).collect()
});

/// The assembler's version, in its own words.
static VERSION: LazyLock<Vec<u8>> =
    LazyLock::new(|| Command::new(named()).arg("--version").output().expect("FALCHION_PTXAS runs").stdout);

fn named() -> PathBuf {
    std::env::var_os("FALCHION_PTXAS").expect("FALCHION_PTXAS names ptxas: run `cargo xtask test`").into()
}

/// The 64-bit FNV-1a hash of the assembler's version and a text.
fn digest(text: &str) -> u64 {
    VERSION.iter().chain(text.as_bytes()).fold(0xCBF2_9CE4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
    })
}

/// Everything in the assembler's output that makes a kernel slow: spills, a stack frame, advisories about
/// serialized instructions.
pub(crate) fn complaints(report: &Report) -> Vec<&str> {
    let bad = |line: &str| {
        line.contains("(C75") || line.contains("rror") || (line.contains("spill") && !line.contains(CLEAN))
    };
    report.log.lines().filter(|line| bad(line)).collect()
}

pub(crate) fn assemble(name: &str, text: &str) -> Report {
    let digest = digest(text);
    let known = KNOWN.get(&digest).filter(|_| std::env::var_os("FALCHION_LONG").is_none());
    if let Some(&clean) = known {
        return Report { accepted: clean, log: if clean { CLEAN } else { REFUSED }.to_owned() };
    }
    let report = assembled(name, text);
    let clean = report.accepted && complaints(&report).is_empty();
    if std::env::var_os("ASSEMBLED").is_some() && (clean || !report.accepted) {
        let line = format!("{digest:016x} {}\n", if clean { "clean" } else { REFUSED });
        let near = ["tests/assembler/known.txt", "../tests/assembler/known.txt"].map(PathBuf::from);
        let table = near.iter().find(|path| path.exists()).expect("the workspace, or a package in it");
        let written =
            OpenOptions::new().append(true).open(table).and_then(|mut file| file.write_all(line.as_bytes()));
        written.expect("a writable table");
    }
    report
}

fn assembled(name: &str, text: &str) -> Report {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let source = folder.join(format!("{name}.ptx"));
    std::fs::write(&source, text).expect("a writable folder");
    let output = Command::new(named())
        .args(["-arch=sm_90a", "-v", "-o"])
        .arg(source.with_extension("cubin"))
        .arg(&source)
        .output()
        .expect("FALCHION_PTXAS runs");
    let log = [output.stdout, output.stderr].concat();
    Report { accepted: output.status.success(), log: String::from_utf8_lossy(&log).into_owned() }
}
