//! Scales and zero points of weights in few bits, as callers pass them.

use ptx::abi::{Argument, TensorElement};
use ptx::{Builder, Value};

use super::{AnyTile, BoxTile, WorkUnit};
use crate::operand::{Matrix, MatrixRef};
use crate::plan::{Plan, WeightsSpec};
use crate::tensor_map::{Companion, Dimension};

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
        let [groups, rows] = Self::extents(weights, a.mn, a.k);
        let format = plan.mainloop.operands[0].format.tensor();
        let scale = if weights.powers() { TensorElement::U8 } else { format };
        let scales = (weights.group > 0).then_some(("the scales of weights", self.scales, scale));
        let zeros = weights.zeros.then_some(("the zero points of weights", self.zeros, format));
        let mut arguments = Vec::new();
        for (name, given, element) in [scales, zeros].into_iter().flatten() {
            let companion = Companion { name, element, given, operand: a, batched };
            arguments.extend(companion.arguments([
                Dimension::contiguous(rows, m),
                Dimension { extent: groups, stride: given.ld, copied: weights.groups(k) },
            ])?);
        }
        Ok(arguments)
    }
}

/// The tiles of a stage: scales and zero points, as far as the weights have them.
pub(crate) fn tiles<'f>(f: &'f Builder, plan: &Plan) -> Vec<AnyTile<'f>> {
    let Some(weights) = plan.mainloop.weights() else { return Vec::new() };
    let ([batched, _], k) = (plan.operand_batches(), plan.mainloop.tile[2]);
    let place = move |unit: WorkUnit<'f>, k_tile: Value<'f, u32>| {
        let group =
            if weights.group > k { k_tile / (weights.group / k) } else { k_tile * (k / weights.group) };
        vec![unit.m, group]
    };
    // (BLK_M, GROUPS, PIPE)
    let tile = |names, number| BoxTile::declare(f, names, batched, number, place);
    let scales = (weights.group > 0).then(|| tile(["scales_map", "scales_step"], 2));
    let zeros = weights.zeros.then(|| tile(["zeros_map", "zeros_step"], 3));
    scales.into_iter().chain(zeros).collect()
}
