//! Sequences of different lengths: where their rows are, what their queries see, and their gradients.

use kernel::Emulator;

use super::super::Layout;
use super::super::tests::{AROUND, KEYS, LARGE, QUERIES, of_lengths, with_bytes};
use super::*;

const LENGTHS: [[u32; 2]; 5] = [[5, 9], [0, 4], [7, 0], [0, 0], [8, 11]];
const HEADS: [u32; 2] = [4, 2];

/// Masks are those of each sequence: its last query stands at its last key.
#[test]
fn queries_see_keys_of_their_sequence() {
    let places = Places::of(LENGTHS, HEADS, true);
    type Sees = fn(i64, i64) -> bool;
    for (mask, counts, sees) in [
        ("full", &[][..], (|_, _| true) as Sees),
        ("causal", &[], |at, key| key <= at),
        ("window", &[3, 1], |at, key| key >= at - 3 && key <= at + 1),
        ("chunked", &[4], |at, key| key <= at && at / 4 == key / 4),
    ] {
        let spec = format!("d=64 tile=64x64 lengths=packed mask={mask}").parse().expect("a spec");
        let kernel = AttentionBackward::new(spec).expect("legal");
        for (sequence, [queries, keys]) in LENGTHS.into_iter().enumerate() {
            for (row, key) in (0..queries).flat_map(|row| (0..keys).map(move |key| (row, key))) {
                let at = i64::from(row) + i64::from(keys) - i64::from(queries);
                let place = [sequence, 1, row as usize, key as usize];
                let found = super::sees((&kernel, &places), counts, &[], place);
                assert_eq!(found, sees(at, key.into()), "{mask}: {place:?}");
            }
        }
    }
}

#[test]
fn mistakes_in_gradients_are_found() {
    let spec = "d=64 tile=64x64 mask=causal lengths=packed";
    let kernel = AttentionBackward::new(spec.parse().expect("a spec")).expect("legal");
    let (mut engine, case) = (Emulator::new(), of_lengths());
    let uploaded = case.upload_backward(&mut engine, &kernel, None).expect("memory");
    kernel.run(&mut engine, &uploaded.call).expect("runs");
    assert_eq!(uploaded.compare(&mut engine).expect("right").rows, 80 + 48);
    let of_queries = [0, 1, 3].into_iter().flat_map(|head| {
        QUERIES.map(|(row, [sequence, query, _])| ("dQ", 5, head * 20 + row, [sequence, head as u32, query]))
    });
    let of_keys = [("dK", 6), ("dV", 7)].into_iter().flat_map(|(name, i)| {
        let places = [0, 1].into_iter().flat_map(|head| KEYS.map(|of| (head, of)));
        places.map(move |(head, (row, [sequence, key]))| {
            (name, i, head * 24 + row, [sequence, head as u32, key])
        })
    });
    for (name, i, row, [sequence, head, query]) in of_queries.chain(of_keys) {
        let wrong = ((AROUND + row * 64 + 5) * 2, LARGE[0]);
        let found = with_bytes(&mut engine, uploaded.buffers[i], wrong, |engine| uploaded.compare(engine));
        let want =
            format!("element 5 of {name} of sequence {sequence}, head {head}, query {query} is 65536, ");
        assert!(found.starts_with(&want), "{found}");
    }
    uploaded.free(&mut engine).expect("memory");
}

/// O and the log-sum-exp of the reference are about those that a kernel computes.
#[test]
fn results_of_the_forward_pass_are_those_of_a_kernel() {
    let equal = Case { layout: Layout::Gaps, lengths: None, ..of_lengths() };
    let problem = AttentionProblem { batch: 2, queries: 5, keys: 7, ..equal.problem };
    for (lengths, case) in [("packed", of_lengths()), ("equal", Case { problem, ..equal })] {
        let spec = format!("d=64 tile=64x64 mask=causal lengths={lengths}");
        let kernel = AttentionBackward::new(spec.parse().expect("a spec")).expect("legal");
        let forward = Attention::new(spec.parse().expect("a spec")).expect("legal");
        let [of_reference, of_kernel] = [None, Some(&forward)].map(|forward| {
            let mut engine = Emulator::new();
            let uploaded = case.upload_backward(&mut engine, &kernel, forward).expect("memory");
            if forward.is_some() && lengths == "equal" {
                kernel.run(&mut engine, &uploaded.call).expect("runs");
                uploaded.compare(&mut engine).expect("gradients of a kernel's O");
            }
            let o = &uploaded.tensors[3];
            let o: Vec<f64> = (0..o.rows()).flat_map(|row| o.values(row)).collect();
            (o, uploaded.log_sum_exp)
        });
        let close = |own: &[f64], other: &[f64], bound: f64| {
            own.len() == other.len()
                && own.iter().zip(other).all(|(own, other)| own == other || (own - other).abs() < bound)
        };
        assert!(close(&of_reference.0, &of_kernel.0, 0.03), "{lengths}: O");
        assert!(close(&of_reference.1, &of_kernel.1, 1e-3), "{lengths}: the log-sum-exp");
    }
}
