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
            refused.code == Some(2) && refused.stderr.contains("--repeat 2"),
            "{suite}: {}",
            refused.stderr
        );
    }
    let nothing = falchion(&["verify", "--suite", "slow"]);
    assert_eq!(nothing.code, Some(2));
}
