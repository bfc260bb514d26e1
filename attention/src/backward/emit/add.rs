//! The threads that add each tile's dQ to its sums in device memory.
//!
//! One thread adds. If blocks add in a fixed order, two others meet other CTAs for it: one sees that the blocks before have added to a
//! tile, up to two tiles ahead; one announces that this block has. To do both took the adding thread as long as the adds.

use collective::pipeline::{Position, Ring, Stage};
use ptx::inst::{AtomicOp, AtomicSem, AtomicType, LoadOrder, Scope as Reach};
use ptx::{Location, ProxySpace, Value};

use super::blocks::Reader;
use super::parts::TileParts;
use super::{Kernel, QueryTile, Roles};

/// What orders the adds of blocks.
#[derive(Clone, Copy)]
pub(super) struct Order<'f> {
    /// A stage is full when the blocks before have added to the next tile.
    pub(super) turns: Ring<'f>,
    /// A stage is full when this block has added to the next tile.
    pub(super) done: Ring<'f>,
    /// Address of the numbers of blocks that were added to each tile's sums.
    pub(super) added: Value<'f, u64>,
}

impl<'f> Roles<'_, 'f> {
    /// Emitted for one thread: adds each tile's dQ, and stores dK and dV if consumers hand them over.
    pub(super) fn add_dq(&self) {
        let dq = self.dq.first_tile();
        let order = self.order.map(|Order { turns, done, .. }| [turns.consumer(), done.producer()]);
        self.each_block(Reader::Thread, |kernel| {
            kernel.add_tiles(&dq, order);
            if self.plan.walks() {
                kernel.store_handed_over(&dq);
            }
        });
    }

    /// Emitted for one thread: waits until the blocks before have added to a tile, and passes the turn on.
    pub(super) fn await_turns(&self, Order { turns, added, .. }: Order<'f>) {
        let (f, turns) = (self.f, turns.producer());
        self.each_block(Reader::Thread, |kernel| {
            kernel.each_tile(|of| {
                let turn = turns.claim();
                let at = Location::global(added + of.index.mul_wide(4), 0);
                let before = kernel.blocks_before(of);
                let waits = || {
                    let [count] = f.load_ordered::<u32, 1>(LoadOrder::Acquire(Reach::Gpu), at);
                    count.differs_from(before)
                };
                f.while_(waits, || {});
                f.mbarrier_arrive(turn.full);
            });
        });
    }

    /// Emitted for one thread: counts this block among those that have added to a tile.
    pub(super) fn announce(&self, Order { done, added, .. }: Order<'f>) {
        let (f, done) = (self.f, done.consumer());
        self.each_block(Reader::Thread, |kernel| {
            kernel.each_tile(|of| {
                let added_to = done.acquire();
                let at = Location::global(added + of.index.mul_wide(4), 0);
                f.reduce(AtomicOp::Add, at, [f.constant(1u32)], (AtomicSem::Release, Reach::Gpu));
                f.mbarrier_arrive(added_to.empty);
            });
        });
    }
}

impl<'f> Kernel<'_, 'f> {
    /// Adds each tile's dQ, in the parts in which it comes.
    fn add_tiles(&self, dq: &TileParts<'f>, order: Option<[Position<'f>; 2]>) {
        let (f, parts) = (self.f, self.plan.rings.parts.stages);
        let bytes = self.plan.rings.dq.transaction_bytes();
        // With one stage, the next part needs it. With more, the next part is on its way while this one is read.
        let behind = u32::from(self.plan.rings.dq.stages > 1);
        let await_zeros = |head| {
            if self.plan.zeros_ahead() {
                self.await_zeros(head);
            }
        };
        self.each_tile_after(await_zeros, |of| {
            let turn = order.map(|[turns, _]| turns.acquire());
            if turn.is_some() {
                // Bulk copies are made by the async proxy.
                f.fence_proxy_async(ProxySpace::Global);
            }
            // Before the first block there are no sums.
            let first = turn.map(|_| self.blocks_before(of).equals(0));
            let mut stages: Vec<Stage<'f>> = Vec::new();
            for part in 0..parts {
                let stage = dq.acquire(part);
                let sums = f.parameter::<u64>("dq_sums")
                    + of.index.mul_wide(self.plan.sum_bytes())
                    + u64::from(part * bytes);
                let add = || f.bulk_reduce((AtomicOp::Add, AtomicType::F32), sums, stage.address, bytes);
                match first {
                    None => add(),
                    Some(first) => f.if_else(first, || f.bulk_store(sums, stage.address, bytes), add),
                }
                f.bulk_commit();
                stages.push(stage);
                let pending = if part + 1 == parts { 0 } else { behind };
                let read = stages.len().saturating_sub(pending as usize);
                if read > 0 {
                    f.bulk_wait(pending, true);
                    stages.drain(..read).for_each(|stage| f.mbarrier_arrive(stage.empty));
                }
            }
            dq.next_tile();
            if let Some(([_, done], turn)) = order.zip(turn) {
                f.bulk_wait(0, false);
                f.mbarrier_arrive(done.claim().full);
                f.mbarrier_arrive(turn.empty);
            }
        });
    }

    /// How many blocks add to a tile before this one: those that the tile sees with earlier keys.
    fn blocks_before(&self, of: QueryTile<'f>) -> Value<'f, u32> {
        let [begin, _] = self.seen(of.head, of.tile);
        self.keys.block - begin.cast::<u32>() / self.plan.spec.tile[1]
    }
}
