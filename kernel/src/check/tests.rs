//! Outputs that share elements, tables of groups, and lines of weights, each at its boundary.

use std::collections::HashSet;

use super::*;
use crate::find;
use crate::spec::KernelSpec;

fn output([m, n]: [u32; 2], ld: u64, [count, stride]: [u32; 2]) -> Output {
    Output { address: 0x1000, m, n, ld, batch: Batch { count, stride: stride.into() } }
}

/// What is called apart has no element twice, for all small outputs; and what is packed in either way is apart.
#[test]
fn outputs_that_are_apart_share_nothing() {
    let mut shared = 0;
    for (m, n) in (0..5).flat_map(|m| (0..5).map(move |n| (m, n))) {
        for (gap, count, stride) in (0..12)
            .flat_map(|gap| (0..4).flat_map(move |count| (0..24).map(move |stride| (gap, count, stride))))
        {
            let of = output([m, n], u64::from(n + gap), [count, stride]);
            let mut elements = HashSet::new();
            let places = (0..u64::from(count)).flat_map(|i| (0..u64::from(m)).map(move |row| (i, row)));
            let all = places.flat_map(|(i, row)| (0..u64::from(n)).map(move |column| [i, row, column]));
            let twice = all
                .map(|[i, row, column]| i * of.batch.stride + row * of.ld + column)
                .any(|at| !elements.insert(at));
            assert!(!(apart(of) && twice), "{of:?}");
            shared += usize::from(twice);
        }
    }
    assert!(shared > 1000, "{shared}");
    for (why, of, wanted) in [
        ("one", output([3, 8], 8, [1, 0]), true),
        ("one after the other", output([3, 8], 10, [2, 28]), true),
        ("the last row of one is the first of the next", output([3, 8], 10, [2, 27]), false),
        ("rows next to each other", output([3, 8], 24, [3, 8]), true),
        ("rows that overlap", output([3, 8], 24, [3, 7]), false),
        ("rows of which the last reaches the next line", output([3, 8], 23, [3, 8]), false),
        ("the same", output([3, 8], 8, [2, 0]), false),
    ] {
        assert_eq!(apart(of), wanted, "{why}");
    }
}

/// D has half of N columns where an epilogue joins them in pairs, and its rows must be whole where there are any.
#[test]
fn columns_of_d() {
    let plan = |text: &str| text.parse::<KernelSpec>().expect("a spec").kernel().expect("legal").plan();
    let call = |m, n| Call::of(GemmProblem { m, n, k: 64 }).a(0x10000, 64).b(0x20000, 64).d(0x40000, 64);
    let gated = plan("tile=64x64x64 epilogue=swiglu store=direct");
    for (n, columns) in [(64, 32), (32, 16)] {
        let checked = call(10, n).check(&gated, true).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(checked.d.n, columns);
    }
    let copied = plan("tile=64x64x64 store=tma");
    let error = call(1, 9).check(&copied, true).err();
    assert!(matches!(error, Some(LaunchError::Row { bytes: 18, alignment: 16, .. })), "{error:?}");
    assert!(call(0, 9).check(&copied, true).is_ok());
    // Of no groups, nothing is read, and there is no table.
    let rows = plan("form=ragged tile=64x64x64 store=direct");
    for (count, read) in [(0, false), (1, true)] {
        let products = GroupedProblem::GroupedContiguous { count, offsets: 0 };
        let error = Call { products, ..call(10, 64) }.check(&rows, true).err();
        assert_eq!(error.is_some(), read, "{count} groups: {error:?}");
    }
}

/// D of several GEMMs: columns after the division of pairs, and outputs that overlap.
#[test]
fn batches() {
    let gemm = "form=batched tile=64x64x64 store=direct"
        .parse::<KernelSpec>()
        .expect("a spec")
        .kernel()
        .expect("legal");
    let plan = gemm.plan();
    let call = |count, stride| {
        let call = Call::of(GemmProblem { m: 10, n: 16, k: 8 }).d(0x4000, 16);
        let [a, b] = [0x1000, 0x2000].map(|address| MatrixRef::new(address, 8).every(640));
        Call {
            a,
            b,
            d: MatrixRef::new(0x4000, 16).every(stride),
            products: GroupedProblem::Batched { count },
            ..call
        }
    };
    let checked = call(3, 160).check(&plan, true).unwrap_or_else(|error| panic!("{error}"));
    let [a, b] = checked.operands;
    assert_eq!(
        [a.batch, b.batch, checked.d.batch].map(|batch| [batch.count, batch.stride as u32]),
        [[3, 640], [3, 640], [3, 160]]
    );
    assert_eq!(([a.mn, a.k], [b.mn, b.k], [checked.d.m, checked.d.n]), ([10, 8], [16, 8], [10, 16]));
    let overlap = LaunchError::Overlap { stride: 152, m: 10, n: 16, ld: 16 };
    assert_eq!(call(3, 152).check(&plan, true).err(), Some(overlap));
    // Of one, the distance is nothing; of none, nothing is checked of it.
    let nowhere = Call { a: MatrixRef::NONE, b: MatrixRef::NONE, d: MatrixRef::NONE, ..call(0, 152) };
    for legal in [call(1, 152), call(0, 152), nowhere] {
        assert!(legal.check(&plan, true).is_ok(), "{legal:?}");
    }
    // Where nothing is multiplied, A and B are not read.
    let unread = Call { a: MatrixRef::NONE, b: MatrixRef::NONE, ..call(3, 160) };
    let checked = unread.check(&plan, false).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(checked.operands.map(|operand| (operand.address, operand.k, operand.ld)), [(0, 0, 8); 2]);
    assert_eq!(unread.check(&plan, true).err(), Some(LaunchError::Null { name: "A" }));
    // Rows of D are checked even if there are no columns.
    let staged = find("128x256-bf16-kk").expect("a name").plan();
    let narrow = |m, n| Call::of(GemmProblem { m, n, k: 0 }).d(0x4000, 40).check(&staged, true).err();
    assert_eq!(narrow(4, 36), Some(LaunchError::Row { name: "D", bytes: 72, alignment: 16 }));
    assert_eq!([narrow(0, 36), narrow(4, 0), narrow(4, 40)], [None, None, None]);
}

/// The table of groups begins at a multiple of its words, and masked groups fit into M rows.
#[test]
fn tables_of_groups() {
    const MOST: u32 = 320;
    let of = |products: GroupedProblem, m| products.check(m, MOST);
    let address = |name, address, alignment| Err(LaunchError::Address { name, address, alignment });
    let masked = |rows, count, room| GroupedProblem::GroupedMasked { count, rows, room };
    for (products, m, wanted) in [
        (GroupedProblem::One, 0, Ok(())),
        (GroupedProblem::Batched { count: 1 << 20 }, 0, Ok(())),
        (GroupedProblem::GroupedContiguous { count: 4, offsets: 0x1004 }, 9, Ok(())),
        (
            GroupedProblem::GroupedContiguous { count: 4, offsets: 0x1002 },
            9,
            address("the groups' offsets", 0x1002, 4),
        ),
        (
            GroupedProblem::KGrouped { count: 4, offsets: 0 },
            9,
            Err(LaunchError::Null { name: "the groups' offsets" }),
        ),
        (masked(0x1004, 3, 30), 90, Ok(())),
        (masked(0x1004, 3, 30), 89, Err(LaunchError::Room { count: 3, room: 30, rows: 89 })),
        (
            masked(0x1004, 3, 1 << 31),
            u32::MAX,
            Err(LaunchError::Room { count: 3, room: 1 << 31, rows: u32::MAX }),
        ),
        (masked(0x1003, 3, 30), 90, address("the groups' numbers of rows", 0x1003, 4)),
        (GroupedProblem::PointerArray { count: 4, records: 0x1010 }, 9, Ok(())),
        (GroupedProblem::PointerArray { count: 4, records: 0x1008 }, 9, address("the records", 0x1008, 16)),
    ] {
        assert_eq!(of(products, m), wanted, "{products:?}");
    }
    let most = MOST;
    let groups = |count| of(GroupedProblem::GroupedContiguous { count, offsets: 0x1000 }, 9);
    assert_eq!(
        (groups(most), groups(most + 1)),
        (Ok(()), Err(LaunchError::Groups { groups: most + 1, most }))
    );
}

/// A line of weights has whole units along K, below 2^34 elements.
#[test]
fn lines_of_weights() {
    let gemm =
        "weights-b=u4 group=64 swap=yes".parse::<KernelSpec>().expect("a spec").kernel().expect("legal");
    let plan = gemm.plan();
    let of = *plan.call_operands().iter().find(|of| of.weights.is_some()).expect("weights");
    let unit = u64::from(unit::k(4));
    let rule = MatrixRule { name: "B", contiguous: 64, lines: 8, bits: 4, alignment: 16 };
    let units = |of, ld| check_units(of, &rule, MatrixRef::new(0x1000, ld));
    let wrong =
        |ld: u64| Err(LaunchError::Pitch { name: "B", bytes: u128::from(ld) / 2, alignment: unit / 2 });
    for (ld, wanted) in [
        (unit, Ok(())),
        (3 * unit, Ok(())),
        (unit + unit / 2, wrong(unit + unit / 2)),
        ((1 << 34) - unit, Ok(())),
        (1 << 34, wrong(1 << 34)),
    ] {
        assert_eq!(units(of, ld), wanted, "{ld}");
    }
    // What is not in few bits has no units.
    assert_eq!(units(OperandSpec { weights: None, ..of }, 7), Ok(()));
}
