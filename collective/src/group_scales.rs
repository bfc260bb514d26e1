//! Scales and zero points of weights in few bits, as callers pass them.

use ptx::abi::{Argument, Promotion, TensorElement, TensorMap, TensorSwizzle};

use crate::operand::{Matrix, MatrixRef};
use crate::plan::{Plan, WeightsSpec};

/// The addresses of the scales and zero points of a call's weights ([`Quantized`](crate::Quantized)).
///
/// Both are matrices with one line per group of K. Along a line follow the rows of the weights (their
/// columns, if they are the caller's B). GPTQ and AWQ files have this layout. Elements have the weights'
/// format; the scales of `e2m1` are bytes that mean `2^(e - 127)`. Addresses, and the bytes from one group to
/// the next, are multiples of 16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupScales {
    /// The scales. `stride` is the distance from one GEMM of a batch to the next, in elements.
    pub scales: MatrixRef,
    /// The zero points, if the kernel subtracts them.
    pub zeros: MatrixRef,
}

impl GroupScales {
    /// Neither scales nor zero points.
    pub const NONE: Self = Self { scales: MatrixRef::NONE, zeros: MatrixRef::NONE };

    /// Extents of the scales, or of the zero points, of weights `(mn, k)`: groups, then rows.
    pub const fn extents(weights: WeightsSpec, mn: u32, k: u32) -> [u32; 2] {
        [if weights.group == 0 { 0 } else { k.div_ceil(weights.group) }, mn]
    }

    /// The values of the kernel parameters that follow the operands' own, for the kernel's operand A.
    ///
    /// # Errors
    /// A sentence: which argument, the value found, and what is allowed.
    pub fn arguments(&self, plan: &Plan, a: Matrix) -> Result<Vec<Argument>, String> {
        let Some(weights) = plan.mainloop.weights() else { return Ok(Vec::new()) };
        let [batched, _] = plan.operand_batches();
        let [m, _, k] = plan.mainloop.tile;
        let (groups, format) = (weights.groups(k), plan.mainloop.operands[0].format);
        let scale = if weights.powers() { TensorElement::U8 } else { format.tensor() };
        let mut arguments = Vec::new();
        let of_scales = (weights.group > 0).then_some(("the scales of weights", self.scales, scale));
        let of_zeros = weights.zeros.then_some(("the zero points of weights", self.zeros, format.tensor()));
        for (name, given, element) in [of_scales, of_zeros].into_iter().flatten() {
            check(name, given, a, element)?;
            arguments.push(
                map(given, a, GroupScales::extents(weights, a.mn, a.k), (element, [m, groups], batched))
                    .into(),
            );
            if batched {
                arguments.push(u32::from(given.stride != 0).into());
            }
        }
        Ok(arguments)
    }
}

fn check(name: &str, given: MatrixRef, a: Matrix, element: TensorElement) -> Result<(), String> {
    if a.k == 0 {
        return Ok(());
    }
    let MatrixRef { address, pitch, stride } = given;
    let step = 16 / u64::from(element.bytes());
    if address == 0 || !address.is_multiple_of(16) {
        return Err(format!("{name} are at {address:#x}, a multiple of 16 above 0 was needed"));
    }
    if pitch < a.mn.into() || pitch >= 1 << 38 || !pitch.is_multiple_of(step) {
        return Err(format!(
            "the leading dimension of {name} is {pitch}, a multiple of {step} from {} on, below 2^38, was needed",
            a.mn
        ));
    }
    if !stride.is_multiple_of(step) || stride >= 1 << 38 {
        return Err(format!("the stride of {name} is {stride}, a multiple of {step} below 2^38 was needed"));
    }
    Ok(())
}

fn map(
    given: MatrixRef,
    a: Matrix,
    [groups, rows]: [u32; 2],
    (element, box_dims, batched): (TensorElement, [u32; 2], bool),
) -> TensorMap {
    let bytes = u64::from(element.bytes());
    // If K is 0, nothing is read; the leading dimension was not checked and may be anything.
    let pitch = if a.k == 0 { 16 } else { given.pitch };
    let mut map = TensorMap {
        element,
        address: given.address,
        dims: vec![u64::from(rows).max(1), u64::from(groups).max(1)],
        strides: vec![pitch * bytes],
        box_dims: box_dims.to_vec(),
        swizzle: TensorSwizzle::None,
        promotion: Promotion::B128,
    };
    if batched {
        let several = given.stride != 0 && a.k > 0;
        map.dims.push(if several { a.batch.count.into() } else { 1 });
        map.strides.push(if several { given.stride } else { pitch } * bytes);
        map.box_dims.push(1);
    }
    map
}
