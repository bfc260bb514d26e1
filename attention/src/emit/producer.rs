//! The producer: which copies are started, and in which order.

use collective::{Origin, TensorCopy};
use ptx::Value;

use super::{CurrentTile, Kernel, QueryTile};

impl<'f> Kernel<'_, 'f> {
    /// Emitted for one thread: loads Q, K and V of each tile.
    ///
    /// A block of keys is needed before the values of the block that was multiplied before it; if tiles overlap, also
    /// that of the next tile.
    pub(super) fn produce(&self) {
        let Self { f, plan, parameters, .. } = self;
        let [q, k, v] = self.rings.map(|ring| ring.producer());
        let copies = plan.tiles.map(TensorCopy::new);
        let of_pages = plan.copied().map(TensorCopy::new);
        let bytes = plan.rings.map(|ring| f.constant(ring.transaction_bytes()));
        let zero = f.constant(0);
        let keys = plan.spec.tile[1];
        let walk = self.walk();
        let of_keys = |i: usize, tile: QueryTile<'f>, block: Value<'f, u32>| {
            let [row, sequence] = self.place(&tile, 1);
            let matrix = Some(self.head_of_keys(&tile));
            // The address of a block that is outside must be in the tensor, too, as if its row was 0: see `Pages`.
            let first = block * keys;
            let sequence = parameters
                .packed
                .map_or(sequence, |_| parameters.most[1].where_or(first.at_least(tile.lengths[1]), sequence));
            let origin = Origin { matrix, batch: Some(sequence), ..Origin::alone(parameters.maps[i]) };
            (origin, row + first)
        };
        let load = |i: usize, tile: QueryTile<'f>, block: Value<'f, u32>| {
            let ring = if i == 1 { k } else { v };
            let coordinates = |row| if i == 1 { [row, zero] } else { [zero, row] };
            match &parameters.pages {
                Some(pages) => {
                    let pieces = |group| pages.of_block(tile, block, plan, group);
                    let groups = pages.groups(plan);
                    // The first pages are looked up before there is room for them.
                    let mut looked_up = Some(pieces(0));
                    ring.produce(bytes[i], |stage| {
                        for piece in (0..groups).flat_map(|i| looked_up.take().unwrap_or_else(|| pieces(i))) {
                            let matrix = Some(self.head_of_keys(&tile));
                            let origin = Origin { matrix, ..piece.origin(Origin::alone(parameters.maps[i])) };
                            of_pages[i - 1].load(f, stage, origin, coordinates(piece.row));
                        }
                    });
                }
                None => {
                    let (origin, row) = of_keys(i, tile, block);
                    ring.produce(bytes[i], |stage| copies[i].load(f, stage, origin, coordinates(row)));
                }
            }
        };
        let load_k = |tile, block| load(1, tile, block);
        let load_v = |tile, block| load(2, tile, block);
        let first = |tile: QueryTile<'f>| {
            let [row, sequence] = self.place(&tile, 0);
            let row = row + tile.row;
            let origin = Origin {
                matrix: Some(tile.head),
                batch: Some(sequence),
                ..Origin::alone(parameters.maps[0])
            };
            let packs = plan.spec.pack > 1;
            let (origin, row) =
                if packs { (Origin { rows: Some(row), ..origin }, zero) } else { (origin, row) };
            q.produce(bytes[0], |stage| copies[0].load(f, stage, origin, [row, zero]));
            load_k(tile, tile.blocks[1] - 1);
        };
        let tile = self.tile_at(&walk);
        f.if_(walk.is_at_tile(), || {
            let tile = CurrentTile::new(f, tile);
            first(tile.get());
            f.loop_(|| {
                let unit = tile.get();
                let [begin, end] = unit.blocks;
                let block = f.variable(end - 1);
                f.while_(
                    || block.get().more_than(begin),
                    || {
                        load_k(unit, block.get() - 1);
                        load_v(unit, block.get());
                        block.set(block.get() - 1);
                    },
                );
                walk.advance();
                if !plan.overlaps {
                    load_v(unit, begin);
                }
                let next = self.tile_at(&walk);
                f.if_(walk.is_at_tile(), || {
                    tile.set(next);
                    first(tile.get());
                });
                if plan.overlaps {
                    load_v(unit, begin);
                }
                f.break_if(!walk.is_at_tile());
            });
        });
    }
}
