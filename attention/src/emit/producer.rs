//! The producer: which copies are started, and in which order.

use collective::queue::QueueRole;
use collective::{Origin, TensorCopy};
use ptx::Value;

use super::{CurrentTile, Kernel, QueryTile};
use crate::plan::NarrowPlan;

/// Blocks of K that are not loaded yet when the next tile is drawn. A CTA that draws early may get a long tile when others have none: at 4096
/// keys with a causal mask, those that drew when they began a tile were 4 to 6 % slower.
const LEFT: u32 = 1;

/// What is done for a block of a tile's keys.
type OfBlock<'a, 'f> = &'a dyn Fn(QueryTile<'f>, Value<'f, u32>);

impl<'f> Kernel<'_, 'f> {
    /// Emitted for one thread: loads Q, K and V of each tile.
    pub(super) fn produce(&self) {
        let Self { f, plan, .. } = self;
        let ([of_q, of_k, of_v], [q, k, v]) = (plan.rings, self.rings);
        let [narrow_k, narrow_v] = self.narrow;
        let [k, v] = [narrow_k.unwrap_or(k), narrow_v.unwrap_or(v)];
        let [of_k, of_v] = plan.narrow.map_or([of_k, of_v], |NarrowPlan { tiles, rings: [k, v] }| {
            [if tiles[0].is_some() { k } else { of_k }, if tiles[1].is_some() { v } else { of_v }]
        });
        let [q, k, v] = [q, k, v].map(|ring| ring.producer());
        let [copy_k, copy_v] = plan.copied().map(TensorCopy::new);
        let copies = [TensorCopy::new(plan.tiles[0]), copy_k, copy_v];
        let bytes = [of_q, of_k, of_v].map(|ring| f.constant(ring.transaction_bytes()));
        let zero = f.constant(0);
        let keys = plan.spec.tile[1];
        let of_keys = |i: usize, tile: QueryTile<'f>, block: Value<'f, u32>| {
            let [row, sequence] = self.place(&tile, 1);
            let head = self.head_of_keys(&tile);
            let first = block * keys;
            let map = self.map_of(i, first.less_than(tile.lengths[1]));
            ((map, head), [row + first, sequence])
        };
        let load = |i: usize, tile: QueryTile<'f>, block: Value<'f, u32>| {
            let (ring, stages) = if i == 1 { (k, plan.stages_of_block()) } else { (v, 1) };
            // What is copied into stage `part` of a block.
            let copy = |part: u32| if stages > 1 { copies[i].slab(part) } else { copies[i] };
            match self.pages() {
                Some(pages) => {
                    let sequence = [tile.batch, tile.lengths[1]];
                    pages.produce((&ring, stages), bytes[i], sequence, block, |(stage, part), page| {
                        let head = self.head_of_keys(&tile);
                        page.load(f, &copy(part), stage, (self.map_of(i, page.has_keys()), head));
                    });
                }
                None => {
                    let (source, place) = of_keys(i, tile, block);
                    for part in 0..stages {
                        ring.produce(bytes[i], |stage| copy(part).load_head(f, stage, source, place));
                    }
                }
            }
        };
        let load_k = |tile, block| load(1, tile, block);
        let load_v = |tile, block| {
            if !plan.spec.is_latent() {
                load(2, tile, block);
            }
        };
        let first = |tile: QueryTile<'f>| {
            let (origin, row) = self.queries(&tile);
            q.produce(bytes[0], |stage| copies[0].load(f, stage, origin, [row, zero]));
        };
        self.in_order(QueueRole::Loader, &first, [&load_k, &load_v]);
    }

    /// Where the queries of a tile are: what they are copied from, and the first row.
    pub(super) fn queries(&self, tile: &QueryTile<'f>) -> (Origin<'f>, Value<'f, u32>) {
        let Self { f, plan, .. } = self;
        let [row, sequence] = self.place(tile, 0);
        let row = row + tile.row;
        let origin =
            Origin { matrix: Some(tile.head), batch: Some(sequence), ..Origin::alone(f.parameter("q_map")) };
        match plan.spec.pack {
            1 => (origin, row),
            _ => (Origin { rows: Some(row), ..origin }, f.constant(0)),
        }
    }

    /// Emits what is done for each tile, each block of K and each block of V, in the order in which consumers need them.
    ///
    /// A block of keys is needed before the values of the block that was multiplied before it; if tiles overlap, also
    /// that of the next tile.
    pub(super) fn in_order(
        &self,
        part: QueueRole,
        of_tile: &dyn Fn(QueryTile<'f>),
        [of_k, of_v]: [OfBlock<'_, 'f>; 2],
    ) {
        let Self { f, plan, .. } = self;
        let first = |tile: QueryTile<'f>| {
            of_tile(tile);
            of_k(tile, tile.blocks[1] - 1);
        };
        let walk = self.walk(part);
        let tile = self.tile_at(&walk);
        f.if_(walk.is_at_tile(), || {
            let tile = CurrentTile::new(f, tile);
            let blocks = |unit: QueryTile<'f>| {
                let [begin, end] = unit.blocks;
                let block = f.variable(end - 1);
                let late = walk.draws().then(|| (begin + LEFT).min(end - 1));
                f.while_(
                    || {
                        if let Some(late) = late {
                            f.if_(block.get().equals(late), || walk.ask());
                        }
                        block.get().more_than(begin)
                    },
                    || {
                        of_k(unit, block.get() - 1);
                        of_v(unit, block.get());
                        block.set(block.get() - 1);
                    },
                );
                if !plan.overlaps {
                    of_v(unit, begin);
                }
            };
            first(tile.get());
            if walk.is_alone() {
                return blocks(tile.get());
            }
            f.loop_(|| {
                let unit = tile.get();
                blocks(unit);
                walk.advance();
                let next = self.tile_at(&walk);
                f.if_(walk.is_at_tile(), || {
                    tile.set(next);
                    first(tile.get());
                });
                if plan.overlaps {
                    of_v(unit, unit.blocks[0]);
                }
                f.break_if(!walk.is_at_tile());
            });
        });
    }
}
