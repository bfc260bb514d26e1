//! The comparison of several GEMMs: a mistake in one of them is found, and is said to be that one's.

use kernel::{AnyGemm, KernelSpec};

use super::*;
use crate::verify::Format;
use crate::verify::family::FamilyError;
use crate::verify::product::Mismatch;
use crate::verify::tampered::{Mistake, Tampered};

fn entry(form: &str) -> AnyGemm {
    let text = format!("tile=64x64x64 consumers=1 store=direct form={form}");
    text.parse::<KernelSpec>().expect("a spec").kernel().expect("legal")
}

/// What is found, in a word: what, and the number of the element or of the byte of D.
fn found(several: &SeveralProducts, entry: &AnyGemm, (number, mistakes): (usize, Vec<Mistake>)) -> String {
    let outcome = several.run(entry, &mut Tampered::new(number, mistakes)).expect("runs");
    match outcome.mismatch.as_ref().map(Mismatch::error) {
        None => format!("{} right", outcome.compared),
        Some(FamilyError::Element { name: "D", index, .. }) => format!("value {index}"),
        Some(FamilyError::Unwritten { name: "D", index, .. }) => format!("unwritten {index}"),
        Some(FamilyError::Outside { name: "D", byte }) => format!("beside {byte}"),
        Some(other) => other.to_string(),
    }
}

#[test]
fn mistakes_in_a_batch_are_found() {
    let problem = GemmProblem { m: 20, n: 24, k: 72 };
    let several = SeveralProducts { d_padding: 8, ..SeveralProducts::batch(problem, 3) };
    let (entry, ld) = (entry("batched"), 32);
    let at = |product: usize, row: usize, column: usize| (product * (20 * ld + GAP) + row * ld + column) * 2;
    let set = |place: usize| Mistake::element(Format::Bf16, place, 0x4780);
    let number = |product: usize, row: usize, column: usize| product * 480 + row * 24 + column;
    // D follows A and B.
    for (why, mistakes, want) in [
        ("nothing", vec![], "1440 right".to_owned()),
        ("the last number", set(at(2, 19, 23)), format!("value {}", number(2, 19, 23))),
        ("one in the middle", set(at(1, 3, 5)), format!("value {}", number(1, 3, 5))),
        (
            "one is left out",
            vec![Mistake::Unwritten(at(1, 7, 9)..at(1, 7, 10))],
            format!("unwritten {}", number(1, 7, 9)),
        ),
        (
            "all of a GEMM is left out",
            vec![Mistake::Unwritten(at(2, 0, 0)..at(2, 19, 24))],
            format!("unwritten {}", number(2, 0, 0)),
        ),
        ("between lines", set(at(0, 0, 24)), "beside 48".to_owned()),
        ("between GEMMs", set(at(0, 20, 0)), "beside 1280".to_owned()),
        ("behind all", set(at(2, 20, 0)), format!("beside {}", at(2, 20, 0))),
    ] {
        assert_eq!(found(&several, &entry, (2, mistakes)), want, "{why}");
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
            ("the first group's last row", set(4, 2), format!("value {}", 4 * 24 + 2)),
            ("a row of no group", set(rest, 2), format!("beside {}", (rest * 24 + 2) * 2)),
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
        assert_eq!(several.places(24), want, "{why}");
        // No two of them share an element, and all end within the memory that a run allocates.
        let (places, ld) = several.places(24);
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
        let several = SeveralProducts { operand_bytes: bytes, shared: [false, true, false], ..batch };
        let Call { a, b, epilogue, .. } = several.call(&entry);
        let lds = [a.ld, b.ld, epilogue.c.map_or(0, |c| c.ld)];
        assert_eq!(lds, [want[0], want[1], 26], "{layout}, {dtype}, {bytes} B");
        assert_eq!([a.stride > 0, b.stride > 0], [true, false], "{layout}, {dtype}, {bytes} B");
    }
}

/// GEMMs of a pointer array have memory of their own, of which nothing but D is written.
#[test]
fn mistakes_in_an_array_are_found() {
    let shapes = [[20, 24, 72], [0, 24, 8], [5, 8, 40]].map(|[m, n, k]| GemmProblem { m, n, k });
    let several = SeveralProducts::array(shapes.to_vec());
    let entry = entry("grouped");
    let set = |place: usize| Mistake::element(Format::Bf16, place * 2, 0x4780);
    // Each has A, B, C and D; the second one has nothing but B. D of the third begins 16 elements later, and has lines of 24.
    for (why, number, mistakes, want) in [
        ("nothing", 3, vec![], "520 right".to_owned()),
        ("the first one's last number", 3, set(19 * 24 + 23), "value 479".to_owned()),
        ("the last number", 8, set(16 + 4 * 24 + 7), "value 519".to_owned()),
        ("one that is left out", 8, vec![Mistake::Unwritten(32..34)], "unwritten 480".to_owned()),
        ("between lines", 8, set(16 + 8), "beside 16".to_owned()),
        ("before", 8, set(15), "beside -1".to_owned()),
        ("behind all", 8, set(16 + 5 * 24), "beside 240".to_owned()),
    ] {
        assert_eq!(found(&several, &entry, (number, mistakes)), want, "{why}");
    }
}
