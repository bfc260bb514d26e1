//! The metadata of a call's sparse operand, as kernel parameters.

use ptx::abi::{Argument, Promotion, TensorElement, TensorMap, TensorSwizzle};

use super::{ROWS, WORDS, metadata_pitch, unit_k};
use crate::operand::{Matrix, MatrixRef};
use crate::plan::Plan;

/// The values of the metadata's kernel parameters, for the kernel's operand A. The leading dimension counts
/// words from one block of 64 rows to the next. The stride counts words from one GEMM to the next.
///
/// # Errors
/// A sentence: which argument, the value found, and what is allowed.
pub fn arguments(plan: &Plan, given: MatrixRef, a: Matrix) -> Result<Vec<Argument>, String> {
    let MatrixRef { address, pitch, stride } = given;
    let (format, [batched, _]) = (plan.mainloop.operands[0].format, plan.operand_batches());
    let units = u64::from(a.k.div_ceil(unit_k(format)));
    let (line, words) = (metadata_pitch(format, a.k), u64::from(WORDS));
    if a.k > 0 && (address == 0 || !address.is_multiple_of(16)) {
        return Err(format!(
            "the metadata of a sparse operand is at {address:#x}, a multiple of 16 above 0 was needed"
        ));
    }
    if a.k > 0 && (pitch < line.into() || !pitch.is_multiple_of(words) || pitch >= 1 << 36) {
        return Err(format!(
            "the leading dimension of a sparse operand's metadata is {pitch} words, a multiple of {words} from {line} on, below 2^36, was needed"
        ));
    }
    if !stride.is_multiple_of(4) || stride >= 1 << 36 {
        return Err(format!(
            "the stride of a sparse operand's metadata is {stride} words, a multiple of 4 below 2^36 was needed"
        ));
    }
    let pitch = if a.k == 0 { words } else { pitch };
    let mut map = TensorMap {
        element: TensorElement::U32,
        address: if a.k == 0 { 0 } else { address },
        dims: vec![words, units.max(1), u64::from(a.mn.div_ceil(ROWS)).max(1)],
        strides: vec![words * 4, pitch * 4],
        box_dims: vec![WORDS, plan.mainloop.metadata_words(), plan.mainloop.tile[0] / ROWS],
        swizzle: TensorSwizzle::None,
        promotion: Promotion::B128,
    };
    let mut arguments = Vec::new();
    if batched {
        let several = stride != 0 && a.k > 0;
        map.dims.push(if several { a.batch.count.into() } else { 1 });
        map.strides.push(if several { stride } else { pitch } * 4);
        map.box_dims.push(1);
        arguments.push(u32::from(stride != 0).into());
    }
    arguments.insert(0, map.into());
    Ok(arguments)
}
