//! Sequences of different lengths: where their rows are, what their queries see, and their gradients.

use kernel::Emulator;

use super::super::Layout;
use super::super::tests::{AROUND, KEYS, LARGE, QUERIES, of_lengths, with_bytes};
use super::*;

const LENGTHS: [[u32; 2]; 5] = [[5, 9], [0, 4], [7, 0], [0, 0], [8, 11]];
const HEADS: [u32; 2] = [4, 2];

/// Every row of every head has a number, in the order of memory, and its place can be told from the number.
#[test]
fn rows_have_numbers() {
    for side in [0, 1] {
        let packed = Places::of(LENGTHS, HEADS, true);
        assert_eq!(packed.all(side), [20, 24][side]);
        let problem = AttentionProblem { heads: HEADS, ..AttentionProblem::new(3, 4, [6, 10], 64) };
        assert_eq!(packed.extents(side, &problem), [1, HEADS[side], packed.all(side)]);
        let heads = 0..HEADS[side] as usize;
        let rows = |of: [u32; 2]| 0..of[side] as usize;
        let mut next = 0..;
        for head in heads.clone() {
            for (sequence, of) in LENGTHS.into_iter().enumerate() {
                assert_eq!(packed.rows(sequence, side), of[side] as usize);
                for (row, number) in rows(of).zip(next.by_ref()) {
                    assert_eq!(packed.index(side, [sequence, head, row]), number);
                    assert_eq!(packed.place(side, number), [sequence, head, row]);
                }
            }
        }
        let equal = Places::of([[6, 10]; 3], HEADS, false);
        assert_eq!(equal.extents(side, &problem), [3, HEADS[side], [6, 10][side]]);
        let places = (0..3).flat_map(|sequence| heads.clone().map(move |head| (sequence, head)));
        let places = places.flat_map(|(sequence, head)| rows([6, 10]).map(move |row| [sequence, head, row]));
        for (number, place) in places.enumerate() {
            assert_eq!((equal.index(side, place), equal.place(side, number)), (number, place));
        }
        assert_eq!(Places::of([], HEADS, true).all(side), 0);
    }
}

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
                let found = places.sees(&kernel, counts, &[], place);
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

/// Numbers of the plan are told.
#[cfg(feature = "records")]
#[test]
fn numbers_are_those_of_the_plan() {
    for (spec, want) in [("d=64 tile=64x64", [1, 2, 2, 2]), ("d=64 tile=128x128", [2, 2, 2, 2])] {
        let kernel = AttentionBackward::new(spec.parse().expect("a spec")).expect("legal");
        let numbers = kernel.numbers();
        let names: Vec<_> = numbers.iter().map(|[name, ..]| &name[..]).collect();
        let told = ["consumer warpgroups", "stages of Q", "stages of dO", "buffers of dS"];
        assert_eq!(names, [&told[..], &["registers, producer", "registers, consumer"]].concat(), "{spec}");
        let values: Vec<u32> = numbers.iter().map(|[_, value, _]| value.parse().expect("a number")).collect();
        assert_eq!(values[..4], want, "{spec}: {numbers:?}");
        assert!(values[4..].iter().all(|count| (24..=255).contains(count)), "{spec}: {values:?}");
    }
}
