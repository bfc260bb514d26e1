//! Which memory a call reaches: every matrix from its first element to its last.

use collective::Plan;
use cute_rs::atom::Major;

use super::loaded::AnyCall;
use super::memory::DeviceSlice;
use crate::error::EngineError;
use crate::groups::{BatchedCall, Experts, GroupedCall, RaggedCall, Strides};
use crate::problem::{Call, GemmProblem, MatrixRef, WorkspaceRef};

/// Some bytes that a call reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    name: &'static str,
    address: u64,
    bytes: u64,
    writes: bool,
}

/// What a kernel's matrices are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Matrices {
    /// Contiguous directions of A and B.
    pub(super) majors: [Major; 2],
    /// Bytes of an element of A and B, and of C and D.
    pub(super) bytes: [u64; 2],
    /// D has `N >> halvings` columns.
    pub(super) halvings: u32,
}

impl Matrices {
    /// Those of a kernel whose output has elements of so many bits.
    pub(super) fn new(plan: &Plan, output_bits: u32) -> Self {
        let bytes = [plan.mainloop.types.element_bits(), output_bits].map(|bits| u64::from(bits.div_ceil(8)));
        Self { majors: plan.majors(), bytes, halvings: plan.epilogue.halvings }
    }
}

/// Checks that everything a call reaches is part of some slice.
///
/// # Errors
/// What is not, or a call whose matrices device memory names.
pub(super) fn check(
    kernel: &str,
    matrices: Matrices,
    call: &AnyCall,
    lent: &[DeviceSlice<'_>],
) -> Result<(), EngineError> {
    let spans = spans(matrices, call).ok_or_else(|| EngineError::Described { kernel: kernel.to_owned() })?;
    for Span { name, address, bytes, writes } in spans.into_iter().filter(|span| span.bytes > 0) {
        if !lent.iter().any(|slice| slice.covers(address, bytes, writes)) {
            let kernel = kernel.to_owned();
            return Err(EngineError::NotLent { kernel, name, address, bytes, writes });
        }
    }
    Ok(())
}

/// What a call reaches; what it does not, has no bytes. `None` where nobody knows.
fn spans(matrices: Matrices, call: &AnyCall) -> Option<[Span; 6]> {
    let one = Strides { a: 0, b: 0, c: 0, d: 0 };
    let (rows, counts, strides, offsets) = match *call {
        AnyCall::One(call) => (call, [1; 2], one, (0, 0)),
        AnyCall::Batched(BatchedCall { first, count, strides }) => (first, [count; 2], strides, (0, 0)),
        AnyCall::Ragged(RaggedCall { rows, experts: Experts { count, offsets, b_stride } }) => {
            let bytes = (u64::from(count) + 1) * 4;
            (rows, [1, count], Strides { b: b_stride, ..one }, (offsets, bytes))
        }
        AnyCall::Grouped(GroupedCall { .. }) => return None,
    };
    let Call { problem: GemmProblem { m, n, k }, a, b, c, d, alpha, beta, workspace } = rows;
    let Matrices { majors: [a_major, b_major], bytes: [operand, output], halvings } = matrices;
    let empty = m == 0 || n == 0 || counts[1] == 0;
    let multiplied = !empty && k > 0 && alpha != 0.0;
    let lines = |major, mn, k| if major == Major::K { [mn, k] } else { [k, mn] };
    // The last element's end, in elements.
    let matrix = |name,
                  there,
                  matrix: MatrixRef,
                  [lines, length]: [u32; 2],
                  size: u64,
                  (count, stride): (u32, u64),
                  writes| {
        let elements = u128::from(lines.saturating_sub(1)) * u128::from(matrix.pitch)
            + u128::from(count.saturating_sub(1)) * u128::from(stride)
            + u128::from(length);
        let bytes = u64::try_from(elements * u128::from(size)).unwrap_or(u64::MAX);
        Span { name, address: matrix.address, bytes: if there { bytes } else { 0 }, writes }
    };
    let none = MatrixRef { address: 0, pitch: 0 };
    let WorkspaceRef { address, bytes } = workspace.unwrap_or(WorkspaceRef { address: 0, bytes: 0 });
    let (offsets, offset_bytes) = offsets;
    Some([
        matrix("A", multiplied, a, lines(a_major, m, k), operand, (counts[0], strides.a), false),
        matrix("B", multiplied, b, lines(b_major, n, k), operand, (counts[1], strides.b), false),
        matrix("C", !empty && beta != 0.0, c.unwrap_or(none), [m, n], output, (counts[0], strides.c), false),
        matrix("D", !empty, d, [m, n >> halvings], output, (counts[0], strides.d), true),
        Span { name: "the workspace", address, bytes: if empty { 0 } else { bytes }, writes: true },
        Span {
            name: "the groups' offsets",
            address: offsets,
            bytes: if empty { 0 } else { offset_bytes },
            writes: false,
        },
    ])
}

#[cfg(test)]
mod tests {
    use cute_rs::atom::Major;

    use super::{Matrices, spans};
    use crate::driver::AnyCall;
    use crate::groups::{BatchedCall, Experts, GroupedCall, RaggedCall, Strides};
    use crate::problem::{Call, GemmProblem, MatrixRef, WorkspaceRef};

    #[test]
    fn calls_reach_from_the_first_element_to_the_last() {
        let at = |address, pitch| MatrixRef { address, pitch };
        let call = Call {
            problem: GemmProblem { m: 3, n: 5, k: 7 },
            a: at(1000, 10),
            b: at(2000, 20),
            c: Some(at(3000, 30)),
            d: at(4000, 40),
            alpha: 1.0,
            beta: 1.0,
            workspace: Some(WorkspaceRef { address: 5000, bytes: 64 }),
        };
        let strides = Strides { a: 100, b: 0, c: 300, d: 400 };
        let experts = Experts { count: 2, offsets: 6000, b_stride: 200 };
        let empty = Call { problem: GemmProblem { m: 0, ..call.problem }, ..call };
        for (why, call, want) in [
            ("all of it", AnyCall::One(call), [54, 174, 130, 170, 64, 0]),
            ("no C", AnyCall::One(Call { beta: 0.0, ..call }), [54, 174, 0, 170, 64, 0]),
            ("no product", AnyCall::One(Call { alpha: 0.0, ..call }), [0, 0, 130, 170, 64, 0]),
            ("nothing", AnyCall::One(empty), [0; 6]),
            (
                "three products, one B",
                AnyCall::Batched(BatchedCall { first: call, count: 3, strides }),
                [454, 174, 1330, 1770, 64, 0],
            ),
            ("groups", AnyCall::Ragged(RaggedCall { rows: call, experts }), [54, 574, 130, 170, 64, 12]),
        ] {
            let matrices = Matrices { majors: [Major::K, Major::K], bytes: [2, 2], halvings: 0 };
            let spans = spans(matrices, &call).expect("known");
            assert_eq!(spans.map(|span| span.bytes), want, "{why}");
            let written: Vec<&str> = spans.iter().filter(|span| span.writes).map(|span| span.name).collect();
            assert_eq!(written, ["D", "the workspace"], "{why}");
        }
        let turned = Matrices { majors: [Major::Mn, Major::Mn], bytes: [2, 4], halvings: 1 };
        let bytes = spans(turned, &AnyCall::One(call)).expect("known").map(|span| span.bytes);
        assert_eq!(bytes, [126, 250, 260, 328, 64, 0], "along M and N, with pairs of columns joined");
        let grouped = GroupedCall { count: 1, records: 16, alpha: 1.0, beta: 0.0, workspace: None };
        assert_eq!(spans(turned, &AnyCall::Grouped(grouped)), None);
    }
}
