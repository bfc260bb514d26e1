//! The comparison of attention with its reference, forward and backward: each mistake is found, and nothing else.

mod inputs;

use attention::AttentionProblem;
use attention::backward::AttentionBackward;
use kernel::Emulator;

use super::*;
use crate::verify::tampered::{Mistake, Tampered, edge};

/// Numbers of buffers, in the order in which a case allocates them.
const O: usize = 3;
const SUMS: usize = 4;
const D_Q: usize = 7;
const D_K: usize = 8;
const D_V: usize = 9;

/// Elements before and after each tensor.
pub(super) const AROUND: usize = 64;

/// 2 heads of 20 queries and 24 keys; 3 rows of each kind are compared, or all.
fn case(rows: usize) -> Case {
    Case { rows, layout: Layout::Gaps, ..Case::new(AttentionProblem::new(1, 2, [20, 24], 64)) }
}

fn forward(case: &Case, number: usize, mistakes: Vec<Mistake>) -> Result<usize, AttentionFault> {
    let kernel = Attention::new("d=64 tile=64x64".parse().expect("a spec")).expect("legal");
    case.check(&mut Tampered::new(number, mistakes), &kernel).map(|checked| checked.rows)
}

fn backward(case: &Case, number: usize, mistakes: Vec<Mistake>) -> Result<usize, AttentionFault> {
    let kernel = AttentionBackward::new("d=64 tile=64x64".parse().expect("a spec")).expect("legal");
    case.check_backward(&mut Tampered::new(number, mistakes), &kernel, None).map(|checked| checked.rows)
}

type Judge = fn(&Case, usize, Vec<Mistake>) -> Result<usize, AttentionFault>;

fn said(found: Result<usize, AttentionFault>) -> String {
    found.map_or_else(|fault| fault.to_string(), |rows| format!("{rows} right"))
}

/// The byte of an element of a tensor of rows of 64 elements, in the layout of [`case`].
fn at(rows: usize, [head, row, column]: [usize; 3]) -> usize {
    (AROUND + head * ((rows + 1) * 72 + 16) + row * 72 + column) * 2
}

const BF16: Format = Format::Bf16;

#[test]
fn mistakes_are_found() {
    let all = case(usize::MAX);
    let some = case(3);
    let set = |place: usize| Mistake::element(BF16, place, 0x4780);
    let left_out =
        |rows: usize, row: usize| vec![Mistake::Unwritten(at(rows, [1, row, 0])..at(rows, [1, row, 64]))];
    let last = |rows: usize| at(rows, [1, rows - 1, 63]);
    for (judge, of, number, rows, right) in [
        (forward as Judge, "O", O, 20, "40 right"),
        (backward, "dQ", D_Q, 20, "88 right"),
        (backward, "dK", D_K, 24, "88 right"),
        (backward, "dV", D_V, 24, "88 right"),
    ] {
        let around =
            if number == O { "memory around O was written" } else { "memory around a gradient was written" };
        let unwritten = if number == O {
            "an element of O was not written"
        } else {
            "an element of a gradient was not written"
        };
        let wrong = format!("element 63 of {of} of sequence 0, head 1, query {} is 65536", rows - 1);
        for (why, case, mistakes, want) in [
            ("nothing", &all, vec![], right),
            ("the last element", &all, set(last(rows)), &wrong),
            ("before", &all, set(at(rows, [0, 0, 0]) - 2), around),
            ("between rows", &all, set(at(rows, [0, 3, 64])), around),
            ("behind", &all, set(last(rows) + 2), around),
            ("a row is left out", &all, left_out(rows, 7), unwritten),
            ("any row is left out", &some, left_out(rows, 11), unwritten),
            (
                "any element is left out",
                &some,
                vec![Mistake::Unwritten(last(rows)..last(rows) + 2)],
                unwritten,
            ),
        ] {
            let found = said(judge(case, number, mistakes));
            assert!(found.starts_with(want), "{of}, {why}: {found}");
        }
        let Err(AttentionFault::Value { wanted, .. }) = judge(&all, number, set(last(rows))) else {
            panic!("{of} is wrong");
        };
        let [within, beyond] = edge(BF16, wanted.value, wanted.bound());
        let with = |bits| said(judge(&all, number, Mistake::element(BF16, last(rows), bits)));
        assert_eq!(with(within), right, "{of}: within the bound");
        assert!(with(beyond).starts_with(&format!("element 63 of {of} ")), "{of}: {}", with(beyond));
    }
}

#[test]
fn mistakes_in_the_log_sum_exp_are_found() {
    let (all, some) = (case(usize::MAX), case(3));
    let set = |at: usize, value: f32| vec![Mistake::Set(at, value.to_le_bytes().to_vec())];
    for (why, case, mistakes, want) in [
        ("the last one", &all, set(39 * 4, 9.0), "the log-sum-exp of sequence 0, head 1, query 19 is 9"),
        (
            "infinite",
            &all,
            set(0, f32::NEG_INFINITY),
            "the log-sum-exp of sequence 0, head 0, query 0 is -inf",
        ),
        ("left out", &some, vec![Mistake::Unwritten(17 * 4..18 * 4)], "a log-sum-exp was not written"),
        ("behind", &all, set(40 * 4, 0.0), "memory after the log-sum-exp was written"),
    ] {
        let found = said(forward(case, SUMS, mistakes));
        assert!(found.starts_with(want), "{why}: {found}");
    }
    let Err(AttentionFault::Value { wanted, .. }) = forward(&all, SUMS, set(0, 9.0)) else { panic!("wrong") };
    let [within, beyond] = edge(Format::F32, wanted.value, wanted.bound());
    let with = |bits| said(forward(&all, SUMS, Mistake::element(Format::F32, 0, bits)));
    assert_eq!(with(within), "40 right");
    assert!(
        with(beyond).starts_with("the log-sum-exp of sequence 0, head 0, query 0 is "),
        "{}",
        with(beyond)
    );
}

/// The bytes of a buffer from a place on are set, judged, and put back.
pub(super) fn with_bytes<T>(
    engine: &mut Emulator,
    buffer: Buffer,
    (at, wrong): (usize, &[u8]),
    judge: impl FnOnce(&mut Emulator) -> Result<T, AttentionFault>,
) -> String {
    let right = engine.read(buffer).expect("memory");
    let mut bytes = right.clone();
    bytes[at..at + wrong.len()].copy_from_slice(wrong);
    engine.write(buffer, &bytes).expect("memory");
    let found = judge(engine).map_or_else(|fault| fault.to_string(), |_| "right".to_owned());
    engine.write(buffer, &right).expect("memory");
    found
}

/// Sequences of which one has no keys, and two have no queries; heads of Q share those of K.
pub(super) fn of_lengths() -> Case {
    let problem = AttentionProblem { heads: [4, 2], ..AttentionProblem::new(0, 0, [0; 2], 64) };
    Case { lengths: Some(vec![[5, 9], [0, 4], [7, 0], [0, 0], [8, 11]]), ..Case::new(problem) }
}

/// Rows of all sequences; the sequence and the query of each, and how many keys it sees.
pub(super) const QUERIES: [(usize, [u32; 3]); 5] =
    [(4, [0, 4, 9]), (5, [2, 0, 0]), (11, [2, 6, 0]), (12, [4, 0, 4]), (19, [4, 7, 11])];
pub(super) const KEYS: [(usize, [u32; 2]); 5] =
    [(0, [0, 0]), (8, [0, 8]), (9, [1, 0]), (13, [4, 0]), (23, [4, 10])];

/// 65536 as bf16, and as f32.
pub(super) const LARGE: [&[u8]; 2] = [&[0x80, 0x47], &[0, 0, 0x80, 0x47]];

#[test]
fn mistakes_in_sequences_of_different_lengths_are_found() {
    for spec in ["", "pages=16"] {
        let spec = format!("d=64 tile=64x64 mask=causal lengths=packed {spec}");
        let kernel = Attention::new(spec.parse().expect("a spec")).expect("legal");
        let (mut engine, case) = (Emulator::new(), of_lengths());
        let uploaded = case.upload(&mut engine, &kernel).expect("memory");
        kernel.run(&mut engine, &uploaded.call).expect("runs");
        assert_eq!(uploaded.compare(&mut engine).expect("right").rows, 80, "{spec}");
        for (head, (row, [sequence, query, seen])) in
            [0, 1, 3].into_iter().flat_map(|head| QUERIES.map(|of| (head, of)))
        {
            let place = format!("of sequence {sequence}, head {head}, query {query} is 65536, ");
            let row = head * 20 + row;
            for (what, buffer, wrong) in [
                ("element 3 of O", O, ((AROUND + row * 64 + 3) * 2, LARGE[0])),
                ("the log-sum-exp", SUMS, (row * 4, LARGE[1])),
            ] {
                let buffer = uploaded.buffers[buffer];
                let found = with_bytes(&mut engine, buffer, wrong, |engine| uploaded.compare(engine));
                assert!(found.starts_with(&format!("{what} {place}")), "{spec}: {found}");
                assert!(found.ends_with(&format!("({seen} keys)")), "{spec}: {found}");
            }
        }
        uploaded.free(&mut engine).expect("memory");
    }
}
