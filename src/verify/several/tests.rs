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

/// Operations count what is in a group, and not what is between groups, behind them, or said to be beyond.
#[test]
fn operations_are_those_of_all() {
    let problem = GemmProblem { m: 20, n: 24, k: 100 };
    for (why, several, want) in [
        ("a batch", SeveralProducts::batch(problem, 3), 3 * 20 * 24 * 100),
        ("no GEMM", SeveralProducts::batch(problem, 0), 0),
        ("rows", SeveralProducts::of_rows(&[5, 0, 9], 4, [24, 72]), 14 * 24 * 72),
        ("offsets that fall", SeveralProducts::groups(problem, vec![2, 9, 4, 30]), 18 * 24 * 100),
        ("rows of buffers", SeveralProducts::masked(&[5, 0, 30], 12, [24, 72]), 17 * 24 * 72),
        ("along K", SeveralProducts::of_lengths(&[64, 0, 128], [20, 24]), 20 * 24 * 192),
        ("beyond K", SeveralProducts::along_k(problem, vec![10, 30, 30, 200]), 20 * 24 * 90),
        (
            "an array",
            SeveralProducts::array(vec![problem, GemmProblem { m: 1, n: 2, k: 3 }]),
            20 * 24 * 100 + 2 * 3,
        ),
    ] {
        assert_eq!(several.operations(), f64::from(2 * want), "{why}");
    }
}

/// One D follows the other with a gap, or their rows are side by side; those of groups of rows are one matrix.
#[test]
fn every_d_has_a_place() {
    let batch = |count| SeveralProducts::batch(GemmProblem { m: 20, n: 24, k: 72 }, count);
    let interleaved = |several| SeveralProducts { interleaved: true, ..several };
    for (why, several, want) in [
        ("a batch", batch(3), (vec![0, 20 * 32 + GAP, 2 * (20 * 32 + GAP)], 32)),
        ("side by side", interleaved(batch(3)), (vec![0, 32, 64], 96)),
        ("one side by side", interleaved(batch(1)), (vec![0], 32)),
        ("none side by side", interleaved(batch(0)), (vec![], 32)),
        ("along K", SeveralProducts::of_lengths(&[64, 8], [20, 24]), (vec![0, 20 * 32 + GAP], 32)),
        (
            "along K side by side",
            interleaved(SeveralProducts::of_lengths(&[64, 8], [20, 24])),
            (vec![0, 32], 64),
        ),
        ("rows", SeveralProducts::of_rows(&[5, 0, 9], 4, [24, 72]), (vec![0, 5 * 32, 5 * 32], 32)),
        ("buffers", SeveralProducts::masked(&[5, 0, 9], 12, [24, 72]), (vec![0, 12 * 32, 24 * 32], 32)),
    ] {
        let several = SeveralProducts { d_padding: 8, ..several };
        assert_eq!(several.places(), want, "{why}");
        // No two of them share an element, and all end within the memory that a run allocates.
        let (places, ld) = several.places();
        let mut elements: Vec<usize> = places
            .iter()
            .zip(several.rows())
            .flat_map(|(&begin, [_, rows])| (0..rows as usize).map(move |row| begin + row * ld))
            .flat_map(|line| line..line + 24)
            .collect();
        let count = elements.len();
        elements.sort_unstable();
        elements.dedup();
        assert_eq!(elements.len(), count, "{why}");
    }
}

/// Rows of A and B are as far apart as is asked, and no farther: a kernel meets no better alignment than it needs.
#[test]
fn operands_are_aligned_as_asked() {
    for (layout, dtype, bytes, want) in [
        ("kk", "bf16", 16, [72, 72]),
        ("kk", "bf16", 2, [70, 70]),
        ("mn", "bf16", 16, [24, 32]),
        ("mn", "bf16", 64, [32, 32]),
        ("kk", "e4m3", 16, [80, 80]),
        ("kk", "f32", 16, [72, 72]),
        ("kk", "f32", 64, [80, 80]),
    ] {
        let entry = entry(&format!("batched layout={layout} dtype={dtype}"));
        let batch = SeveralProducts::batch(GemmProblem { m: 20, n: 26, k: 70 }, 2);
        let matrices =
            SeveralProducts { operand_bytes: bytes, shared: [false, true, false], ..batch }.matrices(&entry);
        let lds = |all: &[HostMatrix]| all.iter().map(|matrix| matrix.ld).collect::<Vec<_>>();
        let [a, b, c] = [&matrices.a, &matrices.b, &matrices.c].map(|all| lds(all));
        assert_eq!([a, b, c], [vec![want[0]; 2], vec![want[1]], vec![26; 2]], "{layout}, {dtype}, {bytes} B");
    }
}

/// GEMMs of a pointer array lie one after the other, each with a gap behind it that nobody writes.
#[test]
fn mistakes_in_an_array_are_found() {
    let shapes = [[20, 24, 72], [0, 24, 8], [5, 8, 40]].map(|[m, n, k]| GemmProblem { m, n, k });
    let several = SeveralProducts { d_padding: 8, ..SeveralProducts::array(shapes.to_vec()) };
    let entry = entry("grouped");
    let [second, third] = [20 * 32 + GAP, 20 * 32 + 2 * GAP];
    let set = |place: usize| Mistake::element(Format::Bf16, place * 2, 0x4780);
    // D follows C, A and B of each.
    for (why, mistakes, want) in [
        ("nothing", vec![], "520 right".to_owned()),
        ("the first one's last number", set(19 * 32 + 23), "0: value (19, 23)".to_owned()),
        ("the last number", set(third + 4 * 16 + 7), "2: value (4, 7)".to_owned()),
        (
            "one that is left out",
            vec![Mistake::Unwritten(third * 2..third * 2 + 2)],
            "2: unwritten (0, 0)".to_owned(),
        ),
        ("between lines", set(third + 8), format!("beside {}", third + 8)),
        ("where an empty one would be", set(second), format!("beside {second}")),
        ("behind all", set(third + 5 * 16), format!("beside {}", third + 5 * 16)),
    ] {
        assert_eq!(found(&several, &entry, (9, mistakes)), want, "{why}");
    }
}
