//! Storing O.

use collective::heads::DeviceTensor;
use collective::pipeline::Stage;
use collective::{Consumer, Format, Fragment, FragmentRow, OperandTile, Packed, StagedRows};
use ptx::{ProxySpace, Value, Var};

use super::{Kernel, Output, QueryTile};
use crate::parts::{Part, Parts};

/// The places of a thread in a slab of a tile with 64 rows, and the slab's columns.
pub(crate) fn slab<'f>(tile: &OperandTile, thread: Value<'f, u32>) -> (StagedRows<'f>, u32) {
    let columns = tile.swizzle().elements(tile.bits());
    (StagedRows::new(tile.format(), tile.slab(8).layout(), [64, columns], thread), columns)
}

/// A consumer's part of O.
pub(super) struct Store<'a, 'f> {
    kernel: &'a Kernel<'a, 'f>,
    consumer: Consumer<'f>,
    out: Fragment<'f, f32>,
    /// O's tile in shared memory, and a thread's places in a slab of it.
    staged: Option<(OperandTile, StagedRows<'f>)>,
    /// The empty barrier of the stage of Q from which the last O is being copied, 0 if there is none. `None` if
    /// there is one stage of Q, which is released at once.
    pending: Option<Var<'f, u32>>,
}

impl<'a, 'f> Store<'a, 'f> {
    pub(super) fn new(kernel: &'a Kernel<'a, 'f>, consumer: Consumer<'f>, out: Fragment<'f, f32>) -> Self {
        let staged = kernel.plan.output.map(|tile| (tile, slab(&tile, consumer.thread).0));
        let several = staged.is_some() && kernel.plan.rings[0].stages > 1;
        let pending = several.then(|| kernel.f.variable(0));
        Self { kernel, consumer, out, staged, pending }
    }

    /// Stores O of a tile, and releases the stage of its queries.
    pub(super) fn store(&self, unit: QueryTile<'f>, q: Stage<'f>) {
        let format = self.kernel.plan.spec.output;
        let rows = self.out.rows(self.out.start(), 0);
        match (self.kernel.output(), &self.staged) {
            (Output::Tma(map), Some((tile, staged))) => {
                self.staged(format, (tile, staged), (map, q), unit, &rows);
            }
            (Output::Direct(o, pairs), _) => {
                self.consumer.release.arrive(q.empty);
                match (unit.part, self.kernel.parts(), self.kernel.plan.cluster) {
                    (Some(part), Some(parts), _) => self.part((part, parts), unit, &rows),
                    (_, _, Some(of)) => self.kernel.leave(of, &unit, &rows),
                    _ => self.direct(format, (o, pairs), unit, &rows),
                }
            }
            (Output::Tma(_), None) => self.kernel.f.refuse("a plan with O's tensor map has O's tile"),
        }
    }

    /// Through the shared memory of the consumer's own queries, which it needs no more.
    fn staged(
        &self,
        format: Format,
        (tile, staged): (&OperandTile, &StagedRows<'f>),
        (map, q): (Value<'f, u64>, Stage<'f>),
        unit: QueryTile<'f>,
        rows: &[FragmentRow<'f, f32>],
    ) {
        let (f, Consumer { thread, part, release, .. }) = (self.kernel.f, self.consumer);
        let width = tile.swizzle().elements(tile.bits());
        let row_bytes = width * tile.bits() / 8;
        let slab_bytes = self.kernel.plan.spec.tile[0] * row_bytes;
        let [_, columns] = tile.extents();
        let slabs = columns / width;
        let first_column = self.kernel.first_column(self.consumer);
        let first = q.address + part * (64 * row_bytes) + first_column / width * slab_bytes;
        for slab in 0..slabs {
            let pairs = (width / 8) as usize;
            let of_row = |row: &FragmentRow<'f, f32>| -> Vec<Packed<'f>> {
                let part = row.part(slab as usize * pairs, pairs);
                part.pairs.iter().map(|pair| format.pack(f, pair.values)).collect()
            };
            let packed: Vec<_> = rows.iter().map(of_row).collect();
            if let [upper, lower] = &packed[..] {
                staged.fill(f, first + slab * slab_bytes, [upper, lower]);
            }
        }
        f.fence_proxy_async(ProxySpace::Shared);
        self.kernel.meet(self.consumer);
        f.if_(thread.equals(0), || {
            for slab in 0..slabs {
                self.copy(map, first + slab * slab_bytes, unit, first_column + slab * width);
            }
            f.bulk_commit();
            if self.pending.is_none() {
                f.bulk_wait(0, true);
            }
        });
        match self.pending {
            Some(pending) => pending.set(q.empty),
            None => release.arrive(q.empty),
        }
    }

    /// Emitted when a tile has begun: releases the queries of the tile before, when O has been copied from there. `again` says whether
    /// that is asked again before the tile is stored.
    pub(super) fn release(&self, again: bool) {
        let (f, Consumer { thread, release, .. }) = (self.kernel.f, self.consumer);
        if let Some(pending) = self.pending {
            f.if_(pending.get().differs_from(0), || {
                f.if_(thread.equals(0), || f.bulk_wait(0, true));
                release.arrive(pending.get());
                if again {
                    pending.set(0);
                }
            });
        }
    }

    /// Starts the copy of a slab, which begins at a column of O.
    fn copy(&self, map: Value<'f, u64>, slab: Value<'f, u32>, unit: QueryTile<'f>, column: Value<'f, u32>) {
        let f = self.kernel.f;
        let pack = self.kernel.plan.spec.pack;
        let row = unit.row + self.consumer.part * (64 / pack);
        // Tensor stores skip rows after the last one; a part without any row stores nothing.
        f.if_(row.less_than(unit.lengths[0]), || {
            let [first, sequence] = self.kernel.place(&unit, 0);
            let row = first + row;
            if pack > 1 {
                let place = [column, f.constant(0), row, unit.head, sequence];
                f.tensor_store(map, slab, place.map(Value::cast));
            } else {
                f.tensor_store(map, slab, [column, row, unit.head, sequence].map(Value::cast));
            }
        });
    }

    /// O of a part, in the workspace.
    fn part(&self, (part, parts): (Part<'f>, Parts<'f>), unit: QueryTile<'f>, rows: &[FragmentRow<'f, f32>]) {
        let f = self.kernel.f;
        for row in rows {
            let [at, head] = self.kernel.query(&unit, row.row);
            f.if_(at.less_than(unit.lengths[0]), || {
                let line = self.kernel.rows_before(&unit, head) + at.cast::<u64>();
                row.store(f, Format::F32, parts.output(part.number, line, self.kernel.plan), None);
            });
        }
    }

    fn direct(
        &self,
        format: Format,
        (o, pairs): (DeviceTensor<'f>, Value<'f, bool>),
        unit: QueryTile<'f>,
        rows: &[FragmentRow<'f, f32>],
    ) {
        let f = self.kernel.f;
        for row in rows {
            let [at, head] = self.kernel.query(&unit, row.row);
            f.if_(at.less_than(unit.lengths[0]), || {
                row.store(f, format, self.kernel.row_of_o(o, &unit, [at, head]), Some(pairs));
            });
        }
    }

    /// Emitted after the last tile: waits for the copies.
    pub(super) fn finish(&self) {
        if self.staged.is_some() {
            let f = self.kernel.f;
            f.if_(self.consumer.thread.equals(0), || f.bulk_wait(0, false));
        }
    }
}
