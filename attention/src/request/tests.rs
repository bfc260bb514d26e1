//! What requests say of their sequences without listing them, compared with sequence by sequence.

use collective::heads::Packed;
use kernel::Machine;

use super::*;

fn request(text: &str) -> AttentionRequest {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Lengths in kinds are the lengths one by one, where each counts on its own.
#[test]
fn kinds_are_all_sequences() {
    for text in ["3x2x70x90", "1x1x1", "7x1x100 lengths=packed", "4096x1x900 lengths=packed"] {
        let request = request(text);
        let kinds =
            request.kinds().flat_map(|(lengths, count)| core::iter::repeat_n(lengths, count as usize));
        assert_eq!(kinds.collect::<Vec<_>>(), request.lengths(), "{text}");
    }
    // More sequences than are told apart: as many, with as many rows but for a thousandth.
    let many = request("100000x1x5000 lengths=packed");
    let sums = |of: &mut dyn Iterator<Item = ([u32; 2], u32)>| {
        of.fold([0.0; 2], |[all, rows], (lengths, count)| {
            [all + f64::from(count), rows + f64::from(count) * f64::from(lengths[0])]
        })
    };
    let [all, rows] = sums(&mut many.kinds());
    let [_, wanted] = sums(&mut many.lengths().into_iter().map(|of| (of, 1)));
    assert!(all == 1e5 && (rows / wanted - 1.0).abs() < 1e-3, "{all} {rows} {wanted}");
    assert!(many.kinds().count() <= AttentionRequest::MOST_KINDS as usize);
}

/// The part that a window or chunks leave is the number of pairs that see each other, of all.
#[test]
fn windows_and_chunks_leave_what_is_counted() {
    for (mask, numbers) in
        [("window left=5 right=3", [5, 3]), ("window left=0 right=0", [0, 0]), ("chunked chunk=7", [7, 0])]
    {
        for lengths in [[1, 1], [20, 20], [9, 40], [40, 9], [0, 5], [5, 0], [100, 3]] {
            let [queries, keys] = lengths;
            let of = AttentionRequest {
                problem: AttentionProblem::new(1, 1, lengths, 64),
                ..request(&format!("1x1x8x8 mask={mask}"))
            };
            let sees = |row: i64, key: i64| {
                let own = row + i64::from(keys) - i64::from(queries);
                let [left, right] = numbers.map(i64::from);
                match of.mask {
                    Mask::Window => key >= own - left && key <= own + right,
                    Mask::Full | Mask::Causal | Mask::Chunked => {
                        key <= own && key >= own.div_euclid(left) * left
                    }
                }
            };
            let pairs =
                (0..i64::from(queries)).flat_map(|row| (0..i64::from(keys)).map(move |key| (row, key)));
            let seen = pairs.filter(|&(row, key)| sees(row, key)).count();
            let wanted = seen as f64 / (f64::from(queries) * f64::from(keys)).max(1.0);
            assert_eq!(of.seen(lengths), wanted, "{mask}, {lengths:?}");
        }
    }
}

/// Numbers that no launch takes are refused before anything is listed or ranked.
#[test]
fn what_no_launch_takes_is_not_ranked() {
    let machine = Machine::h200();
    for (problem, words) in [
        (AttentionProblem::new(u32::MAX, 1, [1, 1], 64), "the number of sequences is 4294967295"),
        (AttentionProblem::new(1, u32::MAX, [1, 1], 64), "the number of heads is 4294967295"),
        (AttentionProblem::new(1, 1, [u32::MAX, 1], 64), "the number of queries is 4294967295"),
        (AttentionProblem::new(1, 1, [1, 1 << 31], 64), "the number of keys is 2147483648"),
    ] {
        for lengths in [Lengths::Equal, Lengths::Packed] {
            let request = AttentionRequest { lengths, ..AttentionRequest::new(problem, 64) };
            let refused = Attention::ranked(&request, &machine, 1).map(drop);
            assert!(
                refused.clone().is_err_and(|of| of.contains(words) && of.contains("2147483648")),
                "{refused:?}"
            );
        }
    }
    // The largest that one takes.
    let most = i32::MAX as u32;
    for lengths in [Lengths::Equal, Lengths::Packed] {
        let problem = AttentionProblem::new(most, 1, [1, 1], 64);
        let request = AttentionRequest { lengths, ..AttentionRequest::new(problem, 64) };
        assert!(Attention::ranked(&request, &machine, 1).is_ok());
        assert_eq!(Attention::operations(&request), 256.0 * f64::from(most));
    }
}

/// Where sequences begin, if the host knows it.
#[test]
fn sequences_begin_and_end_in_their_tensors() {
    let problem = AttentionProblem::new(3, 1, [5, 9], 64);
    let packed = Packed { begins: [0; 2], rows: [9, 20] };
    for (queries, keys, wanted) in [
        ([0, 4, 4, 9], [0, 9, 11, 20], ""),
        ([0, 4, 4, 9], [0, 10, 11, 20], "a sequence has at most 9"),
        ([1, 4, 4, 9], [0, 9, 11, 20], "queries have 1 as number 0, 0 was needed"),
        ([0, 4, 4, 8], [0, 9, 11, 20], "queries have 8 as number 3, 9 was needed"),
        ([0, 4, 4, 9], [0, 9, 11, 21], "keys have 21 as number 3, 20 was needed"),
        ([0, 4, 3, 9], [0, 9, 11, 20], "queries have 4 as number 1 and 3 as the next"),
        ([0, u32::MAX, 4, 9], [0, 9, 11, 20], "queries have 0 as number 0 and 4294967295 as the next"),
    ] {
        let found = packed.check([problem.queries, problem.keys], &[&queries, &keys]);
        match wanted {
            "" => assert_eq!(found, Ok(())),
            words => assert!(found.clone().is_err_and(|of| of.contains(words)), "{words}: {found:?}"),
        }
    }
    let none = packed.check([problem.queries, problem.keys], &[&[]]);
    assert!(none.is_err_and(|of| of.contains("have nothing as number 0")));
}

/// What a call takes is known for each family, however large it is, and not less than what is counted one by one.
#[test]
fn demands_are_counted_and_do_not_overflow() {
    use kernel::Demand;
    let demand = |text: &str| -> Demand {
        let request = request(text);
        let kernel: Attention =
            Attention::of_spec(&request.spec()).unwrap_or_else(|error| panic!("{text}: {error}"));
        Demand::of(&kernel, &Attention::call(&request), 132).unwrap_or_else(|error| panic!("{text}: {error}"))
    };
    let row = |count: u128, d: u128| count * d * 2;
    // Tiles of 128 queries, blocks of 176 keys, and the store of a tile.
    let (one, tile) = (demand("2x3x300x500"), AttentionSpec::DEFAULT.tile);
    let blocks = u128::from(500u32.div_ceil(tile[1]));
    assert_eq!(one.work, 2 * 3 * u128::from(300u32.div_ceil(tile[0])) * (blocks + 1));
    assert_eq!(one.bytes, 2 * 3 * (2 * row(300, 128) + 2 * row(500, 128)));
    // A window of few keys is no work, and heads that are no tiles are.
    assert!(demand("1x1x1000000 mask=window left=100 right=0").work < 40_000);
    assert!(demand("1x1x1000000").work > 40_000_000);
    let most = demand("1048576x2147483647x1x2147483647");
    assert!(most.bytes >= u128::from(u64::MAX), "{most:?}");
    let none = demand("1x1073741824x1x0");
    assert!(none.bytes > 1 << 38 && none.work >= 1 << 30, "{none:?}");
}
