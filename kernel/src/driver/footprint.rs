//! The memory that a call accesses: every matrix from its first element to its last.

use collective::{BlockScales, Form, Format, GroupScales, MatrixRef, Plan, Record, WeightsSpec, sparse};
use cute_rs::atom::{Major, unit};

use super::memory::DeviceSlice;
use crate::error::EngineError;
use crate::problem::{Call, GemmProblem, WorkspaceRef};
use crate::products::Products;

/// A range of bytes that a call accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    name: &'static str,
    address: u64,
    pub(super) bytes: u64,
    writes: bool,
}

/// The layout of a kernel's matrices.
#[derive(Clone, Copy, Debug)]
pub(super) struct Matrices {
    /// Contiguous directions of A and B.
    pub(super) majors: [Major; 2],
    /// Bytes per element of A, of B, and of C and D.
    pub(super) bytes: [u64; 3],
    /// D has `N >> halvings` columns.
    pub(super) halvings: u32,
    /// Number of rows of A, and of columns of B, that share a scale; 0 without block scales.
    pub(super) scaled: [u32; 2],
    /// The packed storage of A or B, if it has fewer bits in memory than are multiplied.
    pub(super) weights: [Option<WeightsSpec>; 2],
    /// The format of A or B, if it is sparse.
    pub(super) sparse: [Option<Format>; 2],
}

impl Matrices {
    /// The matrices of a kernel whose output elements have `output_bits` bits.
    pub(super) fn new(plan: &Plan, output_bits: u32) -> Self {
        let [a, b] = plan.operand_bits();
        let bytes = [a, b, output_bits].map(|bits| u64::from(bits.div_ceil(8)));
        let (halvings, scaled, weights) = (plan.epilogue.halvings, plan.scaled(), plan.weights());
        let format = plan.mainloop.operands[0].format;
        let sparse = plan.sparse().map(|sparse| sparse.then_some(format));
        Self { majors: plan.majors(), bytes, halvings, scaled, weights, sparse }
    }
}

/// Checks that every range that a call accesses is inside a slice. Memory that the epilogue accesses in
/// addition to D is not checked here.
///
/// # Errors
/// The first range that is not inside a slice.
pub(super) fn check(
    kernel: &str,
    matrices: Matrices,
    (call, multiplied): (&Call<()>, bool),
    lent: &[DeviceSlice<'_>],
) -> Result<(), EngineError> {
    let spans = spans(matrices, call, multiplied).into_iter();
    for Span { name, address, bytes, writes } in spans.filter(|span| span.bytes > 0) {
        if !lent.iter().any(|slice| slice.covers(address, bytes, writes)) {
            let kernel = kernel.to_owned();
            return Err(EngineError::NotLent { kernel, name, address, bytes, writes });
        }
    }
    Ok(())
}

/// The ranges that a call accesses, in order: A, B, D, the workspace, the table of groups, the records,
/// scales of A, scales of B, group scales, zero points, metadata. A range that is not accessed has 0 bytes.
/// For GEMMs that records describe, only the records and the workspace.
pub(super) fn spans(matrices: Matrices, call: &Call<()>, multiplied: bool) -> [Span; 11] {
    let Call { problem: GemmProblem { m, n, k }, products, a, b, d, workspace, .. } = *call;
    let none = (0, 0);
    // The number of matrices of A, of B, and of C and D.
    let offsets = |count: u32, address| (address, (u64::from(count) + 1) * 4);
    let ([first, others, outputs], table, records) = match products {
        Products::One => ([1; 3], none, none),
        Products::Batched { count } => ([count; 3], none, none),
        Products::Ragged { count, offsets: at } => ([1, count, 1], offsets(count, at), none),
        Products::Masked { count, rows, .. } => ([1, count, 1], (rows, u64::from(count) * 4), none),
        Products::KGrouped { count, offsets: at } => ([1, 1, count], offsets(count, at), none),
        Products::Grouped { count, records } => {
            ([1; 3], none, (records, u64::from(count) * u64::from(Record::BYTES[0])))
        }
    };
    let table_of = match products.form() {
        Form::Masked => "the groups' numbers of rows",
        Form::Single | Form::Batched | Form::Ragged | Form::KGrouped | Form::Grouped => "the groups' offsets",
    };
    let Matrices { majors, bytes: [a_bytes, b_bytes, output], halvings, scaled, weights, sparse } = matrices;
    let [a_major, b_major] = majors;
    let empty = m == 0 || n == 0 || products.count() == 0;
    let multiplied = multiplied && !empty && k > 0;
    let lines = |major, mn, k| if major == Major::K { [mn, k] } else { [k, mn] };
    // From the first element of the matrix to the end of the last one.
    let matrix = |name, there, matrix: MatrixRef, [lines, length]: [u32; 2], size: u64, count: u32| {
        let elements = u128::from(lines.saturating_sub(1)) * u128::from(matrix.pitch)
            + u128::from(count.saturating_sub(1)) * u128::from(matrix.stride)
            + u128::from(length);
        let bytes = u64::try_from(elements * u128::from(size)).unwrap_or(u64::MAX);
        Span { name, address: matrix.address, bytes: if there { bytes } else { 0 }, writes: name == "D" }
    };
    let WorkspaceRef { address, bytes } = workspace.unwrap_or(WorkspaceRef { address: 0, bytes: 0 });
    let described = records.1 > 0;
    let given = call.scales.unwrap_or(BlockScales::NONE);
    let scales = |name, given: MatrixRef, rows: u32, mn: u32, count: u32| {
        matrix(name, multiplied && rows > 0, given, BlockScales::extents(mn, k, rows.max(1)), 4, count)
    };
    // Quantized weights are stored in blocks of 64 rows.
    let codes = |name, weights: WeightsSpec, matrix: MatrixRef, mn: u32, count: u32| {
        let codes = u128::from(mn.next_multiple_of(unit::ROWS)) * u128::from(matrix.pitch)
            + u128::from(count.saturating_sub(1)) * u128::from(matrix.stride);
        let bytes = u64::try_from(codes * u128::from(weights.code.bits()) / 8).unwrap_or(u64::MAX);
        Span { name, address: matrix.address, bytes: if multiplied { bytes } else { 0 }, writes: false }
    };
    let operand = |name, i: usize, of: MatrixRef, lines, mn, (bytes, count)| match (weights[i], sparse[i]) {
        (Some(weights), _) => codes(name, weights, of, mn, count),
        (None, Some(format)) => matrix(name, multiplied, of, [mn, sparse::kept(format, k)], bytes, count),
        (None, None) => matrix(name, multiplied, of, lines, bytes, count),
    };
    let metadata = {
        let [a, b] = sparse;
        let (mn, count) = if a.is_some() { (m, first) } else { (n, others) };
        let format = a.or(b);
        let lines = format.map_or([0; 2], |of| [mn.div_ceil(sparse::ROWS), sparse::metadata_pitch(of, k)]);
        let given = call.metadata.unwrap_or(MatrixRef::NONE);
        matrix("the metadata of a sparse operand", multiplied && format.is_some(), given, lines, 4, count)
    };
    let groups = call.group_scales.unwrap_or(GroupScales::NONE);
    let of_groups = |name, given: MatrixRef, zeros: bool| {
        let [a, b] = weights;
        let (mn, count) = if a.is_some() { (m, first) } else { (n, others) };
        let used = |of: &WeightsSpec| multiplied && of.group > 0 && (of.zeros || !zeros);
        match a.or(b).filter(used) {
            None => matrix(name, false, given, [0, 0], 0, 0),
            Some(of) => {
                let bytes = if zeros { 2 } else { of.scale_bytes() };
                matrix(name, true, given, GroupScales::extents(of, mn, k), bytes.into(), count)
            }
        }
    };
    let reached = |bytes| if empty && !described { 0 } else { bytes };
    [
        operand("A", 0, a, lines(a_major, m, k), m, (a_bytes, first)),
        operand("B", 1, b, lines(b_major, n, k), n, (b_bytes, others)),
        matrix("D", !empty, d, [m, n >> halvings], output, outputs),
        Span { name: "the workspace", address, bytes: reached(bytes), writes: true },
        Span { name: table_of, address: table.0, bytes: reached(table.1), writes: false },
        Span { name: "the records", address: records.0, bytes: records.1, writes: false },
        scales("A's scales", given.a, scaled[0], m, first),
        scales("B's scales", given.b, scaled[1], n, others),
        of_groups("the scales of weights", groups.scales, false),
        of_groups("the zero points of weights", groups.zeros, true),
        metadata,
    ]
}

#[cfg(test)]
mod tests {
    use collective::{BlockScales, Code, Format, GroupScales, MatrixRef, WeightsSpec};
    use cute_rs::atom::Major;

    use super::{Matrices, spans};
    use crate::problem::{Call, GemmProblem, WorkspaceRef};
    use crate::products::Products;

    #[test]
    fn calls_reach_from_the_first_element_to_the_last() {
        let call = Call {
            problem: GemmProblem { m: 3, n: 5, k: 7 },
            products: Products::One,
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
            workspace: Some(WorkspaceRef { address: 5000, bytes: 64 }),
        };
        let experts = Products::Ragged { count: 2, offsets: 6000 };
        let [matrices, turned] = [
            Matrices {
                majors: [Major::K, Major::K],
                bytes: [2, 2, 2],
                halvings: 0,
                scaled: [0; 2],
                weights: [None; 2],
                sparse: [None; 2],
            },
            Matrices {
                majors: [Major::Mn, Major::Mn],
                bytes: [2, 2, 4],
                halvings: 1,
                scaled: [0; 2],
                weights: [None; 2],
                sparse: [None; 2],
            },
        ];
        let scaled = Matrices { scaled: [1, 128], ..matrices };
        let weights = WeightsSpec { code: Code::U4, group: 32, zeros: true };
        let of_codes = Matrices { weights: [None, Some(weights)], ..matrices };
        // 5 rows take one block of 64 rows, with 64 codes per row; K = 40 is two groups.
        let of_weights = Call {
            problem: GemmProblem { k: 40, ..call.problem },
            b: MatrixRef::new(2000, 64).every(8192),
            ..call
        };
        // With K = 40, 20 elements are kept, and there is one unit of metadata for a block of 64 rows.
        let of_half = Matrices { sparse: [Some(Format::Bf16), None], ..matrices };
        let of_sparse = Call { a: MatrixRef::new(1000, 24).every(100), ..of_weights };
        for (why, matrices, call, multiplied, want) in [
            ("all of it", matrices, call, true, [54, 174, 170, 64, 0, 0, 0, 0, 0, 0, 0]),
            ("scales", scaled, call, true, [54, 174, 170, 64, 0, 0, 12, 4, 0, 0, 0]),
            (
                "scales of groups",
                scaled,
                Call { problem: GemmProblem { k: 300, ..call.problem }, products: experts, ..call },
                true,
                [640, 760, 170, 64, 12, 0, 44, 332, 0, 0, 0],
            ),
            ("weights", of_codes, of_weights, true, [120, 2048, 170, 64, 0, 0, 0, 0, 26, 42, 0]),
            (
                "weights of groups",
                of_codes,
                Call { products: experts, ..of_weights },
                true,
                [120, 6144, 170, 64, 12, 0, 0, 0, 106, 42, 0],
            ),
            ("a sparse A", of_half, of_sparse, true, [136, 592, 170, 64, 0, 0, 0, 0, 0, 0, 512]),
            ("no product", matrices, call, false, [0, 0, 170, 64, 0, 0, 0, 0, 0, 0, 0]),
            (
                "nothing",
                matrices,
                Call { problem: GemmProblem { m: 0, ..call.problem }, ..call },
                true,
                [0; 11],
            ),
            (
                "three products, one B",
                matrices,
                Call { products: Products::Batched { count: 3 }, ..call },
                true,
                [454, 174, 1770, 64, 0, 0, 0, 0, 0, 0, 0],
            ),
            (
                "groups",
                matrices,
                Call { products: experts, b: call.b.every(200), ..call },
                true,
                [54, 574, 170, 64, 12, 0, 0, 0, 0, 0, 0],
            ),
            (
                "groups along K",
                matrices,
                Call { products: Products::KGrouped { count: 2, offsets: 6000 }, ..call },
                true,
                [54, 174, 970, 64, 12, 0, 0, 0, 0, 0, 0],
            ),
            (
                "along M and N, with pairs of columns joined",
                turned,
                call,
                true,
                [126, 250, 328, 64, 0, 0, 0, 0, 0, 0, 0],
            ),
        ] {
            let spans = spans(matrices, &call, multiplied);
            assert_eq!(spans.map(|span| span.bytes), want, "{why}");
            let written: Vec<&str> = spans.iter().filter(|span| span.writes).map(|span| span.name).collect();
            assert_eq!(written, ["D", "the workspace"], "{why}");
        }
        let grouped = Call { workspace: call.workspace, ..Call::grouped(2, 16).with(()) };
        let spans = spans(turned, &grouped, true);
        assert_eq!(
            spans.map(|span| span.bytes),
            [0, 0, 0, 64, 0, 160, 0, 0, 0, 0, 0],
            "records, and not yet what they say"
        );
    }
}
