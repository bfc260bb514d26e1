//! Scales and zero points of weights in few bits, as callers pass them.

use ptx::abi::TensorElement;
use ptx::{Builder, Value};

use super::{MainloopSite, WorkUnit};
use crate::operand::{Matrix, MatrixRef};
use crate::operands::Visit;
use crate::plan::{Plan, WeightsSpec};
use crate::stage::{AnyTile, BoxTile, OperandMap};
use crate::tensor_map::{self, Companion, Dimension};

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

    /// The scales and the zero points, each with the name of its memory.
    pub const fn named(&mut self) -> [(&'static str, &mut MatrixRef); 2] {
        let Self { scales, zeros } = self;
        [(FACTORS[0], scales), (FACTORS[1], zeros)]
    }

    /// Checks the factors of the kernel's operand A.
    ///
    /// # Errors
    /// A sentence: which argument, the value found, and what is allowed.
    pub fn check(&self, plan: &Plan, a: Matrix) -> Result<(), String> {
        let Some(weights) = plan.mainloop.weights() else { return Ok(()) };
        kinds(weights).try_for_each(|i| self.companion(plan, weights, a, i).check())
    }

    /// The scales (0) or the zero points (1).
    fn companion(&self, plan: &Plan, weights: WeightsSpec, a: Matrix, i: usize) -> Companion<2> {
        let [m, _, k] = plan.mainloop.tile;
        let [groups, rows] = Self::extents(weights, a.mn, a.k);
        let (name, given) = named(*self, i);
        let format = plan.mainloop.operands[0].format.tensor();
        Companion {
            name,
            element: if i == 0 && weights.powers() { TensorElement::U8 } else { format },
            given,
            operand: a,
            batched: plan.operand_batches()[0],
            dimensions: [
                Dimension::contiguous(rows, m),
                Dimension { extent: groups, stride: given.ld, copied: weights.groups(k) },
            ],
        }
    }
}

/// The names of the memory: scales and zero points.
pub const FACTORS: [&str; 2] = ["the scales of weights", "the zero points of weights"];

/// The scales (0) or the zero points (1), and the name of their memory.
fn named(mut factors: GroupScales, i: usize) -> (&'static str, MatrixRef) {
    factors.named().map(|(name, factors)| (name, *factors))[i]
}

/// The names of the kernel parameters.
const NAMES: [[&str; 2]; 2] = [["scales_map", "scales_step"], ["zeros_map", "zeros_step"]];

/// Which of scales (0) and zero points (1) weights have.
fn kinds(weights: WeightsSpec) -> impl Iterator<Item = usize> {
    [weights.group > 0, weights.zeros].into_iter().enumerate().filter(|(_, has)| *has).map(|(i, _)| i)
}

/// States the kernel parameters of the factors that the weights have.
pub(crate) fn state(of: &MainloopSite<'_>, visit: &mut dyn Visit) {
    let (plan, [batched, _]) = (of.plan, of.plan.operand_batches());
    let Some(weights) = plan.mainloop.weights() else { return };
    for i in kinds(weights) {
        let value = of.operands.map(|of| of.group_scales.companion(plan, weights, of.matrices[0], i).map());
        let (name, _) = named(GroupScales::NONE, i);
        tensor_map::state(NAMES[i], name, (batched, value), visit);
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
    let tile = |i| BoxTile::of(OperandMap::of(f, NAMES[i], batched), plan.ring.place(2 + i), place);
    kinds(weights).map(tile).collect()
}
