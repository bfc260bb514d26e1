//! The warp-specialised mainloop: tensor copies fill swizzled tiles, and `wgmma` reads them through
//! descriptors.

use core::marker::PhantomData;

use ptx::{Builder, Value};

use super::maps::OwnMaps;
use super::stage_tile::{AnyTile, LoadTile, Loading, MAPS, OperandTiles};
use super::{
    Accumulators, Consumer, DeviceMainloop, Finish, MainloopEmitter, MainloopSite, Pass, block_scaled,
    both_staged, multiplier, quantized,
};
use super::{group_scales, metadata, scales};
use crate::operand::Matrix;
use crate::operands::Visit;
use crate::pipeline::{ClusterPosition, Position};
use crate::plan::{MainloopSpec, Plan};
use crate::sparse;

/// The warp-specialised mainloop with operand pair `O`, tile shape `T` and warp roles `R`. Addresses, leading
/// dimensions and strides of operands must be multiples of 16 B; for others use
/// [`CopyWgmma`](super::CopyWgmma).
///
/// One thread of the producer warpgroup copies an A tile `(M, K)` and a B tile `(N, K)` into each stage.
/// Every consumer warpgroup multiplies its rows of A by all of B: `M / consumers x N x K` per stage. It keeps
/// one stage's instructions in flight while it waits for the next, and then releases the older stage. In a
/// cluster, each CTA copies a slice of its tiles and multicasts it to the CTAs of its row (A) or its column
/// (B).
#[derive(Clone, Copy, Debug)]
pub struct TmaWgmma<O, T, R>(PhantomData<(O, T, R)>);

/// The emitter of [`TmaWgmma`], also for [`BlockScaled`](crate::BlockScaled), [`Quantized`](crate::Quantized)
/// and [`Sparse`](crate::Sparse) operands. The plan holds all numbers. After the parameters of the operands
/// follow those of [`BlockScales`](crate::BlockScales), [`GroupScales`](crate::GroupScales) or
/// metadata.
#[derive(Clone, Copy, Debug)]
pub struct TensorCopies;

impl MainloopEmitter for TensorCopies {
    fn name(&self, spec: &MainloopSpec) -> String {
        spec.name()
    }

    fn is_built_in(&self) -> bool {
        true
    }

    fn state(&self, of: &MainloopSite<'_>, visit: &mut dyn Visit) {
        let (plan, described) = (of.plan, of.plan.form.described());
        // In a grouped launch, records describe the matrices; nothing is read through the maps that the host
        // encodes.
        let map = |matrix: Matrix| Matrix { address: if described { 0 } else { matrix.address }, ..matrix };
        let [a_tile, b_tile] = &plan.operands;
        let [a_batched, b_batched] = plan.operand_batches();
        match plan.mainloop.weights() {
            Some(weights) => quantized::state(of, weights, visit),
            None => {
                let sparse = plan.mainloop.is_sparse();
                let kept = |a: Matrix| if sparse { sparse::kept(a_tile.format, a.k) } else { a.k };
                let a = of.matrix(0).map(|a| map(Matrix { k: kept(a), ..a }));
                a_tile.state(MAPS[0], of.name(0), (a_batched, a), visit);
            }
        }
        b_tile.state(MAPS[1], of.name(1), (b_batched, of.matrix(1).map(map)), visit);
        if described {
            OwnMaps::state(of, visit);
        }
        scales::state(of, visit);
        group_scales::state(of, visit);
        metadata::state(of, visit);
    }

    fn device<'f>(&self, f: &'f Builder, plan: &Plan) -> Box<dyn DeviceMainloop<'f> + 'f> {
        both_staged(f, plan);
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
        Box::new(Tiles(tiles))
    }
}

/// The tiles of a stage, on the device.
struct Tiles<'f>(Vec<AnyTile<'f>>);

impl<'f> Tiles<'f> {
    /// Emitted once per work unit: the bytes per stage, and what is emitted per k-tile.
    fn load<'a>(&'a self, of: Loading<'f, 'a>) -> (Value<'f, u32>, LoadTile<'a, 'f>) {
        let (bytes, loads): (Vec<_>, Vec<_>) = self.0.iter().map(|tile| tile.load(of)).unzip();
        let bytes = bytes.into_iter().fold(of.f.constant(0), |sum, bytes| sum + bytes);
        (bytes, Box::new(move |stage, k_tile| loads.iter().for_each(|load| load(stage, k_tile))))
    }
}

impl<'f> DeviceMainloop<'f> for Tiles<'f> {
    fn prefetch(&self, f: &'f Builder) {
        self.0.iter().for_each(|tile| tile.prefetch(f));
    }

    fn prepare(&self, f: &'f Builder, plan: &Plan) {
        self.0.iter().for_each(|tile| tile.prepare(f, plan));
    }

    fn load(&self, Pass { f, plan, ring, unit }: Pass<'_, 'f>, cluster: ClusterPosition<'f>) {
        let (bytes, load) = self.load(Loading { f, plan, cluster, unit, loads: None });
        f.repeat_from(unit.k_begin, unit.k_end, |k_tile| {
            ring.produce(bytes, |stage| load(stage, k_tile));
        });
    }

    fn multiply(&self, pass: Pass<'_, 'f>, consumer: Consumer<'f>, finish: Finish<'_, 'f>) {
        let plan = pass.plan;
        let multiply = match plan.mainloop.weights() {
            Some(_) => quantized::multiply,
            None if plan.mainloop.is_sparse() => super::sparse::multiply,
            None if plan.mainloop.is_scaled() => block_scaled::multiply,
            None => multiplier::ring,
        };
        multiply(pass, consumer, finish);
    }

    fn load_and_multiply(
        &self,
        pass: Pass<'_, 'f>,
        consumer: Consumer<'f>,
        ahead: Position<'f>,
    ) -> Accumulators<'f> {
        let Pass { f, plan, unit, .. } = pass;
        let loads = consumer.warpgroup.equals(0) & consumer.thread.equals(0);
        let cluster = ClusterPosition::new(f, plan.mainloop.cluster);
        let (bytes, load) = self.load(Loading { f, plan, cluster, unit, loads: Some(loads) });
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
    }
}
