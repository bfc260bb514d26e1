//! The comparison of attention with its reference, forward and backward: each mistake is found, and nothing else.

use attention::AttentionProblem;
use attention::backward::AttentionBackward;

use super::*;
use crate::verify::tampered::{Mistake, Tampered, edge};

/// Numbers of buffers, in the order in which a case allocates them.
const O: usize = 3;
const SUMS: usize = 4;
const D_Q: usize = 7;
const D_K: usize = 8;
const D_V: usize = 9;

/// Elements before and after each tensor.
const AROUND: usize = 64;

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
        let row =
            if number == O { "a row of O was not written" } else { "a row of a gradient was not written" };
        let wrong = format!("element 63 of {of} of sequence 0, head 1, query {} is 65536", rows - 1);
        for (why, case, mistakes, want) in [
            ("nothing", &all, vec![], right),
            ("the last element", &all, set(last(rows)), &wrong),
            ("before", &all, set(at(rows, [0, 0, 0]) - 2), around),
            ("between rows", &all, set(at(rows, [0, 3, 64])), around),
            ("behind", &all, set(last(rows) + 2), around),
            ("a row is left out", &all, left_out(rows, 7), row),
            ("any row is left out", &some, left_out(rows, 11), row),
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
