//! Kernels of several products, and how a piece of work finds its product on the device.

use core::marker::PhantomData;

use collective::pipeline::ClusterPosition;
use collective::{Extent, Form, Plan, Record, RecordDevice};
use ptx::{Builder, Special, Value};
use scheduler::Tiles;

use crate::config::GemmConfig;
use crate::order::{Balanced, Part};

/// The kernel `C` for many products of one shape in one launch: matrices of each operand lie at a fixed distance from each
/// other, or are all the same one. Every mainloop, epilogue and scheduler is legal.
///
/// The scheduler sees one output, as many times as high (or wide) as there are products. So it deals out tiles of all of
/// them, and divides them, as it does those of one.
///
/// ```
/// use collective::{Cooperative, KMajor, LinearCombination, Operands, Tile, TmaWgmma};
/// use half::bf16;
/// use kernel::{Batched, Call, Composed, Emulator, Engine, Gemm, GemmProblem};
/// use scheduler::{AlongM, Persistent};
/// use typenum::{U1, U64};
///
/// type Mine = Batched<
///     Composed<
///         TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U64, U64, U64>, Cooperative<U1>>,
///         LinearCombination<bf16>,
///         Persistent<AlongM>,
///     >,
/// >;
/// let (problem, count) = (GemmProblem { m: 16, n: 8, k: 8 }, 3);
/// let mut engine = Emulator::new();
/// let ones = |count: usize| half::bf16::ONE.to_le_bytes().repeat(count);
/// let (a, b) = (engine.upload(&ones(3 * 16 * 8))?, engine.upload(&ones(8 * 8))?);
/// let d = engine.allocate(3 * 16 * 8 * 2)?;
/// let first = Call::of(problem).a(a.address, 8).b(b.address, 8).d(d.address, 8);
/// // One B for all.
/// let call = Call { b: first.b, ..first.batched(count) };
/// let program = Gemm::<Mine>::program()?;
/// if let Some(launch) = Gemm::<Mine>::launch(&call, engine.slots(&program)?)? {
///     engine.launch(&program, launch.grid, &launch.arguments)?;
/// }
/// assert_eq!(engine.read(d)?, bf16::from_f32(8.0).to_le_bytes().repeat(3 * 16 * 8));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Batched<C>(PhantomData<C>);

/// The kernel `C` for groups of rows, each with a B of its own: the tokens sent to the experts of a layer, say. Where the
/// groups begin is read from device memory, so that whoever computes it need not wait for the host. Groups may be empty.
///
/// Every mainloop and epilogue is legal, and schedulers that need not know on the host how many tiles there are
/// ([`Facts::tiles_on_device`](scheduler::Facts::tiles_on_device)).
///
/// ```
/// use collective::{Cooperative, KMajor, LinearCombination, Operands, Tile, TmaWgmma};
/// use half::bf16;
/// use kernel::{Call, Composed, Emulator, Engine, Gemm, GemmProblem, Ragged};
/// use scheduler::{AlongM, Persistent};
/// use typenum::{U1, U64};
///
/// type Mine = Ragged<
///     Composed<
///         TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U64, U64, U64>, Cooperative<U1>>,
///         LinearCombination<bf16>,
///         Persistent<AlongM>,
///     >,
/// >;
/// // Five rows for the first of three experts, none for the second, eleven for the third.
/// let offsets: Vec<u8> = [0u32, 5, 5, 16].iter().flat_map(|row| row.to_le_bytes()).collect();
/// let problem = GemmProblem { m: 16, n: 8, k: 8 };
/// let mut engine = Emulator::new();
/// let weights: Vec<u8> =
///     [1.0, 2.0, 3.0].iter().flat_map(|&w| bf16::from_f32(w).to_le_bytes().repeat(64)).collect();
/// let a = engine.upload(&bf16::ONE.to_le_bytes().repeat(16 * 8))?;
/// let (b, offsets) = (engine.upload(&weights)?, engine.upload(&offsets)?);
/// let d = engine.allocate(16 * 8 * 2)?;
/// let call = Call::of(problem).a(a.address, 8).b(b.address, 8).d(d.address, 8).ragged(3, offsets.address);
/// let program = Gemm::<Mine>::program()?;
/// if let Some(launch) = Gemm::<Mine>::launch(&call, engine.slots(&program)?)? {
///     engine.launch(&program, launch.grid, &launch.arguments)?;
/// }
/// let row = |value| bf16::from_f32(value).to_le_bytes().repeat(8);
/// assert_eq!(engine.read(d)?, [row(8.0).repeat(5), row(24.0).repeat(11)].concat());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Ragged<C>(PhantomData<C>);

/// The kernel `C` for products of any shapes with matrices anywhere, each described by a [`Record`](collective::Record) in
/// device memory. So whoever computes the records need not wait for the host. Products may be empty.
///
/// Every mainloop and epilogue is legal, and schedulers that need not know on the host how many tiles there are
/// ([`Facts::tiles_on_device`](scheduler::Facts::tiles_on_device)). D is stored directly, whatever the epilogue's store.
#[derive(Clone, Copy, Debug)]
pub struct PointerArray<C>(PhantomData<C>);

impl<C: GemmConfig> GemmConfig for PointerArray<C> {
    type Mainloop = C::Mainloop;
    type Epilogue = C::Epilogue;
    type Scheduler = C::Scheduler;
    const OVERLAPS: bool = C::OVERLAPS;
    const FORM: Form = Form::Grouped;
}

impl<C: GemmConfig> GemmConfig for Batched<C> {
    type Mainloop = C::Mainloop;
    type Epilogue = C::Epilogue;
    type Scheduler = C::Scheduler;
    const OVERLAPS: bool = C::OVERLAPS;
    const FORM: Form = Form::Batched;
}

impl<C: GemmConfig> GemmConfig for Ragged<C> {
    type Mainloop = C::Mainloop;
    type Epilogue = C::Epilogue;
    type Scheduler = C::Scheduler;
    const OVERLAPS: bool = C::OVERLAPS;
    const FORM: Form = Form::Ragged;
}

/// What the kernel knows of the products of a launch.
#[derive(Clone, Copy)]
pub(crate) enum Groups<'f> {
    /// There is but one.
    Single,
    /// How many.
    Batched(Value<'f, u32>),
    /// How many there are, and the address of where each begins.
    Ragged(Value<'f, u32>, Value<'f, u64>),
    /// How many there are, and the address of their records.
    Grouped(Value<'f, u32>, Value<'f, u64>),
}

impl<'f> Groups<'f> {
    /// Declares the kernel parameters.
    pub(crate) fn declare(f: &'f Builder, form: Form) -> Self {
        match form {
            Form::Single => Self::Single,
            Form::Batched => Self::Batched(f.param("batch")),
            Form::Ragged => Self::Ragged(f.param("groups"), f.param("offsets")),
            Form::Grouped => Self::Grouped(f.param("groups"), f.param("records")),
        }
    }
}

/// The tiles of all products of a launch, and to which each belongs.
#[derive(Clone, Copy)]
pub(crate) struct Outputs<'f> {
    f: &'f Builder,
    /// Extents of the kernel's output; of the direction whose groups lie behind each other, of all.
    extent: Extent<'f>,
    /// What a cluster computes at a time.
    tile: [u32; 2],
    kind: Kind<'f>,
    /// The tiles of all of them.
    pub(crate) tiles: Tiles<Value<'f, u32>>,
}

#[derive(Clone, Copy)]
enum Kind<'f> {
    Single,
    Batched {
        /// Those of one product.
        tiles: Tiles<Value<'f, u32>>,
        /// Whether products lie below each other in the scheduler's eyes, or beside each other.
        rows: bool,
    },
    Ragged {
        /// The table's shared address.
        table: Value<'f, u32>,
        groups: Value<'f, u32>,
        /// Whether groups lie behind each other along the kernel's N.
        swapped: bool,
    },
    /// As `Ragged`, the groups cut into tiles of nearly equal width.
    Balanced(Balanced<'f>),
    Grouped {
        /// The table's shared address.
        table: Value<'f, u32>,
        groups: Value<'f, u32>,
        records: Value<'f, u64>,
    },
}

/// Where a tile lies.
pub(crate) struct Place<'f> {
    /// Its first element for the CTA.
    pub(crate) first: [Value<'f, u32>; 2],
    /// The output that it is of.
    pub(crate) extent: Extent<'f>,
    /// K-tiles of its product.
    pub(crate) k: Value<'f, u32>,
}

impl<'f> Outputs<'f> {
    /// Emitted for all threads of a CTA, behind what global memory is waited for: counts the tiles.
    pub(crate) fn new(
        f: &'f Builder,
        plan: &Plan,
        rows_last: bool,
        groups: Groups<'f>,
        extent: Extent<'f>,
        k_tiles: Value<'f, u32>,
    ) -> Self {
        let ([m, n, _], [across, along]) = (plan.mainloop.tile, plan.mainloop.cluster);
        let tile @ [tile_m, tile_n] = [m * across, n * along];
        let one = |extent: Extent<'f>| Tiles {
            m: extent.m.div_ceil(tile_m),
            n: extent.n.div_ceil(tile_n),
            k: k_tiles,
        };
        let (kind, tiles) = match groups {
            Groups::Single => (Kind::Single, one(extent)),
            Groups::Batched(count) => {
                let tiles = one(extent);
                let all = match rows_last {
                    true => Tiles { m: tiles.m * count, ..tiles },
                    false => Tiles { n: tiles.n * count, ..tiles },
                };
                (Kind::Batched { tiles, rows: rows_last }, all)
            }
            Groups::Ragged(groups, offsets) if plan.balanced() => {
                let height = extent.m.div_ceil(tile_m);
                let (order, all) =
                    Balanced::new(f, plan, table(f, plan), [groups, extent.n], offsets, height);
                (Kind::Balanced(order), Tiles { m: all, n: f.constant(1), k: k_tiles })
            }
            Groups::Ragged(groups, offsets) => {
                let swapped = plan.swapped();
                let (rows, tile) = if swapped { (extent.n, tile_n) } else { (extent.m, tile_m) };
                let table = table(f, plan);
                f.if_(f.warp_index().equals(0), || write_table(f, table, [groups, rows], offsets, tile));
                f.barrier_sync(0, plan.threads);
                let [all, _] = f.load_shared_vector(table + groups * 8, 0);
                let tiles = match swapped {
                    false => Tiles { m: all, n: extent.n.div_ceil(tile_n), k: k_tiles },
                    true => Tiles { m: extent.m.div_ceil(tile_m), n: all, k: k_tiles },
                };
                (Kind::Ragged { table, groups, swapped }, tiles)
            }
            Groups::Grouped(groups, records) => {
                let table = table(f, plan);
                f.if_(f.warp_index().equals(0), || write_products(f, plan, [table, groups], records, tile));
                f.barrier_sync(0, plan.threads);
                let [all, _] = f.load_shared_vector(table + groups * 8, 0);
                let tiles = Tiles { m: all, n: f.constant(1), k: k_tiles };
                (Kind::Grouped { table, groups, records }, tiles)
            }
        };
        Self { f, extent, tile, kind, tiles }
    }

    /// Emitted for a piece of work: where its tile lies.
    pub(crate) fn place(
        &self,
        plan: &Plan,
        cluster: ClusterPosition<'f>,
        [m, n]: [Value<'f, u32>; 2],
    ) -> Place<'f> {
        let Self { f, extent, tile: [cluster_m, cluster_n], kind, tiles: Tiles { k, .. } } = *self;
        let [tile_m, tile_n, tile_k] = plan.mainloop.tile;
        let [across_m, across_n] = plan.mainloop.cluster;
        let row = |m: Value<'f, u32>| (m * across_m + cluster.m) * tile_m;
        let column = |n: Value<'f, u32>| (n * across_n + cluster.n) * tile_n;
        match kind {
            Kind::Single => Place { first: [row(m), column(n)], extent, k },
            Kind::Batched { tiles, rows } => {
                let (group, m, n) = match rows {
                    true => (m / tiles.m, m % tiles.m, n),
                    false => (n / tiles.n, m, n % tiles.n),
                };
                Place { first: [row(m), column(n)], extent: Extent { group: Some(group), ..extent }, k }
            }
            Kind::Ragged { table, groups, swapped } => {
                let found = find(f, table, groups, if swapped { n } else { m });
                let group = Some(found.group);
                match swapped {
                    false => Place {
                        first: [found.first + found.tile * cluster_m + cluster.m * tile_m, column(n)],
                        extent: Extent { m: found.end, group, ..extent },
                        k,
                    },
                    true => Place {
                        first: [row(m), found.first + found.tile * cluster_n + cluster.n * tile_n],
                        extent: Extent { n: found.end, group, ..extent },
                        k,
                    },
                }
            }
            Kind::Balanced(order) => {
                // The scheduler's one column of tiles is those of all groups.
                let Part { group, m, rows: [first, end] } = order.part(m);
                Place { first: [row(m), first], extent: Extent { n: end, group: Some(group), ..extent }, k }
            }
            Kind::Grouped { table, groups, records } => {
                // The scheduler's one column of tiles is those of all products, each column by column.
                let Found { group, tile, end: height, .. } = find(f, table, groups, m);
                let record = RecordDevice::new(record_address(records, group));
                let [all_m, all_n, all_k] = record.extents(f, plan);
                let height = height.max(1);
                Place {
                    first: [row(tile % height), column(tile / height)],
                    extent: Extent { m: all_m, n: all_n, group: Some(group), record: Some(record) },
                    k: all_k.div_ceil(tile_k).min(k),
                }
            }
        }
    }
}

/// Where a record lies.
fn record_address<'f>(records: Value<'f, u64>, group: Value<'f, u32>) -> Value<'f, u64> {
    records + group.mul_wide(Record::BYTES[0])
}

/// The table's shared address, a multiple of 8.
fn table<'f>(f: &'f Builder, plan: &Plan) -> Value<'f, u32> {
    (f.shared_base() + (plan.table_offset + 4)) & !7
}

/// Emitted for the lanes of a warp: entry `i + 1` of the table has the tiles of all products up to the `i`-th, and the tiles
/// of a column of its; entry 0 is zero.
fn write_products<'f>(
    f: &'f Builder,
    plan: &Plan,
    [table, groups]: [Value<'f, u32>; 2],
    records: Value<'f, u64>,
    [tile_m, tile_n]: [u32; 2],
) {
    let lane = f.special(Special::Lane);
    let zero = f.constant(0u32);
    f.if_(lane.equals(0), || f.store_shared(table, 0, [zero, zero]));
    let (tiles, base) = (f.variable(0u32), f.variable(0u32));
    f.while_(
        || base.get().less_than(groups),
        || {
            let group = base.get() + lane;
            let inside = group.less_than(groups);
            // Lanes behind the last product read that one once more.
            let record = RecordDevice::new(record_address(records, group.min(groups - 1)));
            let [m, n, _] = record.extents(f, plan);
            let height = m.div_ceil(tile_m);
            let own = (height * n.div_ceil(tile_n)).where_or(inside, 0);
            let count = scan(f, lane, own, &|a, b| a + b) + tiles.get();
            f.if_(inside, || f.store_shared(table + group * 8, 8, [count, height]));
            tiles.set(f.shuffle(count, 31));
            base.set(base.get() + 32);
        },
    );
}

/// An inclusive scan over the lanes of a warp.
pub(crate) fn scan<'f>(
    f: &'f Builder,
    lane: Value<'f, u32>,
    value: Value<'f, u32>,
    join: &dyn Fn(Value<'f, u32>, Value<'f, u32>) -> Value<'f, u32>,
) -> Value<'f, u32> {
    [1, 2, 4, 8, 16].into_iter().fold(value, |value, distance| {
        let other = f.shuffle(value, (lane - distance) & 31);
        join(value, other).where_or(lane.at_least(distance), value)
    })
}

/// Where a row of tiles lies among groups that lie behind each other.
struct Found<'f> {
    group: Value<'f, u32>,
    /// The row of tiles, counted from the group's first.
    tile: Value<'f, u32>,
    /// The group's first row.
    first: Value<'f, u32>,
    /// One past its last.
    end: Value<'f, u32>,
}

/// Emitted for the lanes of a warp: entry `i` of the table has the rows of tiles, and the rows, in front of group `i`, and
/// entry `groups` has those of all.
fn write_table<'f>(
    f: &'f Builder,
    table: Value<'f, u32>,
    groups: [Value<'f, u32>; 2],
    offsets: Value<'f, u64>,
    tile: u32,
) {
    let lane = f.special(Special::Lane);
    let tiles = f.variable(0u32);
    each_group(f, groups, offsets, &|first| f.store_shared(table, 0, [f.constant(0), first]), &|group| {
        let count = scan(f, lane, (group.end - group.begin).div_ceil(tile), &|a, b| a + b) + tiles.get();
        f.if_(group.exists, || f.store_shared(table + group.number * 8, 8, [count, group.end]));
        tiles.set(f.shuffle(count, 31));
    });
}

/// Emitted for the lanes of a warp: word `i` of the table has the rows in front of group `i`, word `groups` those of all.
pub(crate) fn write_rows<'f>(
    f: &'f Builder,
    table: Value<'f, u32>,
    groups: [Value<'f, u32>; 2],
    offsets: Value<'f, u64>,
) {
    each_group(f, groups, offsets, &|first| f.store_shared(table, 0, [first]), &|group| {
        f.if_(group.exists, || f.store_shared(table + group.number * 4, 4, [group.end]));
    });
}

/// The group of a lane.
struct LaneGroup<'f> {
    number: Value<'f, u32>,
    /// Its first row, and one past its last.
    begin: Value<'f, u32>,
    end: Value<'f, u32>,
    /// Not so behind the last group, where lanes have empty ones.
    exists: Value<'f, bool>,
}

/// Emitted for the lanes of a warp: one of them begins with the first group's first row, then all walk the groups, 32 at a
/// time.
///
/// No offset counts as less than the one before or as more than there are rows, so that whatever memory holds, groups do not
/// overlap and end inside.
fn each_group<'f>(
    f: &'f Builder,
    [groups, all]: [Value<'f, u32>; 2],
    offsets: Value<'f, u64>,
    begin: &dyn Fn(Value<'f, u32>),
    body: &dyn Fn(LaneGroup<'f>),
) {
    let lane = f.special(Special::Lane);
    let offset = |i: Value<'f, u32>| f.load_global::<u32>(offsets + i.mul_wide(4), 0).min(all);
    // Of all groups in front of the lanes' first.
    let rows = f.variable(offset(f.constant(0)));
    f.if_(lane.equals(0), || begin(rows.get()));
    let base = f.variable(0u32);
    f.while_(
        || base.get().less_than(groups),
        || {
            let number = base.get() + lane;
            let end = scan(f, lane, offset((number + 1).min(groups)).max(rows.get()), &|a, b| a.max(b));
            let begin = rows.get().where_or(lane.equals(0), f.shuffle(end, (lane - 1) & 31));
            body(LaneGroup { number, begin, end, exists: number.less_than(groups) });
            rows.set(f.shuffle(end, 31));
            base.set(base.get() + 32);
        },
    );
}

/// Emitted for a row of tiles: the last group that begins there or before, which is not empty.
fn find<'f>(
    f: &'f Builder,
    table: Value<'f, u32>,
    groups: Value<'f, u32>,
    tile: Value<'f, u32>,
) -> Found<'f> {
    let place = find_place(f, groups, tile, &|place| {
        let [before, _] = f.load_shared_vector::<u32, 2>(table + place * 8, 0);
        before
    });
    let entry = table + place * 8;
    let [[before, first], [_, end]] = [0, 8].map(|offset| f.load_shared_vector::<u32, 2>(entry, offset));
    Found { group: place, tile: tile - before, first, end }
}

/// The last of `places` for which what stands `before` it is at most `number`.
pub(crate) fn find_place<'f>(
    f: &'f Builder,
    places: Value<'f, u32>,
    number: Value<'f, u32>,
    before: &dyn Fn(Value<'f, u32>) -> Value<'f, u32>,
) -> Value<'f, u32> {
    let (low, high) = (f.variable(0u32), f.variable(places));
    f.while_(
        || (high.get() - low.get()).more_than(1),
        || {
            let middle = (low.get() + high.get()) / 2;
            let inside = before(middle).at_most(number);
            low.set(middle.where_or(inside, low.get()));
            high.set(high.get().where_or(inside, middle));
        },
    );
    low.get()
}
