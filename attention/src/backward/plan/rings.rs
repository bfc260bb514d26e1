//! The rings of the backward pass, and their places in shared memory.

use collective::{Arrivals, RingPlan, StageSlot};

use super::legal::{consumers, wide};
use super::{BackwardTiles, LINE, PairPlan};
use crate::backward::spec::BackwardSpec;
use crate::plan::AttentionPlan;
use crate::spec::{Lengths, Mask};

/// The rings of a CTA, in their places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackwardRings {
    /// The ring of the blocks of keys that a CTA draws, if it walks over several.
    pub blocks: Option<RingPlan>,
    /// The ring of one stage with K and V.
    pub kv: RingPlan,
    /// The ring of Q with exponents and dO with row sums; that of Q with exponents, if dO has one of its own.
    pub q: RingPlan,
    /// The buffers of dS. Named barriers order their accesses, or an mbarrier those of a pair.
    pub ds: RingPlan,
    /// The stages in which the parts of a tile's dQ wait to be added. Their number divides that of the parts.
    pub dq: RingPlan,
    /// The barriers of the parts: a stage, without any bytes, for each part of a tile.
    pub parts: RingPlan,
    /// If blocks add in a fixed order: the rings, without any bytes, of turns to add to a tile, and of tiles that were added to.
    pub order: Option<[RingPlan; 2]>,
}

/// The rings, those of dO and of P that a pair of consumers needs, and bytes of shared memory.
type Placed = (BackwardRings, Option<[RingPlan; 2]>, u32);

/// Arrivals of a warp, and of a warpgroup.
const OF_WARPS: u32 = Arrivals::Warp.count();
const OF_WARPGROUP: u32 = Arrivals::Warpgroup.count();

impl BackwardRings {
    /// The rings of consumers with keys of their own, and bytes of shared memory.
    pub(super) fn of(spec: &BackwardSpec, tiles: &BackwardTiles) -> Placed {
        let ([rows, _], [wide_k, _], consumers) = (spec.tile, wide(spec), consumers(spec));
        let [q, d_o] = tiles.queries;
        let (line, (order, in_order)) = (StageSlot::line(rows * LINE), in_order(spec));
        let q_ring = RingPlan::of(&[q.room(), d_o.room(), line, line]).arrivals(1, consumers * OF_WARPGROUP);
        let ds = RingPlan::of(&[tiles.differences.room()]).arrivals(0, 0);
        let dq = RingPlan::of(&[StageSlot::line(rows * wide_k * 4)]).arrivals(0, 0);
        let parts = RingPlan::of(&[]).arrivals(consumers * OF_WARPS, 1);
        // A slab of dK or dV of all keys fits where a tile's dQ waits.
        let walks = may_walk(spec) && dq.stage_bytes >= tiles.output_slab_bytes(spec);
        let kv = of_keys(tiles).arrivals(1, if walks { consumers * OF_WARPS } else { 0 });
        // A tile whose accumulators fit into registers leaves room for two stages of Q and dO, and for two buffers of dS.
        let ([kv, q, ds, dq, parts, turns, done, blocks], shared_bytes) = RingPlan::placed_together(
            [kv, q_ring, ds, dq, parts, order, order, of_blocks(spec)],
            [1, 2, 2, 1, 1, in_order, in_order, if walks { 1 } else { 0 }],
            0,
        );
        let order = spec.deterministic.then_some([turns, done]);
        (Self { blocks: walks.then_some(blocks), kv, q, ds, dq, parts, order }, None, shared_bytes)
    }

    /// The rings of two consumers with the same keys.
    pub(super) fn of_pair(spec: &BackwardSpec, tiles: &BackwardTiles) -> Placed {
        let ([rows, keys], [wide_k, _]) = (spec.tile, wide(spec));
        let [q, d_o] = tiles.queries;
        let (line, (order, in_order)) = (StageSlot::line(rows * LINE), in_order(spec));
        let kv = of_keys(tiles);
        // The consumer that needs a stage last has waited for what the other one passes on when it has read the stage.
        let q_ring = RingPlan::of(&[q.room(), line]).arrivals(1, OF_WARPGROUP);
        let do_ring = RingPlan::of(&[d_o.room(), line]).arrivals(1, OF_WARPGROUP);
        // Each consumer has read what the other one has passed on before it passes on what the other one needs next.
        let ds = RingPlan::of(&[tiles.differences.room()]).arrivals(OF_WARPS, 0);
        let p = RingPlan::of(&[StageSlot::line(rows * keys * 4)]).arrivals(OF_WARPS, 0);
        let dq = RingPlan::of(&[StageSlot::line(rows * PairPlan::COLUMNS * 4)]).arrivals(0, 0);
        let (parts, of_tile) = (RingPlan::of(&[]).arrivals(OF_WARPS, 1), wide_k / PairPlan::COLUMNS);
        // Two stages of Q and, if they fit, of dO; the rest is for what is added.
        let have = AttentionPlan::TARGET.limits().shared_bytes;
        let without_bytes = parts.need(of_tile) + 2 * order.need(in_order);
        let fixed = kv.need(1) + q_ring.need(2) + ds.need(1) + p.need(1) + without_bytes;
        let stages = if fixed + do_ring.need(2) + dq.need(2) <= have { 2 } else { 1 };
        let fit = dq.fit(have - fixed - do_ring.need(stages));
        let added = (1..=fit.min(of_tile)).rev().find(|stages| of_tile.is_multiple_of(*stages)).unwrap_or(1);
        let ([kv, q, ds, dq, d_o, p, parts, turns, done], shared_bytes) = RingPlan::placed_together(
            [kv, q_ring, ds, dq, do_ring, p, parts, order, order],
            [1, 2, 1, added, stages, 1, of_tile, in_order, in_order],
            0,
        );
        let order = spec.deterministic.then_some([turns, done]);
        (Self { blocks: None, kv, q, ds, dq, parts, order }, Some([d_o, p]), shared_bytes)
    }
}

/// Whether CTAs may walk over blocks: an H200 takes 1 to 4 % less then. Without a mask and with 128 elements each tile takes 75 cycles longer, with the
/// same instructions, and that is more than is saved; sums in a fixed order were not measured.
fn may_walk(spec: &BackwardSpec) -> bool {
    let gains = spec.mask != Mask::Full || wide(spec)[0] < 128;
    spec.split == 1 && spec.apart == 0 && !spec.deterministic && gains
}

/// The ring of one stage with K and V.
fn of_keys(tiles: &BackwardTiles) -> RingPlan {
    let [k, v] = tiles.keys;
    RingPlan::of(&[k.room(), v.room()]).arrivals(1, 0)
}

/// The ring of blocks of keys that are drawn: four words of each, or nine. The warps of consumers read them, the thread that adds, and a
/// warp that stores zeros.
fn of_blocks(spec: &BackwardSpec) -> RingPlan {
    let words = if spec.lengths == Lengths::Packed { 9 } else { 4 };
    RingPlan::of(&[StageSlot::line(words * 4)]).dense().arrivals(1, consumers(spec) * OF_WARPS + 2)
}

/// A ring without any bytes, and how many stages its place has.
fn in_order(spec: &BackwardSpec) -> (RingPlan, u32) {
    (RingPlan::of(&[]), if spec.deterministic { 2 } else { 0 })
}
