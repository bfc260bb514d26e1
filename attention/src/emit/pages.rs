//! Keys and values in pages of a cache.

use collective::Origin;
use kernel::operands::Visit;
use ptx::{Builder, Value};

use super::QueryTile;
use crate::plan::AttentionPlan;
use crate::problem;

/// The parameters of a cache.
#[derive(Clone, Copy)]
pub(crate) struct Pages<'f> {
    /// Keys of a page.
    page: u32,
    /// Addresses of the numbers of keys, and of the table.
    lengths: Value<'f, u64>,
    table: Value<'f, u64>,
    /// Entries of the table per sequence.
    each: Value<'f, u32>,
    /// Pages of the cache.
    count: Value<'f, u32>,
}

/// A page, or a part of one, that is a part of a block of keys.
#[derive(Clone, Copy)]
pub(super) struct Piece<'f> {
    page: Value<'f, u32>,
    /// Rows of the page that are keys, and the row at which the piece begins.
    keys: Value<'f, u32>,
    first: Value<'f, u32>,
    /// The number of the part of the block.
    slice: u32,
    /// The row of the tensor map at which the block would begin, if all of it was there.
    pub(super) row: Value<'f, u32>,
}

impl<'f> Piece<'f> {
    /// Whether there is anything of it. If not, it is outside of the tensor map, and becomes zero.
    pub(super) fn has_keys(&self) -> Value<'f, bool> {
        self.keys.more_than(self.first)
    }

    pub(super) fn origin(&self, of: Origin<'f>) -> Origin<'f> {
        let slice = self.page.builder().constant(self.slice);
        Origin { rows: Some(self.keys), batch: Some(self.page), slice, ..of }
    }
}

impl<'f> Pages<'f> {
    pub(super) fn of(f: &'f Builder, page: u32) -> Self {
        let [lengths, table] = ["key_lengths", "pages"].map(|name| f.parameter(name));
        Self { page, lengths, table, each: f.parameter("pages_each"), count: f.parameter("all_pages") }
    }

    /// States the parameters. Without keys no page is used, but an entry is loaded.
    pub(crate) fn state(pages: &problem::Pages, is_empty: bool, visit: &mut dyn Visit) {
        let (table, each, count) = match is_empty {
            true => ("the numbers of keys", 1, u32::MAX),
            false => ("the table of pages", pages.each, pages.count),
        };
        visit.address("key_lengths", "the numbers of keys");
        visit.address("pages", table);
        visit.number("pages_each", Some(each));
        visit.number("all_pages", Some(count));
    }

    /// Number of keys of a sequence.
    pub(super) fn keys(&self, batch: Value<'f, u32>, most: Value<'f, u32>) -> Value<'f, u32> {
        batch.builder().load_global::<u32>(self.lengths + batch.mul_wide(4u32), 0).min(most)
    }

    /// Pieces of a block that are looked up together.
    fn together(plan: &AttentionPlan) -> u32 {
        let most = if plan.cta.consumers == 1 { 16 } else { 4 };
        plan.pages_of_block().min(most)
    }

    /// Number of groups of pieces that are looked up together.
    pub(super) fn groups(&self, plan: &AttentionPlan) -> u32 {
        plan.pages_of_block().div_ceil(Self::together(plan))
    }

    /// A group of pieces of a block of a tile's keys. `launch` describes the tensor map that loads them.
    pub(super) fn of_block(
        &self,
        tile: QueryTile<'f>,
        block: Value<'f, u32>,
        plan: &AttentionPlan,
        group: u32,
    ) -> Vec<Piece<'f>> {
        let (f, page, together) = (block.builder(), self.page, Self::together(plan));
        let first = block * plan.spec.tile[1];
        let own = self.table + (tile.batch.cast::<u64>() * self.each.cast::<u64>()) * 4;
        let piece = |slice: u32| {
            let key = first + slice * page;
            let index = key / page;
            let before = index * page;
            let keys = tile.lengths[1].max(before).min(before + page) - before;
            // Entries after the last page are loaded, too, but not used.
            let entry: Value<'f, u32> = f.load_global(own + index.min(self.each - 1).mul_wide(4u32), 0);
            let row = f.constant(page) - keys + (key - before) - slice * page;
            let first = if page > plan.spec.tile[1] { key - before } else { f.constant(0) };
            Piece { page: entry, keys, first, slice, row }
        };
        let pieces: Vec<_> =
            (group * together..plan.pages_of_block().min((group + 1) * together)).map(piece).collect();
        let wrong = pieces.iter().map(|piece| piece.page.at_least(self.count) & piece.has_keys());
        if let Some(wrong) = wrong.reduce(|a, b| a | b) {
            f.if_(wrong, || f.scope("a page that is not in the cache", || f.trap()));
        }
        pieces
    }
}
