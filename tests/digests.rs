//! The program texts of every named kernel must not change unnoticed. They are still the texts from the time
//! when each kernel was a type of its own, instantiated by hand.
//!
//! `tests/digests.txt` has a digest of each text without the entry's name. An intended change updates that
//! table and gives its reason in the commit; `DIGESTS=write cargo test --test digests` writes the table.

use std::collections::BTreeMap;
use std::fmt::Write;

use collective::Fusion;
use falchion::verify::Format;
use falchion::verify::fusions::any_columns;
use kernel::AnyGemm;
use rayon::prelude::*;

const TABLE: &str = include_str!("digests.txt");

/// 64-bit FNV-1a hash of a kernel's text, with `kernel` in place of the entry's name.
fn digest(gemm: &AnyGemm) -> u64 {
    let program = gemm.program().unwrap_or_else(|error| panic!("{}: {error}", gemm.name()));
    let text = program.text().replace(program.name(), "kernel");
    text.bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
    })
}

/// Every named kernel, and the kernels that fusions fall back to.
fn kernels() -> Vec<AnyGemm> {
    let formats = [Format::Bf16, Format::F16];
    let fallback = |(fusion, format)| any_columns(fusion, format).expect("legal").gemm;
    let all = Fusion::ALL.into_iter().flat_map(|fusion| formats.map(|format| (fusion, format)));
    kernel::all().into_iter().chain(all.map(fallback)).collect()
}

#[test]
fn programs_are_what_they_were() {
    let now: BTreeMap<String, u64> =
        kernels().par_iter().map(|gemm| (gemm.name().to_owned(), digest(gemm))).collect();
    if std::env::var_os("DIGESTS").is_some() {
        let mut table = String::new();
        for (name, digest) in &now {
            let _ = writeln!(table, "{name} {digest:016x}");
        }
        std::fs::write("tests/digests.txt", table).expect("a writable folder");
        return;
    }
    let before: BTreeMap<String, u64> = TABLE
        .lines()
        .map(|line| {
            let (name, digest) = line.split_once(' ').expect("a name and a digest");
            (name.to_owned(), u64::from_str_radix(digest, 16).expect("a digest"))
        })
        .collect();
    let changed: Vec<&String> =
        now.iter().filter(|(name, digest)| before.get(*name) != Some(digest)).map(|(name, _)| name).collect();
    let gone: Vec<&String> = before.keys().filter(|name| !now.contains_key(*name)).collect();
    assert!(changed.is_empty() && gone.is_empty(), "changed or new: {changed:?}; gone: {gone:?}");
    assert_eq!(now.len(), 518);
}

/// A kernel's spec makes the same kernel again. So does the text of the spec, with defaults written out or
/// not.
#[test]
fn specs_are_their_kernels() {
    let wrong: Vec<String> = kernels()
        .par_iter()
        .filter_map(|gemm| {
            let spec = gemm.spec()?;
            let words: Vec<String> =
                spec.words().into_iter().map(|(key, value)| format!("{key}={value}")).collect();
            for text in [spec.to_string(), words.join(" ")] {
                let again = kernel::KernelSpec::parse(&text).expect("a spec");
                let kernel = again.kernel().expect("legal");
                if again != spec || digest(&kernel) != digest(gemm) || kernel.plan() != gemm.plan() {
                    return Some(format!("{}: {text}", gemm.name()));
                }
            }
            None
        })
        .collect();
    assert_eq!(wrong, [""; 0]);
    assert!(kernels().iter().all(|gemm| gemm.spec().is_some()));
}
