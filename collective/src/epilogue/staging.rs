//! Staging: a block of a tile goes through shared-memory buffers, some being filled while others are copied
//! out.

use cute_rs::ComposedLayout;
use ptx::{Builder, ProxySpace, Value};

use super::staged_rows::StagedRows;
use super::store::Combine;
use crate::element::{Format, Packed};
use crate::mainloop::{Fragment, FragmentRow};
use crate::plan::{Plan, StagingPlan};

/// How a part of a block goes through a buffer.
pub(super) struct Through<'a, 'f> {
    /// Emits the stores of the packed pairs of a thread's two rows, into the buffer at a shared address.
    pub(super) fill: Fill<'a, 'f>,
    /// Emits the copy from there to the output, where the part begins at this row and column.
    pub(super) copy: &'a dyn Fn(Value<'f, u32>, [Value<'f, u32>; 2]),
    /// How to store parts that no copy may store whole; `None` if there are none.
    pub(super) partly: Option<Partly<'a, 'f>>,
}

/// How to store a part that may contain columns of the next group.
#[derive(Clone, Copy)]
pub(super) struct Partly<'a, 'f> {
    /// One past the last column of this group.
    pub(super) end: Value<'f, u32>,
    /// Emitted for all threads of a warpgroup: stores this number of columns of the buffer at a shared
    /// address to the output, where the part begins at this row and column.
    pub(super) store: &'a dyn Fn(Value<'f, u32>, [Value<'f, u32>; 2], Value<'f, u32>),
}

/// See [`Through`].
pub(super) type Fill<'a, 'f> = &'a dyn Fn(Value<'f, u32>, [&[Packed<'f>]; 2]);

/// Number of parts computed and stored between two barriers, if the warpgroup has one buffer per part and there is
/// much to compute.
const TOGETHER: u32 = 2;

/// One block of a tile in shared memory, and the copies that store it.
pub(super) struct Staging {
    /// Layout of the rows of one buffer.
    pub(super) buffer: ComposedLayout,
    /// Buffers for the columns of a block.
    count: u32,
    /// Columns per buffer.
    pub(super) columns: u32,
    /// Rows per buffer: those of a block.
    pub(super) rows: u32,
    format: Format,
}

impl Staging {
    pub(super) fn new(format: Format, plan: &Plan) -> Self {
        let StagingPlan { columns, .. } = plan.staging;
        // (ROWS, COLUMNS), and (ROWS, COLUMNS, BUFFERS) of a warpgroup
        let buffer = plan.staged_layout().expect("the plan has rows of whole 16 bytes");
        Self { buffer, count: plan.output_tile_n() / columns, columns, rows: plan.block_rows(), format }
    }

    /// The places of a thread's pairs in a buffer.
    pub(super) fn staged_rows<'f>(&self, thread: Value<'f, u32>) -> StagedRows<'f> {
        StagedRows::new(self.format, self.buffer, [self.rows, self.columns], thread)
    }

    /// Emits the stores of a warpgroup's fragment of a tile, buffer by buffer.
    pub(super) fn store<'f>(
        &self,
        f: &'f Builder,
        plan: &Plan,
        fragment: &Fragment<'f, f32>,
        combine: Combine<'_, 'f>,
        through: &Through<'_, 'f>,
    ) {
        let passage = Passage::new(self, f, plan, fragment, combine, through);
        let (parts, buffers) = (self.parts(plan), plan.staging.buffers);
        // With one buffer per part, the warpgroup meets before the first part, and then only where copies begin. If
        // there is much to compute, that is after every second part: with more between two barriers, the assembler
        // interleaves them until registers run out.
        let together = match combine.pairs_at_once {
            Some(_) => TOGETHER,
            None if !combine.reads && parts > TOGETHER => parts,
            None => 0,
        };
        if together > 0 && buffers >= parts && through.partly.is_none() {
            return passage.store_together(together);
        }
        for index in 0..parts {
            match through.partly {
                Some(partly) => passage.store_partly(index, partly),
                None => passage.store_whole(index),
            }
        }
    }

    /// Shared address of a warpgroup's first buffer.
    pub(super) fn base<'f>(
        &self,
        plan: &Plan,
        shared: Value<'f, u32>,
        warpgroup: Value<'f, u32>,
    ) -> Value<'f, u32> {
        let StagingPlan { buffers, buffer_bytes, .. } = plan.staging;
        shared + (warpgroup * (buffers * buffer_bytes) + plan.epilogue_offset)
    }

    /// Number of parts of a warpgroup's fragment of a tile. Each part fills one buffer.
    pub(super) fn parts(&self, plan: &Plan) -> u32 {
        plan.blocks() * self.count
    }

    /// First element of a part in D, if the warpgroup's fragment begins at `first`.
    pub(super) fn coordinates<'f>(&self, [m, n]: [Value<'f, u32>; 2], index: u32) -> [Value<'f, u32>; 2] {
        let (block, part) = (index / self.count, index % self.count);
        [m + block * self.rows, n + part * self.columns]
    }

    /// The rows of each block of a fragment.
    pub(super) fn rows<'f>(
        &self,
        plan: &Plan,
        fragment: &Fragment<'f, f32>,
    ) -> Vec<Vec<FragmentRow<'f, f32>>> {
        let start = fragment.start();
        (0..plan.blocks()).map(|block| fragment.rows(start, block)).collect()
    }

    /// A part's results, packed, by row.
    pub(super) fn packed<'f>(
        &self,
        f: &'f Builder,
        plan: &Plan,
        rows: &[Vec<FragmentRow<'f, f32>>],
        index: u32,
        combine: Combine<'_, 'f>,
    ) -> Vec<Vec<Packed<'f>>> {
        let (block, pairs) = (index / self.count, self.columns as usize / 8);
        let first = (index % self.count) as usize * pairs;
        let halvings = plan.epilogue.halvings;
        let of_part: Vec<_> =
            rows[block as usize].iter().map(|row| row.part(first << halvings, pairs << halvings)).collect();
        combine.packed(self.format, f, block, &of_part)
    }
}

/// A fragment on its way through a warpgroup's buffers.
struct Passage<'a, 'f> {
    staging: &'a Staging,
    f: &'f Builder,
    plan: &'a Plan,
    fragment: &'a Fragment<'f, f32>,
    combine: Combine<'a, 'f>,
    through: &'a Through<'a, 'f>,
    /// Shared address of the first buffer.
    base: Value<'f, u32>,
    barrier: Value<'f, u32>,
    /// Whether this thread issues the copies.
    issues: Value<'f, bool>,
    rows: Vec<Vec<FragmentRow<'f, f32>>>,
    parts: u32,
}

impl<'a, 'f> Passage<'a, 'f> {
    fn new(
        staging: &'a Staging,
        f: &'f Builder,
        plan: &'a Plan,
        fragment: &'a Fragment<'f, f32>,
        combine: Combine<'a, 'f>,
        through: &'a Through<'a, 'f>,
    ) -> Self {
        let base = staging.base(plan, fragment.shared, fragment.warpgroup);
        let (barrier, issues) = (fragment.barrier(), fragment.thread.equals(0));
        let (parts, rows) = (staging.parts(plan), staging.rows(plan, fragment));
        Self { staging, f, plan, fragment, combine, through, base, barrier, issues, rows, parts }
    }

    /// Stores parts that have a buffer each, `together` of them between two barriers.
    fn store_together(&self, together: u32) {
        let Self { f, parts, barrier, issues, .. } = *self;
        let mut first = Some(self.part(0));
        f.if_(issues, || f.bulk_wait(0, true));
        f.barrier_sync(barrier, 128);
        for begin in (0..parts).step_by(together as usize) {
            let these = begin..parts.min(begin + together);
            these
                .clone()
                .for_each(|index| self.fill(index, &first.take().unwrap_or_else(|| self.part(index))));
            f.fence_proxy_async(ProxySpace::Shared);
            f.barrier_sync(barrier, 128);
            f.if_(issues, || {
                these.for_each(|index| self.copy(index));
                f.bulk_commit();
            });
        }
    }

    /// Stores a part, one after the other, by a copy.
    fn store_whole(&self, index: u32) {
        let buffers = self.plan.staging.buffers;
        // Copies finish reading in order. A tile's first copies may follow the last ones of the tile
        // before. These used other buffers, unless the number of buffers divides the number of parts,
        // or tiles differ in their number of parts.
        let divide = self.parts.is_multiple_of(buffers) && !self.plan.narrows;
        let pending = if divide { buffers - 1 } else { 0 };
        self.store(index, index == 0, pending, true, &|| self.issue(index));
    }

    /// Stores a part that may contain columns of the next group. Parts after the end are skipped, so a block's
    /// first part may follow any part.
    fn store_partly(&self, index: u32, Partly { end, store: by_threads }: Partly<'_, 'f>) {
        let Self { f, staging, plan, fragment, .. } = *self;
        let [_, column] = self.at(index);
        let left = (end - column).where_or(column.less_than(end), 0).min(staging.columns);
        let columns_before = index % staging.count * staging.columns;
        // The last part of a tile that ends inside the part is never whole: threads store it, and no copy
        // reads it.
        let copied = (columns_before + staging.columns) << plan.epilogue.halvings <= fragment.columns;
        f.if_(left.more_than(0), || {
            self.store(index, index.is_multiple_of(staging.count), 0, copied, &|| {
                if !copied {
                    return by_threads(self.buffer(index), self.at(index), left);
                }
                let whole = left.equals(staging.columns);
                let by_threads = || by_threads(self.buffer(index), self.at(index), left);
                f.if_else(whole, || self.issue(index), by_threads);
            });
        });
    }

    /// Fills a part's buffer once it is free, then stores it by `copy`. `begins` is whether the part may
    /// follow any part; `pending` copies may then still read their buffers.
    fn store(&self, index: u32, begins: bool, pending: u32, copied: bool, copy: &dyn Fn()) {
        let Self { f, parts, barrier, issues, .. } = *self;
        let buffers = self.plan.staging.buffers;
        if begins || buffers == 1 {
            f.if_(issues, || f.bulk_wait(pending, true));
            f.barrier_sync(barrier, 128);
        }
        self.fill(index, &self.part(index));
        if copied {
            f.fence_proxy_async(ProxySpace::Shared);
        }
        // The barrier after filling also confirms that the next buffer is free, unless an earlier barrier
        // has done so.
        let said = begins && pending + 2 <= buffers;
        if index + 1 < parts && buffers > 1 && !said {
            f.if_(issues, || f.bulk_wait(buffers - 2, true));
        }
        f.barrier_sync(barrier, 128);
        copy();
    }

    /// One thread issues a part's copy.
    fn issue(&self, index: u32) {
        self.f.if_(self.issues, || {
            self.copy(index);
            self.f.bulk_commit();
        });
    }

    fn copy(&self, index: u32) {
        (self.through.copy)(self.buffer(index), self.at(index));
    }

    fn fill(&self, index: u32, packed: &[Vec<Packed<'f>>]) {
        if let [upper, lower] = packed {
            (self.through.fill)(self.buffer(index), [upper, lower]);
        }
    }

    fn part(&self, index: u32) -> Vec<Vec<Packed<'f>>> {
        self.staging.packed(self.f, self.plan, &self.rows, index, self.combine)
    }

    fn buffer(&self, index: u32) -> Value<'f, u32> {
        let StagingPlan { buffers, buffer_bytes, .. } = self.plan.staging;
        self.base + index % buffers * buffer_bytes
    }

    fn at(&self, index: u32) -> [Value<'f, u32>; 2] {
        let [m, n] = self.fragment.first;
        self.staging.coordinates([m, n >> self.plan.epilogue.halvings], index)
    }
}
