//! The warp-specialised mainloop: tensor copies fill swizzled tiles, and `wgmma` reads them through
//! descriptors.

use core::marker::PhantomData;
use std::rc::Rc;

use ptx::{Builder, Value};

use super::maps::OwnMaps;
use super::{
    AnyMainloop, DeviceMainloop, MainloopSite, Pass, block_scaled, both_staged, group_scales, metadata,
    multiplier, quantized, scales, sparse,
};
use crate::operands::Visit;
use crate::pipeline::ClusterPosition;
use crate::plan::{MainloopSpec, Plan};
use crate::stage::{self, AnyTile, Loading, OperandMap, OperandTiles};

/// The warp-specialised mainloop with operand pair `O`, tile shape `T` and warp roles `R`. Addresses, leading
/// dimensions and strides of operands must be multiples of 16 B; for others use
/// [`CopyWgmma`](super::CopyWgmma).
///
/// One thread of the producer warpgroup copies an A tile `(M, K)` and a B tile `(N, K)` into each stage.
/// Every consumer warpgroup multiplies its rows of A by all of B: `M / consumers x N x K` per stage. It keeps
/// one stage's instructions in flight while it waits for the next, and then releases the older stage. In a
/// cluster, each CTA copies a slice of its tiles, or a whole B in turn if it has no slices of 8 rows, and multicasts it to the CTAs of its
/// row (A) or its column (B).
#[derive(Clone, Copy, Debug)]
pub struct TmaWgmma<O, T, R>(PhantomData<(O, T, R)>);

/// The mainloop of [`TmaWgmma`], also for [`BlockScaled`](crate::BlockScaled), [`Quantized`](crate::Quantized)
/// and [`Sparse`](crate::Sparse) operands. The plan holds all numbers. After the parameters of the operands
/// follow those of [`BlockScales`](crate::BlockScales), [`GroupScales`](crate::GroupScales) or
/// metadata.
pub(super) const TENSOR_COPIES: AnyMainloop = AnyMainloop::built_in(MainloopSpec::name, state, device);

fn state(of: &MainloopSite<'_>, visit: &mut dyn Visit) {
    let codes = of.plan.mainloop.weights();
    if let Some(weights) = codes {
        quantized::state(of, weights, visit);
    }
    for i in (0..2).filter(|&i| of.plan.needs.matrices[i] && (i == 1 || codes.is_none())) {
        of.map(i, OperandMap::NAMES[i], visit);
    }
    if of.plan.form.described() {
        OwnMaps::state(of, visit);
    }
    scales::state(of, visit);
    group_scales::state(of, visit);
    metadata::state(of, visit);
}

/// The tiles of a stage.
fn tiles<'f>(f: &'f Builder, plan: &Plan) -> Vec<AnyTile<'f>> {
    let operands = |which: &[usize]| OperandTiles::of(f, plan, which);
    let mut tiles = match plan.mainloop.weights() {
        // (WORDS, LINES, BLK_M / 64, PIPE), (BLK_N, BLK_K, PIPE)
        Some(weights) => vec![quantized::codes(f, plan, weights), operands(&[1])],
        // (BLK_M, BLK_K / 2, PIPE), (BLK_N, BLK_K, PIPE)
        None if plan.mainloop.is_sparse() => vec![operands(&[0]), operands(&[1])],
        // (BLK_M, BLK_K, PIPE), (BLK_N, BLK_K, PIPE)
        None => vec![operands(&[0, 1])],
    };
    tiles.extend(scales::tiles(f, plan));
    tiles.extend(group_scales::tiles(f, plan));
    tiles.extend(metadata::tiles(f, plan));
    tiles
}

fn device<'f>(f: &'f Builder, plan: &Plan) -> DeviceMainloop<'f> {
    both_staged(f, plan);
    let tiles: Rc<[AnyTile<'f>]> = tiles(f, plan).into();
    let device = DeviceMainloop::of_shared_tiles(tiles.clone());
    let device = match plan.mainloop.weights() {
        Some(weights) => device.with_multiply(move |pass, consumer, finish| {
            quantized::multiply(weights, pass, consumer, finish);
        }),
        None if plan.mainloop.is_sparse() => device.with_multiply(sparse::multiply),
        None if plan.mainloop.is_scaled() => device.with_multiply(block_scaled::multiply),
        None => device,
    };
    device.with_load_and_multiply(move |pass, consumer, ahead| {
        let Pass { f, plan, unit, .. } = pass;
        let loads = consumer.warpgroup.equals(0) & consumer.thread.equals(0);
        let cluster = ClusterPosition::new(f, plan.mainloop.cluster);
        let (bytes, load) = stage::load(&tiles, Loading { f, cluster, unit, loads: Some(loads) });
        let fill = |k_tile| ahead.fill(bytes, |stage| load(stage, k_tile));
        let first = || {
            let first = (unit.k_end - unit.k_begin).min(plan.ring.stages) + unit.k_begin;
            f.if_(loads, || f.repeat_from(unit.k_begin, first, fill));
        };
        // The stage that has just been multiplied is the next to be filled.
        let next = |k_tile: Value<'f, u32>| {
            let next = k_tile + plan.ring.stages;
            f.if_(loads & next.less_than(unit.k_end), || fill(next));
        };
        multiplier::in_turn(pass, consumer, (&first, &next))
    })
}
