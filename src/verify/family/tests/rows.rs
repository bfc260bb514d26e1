//! Kernels over rows: every kind in both formats, at odd sizes and without rows; wrong kernels are found; and the proof.

use core::ops::Range;

use kernel::{Emulator, Engine, Family, Kernel, Machine, MatrixRef, Predicted};
use reference::Format;
use rows::{Gathered, Gathering, RowGather, RowKind, RowProblem, RowSpec, Rows};

use crate::verify::family::{Agreed, FamilyError, check, prove};
use crate::verify::tampered::{Mistake, Tampered, edge};

fn problem(text: &str) -> RowProblem {
    Rows::request(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// The results of a problem: how many, and how close to their bound they should come.
const PROBLEMS: [(&str, usize, Range<f64>); 40] = [
    ("add 7x40", 280, 0.4..1.0),
    ("add 3x1096", 3288, 0.4..1.0),
    ("add 0x40", 0, 0.0..0.1),
    ("add 7x0", 0, 0.0..0.1),
    ("gather 7x40", 280, 0.0..0.1),
    ("gather 9x1032 table=3", 9288, 0.0..0.1),
    ("gather 0x40 table=5", 0, 0.0..0.1),
    ("gather 7x6 table=4", 42, 0.0..0.1),
    ("gather 3x262 table=300", 786, 0.0..0.1),
    ("gather-sum 7x40 choices=3", 280, 0.4..1.0),
    ("gather-sum 70x24 table=6 first=5 limit=20", 1680, 0.0..0.1),
    ("gather-sum 7x40 choices=0", 280, 0.0..0.1),
    ("gather-sum 3x8 table=0 limit=9", 24, 0.0..0.1),
    ("gather-sum 0x40 table=5", 0, 0.0..0.1),
    ("gather-weighted 5x1032 table=90 choices=9", 5160, 0.4..1.0),
    ("gather-weighted 70x8 table=3 choices=2 first=1 limit=5", 560, 0.4..1.0),
    ("gather-weighted 0x8", 0, 0.0..0.1),
    ("peak 200x40", 800, 0.05..1.0),
    ("peak 9x1096 first=1096 limit=4000", 36, 0.01..1.0),
    ("peak 3x0", 12, 0.0..0.1),
    ("peak 0x40", 0, 0.0..0.1),
    ("gradient 7x40", 280, 0.4..1.0),
    ("gradient 9x1096 first=8 limit=2000", 9864, 0.4..1.0),
    ("gradient 0x40", 0, 0.0..0.1),
    ("merge 300 ranks=3", 600, 0.05..1.0),
    ("merge 0 ranks=3", 0, 0.0..0.1),
    ("merge-attention 70x40 heads=3", 8610, 0.4..1.0),
    ("merge-attention 37x40 f32 heads=3", 4551, 0.02..1.0),
    ("merge-attention 300x8", 2700, 0.4..1.0),
    ("merge-attention 9x256 heads=2", 4626, 0.4..1.0),
    ("merge-attention 5x520 heads=5", 13025, 0.4..1.0),
    ("merge-attention 0x40", 0, 0.0..0.1),
    ("merge-attention 7x40 heads=0", 0, 0.0..0.1),
    ("append-pages 70x40 heads=3", 19200, 0.0..0.1),
    ("append-pages 9x264 keys=5 pages=7 heads=2 values=40", 21280, 0.0..0.1),
    ("append-pages 33x576 heads=1 values=0 keys=64 pages=3 wide=on", 110_592, 0.0..0.1),
    ("append-pages 33x8 heads=7 values=24 keys=3 pages=19 wide=on", 12768, 0.0..0.1),
    // More rows than slots; and no rows.
    ("append-pages 33x8 keys=2 pages=5", 160, 0.0..0.1),
    ("append-pages 33x8 pages=0", 0, 0.0..0.1),
    ("append-pages 0x8 pages=2 heads=3", 1536, 0.0..0.1),
];

/// Each kernel of a problem computes all of it.
#[test]
fn every_element_of_a_problem_is_expected() {
    for (text, count, ratios) in PROBLEMS {
        let of = problem(text);
        let f16 = RowProblem { format: collective::Format::F16, ..of };
        for of in [of, f16].into_iter().filter(|of| of.check().is_ok()) {
            let text = of.to_string();
            let ranked =
                Rows::ranked(&of, &Machine::h200(), 9).unwrap_or_else(|error| panic!("{text}: {error}"));
            for Predicted { kernel, .. } in ranked {
                let agreed = check(&mut Emulator::new(), &kernel, &of, (7, usize::MAX));
                let Agreed { compared, total, ratio, .. } =
                    agreed.unwrap_or_else(|error| panic!("{text}: {error}"));
                assert_eq!((compared, total), (count, count), "{text}: {kernel:?}");
                assert!(ratios.contains(&ratio), "{text}: {kernel:?}: {ratio}");
            }
        }
    }
}

/// Some of the rows, if so many are asked for.
#[test]
fn some_rows_are_compared() {
    let of = problem("add 70x264");
    let kernel = Rows::new(&RowSpec::new(RowKind::Add)).expect("legal");
    let agreed = check(&mut Emulator::new(), &kernel, &of, (7, 5)).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((agreed.compared, agreed.total), (5 * 264, 70 * 264));
}

/// Each number of a result is compared: with its bound's last element it is right, with the next one it is not.
#[test]
fn bounds_are_kept() {
    use Format::{Bf16, F16, F32};
    for (text, buffer, format, elements) in [
        ("add 7x40", 1, Bf16, &[0, 279][..]),
        ("add 7x40 f16", 1, F16, &[41]),
        ("gather 7x40 table=3", 2, Bf16, &[0, 81]),
        ("gather 7x6 f16 table=3", 2, F16, &[41]),
        ("gather-sum 7x40 choices=3", 2, Bf16, &[0, 279]),
        ("gather-weighted 7x40 f16 choices=3", 3, F16, &[0, 279]),
        ("peak 7x40", 2, F32, &[0, 1, 2, 3, 24, 25, 26, 27]),
        ("merge 300 ranks=3", 1, F32, &[0, 299]),
        ("merge 300 ranks=3", 2, F32, &[0, 299]),
        ("gradient 7x40", 3, Bf16, &[0, 279]),
        ("gradient 7x40 f16", 3, F16, &[40]),
        ("merge-attention 7x40 heads=2", 2, Bf16, &[0, 559]),
        ("merge-attention 7x40 f16 heads=2", 2, F16, &[279, 280]),
        ("merge-attention 7x40 f32 heads=2", 2, F32, &[1, 559]),
        ("merge-attention 7x40 heads=2", 5, F32, &[0, 13]),
        ("append-pages 7x40 heads=2", 2, Bf16, &[0, 1279]),
        ("append-pages 7x40 f16 heads=2 values=8", 3, F16, &[0, 255]),
    ] {
        let of = problem(text);
        let kernel = Rows::new(&of.specs().next().expect("a kernel")).expect("legal");
        for &element in elements {
            let at = element * format.bytes() as usize;
            let found = |bits| {
                let mut engine = Tampered::new(buffer, Mistake::element(format, at, bits));
                check(&mut engine, &kernel, &of, (7, usize::MAX))
            };
            let Err(FamilyError::Element { index, expected, bound, .. }) = found(format.round(f64::MAX))
            else {
                panic!("{text}: a wrong element {element} was not found");
            };
            assert_eq!(index, element, "{text}");
            let [last, next] = edge(format, expected, bound);
            assert!(found(last).is_ok(), "{text}: element {element} within {bound} of {expected}");
            assert!(found(next).is_err(), "{text}: element {element} beyond {bound} of {expected}");
        }
    }
}

/// An index of no rank makes a row that is not a number, and one of another rank adds nothing.
#[test]
fn indices_of_no_rank_are_seen() {
    let mut engine = Emulator::new();
    let mut memory = |words: &[u32]| {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let buffer = engine.allocate(bytes.len()).expect("memory");
        engine.write(buffer, &bytes).expect("a buffer");
        buffer
    };
    // Rows of 1 and of 2 in bf16, and the indices of four rows.
    let table = memory(&[[0x3f80_3f80; 4], [0x4000_4000; 4]].concat());
    let (index, d) = (memory(&[4, 6, 3, 5]), memory(&[0xA5A5_A5A5; 16]));
    let call = Gathered {
        rows: 4,
        columns: 8,
        choices: 1,
        table: (MatrixRef::new(table.address, 8), 2),
        first: 4,
        limit: 6,
        index: index.address,
        weights: 0,
        d: MatrixRef::new(d.address, 8),
    };
    let kernel = RowGather { format: collective::Format::Bf16, how: Gathering::Summed };
    kernel.run(&mut engine, &call).expect("it runs");
    let rows = Format::Bf16.values(&engine.read(d).expect("a buffer"));
    for (row, want) in rows.chunks(8).zip([1.0, f64::NAN, 0.0, 2.0]) {
        assert!(row.iter().all(|x| *x == want || x.is_nan() && want.is_nan()), "{row:?}: {want}");
    }
    let odd = Gathered { columns: 7, table: (MatrixRef::new(table.address, 8), 2), ..call };
    for (how, multiple) in [(Gathering::Words, 2), (Gathering::Copied, 8), (Gathering::Weighted, 8)] {
        let refused = RowGather { how, ..kernel }.launch(&odd, 132).map_err(|error| error.to_string());
        let words = format!("columns is 7, a multiple of {multiple} was needed");
        assert!(refused.as_ref().is_err_and(|error| error.contains(&words)), "{refused:?}");
    }
}

/// Warps meet in the statistics of a row alone, whose every barrier is needed. A barrier may have any number: only one is used at a time.
#[test]
fn synchronisation_is_needed() {
    for text in [
        "add 3x40",
        "gather 3x40",
        "gather 3x6",
        "gather-sum 3x40 choices=2",
        "gather-weighted 3x40 choices=2",
        // Some CTAs have two rows.
        "peak 40x1032",
        "merge 130 ranks=2",
        "gradient 3x40",
        "merge-attention 9x40 heads=2",
        "merge-attention 3x520",
        "append-pages 9x40 heads=2",
    ] {
        let of = problem(text);
        let kernel = Rows::new(&of.specs().next().expect("a kernel")).expect("legal");
        let proof =
            prove(&kernel, (&Rows::call(&of), &[]), 2).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert!(proof.missed.is_empty(), "{text}: {proof}");
        assert_eq!(proof.killed > 0, of.kind == RowKind::Peak, "{text}: {proof}");
        assert!(proof.unreached.is_empty(), "{text}: {proof}");
    }
}
