//! Tests of [`check`]: the same seed draws the same cases, and a case that breaks a law is kept and tried
//! first.

use std::path::{Path, PathBuf};
use std::process::Command;

use cute_rs::laws::{Verdict, check};

/// The environment variable that makes the test process run the broken law and print the drawn numbers.
const CHILD: &str = "CUTE_RS_BREAKS_A_LAW";

/// Checks a law that half of all numbers break.
fn broken() {
    check(100, 100, 0_u32..1_000_000, |number| {
        println!("drawn {number}");
        assert!(number < 500_000, "a large number");
        Ok(Verdict::Held)
    });
}

fn kept() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kept.proptest-regressions")
}

/// The numbers drawn with this seed until the law is broken and the case is shrunk.
fn drawn(seed: u32) -> Vec<u32> {
    let test = std::env::current_exe().expect("this test is a program");
    let mut command = Command::new(test);
    command.args(["--exact", "broken_laws_keep_their_cases", "--nocapture"]);
    let run = command.env(CHILD, "").env("PROPTEST_RNG_SEED", seed.to_string()).output().expect("it runs");
    assert!(!run.status.success(), "the law is broken");
    let text = String::from_utf8_lossy(&run.stdout);
    text.lines().filter_map(|line| line.rsplit_once("drawn ")?.1.parse().ok()).collect()
}

#[test]
fn broken_laws_keep_their_cases() {
    if std::env::var_os(CHILD).is_some() {
        return broken();
    }
    let forget = || std::fs::remove_file(kept());
    let _ = forget();
    let first = drawn(7);
    let breaks = first.iter().copied().find(|&number| number >= 500_000);
    assert!(forget().is_ok(), "the case was kept in {}", kept().display());
    assert_eq!(drawn(7), first, "the same seed draws the same cases");
    assert_eq!(drawn(8).first().copied(), breaks, "the case that was kept comes first");
    assert!(forget().is_ok(), "it is still kept");
    assert_ne!(drawn(8), first, "another seed draws others");
    assert!(forget().is_ok(), "one of them breaks the law, too");
}
