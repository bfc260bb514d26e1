//! NaN and infinity in Q, K and V: they are in the results where they belong.

use super::*;

/// A NaN in K reaches the queries that see its key, and an infinity in V its column. All else is 1. The first two queries see no key. In
/// the column of the infinity, queries that do not see its key may have NaN: a weight of zero times it.
#[test]
fn nan_and_infinity() {
    let (nan, infinity, key_of_nan, key_of_infinity, column) = (0x7fc0, 0x7f80, 70, 20, 9);
    for spec in [
        "d=64 tile=64x64 mask=causal",
        "d=64 tile=128x32 mask=causal lazy=on overlap=on",
        "d=64 tile=64x64 mask=causal parts=2",
    ] {
        let kernel = kernel(spec);
        let mut engine = Emulator::new().with_multiprocessors(3);
        let ones = |rows: usize| vec![0x3f80_u16; rows * 64];
        let (queries, keys) = (100_usize, 98);
        let (q, mut k, mut v) = (ones(queries), ones(keys), ones(keys));
        k[key_of_nan * 64 + 5] = nan;
        v[key_of_infinity * 64 + column] = infinity;
        let mut upload = |elements: &[u16]| {
            engine
                .upload(&elements.iter().flat_map(|bits| bits.to_le_bytes()).collect::<Vec<_>>())
                .expect("memory")
        };
        let [q, k, v, o] = [upload(&q), upload(&k), upload(&v), upload(&ones(queries))];
        let sums = engine.allocate(queries * 4).expect("memory");
        let at = |of: falchion::kernel::Buffer, rows| HeadsRef::heads_first(of.address, [1, rows, 64]);
        let problem = AttentionProblem::new(1, 1, [100, 98], 64);
        let mut call = AttentionCall::new(problem, [at(q, 100), at(k, 98), at(v, 98)], at(o, 100));
        call.log_sum_exp = sums.address;
        call.workspace = engine.workspace(kernel.workspace(&call)).expect("memory");
        kernel.run(&mut engine, &call).expect("a launch");
        let (o, sums) = (engine.read(o).expect("O"), engine.read(sums).expect("sums"));
        let element = |row: usize, column: usize| {
            let at = (row * 64 + column) * 2;
            f32::from_bits(u32::from(u16::from_le_bytes([o[at], o[at + 1]])) << 16)
        };
        for row in 0..queries {
            // The last query stands at the last key.
            let seen = (row + keys + 1).saturating_sub(queries);
            let sum = f32::from_le_bytes(sums[row * 4..][..4].try_into().expect("four bytes"));
            let (low, high) = (element(row, column - 1), element(row, column));
            match seen {
                0 => assert!(low == 0.0 && sum == f32::NEG_INFINITY, "{spec}, {row}: {low}, {sum}"),
                _ if seen > key_of_nan => {
                    assert!(low.is_nan() && high.is_nan() && sum.is_nan(), "{spec}, {row}: {low}, {sum}");
                }
                _ => {
                    assert!((low - 1.0).abs() < 0.01 && sum.is_finite(), "{spec}, {row}: {low}, {sum}");
                    // Parts are merged by products with weights, where an infinity may become NaN.
                    let merged = spec.contains("parts") && high.is_nan();
                    assert!(
                        seen <= key_of_infinity || high == f32::INFINITY || merged,
                        "{spec}, {row}: {high}"
                    );
                }
            }
        }
    }
}
