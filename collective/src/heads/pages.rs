//! Keys and values in pages of a cache: what a call says of them, and how a program finds them.

use ptx::{Builder, Value};

use crate::mainloop::{Origin, TensorCopy};
use crate::operands::{Contents, Extents, Memory, Visit};
use crate::pipeline::{Position, Stage};

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
    pub fn check(&self, page: u32, lengths: &[u32], table: &[u32]) -> Result<(), String> {
        let each = self.each as usize;
        for (sequence, &keys) in lengths.iter().enumerate() {
            let needed = keys.div_ceil(page.max(1)) as usize;
            if needed > each || (sequence + 1) * each > table.len() {
                return Err(format!(
                    "sequence {sequence} has {keys} keys, which need {needed} pages; the table has {each} per sequence, and {} in all",
                    table.len()
                ));
            }
            let own = &table[sequence * each..][..needed];
            if let Some(i) = own.iter().position(|&page| page >= self.count) {
                let (page, count) = (own[i], self.count);
                return Err(format!(
                    "page {i} of sequence {sequence} is page {page} of a cache of {count} pages"
                ));
            }
        }
        Ok(())
    }

    /// Number of pages of a block, for pages and blocks of these numbers of keys; 1 if a page has several blocks.
    pub const fn per_block(page: u32, block: u32) -> u32 {
        if page > 0 && block > page { block / page } else { 1 }
    }

    /// Visits the cache of so many sequences, of which the table is read or not.
    pub fn visit(&mut self, sequences: u32, reads_table: bool, visit: &mut dyn Visit) {
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
    pub fn state(&self, is_empty: bool, visit: &mut dyn Visit) {
        let [lengths, table] = MEMORY;
        let (table, each, count) =
            if is_empty { (lengths, 1, u32::MAX) } else { (table, self.each, self.count) };
        visit.address("key_lengths", lengths);
        visit.address("pages", table);
        visit.number("pages_each", Some(each));
        visit.number("all_pages", Some(count));
    }
}

/// A cache on the device, whose pages are copied in blocks of keys: several pages, or a part of one.
#[derive(Clone, Copy, Debug)]
pub struct DevicePages<'f> {
    /// Keys of a page, and of a block.
    page: u32,
    block: u32,
    /// Pages of a block that are looked up together.
    together: u32,
    /// Addresses of the numbers of keys, and of the table.
    lengths: Value<'f, u64>,
    table: Value<'f, u64>,
    /// Entries of the table per sequence.
    each: Value<'f, u32>,
    /// Pages of the cache.
    count: Value<'f, u32>,
}

/// A page, or a part of one, that is a part of a block of keys.
#[derive(Clone, Copy, Debug)]
pub struct Page<'f> {
    number: Value<'f, u32>,
    /// Rows of the page that are keys, and the row at which the part begins.
    keys: Value<'f, u32>,
    first: Value<'f, u32>,
    /// The number of the part of the block.
    slice: u32,
    /// The row of the tensor map at which the block would begin, if all of it was there.
    row: Value<'f, u32>,
}

impl<'f> Page<'f> {
    /// Whether there is anything of it. If not, it is outside of the tensor map, and becomes zero.
    #[track_caller]
    pub fn has_keys(&self) -> Value<'f, bool> {
        self.keys.more_than(self.first)
    }

    /// Starts its copies into a stage, by the tensor map of a [`HeadTensor`](super::HeadTensor) of [pages](super::HeadRows::Page).
    #[track_caller]
    pub fn load(
        &self,
        f: &'f Builder,
        copy: &TensorCopy,
        stage: Stage<'f>,
        of_head: (Value<'f, u64>, Value<'f, u32>),
    ) {
        let (origin, row) = self.place(of_head);
        copy.load_rows(f, stage, origin, row);
    }

    /// Where it is, by such a tensor map: what its copies come from, and their first row.
    #[track_caller]
    pub fn place(&self, (map, head): (Value<'f, u64>, Value<'f, u32>)) -> (Origin<'f>, Value<'f, u32>) {
        let (slice, alone) = (head.builder().constant(self.slice), Origin::alone(map));
        let origin =
            Origin { rows: Some(self.keys), matrix: Some(head), batch: Some(self.number), slice, ..alone };
        (origin, self.row)
    }
}

/// The pages of a block, whose first ones are looked up already.
#[derive(Clone, Debug)]
pub struct BlockPages<'f> {
    of: DevicePages<'f>,
    sequence: [Value<'f, u32>; 2],
    block: Value<'f, u32>,
    first: Vec<Page<'f>>,
}

impl<'f> BlockPages<'f> {
    /// Emits something for each page, after looking up those that are not.
    #[track_caller]
    pub fn each(&self, of_page: impl Fn(Page<'f>)) {
        self.first.iter().for_each(|&page| of_page(page));
        let groups = Pages::per_block(self.of.page, self.of.block).div_ceil(self.of.together);
        let others = (1..groups).flat_map(|group| self.of.group(self.sequence, self.block, group));
        others.for_each(of_page);
    }
}

impl<'f> DevicePages<'f> {
    /// Finds the parameters that [`Pages::state`] states, for pages and blocks of these numbers of keys, one of which is a multiple of the
    /// other. At most so many pages of a block are looked up together.
    pub fn of(f: &'f Builder, [page, block]: [u32; 2], together: u32) -> Self {
        let [lengths, table] = ["key_lengths", "pages"].map(|name| f.parameter(name));
        let (each, count) = (f.parameter("pages_each"), f.parameter("all_pages"));
        let together = if together == 0 { 1 } else { Pages::per_block(page, block).min(together) };
        Self { page, block, together, lengths, table, each, count }
    }

    /// Number of keys of a sequence, at most these.
    #[track_caller]
    pub fn keys(&self, sequence: Value<'f, u32>, most: Value<'f, u32>) -> Value<'f, u32> {
        sequence.builder().load_global::<u32>(self.lengths + sequence.mul_wide(4u32), 0).min(most)
    }

    /// Fills the next `stages` stages of a ring with a block of a sequence, which has this number of keys: `load` is emitted for each page of
    /// each stage, with the number of the stage. The first pages are looked up before there is room for them.
    #[track_caller]
    pub fn produce(
        &self,
        (ring, stages): (&Position<'f>, u32),
        bytes: Value<'f, u32>,
        sequence: [Value<'f, u32>; 2],
        block: Value<'f, u32>,
        load: impl Fn((Stage<'f>, u32), Page<'f>),
    ) {
        let pages = self.of_block(sequence, block);
        for i in 0..stages {
            ring.produce(bytes, |stage| pages.each(|page| load((stage, i), page)));
        }
    }

    /// The pages of a block of a sequence, which has this number of keys. The first ones are looked up here.
    #[track_caller]
    pub fn of_block(&self, sequence: [Value<'f, u32>; 2], block: Value<'f, u32>) -> BlockPages<'f> {
        BlockPages { of: *self, sequence, block, first: self.group(sequence, block, 0) }
    }

    /// Pages of a block that are looked up together.
    fn group(
        &self,
        [sequence, keys]: [Value<'f, u32>; 2],
        block: Value<'f, u32>,
        group: u32,
    ) -> Vec<Page<'f>> {
        let (f, Self { page, together, .. }) = (block.builder(), *self);
        let first = block * self.block;
        let own = self.table + (sequence.cast::<u64>() * self.each.cast::<u64>()) * 4;
        let part = |slice: u32| {
            let key = first + slice * page;
            let index = key / page;
            let before = index * page;
            let keys = keys.max(before).min(before + page) - before;
            // Entries after the last page are loaded, too, but not used.
            let number: Value<'f, u32> = f.load_global(own + index.min(self.each - 1).mul_wide(4u32), 0);
            let row = f.constant(page) - keys + (key - before) - slice * page;
            let first = if page > self.block { key - before } else { f.constant(0) };
            Page { number, keys, first, slice, row }
        };
        let all = Pages::per_block(page, self.block);
        let pages: Vec<_> = (group * together..all.min((group + 1) * together)).map(part).collect();
        let wrong = pages.iter().map(|page| page.number.at_least(self.count) & page.has_keys());
        if let Some(wrong) = wrong.reduce(|a, b| a | b) {
            f.if_(wrong, || f.scope("a page that is not in the cache", || f.trap()));
        }
        pages
    }
}
