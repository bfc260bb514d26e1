//! The comparison of several GEMMs: a mistake in one of them is found, and is said to be that one's.

use kernel::{AnyGemm, KernelSpec};

use super::*;
use crate::verify::product::Mismatch;
use crate::verify::tampered::{Mistake, Tampered};

fn entry(form: &str) -> AnyGemm {
    let text = format!("tile=64x64x64 consumers=1 store=direct form={form}");
    text.parse::<KernelSpec>().expect("a spec").kernel().expect("legal")
}

/// What is found, in a word: of which GEMM, and what.
fn found(several: &SeveralProducts, entry: &AnyGemm, (number, mistakes): (usize, Vec<Mistake>)) -> String {
    let program = entry.program().expect("legal");
    let outcome = several.run(entry, &program, &mut Tampered::new(number, mistakes)).expect("runs");
    let word = |mismatch: &Mismatch| match mismatch {
        Mismatch::Value { row, column, .. } => format!("value ({row}, {column})"),
        Mismatch::Unwritten { row, column } => format!("unwritten ({row}, {column})"),
        Mismatch::Beside { place, .. } => format!("beside {place}"),
        other @ (Mismatch::Product { .. } | Mismatch::Changed { .. }) => format!("{other:?}"),
    };
    match outcome.mismatch {
        None => format!("{} right", outcome.compared),
        Some(Mismatch::Product { product, mismatch }) => format!("{product}: {}", word(&mismatch)),
        Some(mismatch) => word(&mismatch),
    }
}

#[test]
fn mistakes_in_a_batch_are_found() {
    let problem = GemmProblem { m: 20, n: 24, k: 72 };
    let several = SeveralProducts { d_padding: 8, ..SeveralProducts::batch(problem, 3) };
    let (entry, ld) = (entry("batched"), 32);
    let at = |product: usize, row: usize, column: usize| (product * (20 * ld + GAP) + row * ld + column) * 2;
    let set = |place: usize| Mistake::element(Format::Bf16, place, 0x4780);
    // D follows A, B and the table.
    for (why, mistakes, want) in [
        ("nothing", vec![], "1440 right"),
        ("the last number", set(at(2, 19, 23)), "2: value (19, 23)"),
        ("one in the middle", set(at(1, 3, 5)), "1: value (3, 5)"),
        ("one is left out", vec![Mistake::Unwritten(at(1, 7, 9)..at(1, 7, 10))], "1: unwritten (7, 9)"),
        (
            "all of a GEMM is left out",
            vec![Mistake::Unwritten(at(2, 0, 0)..at(2, 19, 24))],
            "2: unwritten (0, 0)",
        ),
        ("between lines", set(at(0, 0, 24)), "beside 24"),
        ("between GEMMs", set(at(0, 20, 0)), "beside 640"),
        ("behind all", set(at(2, 20, 0)), "beside 2048"),
    ] {
        assert_eq!(found(&several, &entry, (3, mistakes)), want, "{why}");
    }
}

/// Rows between and behind groups belong to nobody.
#[test]
fn mistakes_among_groups_are_found() {
    for (form, several, rest) in [
        ("ragged", SeveralProducts::of_rows(&[5, 0, 9], 4, [24, 72]), 14),
        ("masked", SeveralProducts::masked(&[5, 0, 9], 12, [24, 72]), 5),
    ] {
        let entry = entry(form);
        let set = |row: usize, column: usize| Mistake::element(Format::Bf16, (row * 24 + column) * 2, 0x4780);
        for (why, mistakes, want) in [
            ("nothing", vec![], "336 right".to_owned()),
            ("the first group's last row", set(4, 2), "0: value (4, 2)".to_owned()),
            ("a row of no group", set(rest, 2), format!("beside {}", rest * 24 + 2)),
        ] {
            assert_eq!(found(&several, &entry, (3, mistakes)), want, "{form}: {why}");
        }
    }
}
