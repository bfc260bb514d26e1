//! The GEMMs of a launch as the scheduler's [`Groups`], on the device.

use collective::pipeline::ClusterPosition;
use collective::{Extent, Form, Plan, Record, RecordDevice, TablePlan};
use ptx::{Builder, Special, Value};
use scheduler::Tiles;
use scheduler::groups::{Groups, Offsets, SharedTable, TileElements};

use crate::gemm::AnyGemm;
use crate::groups::{cut, tile};
use crate::operands::Visit;
use crate::products::GroupedProblem;

/// The kernel parameters that describe the GEMMs of a launch.
#[derive(Clone, Copy)]
pub(crate) struct GroupParameters<'f> {
    /// Number of GEMMs or groups.
    count: Value<'f, u32>,
    /// Address of the offsets, row counts or records in device memory.
    address: Value<'f, u64>,
    /// Rows per group buffer, for kernels of groups in buffers of one size.
    room: Option<Value<'f, u32>>,
    /// Extents of the kernel's output. For groups of rows, the extent in their direction is that of all
    /// groups.
    extent: Extent<'f>,
    k_tiles: Value<'f, u32>,
}

impl<'f> GroupParameters<'f> {
    /// States the kernel parameters: the extents of the kernel's output and the number of k-tiles, if a launch is made, and the GEMMs.
    pub(crate) fn state(
        form: Form,
        products: GroupedProblem,
        extents: Option<[u32; 3]>,
        visit: &mut dyn Visit,
    ) {
        for (i, name) in EXTENTS.into_iter().enumerate() {
            visit.number(name, extents.map(|extents| extents[i]));
        }
        let of = Names::of(form);
        if let Some(name) = of.count {
            visit.number(name, Some(products.count()));
        }
        if let Some((name, table)) = of.table {
            visit.address(name, table);
        }
        if let Some(name) = of.room {
            let room = if let GroupedProblem::GroupedMasked { room, .. } = products { room } else { 0 };
            visit.number(name, Some(room));
        }
    }

    /// Finds the kernel parameters.
    pub(crate) fn of(f: &'f Builder, form: Form) -> Self {
        let [m, n, k_tiles] = EXTENTS.map(|name| f.parameter(name));
        let (extent, of) = (Extent { m, n, group: None, record: None }, Names::of(form));
        let count = of.count.map_or_else(|| f.constant(1), |name| f.parameter(name));
        let address = of.table.map_or_else(|| f.constant(0), |(name, _)| f.parameter(name));
        let room = of.room.map(|name| f.parameter(name));
        Self { count, address, room, extent, k_tiles }
    }
}

/// The names of the kernel parameters of the extents.
const EXTENTS: [&str; 3] = ["m", "n", "k_tiles"];

/// The names of the kernel parameters that describe the GEMMs of a form.
struct Names {
    count: Option<&'static str>,
    /// And the name of the memory.
    table: Option<(&'static str, &'static str)>,
    room: Option<&'static str>,
}

impl Names {
    fn of(form: Form) -> Self {
        let none = Self { count: None, table: None, room: None };
        let groups = |table, name| Self { count: Some("groups"), table: Some((table, name)), room: None };
        match form {
            Form::Single => none,
            Form::Batched => Self { count: Some("batch"), ..none },
            Form::GroupedContiguous | Form::KGrouped => groups("offsets", GroupedProblem::OFFSETS),
            Form::GroupedMasked => Self { room: Some("room"), ..groups("rows", GroupedProblem::ROWS) },
            Form::PointerArray => groups("records", GroupedProblem::RECORDS),
        }
    }
}

/// Where a CTA's tile is.
pub(crate) struct Placed<'f> {
    /// The first element along M and N.
    pub(crate) first: [Value<'f, u32>; 2],
    /// The output that the tile belongs to.
    pub(crate) extent: Extent<'f>,
    /// The range of that output's k-tiles, if device memory gives it.
    pub(crate) range: Option<[Value<'f, u32>; 2]>,
}

/// The GEMMs of a launch.
pub(crate) struct Outputs<'a, 'f> {
    groups: Groups<'a, Value<'f, u32>>,
    view: View<'a, 'f>,
    extent: Extent<'f>,
    /// Number of tiles of all GEMMs.
    pub(crate) tiles: Tiles<Value<'f, u32>>,
}

impl<'a, 'f: 'a> Outputs<'a, 'f> {
    /// Counts the tiles. Emitted for all threads of a CTA, after the wait for the previous kernel's writes to
    /// global memory.
    pub(crate) fn new(
        f: &'f Builder,
        gemm: &'a AnyGemm,
        cluster: ClusterPosition<'f>,
        GroupParameters { count, address, room, extent, k_tiles: k }: GroupParameters<'f>,
    ) -> Self {
        let (plan, tile) = (&gemm.plan, tile(&gemm.plan));
        let view = View { f, plan, cluster, address };
        let one = || Tiles { m: extent.m.div_ceil(tile[0]), n: extent.n.div_ceil(tile[1]), k };
        let table = || {
            let TablePlan { groups: most, span, offset, bytes } = plan.table;
            let needed = if plan.balanced() { SharedTable::balanced_bytes } else { SharedTable::bytes };
            debug_assert!(needed(most, span) + 4 <= bytes, "the plan's table has room");
            let at = (f.shared_base() + (offset + 4)) & !7;
            SharedTable { f, at, most, span, threads: plan.threads }
        };
        let [rows, others] = plan.oriented([extent.m, extent.n]);
        let offsets = Offsets { address, groups: count, rows, room };
        let groups = match plan.form {
            Form::Single => Groups::single(one()),
            Form::Batched | Form::KGrouped => Groups::batched_on_device(one(), count, gemm.axis()),
            Form::GroupedContiguous | Form::GroupedMasked if plan.balanced() => {
                let (height, table) = (others.div_ceil(tile[0]), table());
                let workers = f.special(Special::GridX) / plan.cluster_size();
                Groups::balanced_on_device(table, offsets, cut(plan), [height, workers, k])
            }
            Form::GroupedContiguous | Form::GroupedMasked => {
                Groups::contiguous_on_device(table(), offsets, (gemm.axis(), tile), [others, k])
            }
            Form::PointerArray => {
                let extents = move |group| {
                    let (_, [m, n, _]) = view.record(group);
                    [m, n]
                };
                Groups::described_on_device(table(), [count, k], tile, extents)
            }
        };
        Self { tiles: groups.tiles(), groups, view, extent }
    }

    /// Emitted per work unit: where the CTA's tile is.
    pub(crate) fn place(&self, tile: [Value<'f, u32>; 2]) -> Placed<'f> {
        let Self { extent, tiles: Tiles { k, .. }, .. } = *self;
        let place = self.groups.place(tile, &self.view);
        let (first, group, [m, n]) = (place.first, place.group, place.ends);
        match place.record {
            None => {
                let (m, n) = (m.unwrap_or(extent.m), n.unwrap_or(extent.n));
                let along_k = group.filter(|_| self.view.plan.form.divides_k());
                let range = along_k.map(|group| self.view.range(group, k));
                Placed { first, extent: Extent { m, n, group, record: None }, range }
            }
            Some((record, [m, n, all])) => {
                let k = all.div_ceil(self.view.plan.mainloop.tile[2]).min(k);
                let range = [self.view.f.constant(0), k];
                let extent = Extent { m, n, group, record: Some(record) };
                Placed { first, extent, range: Some(range) }
            }
        }
    }
}

/// The CTA's position in its cluster's tile, and the address of the offsets or records.
#[derive(Clone, Copy)]
struct View<'a, 'f> {
    f: &'f Builder,
    plan: &'a Plan,
    cluster: ClusterPosition<'f>,
    address: Value<'f, u64>,
}

impl<'f> View<'_, 'f> {
    /// The k-tiles of a group along K, of `k` k-tiles of all groups. Whatever memory holds, they are among
    /// these.
    fn range(&self, group: Value<'f, u32>, k: Value<'f, u32>) -> [Value<'f, u32>; 2] {
        let (tile, at) = (self.plan.mainloop.tile[2], self.address + group.mul_wide(4));
        let [begin, end] =
            [0, 4].map(|next| self.f.load_global::<u32>(at, next).min(k * tile).div_ceil(tile));
        [begin, end.max(begin)]
    }
}

impl<'f> TileElements<Value<'f, u32>> for View<'_, 'f> {
    /// Address of the record, and the extents of its GEMM.
    type Record = (RecordDevice<'f>, [Value<'f, u32>; 3]);

    fn first(&self, axis: usize, from: Option<Value<'f, u32>>, index: Value<'f, u32>) -> Value<'f, u32> {
        let (tile, across) = (self.plan.mainloop.tile[axis], self.plan.mainloop.cluster[axis]);
        let own = [self.cluster.m, self.cluster.n][axis];
        match from {
            None => (index * across + own) * tile,
            Some(from) => from + index * (tile * across) + own * tile,
        }
    }

    fn record(&self, group: Value<'f, u32>) -> Self::Record {
        let record = RecordDevice::new(self.address + group.mul_wide(Record::BYTES[0]));
        (record, record.extents(self.f, self.plan))
    }
}
