//! Keys and values in pages of a cache: what a call says of them, and how a program finds them.

use collective::Origin;
use kernel::LaunchError;
use kernel::operands::{Contents, Extents, Memory, Visit};
use ptx::{Builder, Value};

use crate::emit::QueryTile;
use crate::plan::AttentionPlan;
use crate::problem::{below, refused};

/// The memory of the numbers of keys, and of the table.
const MEMORY: [&str; 2] = ["the numbers of keys", "the table of pages"];

/// A cache of keys and values in pages. The strides of K and V named `batch` are those from one page to the next; a page
/// has the keys of one sequence that follow each other.
///
/// A page that is not in the cache is never read: the kernel traps. Entries of the table after a sequence's last page, and
/// keys and values of a page after the sequence's last key, may be anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    /// Device address of the number of keys of each sequence, `u32`. More than the problem's are cut off.
    pub lengths: u64,
    /// Device address of the numbers of each sequence's pages, `u32`, in the order of its keys.
    pub table: u64,
    /// Entries of the table per sequence: enough for the problem's keys.
    pub each: u32,
    /// Number of pages of the cache.
    pub count: u32,
}

impl Pages {
    /// Checks a table that the host knows, for pages of `page` keys.
    ///
    /// # Errors
    /// The first page that a sequence needs and that is not in the cache, or not in the table.
    pub fn check(&self, page: u32, lengths: &[u32], table: &[u32]) -> Result<(), LaunchError> {
        let each = self.each as usize;
        for (sequence, &keys) in lengths.iter().enumerate() {
            let needed = keys.div_ceil(page.max(1)) as usize;
            if needed > each || (sequence + 1) * each > table.len() {
                return refused(format!(
                    "sequence {sequence} has {keys} keys, which need {needed} pages; the table has {each} per sequence, and {} in all",
                    table.len()
                ));
            }
            let own = &table[sequence * each..][..needed];
            if let Some(i) = own.iter().position(|&page| page >= self.count) {
                let (page, count) = (own[i], self.count);
                return refused(format!(
                    "page {i} of sequence {sequence} is page {page} of a cache of {count} pages"
                ));
            }
        }
        Ok(())
    }

    /// Checks the numbers for pages of `page` keys and sequences of at most `keys`. The tables themselves are in device memory.
    pub(crate) fn check_call(&self, page: u32, keys: u32) -> Result<(), LaunchError> {
        below("the number of pages", self.count)?;
        let needed = keys.div_ceil(page);
        if keys > 0 && self.count == 0 {
            return refused(format!("the cache has no page, {needed} were needed for {keys} keys"));
        }
        if self.each < needed {
            return refused(format!(
                "the table has {} pages per sequence, {needed} of {page} keys were needed for {keys} keys",
                self.each
            ));
        }
        Ok(())
    }

    /// Visits the cache of so many sequences, of which the table is read or not.
    pub(crate) fn visit(&mut self, sequences: u32, reads_table: bool, visit: &mut dyn Visit) {
        let table = if reads_table { u64::from(sequences) * u64::from(self.each) } else { 0 };
        let contents = [Contents::Table, Contents::Indices(self.count.max(1))];
        let addresses = [&mut self.lengths, &mut self.table].into_iter().zip([sequences.into(), table]);
        for ((name, contents), (address, entries)) in MEMORY.into_iter().zip(contents).zip(addresses) {
            let extents = Extents::line(32, entries);
            visit.memory(Memory { name, address, extents, contents, writes: false });
        }
        visit.count(&mut self.each);
        visit.count(&mut self.count);
    }

    /// States the parameters. Without keys no page is used, but an entry is loaded.
    pub(crate) fn state(&self, is_empty: bool, visit: &mut dyn Visit) {
        let [lengths, table] = MEMORY;
        let (table, each, count) =
            if is_empty { (lengths, 1, u32::MAX) } else { (table, self.each, self.count) };
        visit.address("key_lengths", lengths);
        visit.address("pages", table);
        visit.number("pages_each", Some(each));
        visit.number("all_pages", Some(count));
    }
}

/// A cache on the device.
#[derive(Clone, Copy)]
pub(crate) struct DevicePages<'f> {
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
pub(crate) struct Piece<'f> {
    page: Value<'f, u32>,
    /// Rows of the page that are keys, and the row at which the piece begins.
    keys: Value<'f, u32>,
    first: Value<'f, u32>,
    /// The number of the part of the block.
    slice: u32,
    /// The row of the tensor map at which the block would begin, if all of it was there.
    pub(crate) row: Value<'f, u32>,
}

impl<'f> Piece<'f> {
    /// Whether there is anything of it. If not, it is outside of the tensor map, and becomes zero.
    pub(crate) fn has_keys(&self) -> Value<'f, bool> {
        self.keys.more_than(self.first)
    }

    pub(crate) fn origin(&self, of: Origin<'f>) -> Origin<'f> {
        let slice = self.page.builder().constant(self.slice);
        Origin { rows: Some(self.keys), batch: Some(self.page), slice, ..of }
    }
}

impl<'f> DevicePages<'f> {
    /// Finds the parameters.
    pub(crate) fn of(f: &'f Builder, page: u32) -> Self {
        let [lengths, table] = ["key_lengths", "pages"].map(|name| f.parameter(name));
        Self { page, lengths, table, each: f.parameter("pages_each"), count: f.parameter("all_pages") }
    }

    /// Number of keys of a sequence.
    pub(crate) fn keys(&self, batch: Value<'f, u32>, most: Value<'f, u32>) -> Value<'f, u32> {
        batch.builder().load_global::<u32>(self.lengths + batch.mul_wide(4u32), 0).min(most)
    }

    /// Pieces of a block that are looked up together.
    fn together(plan: &AttentionPlan) -> u32 {
        let most = if plan.cta.consumers == 1 { 16 } else { 4 };
        plan.pages_of_block().min(most)
    }

    /// Number of groups of pieces that are looked up together.
    pub(crate) fn groups(&self, plan: &AttentionPlan) -> u32 {
        plan.pages_of_block().div_ceil(Self::together(plan))
    }

    /// A group of pieces of a block of a tile's keys. `launch` describes the tensor map that loads them.
    pub(crate) fn of_block(
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
