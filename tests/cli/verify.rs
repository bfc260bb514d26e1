//! `falchion verify`: the case tables.

use crate::falchion;

#[test]
fn verify_closes_with_its_count() {
    let run = falchion(&["verify", "--engine", "emulator", "--filter", "alpha-zero"]);
    assert_eq!(run.code, Some(0), "{}", run.stdout);
    assert_eq!(run.stdout.lines().last(), Some("16 passed, 0 failed, 0 skipped"));
    let nothing = falchion(&["verify", "--filter", "no such case"]);
    assert_eq!(nothing.code, Some(2));
    for suite in ["instructions", "fusions"] {
        let refused = falchion(&["verify", "--suite", suite, "--repeat", "2"]);
        assert!(
            refused.code == Some(2) && refused.stderr.contains("--repeat cannot be used with --suite"),
            "{suite}: {}",
            refused.stderr
        );
    }
    let nothing = falchion(&["verify", "--suite", "slow"]);
    assert_eq!(nothing.code, Some(2));
    // Every kind of run closes with such a line.
    for (arguments, last) in [
        (&["--suite", "instructions", "--filter", "shfl"][..], " passed, 0 failed, 0 skipped"),
        (&["--kernel", "tile=64x64x64", "--problems", "2"], "2 passed, 0 failed, 0 skipped"),
        (&["--random-specs", "2"], "2 passed, 0 failed, 0 skipped"),
    ] {
        let run = falchion(&[&["verify", "--engine", "emulator"], arguments].concat());
        let line = run.stdout.lines().last().unwrap_or_default();
        assert!(line.ends_with(last), "{arguments:?}: {}{}", run.stdout, run.stderr);
    }
}
