//! The metadata of a call's sparse operand: its kernel parameters, and its tile in a stage.

use ptx::abi::TensorElement;
use ptx::{Builder, Value};

use super::{MainloopSite, WorkUnit};
use crate::operand::{Matrix, MatrixRef};
use crate::operands::Visit;
use crate::plan::Plan;
use crate::sparse::{ROWS, WORDS, unit_k};
use crate::stage::{AnyTile, BoxTile, OperandMap};
use crate::tensor_map::{self, Companion, Dimension};

/// Checks the metadata of the kernel's operand A. The leading dimension counts words from one block of 64 rows to the next. The
/// stride counts words from one GEMM to the next.
///
/// # Errors
/// A sentence: which argument, the value found, and what is allowed.
pub fn check_metadata(plan: &Plan, given: MatrixRef, a: Matrix) -> Result<(), String> {
    companion(plan, given, a).check()
}

fn companion(plan: &Plan, given: MatrixRef, a: Matrix) -> Companion<3> {
    let units = a.k.div_ceil(unit_k(plan.mainloop.operands[0].format));
    let (rows, words) = (a.mn.div_ceil(ROWS), WORDS.into());
    Companion {
        name: METADATA,
        element: TensorElement::U32,
        given,
        operand: a,
        batched: plan.operand_batches()[0],
        dimensions: [
            Dimension::contiguous(WORDS, WORDS),
            Dimension { extent: units, stride: words, copied: plan.mainloop.metadata_words() },
            Dimension { extent: rows, stride: given.ld, copied: plan.mainloop.tile[0] / ROWS },
        ],
    }
}

/// The name of the memory.
pub const METADATA: &str = "the metadata words of a sparse operand";

/// The names of the kernel parameters.
const NAMES: [&str; 2] = ["metadata_map", "metadata_step"];

/// States the kernel parameters, if A is sparse.
pub(crate) fn state(of: &MainloopSite<'_>, visit: &mut dyn Visit) {
    if of.plan.mainloop.is_sparse() {
        let value =
            of.operands.map(|operands| companion(of.plan, operands.metadata, operands.matrices[0]).map());
        tensor_map::state(NAMES, METADATA, (of.plan.operand_batches()[0], value), visit);
    }
}

/// The tile of a stage: metadata, if A is sparse.
pub(crate) fn tiles<'f>(f: &'f Builder, plan: &Plan) -> Option<AnyTile<'f>> {
    let ([batched, _], units) = (plan.operand_batches(), plan.mainloop.metadata_words());
    // (WORDS, UNITS, BLK_M / 64, PIPE)
    let place =
        move |unit: WorkUnit<'f>, k_tile: Value<'f, u32>| vec![f.constant(0), k_tile * units, unit.m / ROWS];
    let tile = || BoxTile::of(OperandMap::of(f, NAMES, batched), plan.ring.place(2), place);
    plan.mainloop.is_sparse().then(tile)
}
