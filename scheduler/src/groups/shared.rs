//! The table of groups on the device: built in the shared memory of a CTA from offsets in global memory.

use ptx::{Builder, Special, Value};

use super::table::{Found, Table};

/// Space for the table of groups in the shared memory of a CTA.
#[derive(Clone, Copy, Debug)]
pub struct SharedTable<'f> {
    /// The builder of the kernel.
    pub f: &'f Builder,
    /// The table's shared address, a multiple of 8 bytes.
    pub at: Value<'f, u32>,
    /// The largest number of groups that fits.
    pub most: u32,
    /// The number of threads of the CTA. All of them have to run the code that writes the table.
    pub threads: u32,
}

impl SharedTable<'_> {
    /// Size in bytes of a table of up to `most` groups.
    pub const fn bytes(most: u32) -> u32 {
        (most + 1) * 8
    }
}

/// Groups of rows, given by offsets or by numbers of rows in global memory.
///
/// Values in memory are clamped: an offset is at least the one before and at most the number of all rows, and
/// a group has at most the rows of its buffer. So groups never overlap and never exceed the matrix, whatever
/// memory holds.
#[derive(Clone, Copy, Debug)]
pub struct Offsets<'f> {
    /// Device address of `groups + 1` offsets (`u32`, in rows): group `i` has the rows from offset `i` to
    /// offset `i + 1`. With `room`, the device address of `groups` numbers of rows (`u32`).
    pub address: Value<'f, u64>,
    /// The number of groups.
    pub groups: Value<'f, u32>,
    /// The number of rows of all groups.
    pub rows: Value<'f, u32>,
    /// The number of rows of each group's buffer. `None` if groups are consecutive, without gaps.
    pub room: Option<Value<'f, u32>>,
}

/// The group that a lane handles.
pub(super) struct LaneGroup<'f> {
    pub(super) number: Value<'f, u32>,
    /// Its first row, and one past its last.
    pub(super) begin: Value<'f, u32>,
    pub(super) end: Value<'f, u32>,
    /// False for lanes past the last group; their group is empty.
    pub(super) exists: Value<'f, bool>,
}

impl<'f> Offsets<'f> {
    /// Emits code for the lanes of a warp. One lane runs `begin` with the first row of the first group. Then
    /// all lanes run `body` for the groups, 32 groups at a time.
    pub(super) fn each_group(
        self,
        f: &'f Builder,
        begin: &dyn Fn(Value<'f, u32>),
        body: &dyn Fn(LaneGroup<'f>),
    ) {
        let Self { address, groups, rows: all, room } = self;
        let lane = f.special(Special::Lane);
        if let Some(room) = room {
            return self.each_masked(f, (lane, room), begin, body);
        }
        let offset = |i: Value<'f, u32>| f.load_global::<u32>(address + i.mul_wide(4), 0).min(all);
        // The end of the last group before those of the lanes.
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
}

impl<'f> Offsets<'f> {
    /// As [`each_group`](Self::each_group), for groups in buffers of one size.
    fn each_masked(
        self,
        f: &'f Builder,
        (lane, room): (Value<'f, u32>, Value<'f, u32>),
        begin: &dyn Fn(Value<'f, u32>),
        body: &dyn Fn(LaneGroup<'f>),
    ) {
        let Self { address, groups, .. } = self;
        f.if_(lane.equals(0), || begin(f.constant(0)));
        let base = f.variable(0u32);
        f.while_(
            || base.get().less_than(groups),
            || {
                let number = base.get() + lane;
                let exists = number.less_than(groups);
                let rows = f.load_global::<u32>(address + number.min(groups - 1).mul_wide(4), 0).min(room);
                let begin = number * room;
                let end = begin + rows.where_or(exists, f.constant(0));
                body(LaneGroup { number, begin, end, exists });
                base.set(base.get() + 32);
            },
        );
    }
}

/// The table with two words per entry. Entry `i + 1` has the number of tiles of groups 0 to `i`, and a value
/// of group `i`: its end in rows, or its number of tiles along M. Entry 0 has 0 tiles, and the first row of
/// the first group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stored<'f> {
    f: &'f Builder,
    at: Value<'f, u32>,
    groups: Value<'f, u32>,
    room: Option<Value<'f, u32>>,
}

impl<'f> Stored<'f> {
    /// Emits code for all threads of a CTA: one warp writes the table, and all threads wait for it. Also
    /// returns the number of tiles.
    pub(super) fn new(
        table: SharedTable<'f>,
        (groups, room): (Value<'f, u32>, Option<Value<'f, u32>>),
        write: impl Fn(),
    ) -> (Self, Value<'f, u32>) {
        let SharedTable { f, at, threads, .. } = table;
        f.if_(f.warp_index().equals(0), write);
        f.barrier_sync(0, threads);
        let [all, _] = f.load_shared_vector(at + groups * 8, 0);
        (Self { f, at, groups, room }, all)
    }
}

impl<'f> Table<Value<'f, u32>> for Stored<'f> {
    fn find(&self, tile: Value<'f, u32>) -> Found<Value<'f, u32>> {
        let Self { f, at, groups, room } = *self;
        let group = find_place(f, groups, tile, &|place| {
            let [before, _] = f.load_shared_vector::<u32, 2>(at + place * 8, 0);
            before
        });
        let entry = at + group * 8;
        let [[before, first], [_, end]] = [0, 8].map(|offset| f.load_shared_vector::<u32, 2>(entry, offset));
        let first = room.map_or(first, |room| group * room);
        Found { group, tile: tile - before, first, end }
    }
}

/// Emits a binary search: the last of `places` places whose `before` value is at most `number`.
pub(super) fn find_place<'f>(
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

/// An inclusive scan over the lanes of a warp.
pub(super) fn scan<'f>(
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
