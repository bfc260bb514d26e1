//! How far calls reach.

use collective::{BlockScales, Code, Format, GroupScales, LinearArguments, MatrixRef, WeightsSpec};
use cute_rs::atom::Major;

use super::{Layouts, Memory, Visited};
use crate::buffer::Buffer;
use crate::call::Call;
use crate::problem::GemmProblem;
use crate::products::GroupedProblem;
use crate::types::Types;

/// The pieces of memory that are accessed: name, bytes, and whether they are written.
fn pieces<E: Visited>(layouts: &Layouts, mut call: Call<E>) -> Vec<(&'static str, u64, bool)> {
    let mut pieces = Vec::new();
    call.visit(layouts, &mut |Memory { name, extents, writes, .. }: Memory<'_>| {
        if extents.bytes() > 0 {
            pieces.push((name, extents.bytes(), writes));
        }
    });
    pieces
}

/// In the order of the numbers below.
const NAMES: [&str; 10] = [
    "A",
    "B",
    "D",
    "the workspace",
    "the groups' offsets",
    "A's scales",
    "B's scales",
    "the scales of weights",
    "the zero points of weights",
    collective::METADATA,
];

#[test]
fn calls_reach_from_the_first_element_to_the_last() {
    let call = Call {
        problem: GemmProblem { m: 3, n: 5, k: 7 },
        products: GroupedProblem::One,
        a: MatrixRef::new(1000, 10).every(100),
        b: MatrixRef::new(2000, 20),
        metadata: Some(MatrixRef::new(9800, 256).every(300)),
        group_scales: Some(GroupScales {
            scales: MatrixRef::new(9000, 8).every(40),
            zeros: MatrixRef::new(9500, 16),
        }),
        scales: Some(BlockScales { a: MatrixRef::new(7000, 4), b: MatrixRef::new(8000, 8).every(80) }),
        d: MatrixRef::new(4000, 40).every(400),
        epilogue: (),
        workspace: Some(Buffer { address: 5000, bytes: 64 }),
    };
    let experts = GroupedProblem::GroupedContiguous { count: 2, offsets: 6000 };
    let bf16 = Types::of(Format::Bf16);
    let plain = Layouts::new(bf16, [Major::K; 2]);
    let turned = Layouts { halvings: 1, ..Layouts::new(bf16.stored(Format::F32), [Major::Mn; 2]) };
    let scaled = Layouts { types: bf16.scaled([1, 128]), ..plain };
    let weights = WeightsSpec { code: Code::U4, group: 32, zeros: true };
    let of_codes = Layouts { types: bf16.weights([None, Some(weights)]), ..plain };
    // 5 rows take one block of 64 rows, with 64 codes per row; K = 40 is two groups.
    let of_weights = Call {
        problem: GemmProblem { k: 40, ..call.problem },
        b: MatrixRef::new(2000, 64).every(8192),
        ..call
    };
    // With K = 40, 20 elements are kept, and there is one unit of metadata for a block of 64 rows.
    let of_half = Layouts { types: bf16.sparse([true, false]), ..plain };
    let of_sparse = Call { a: MatrixRef::new(1000, 24).every(100), ..of_weights };
    for (why, layouts, call, multiplied, want) in [
        ("all of it", plain, call, true, [54, 174, 170, 64, 0, 0, 0, 0, 0, 0]),
        ("scales", scaled, call, true, [54, 174, 170, 64, 0, 12, 4, 0, 0, 0]),
        (
            "scales of groups",
            scaled,
            Call { problem: GemmProblem { k: 300, ..call.problem }, products: experts, ..call },
            true,
            [640, 760, 170, 64, 12, 44, 332, 0, 0, 0],
        ),
        ("weights", of_codes, of_weights, true, [120, 2048, 170, 64, 0, 0, 0, 26, 42, 0]),
        (
            "weights of groups",
            of_codes,
            Call { products: experts, ..of_weights },
            true,
            [120, 6144, 170, 64, 12, 0, 0, 106, 42, 0],
        ),
        ("a sparse A", of_half, of_sparse, true, [136, 592, 170, 64, 0, 0, 0, 0, 0, 512]),
        ("no product", plain, call, false, [0, 0, 170, 64, 0, 0, 0, 0, 0, 0]),
        ("nothing", plain, Call { problem: GemmProblem { m: 0, ..call.problem }, ..call }, true, [0; 10]),
        (
            "three products, one B",
            plain,
            Call { products: GroupedProblem::Batched { count: 3 }, ..call },
            true,
            [454, 174, 1770, 64, 0, 0, 0, 0, 0, 0],
        ),
        (
            "groups",
            plain,
            Call { products: experts, b: call.b.every(200), ..call },
            true,
            [54, 574, 170, 64, 12, 0, 0, 0, 0, 0],
        ),
        (
            "groups along K",
            plain,
            Call { products: GroupedProblem::KGrouped { count: 2, offsets: 6000 }, ..call },
            true,
            [54, 174, 970, 64, 12, 0, 0, 0, 0, 0],
        ),
        (
            "along M and N, with pairs of columns joined",
            turned,
            call,
            true,
            [126, 250, 328, 64, 0, 0, 0, 0, 0, 0],
        ),
    ] {
        let found = pieces(&Layouts { multiplied, ..layouts }, call);
        let bytes = NAMES.map(|name| found.iter().find(|piece| piece.0 == name).map_or(0, |piece| piece.1));
        assert_eq!(bytes, want, "{why}");
        assert_eq!(found.len(), want.iter().filter(|&&bytes| bytes > 0).count(), "{why}");
        let written: Vec<&str> = found.iter().filter(|piece| piece.2).map(|piece| piece.0).collect();
        assert!(written.is_empty() && want == [0; 10] || written == ["D", "the workspace"], "{why}");
    }
    for (why, beta, want) in [("C is read", 0.5, Some(("C", 170, false))), ("it is not", 0.0, None)] {
        let c = Some(MatrixRef::new(3000, 40).every(400));
        let found = pieces(&plain, call.with(LinearArguments { alpha: 1.0, beta, c }));
        assert_eq!(found.into_iter().find(|piece| piece.0 == "C"), want, "{why}");
    }
    let grouped = Call { workspace: call.workspace, ..Call::grouped(2, 16).with(()) };
    let records = [("the records", 160, false), ("the workspace", 64, true)];
    assert_eq!(pieces(&turned, grouped), records, "records, and not yet what they say");
    let masked = Call { products: GroupedProblem::GroupedMasked { count: 2, rows: 16, room: 1 }, ..call };
    assert_eq!(pieces(&plain, masked)[0], ("the groups' numbers of rows", 8, false));
}
