//! The metadata of a call's sparse operand: its kernel parameters, and its tile in a stage.

use ptx::abi::{Argument, TensorElement};
use ptx::{Builder, Value};

use super::{AnyTile, BoxTile, WorkUnit};
use crate::operand::{Matrix, MatrixRef};
use crate::plan::Plan;
use crate::sparse::{ROWS, WORDS, unit_k};
use crate::tensor_map::{Companion, Dimension};

/// The values of the metadata's kernel parameters, for the kernel's operand A. The leading dimension counts
/// words from one block of 64 rows to the next. The stride counts words from one GEMM to the next.
///
/// # Errors
/// A sentence: which argument, the value found, and what is allowed.
pub fn arguments(plan: &Plan, given: MatrixRef, a: Matrix) -> Result<Vec<Argument>, String> {
    let (format, [batched, _]) = (plan.mainloop.operands[0].format, plan.operand_batches());
    let name = "the metadata words of a sparse operand";
    let companion = Companion { name, element: TensorElement::U32, given, operand: a, batched };
    let arguments = companion.arguments([
        Dimension::contiguous(WORDS, WORDS),
        Dimension {
            extent: a.k.div_ceil(unit_k(format)),
            stride: WORDS.into(),
            copied: plan.mainloop.metadata_words(),
        },
        Dimension { extent: a.mn.div_ceil(ROWS), stride: given.ld, copied: plan.mainloop.tile[0] / ROWS },
    ])?;
    Ok(arguments.collect())
}

/// The tile of a stage: metadata, if A is sparse.
pub(crate) fn tiles<'f>(f: &'f Builder, plan: &Plan) -> Option<AnyTile<'f>> {
    let ([batched, _], units) = (plan.operand_batches(), plan.mainloop.metadata_words());
    // (WORDS, UNITS, BLK_M / 64, PIPE)
    let place =
        move |unit: WorkUnit<'f>, k_tile: Value<'f, u32>| vec![f.constant(0), k_tile * units, unit.m / ROWS];
    let declare = || BoxTile::declare(f, ["metadata_map", "metadata_step"], batched, 2, place);
    plan.mainloop.is_sparse().then(declare)
}
