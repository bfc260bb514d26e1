//! Samples of fused products: right ones are found right, and mistakes of every kind are found.

use collective::Formula;
use kernel::{Emulator, GemmProblem};

use super::{Bench, TreeError};
use crate::verify::Format;
use crate::verify::family::FamilyError;
use crate::verify::fusions::any_columns;
use crate::verify::tampered::{Mistake, Tampered, edge};

/// Rows, pairs and blocks of columns, whole columns and whole matrices: each fusion gets what it needs.
#[test]
fn every_fusion_is_checked_on_a_sample() {
    let problem = GemmProblem { m: 200, n: 512, k: 72 };
    for fusion in Formula::all() {
        let name = fusion.name();
        let mut emulator = Emulator::new();
        let mut bench = Bench::new(&mut emulator, 3).sampled_above(0);
        let kernel = any_columns(fusion, Format::Bf16).expect("a legal kernel");
        let checked = kernel.check(&mut bench, problem).unwrap_or_else(|error| panic!("{name}: {error}"));
        let (all, columns) = (["bias-amax", "bias-fp8"], ["bias-sums", "bias-sums-ordered"]);
        let halved = 512 >> fusion.halvings();
        let want = if all.contains(&name) {
            [200, 512]
        } else if columns.contains(&name) {
            [200, 16]
        } else {
            [16, halved]
        };
        let least = want[0] * want[1];
        assert!(
            (least..least + 1000).contains(&checked.compared) && checked.ratio > 0.0,
            "{name}: {}",
            checked.compared
        );
        assert_eq!(checked.complete, all.contains(&name), "{name}");
    }
}

#[test]
fn mistakes_are_found_on_a_sample() {
    let problem = GemmProblem { m: 200, n: 256, k: 72 };
    let element = |row: usize, column: usize| (row * 256 + column) * 2;
    let set = |at: usize, bits: u64| Mistake::element(Format::Bf16, at, bits);
    // D follows what was uploaded, nothing, and A and B.
    let check = |mut engine: Tampered| {
        let mut bench = Bench::new(&mut engine, 3).sampled_above(0);
        let kernel =
            any_columns("alpha*acc".parse().expect("a formula"), Format::Bf16).expect("a legal kernel");
        kernel.check(&mut bench, problem)
    };
    // The first row and the first one after it that are compared, and one that is not.
    let compared = |row: usize| {
        let wrong = check(Tampered::new(2, set(element(row, 0), 0x4780)));
        matches!(wrong, Err(TreeError::Check(FamilyError::Element { .. })))
    };
    let rows: Vec<usize> = (0..200).filter(|&row| compared(row)).collect();
    assert_eq!(rows.len(), 16, "{rows:?}");
    let other = (0..200).find(|row| !rows.contains(row)).expect("not all rows");
    let wrong = check(Tampered::new(2, set(element(rows[0], 0), 0x4780)));
    let Err(TreeError::Check(FamilyError::Element { expected, bound, .. })) = wrong else {
        panic!("{wrong:?}")
    };
    let [last, next] = edge(Format::Bf16, expected, bound);
    for (why, engine, want) in [
        ("nothing", Tampered::new(2, vec![]), "right"),
        ("the last number within the bound", Tampered::new(2, set(element(rows[0], 0), last)), "right"),
        ("the next one", Tampered::new(2, set(element(rows[0], 0), next)), "value"),
        ("the last", Tampered::new(2, set(element(rows[15], 255), 0x4780)), "value"),
        ("a number outside of the sample", Tampered::new(2, set(element(other, 1), 0x4780)), "right"),
        (
            "one outside of the sample is not written",
            Tampered::new(2, vec![Mistake::Unwritten(element(other, 1)..element(other, 2))]),
            "unwritten",
        ),
        ("behind D", Tampered::new(2, set(element(200, 0), 0x4780)), "beside"),
        ("the last byte behind D", Tampered::new(2, set(element(200, 31), 0x4780)), "beside"),
        ("A changes", Tampered::new(0, set(0, 0x4780)), "beside"),
        ("nothing is written", Tampered::idle(), "unwritten"),
    ] {
        let found = match check(engine) {
            Ok(_) => "right",
            Err(TreeError::Check(FamilyError::Element { .. })) => "value",
            Err(TreeError::Check(FamilyError::Unwritten { .. })) => "unwritten",
            Err(TreeError::Check(FamilyError::Outside { .. })) => "beside",
            Err(other) => panic!("{why}: {other}"),
        };
        assert_eq!(found, want, "{why}");
    }
}

/// More than 2^33 multiplications, of which only a sample is compared without being asked to.
#[test]
fn large_products_are_sampled() {
    let problem = GemmProblem { m: 2048, n: 2048, k: 2049 };
    let mut engine = Tampered::idle();
    let kernel = any_columns("rope".parse().expect("a formula"), Format::Bf16).expect("a legal kernel");
    let outcome = kernel.check(&mut Bench::new(&mut engine, 3), problem);
    assert!(
        matches!(outcome, Err(TreeError::Check(FamilyError::Unwritten { name: "D", index: 0, .. }))),
        "{outcome:?}"
    );
}

/// Each number below an end is drawn about as often as the others; what is drawn for measurements is aligned and
/// complete.
#[test]
fn arguments_are_drawn_evenly() {
    let mut emulator = Emulator::new();
    let mut bench = Bench::new(&mut emulator, 5);
    for below in 0..7 {
        let mut counts = vec![0; below.max(1) as usize];
        (0..1000).for_each(|_| counts[bench.choose(below) as usize] += 1);
        let even = 1000 / counts.len();
        assert!(
            counts.iter().all(|count| (even * 3 / 4..=even * 5 / 4).contains(count)),
            "below {below}: {counts:?}"
        );
    }
    let mut shifts = [0; 3];
    (0..300).for_each(|_| shifts[bench.shift() as usize] += 1);
    assert!(shifts.iter().all(|count| (70..130).contains(count)), "{shifts:?}");
    let omitted = (0..300).filter(|_| bench.omits()).count();
    assert!((70..130).contains(&omitted), "{omitted} of 300");
    let numbers: Vec<f32> = (0..1000).map(|_| bench.number()).collect();
    assert!(numbers.iter().all(|of| (-2.0..2.0).contains(of)) && numbers.iter().sum::<f32>().abs() < 200.0);
    let mut aligned = Bench::aligned(&mut emulator, 5);
    assert!((0..100).all(|_| aligned.shift() == 0 && !aligned.omits()));
}
