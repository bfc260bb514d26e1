//! Where groups begin, on the device: what memory says, and a table in the shared memory of a CTA.

use ptx::{Builder, Special, Value};

use super::table::{Found, Table};

/// Room for a table in the shared memory of a CTA.
#[derive(Clone, Copy, Debug)]
pub struct SharedTable<'f> {
    /// The kernel.
    pub f: &'f Builder,
    /// The shared address, a multiple of 8.
    pub at: Value<'f, u32>,
    /// Most groups that there is room for.
    pub most: u32,
    /// Threads of the CTA, all of which write the table.
    pub threads: u32,
}

impl SharedTable<'_> {
    /// Bytes of a table of `most` groups.
    pub const fn bytes(most: u32) -> u32 {
        (most + 1) * 8
    }
}

/// Groups of rows, as device memory says where they begin, or how many rows each has.
///
/// No offset counts as less than the one before or as more than there are rows, so that whatever memory holds, groups do not
/// overlap and end inside. No group has more rows than its buffer.
#[derive(Clone, Copy, Debug)]
pub struct Offsets<'f> {
    /// Device address of one offset (`u32`) more than there are groups: the rows of group `i` are those from the `i`-th to the next.
    /// Where there is `room`, that of as many numbers of rows as there are groups.
    pub address: Value<'f, u64>,
    /// How many groups there are.
    pub groups: Value<'f, u32>,
    /// Rows of all groups.
    pub rows: Value<'f, u32>,
    /// Rows of a group's buffer; `None` where groups lie behind each other.
    pub room: Option<Value<'f, u32>>,
}

/// The group of a lane.
pub(super) struct LaneGroup<'f> {
    pub(super) number: Value<'f, u32>,
    /// Its first row, and one past its last.
    pub(super) begin: Value<'f, u32>,
    pub(super) end: Value<'f, u32>,
    /// False after the last group, where lanes have empty ones.
    pub(super) exists: Value<'f, bool>,
}

impl<'f> Offsets<'f> {
    /// Emitted for the lanes of a warp: one of them begins with the first group's first row, then all walk the groups, 32 at a
    /// time.
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
}

impl<'f> Offsets<'f> {
    /// The same where groups lie in buffers of one size.
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

/// The table with two words for each group: entry `i + 1` has the tiles of all groups up to the `i`-th, and a number of that group:
/// its end, or how high it is. Entry 0 has no tiles, and where the first group begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stored<'f> {
    f: &'f Builder,
    at: Value<'f, u32>,
    groups: Value<'f, u32>,
    room: Option<Value<'f, u32>>,
}

impl<'f> Stored<'f> {
    /// Emitted for all threads of a CTA: one warp writes the table, and all wait for it. Returns the number of tiles, too.
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

/// The last of `places` for which what stands `before` it is at most `number`.
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
