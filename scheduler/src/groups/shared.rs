//! The table of groups on the device: built in the shared memory of a CTA from offsets in global memory.

use core::fmt;

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
    /// Number of consecutive groups per entry, a power of two. With several, the table is shorter, and their sizes are read
    /// from global memory again when a tile's group is found.
    pub span: u32,
    /// The number of threads of the CTA. All of them have to run the code that writes the table.
    pub threads: u32,
}

impl SharedTable<'_> {
    /// Size in bytes of a table of up to `most` groups, `span` per entry.
    pub const fn bytes(most: u32, span: u32) -> u32 {
        (most.div_ceil(span) + 1) * 8
    }

    /// The same for [`Groups::balanced`](super::Groups::balanced).
    pub const fn balanced_bytes(most: u32, span: u32) -> u32 {
        (most + most.div_ceil(span) + 2) * 4
    }
}

/// A number times a constant. Emits nothing for 1.
pub(super) fn times(value: Value<'_, u32>, factor: u32) -> Value<'_, u32> {
    if factor == 1 { value } else { value * factor }
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

/// A group that a lane handles.
pub(super) struct LaneGroup<'f> {
    pub(super) number: Value<'f, u32>,
    /// Its first row, and one past its last.
    pub(super) begin: Value<'f, u32>,
    pub(super) end: Value<'f, u32>,
    /// False for groups past the last; they are empty.
    pub(super) exists: Value<'f, bool>,
}

impl<'f> Offsets<'f> {
    /// Emits code for the lanes of a warp. One lane runs `begin` with the first row of the first group. Then
    /// all lanes run `body` for `span` consecutive groups each, 32 times as many groups at a time.
    pub(super) fn each_group(
        self,
        f: &'f Builder,
        span: u32,
        begin: &dyn Fn(Value<'f, u32>),
        body: &dyn Fn(&[LaneGroup<'f>]),
    ) {
        let Self { groups, room, .. } = self;
        let lane = f.special(Special::Lane);
        if let Some(room) = room {
            return self.each_masked(f, (lane, span, room), begin, body);
        }
        // The end of the last group before those of the lanes.
        let rows = f.variable(self.offset(f, f.constant(0)));
        f.if_(lane.equals(0), || begin(rows.get()));
        let base = f.variable(0u32);
        f.while_(
            || base.get().less_than(groups),
            || {
                let number = base.get() + times(lane, span);
                let offset = |i: u32| self.offset(f, (number + (i + 1)).min(groups));
                let offsets: Vec<_> = (0..span).map(offset).collect();
                // The ends, as far as the lane's own offsets say.
                let (mut ends, mut last) = (Vec::new(), rows.get());
                for offset in offsets {
                    last = offset.max(last);
                    ends.push(last);
                }
                ends.pop();
                let end = scan(f, lane, last, &|a, b| a.max(b));
                let begin = rows.get().where_or(lane.equals(0), f.shuffle(end, (lane - 1) & 31));
                let ends: Vec<_> = ends.into_iter().map(|end| end.max(begin)).chain([end]).collect();
                let begins = [begin].into_iter().chain(ends.iter().copied());
                let of_lane = (0..).zip(begins.zip(ends.iter())).map(|(i, (begin, &end))| {
                    let number = if i == 0 { number } else { number + i };
                    LaneGroup { number, begin, end, exists: number.less_than(groups) }
                });
                body(&of_lane.collect::<Vec<_>>());
                rows.set(f.shuffle(end, 31));
                base.set(base.get() + 32 * span);
            },
        );
    }

    /// As [`each_group`](Self::each_group), for groups in buffers of one size.
    fn each_masked(
        self,
        f: &'f Builder,
        (lane, span, room): (Value<'f, u32>, u32, Value<'f, u32>),
        begin: &dyn Fn(Value<'f, u32>),
        body: &dyn Fn(&[LaneGroup<'f>]),
    ) {
        let Self { groups, .. } = self;
        f.if_(lane.equals(0), || begin(f.constant(0)));
        let base = f.variable(0u32);
        f.while_(
            || base.get().less_than(groups),
            || {
                let number = base.get() + times(lane, span);
                let of_lane = (0..span).map(|i| {
                    let number = if i == 0 { number } else { number + i };
                    let exists = number.less_than(groups);
                    let rows = self.used(f, number.min(groups - 1), room);
                    let begin = number * room;
                    let end = begin + rows.where_or(exists, f.constant(0));
                    LaneGroup { number, begin, end, exists }
                });
                body(&of_lane.collect::<Vec<_>>());
                base.set(base.get() + 32 * span);
            },
        );
    }

    /// The first row of a group and its end. `begin` is the end of the group before it.
    pub(super) fn range(
        self,
        f: &'f Builder,
        group: Value<'f, u32>,
        begin: Value<'f, u32>,
    ) -> [Value<'f, u32>; 2] {
        match self.room {
            None => [begin, self.offset(f, group + 1).max(begin)],
            Some(room) => {
                let begin = group * room;
                [begin, begin + self.used(f, group, room)]
            }
        }
    }

    /// An offset, at most the number of rows.
    pub(super) fn offset(self, f: &'f Builder, i: Value<'f, u32>) -> Value<'f, u32> {
        f.load_global::<u32>(self.address + i.mul_wide(4), 0).min(self.rows)
    }

    /// The number of rows that a group uses of its buffer.
    fn used(self, f: &'f Builder, group: Value<'f, u32>, room: Value<'f, u32>) -> Value<'f, u32> {
        f.load_global::<u32>(self.address + group.mul_wide(4), 0).min(room)
    }
}

/// A group as device memory describes it.
pub(super) struct Measured<'f> {
    pub(super) first: Value<'f, u32>,
    pub(super) tiles: Value<'f, u32>,
    /// The value of the group in the table.
    pub(super) end: Value<'f, u32>,
}

/// Emits code that measures a group from its number and the value of the group before it.
pub(super) type Measure<'a, 'f> = Box<dyn Fn([Value<'f, u32>; 2]) -> Measured<'f> + 'a>;

/// The table with two words per entry. Entry `i + 1` has the number of tiles of the groups of entries 0 to `i`, and a value
/// of the last of these groups: its end in rows, or its number of tiles along M. Entry 0 has 0 tiles, and the first row of
/// the first group.
pub(super) struct Stored<'a, 'f> {
    table: SharedTable<'f>,
    groups: Value<'f, u32>,
    room: Option<Value<'f, u32>>,
    /// Tells apart the groups of an entry.
    measure: Measure<'a, 'f>,
}

impl fmt::Debug for Stored<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stored").field("table", &self.table).finish_non_exhaustive()
    }
}

impl<'a, 'f> Stored<'a, 'f> {
    /// Emits code for all threads of a CTA: one warp writes the table, and all threads wait for it. Also
    /// returns the number of tiles.
    pub(super) fn new(
        table: SharedTable<'f>,
        (groups, room): (Value<'f, u32>, Option<Value<'f, u32>>),
        write: impl Fn(),
        measure: Measure<'a, 'f>,
    ) -> (Self, Value<'f, u32>) {
        let SharedTable { f, at, threads, .. } = table;
        f.if_(f.warp_index().equals(0), write);
        f.barrier_sync(0, threads);
        let stored = Self { table, groups, room, measure };
        let [all, _] = f.load_shared_vector(at + stored.entries() * 8, 0);
        (stored, all)
    }

    fn entries(&self) -> Value<'f, u32> {
        match self.table.span {
            1 => self.groups,
            span => self.groups.div_ceil(span),
        }
    }

    /// Emits code that goes through the groups of an entry, of which `first` and `before` are the table's values, up to that of
    /// a tile.
    fn among(
        &self,
        entry: Value<'f, u32>,
        [before, first]: [Value<'f, u32>; 2],
        tile: Value<'f, u32>,
    ) -> Found<Value<'f, u32>> {
        let SharedTable { f, span, .. } = self.table;
        let group = f.variable(entry * span);
        // The groups of the entry end here.
        let limit = (group.get() + span).min(self.groups);
        let own = (self.measure)([group.get(), first]);
        let (before, tiles) = (f.variable(before), f.variable(own.tiles));
        let (first, end) = (f.variable(own.first), f.variable(own.end));
        f.while_(
            || (before.get() + tiles.get()).at_most(tile) & (group.get() + 1).less_than(limit),
            || {
                before.set(before.get() + tiles.get());
                group.set(group.get() + 1);
                let own = (self.measure)([group.get(), end.get()]);
                tiles.set(own.tiles);
                first.set(own.first);
                end.set(own.end);
            },
        );
        Found { group: group.get(), tile: tile - before.get(), first: first.get(), end: end.get() }
    }
}

impl<'f> Table<Value<'f, u32>> for Stored<'_, 'f> {
    fn find(&self, tile: Value<'f, u32>) -> Found<Value<'f, u32>> {
        let Self { table: SharedTable { f, at, span, .. }, room, .. } = *self;
        let group = find_place(f, self.entries(), tile, &|place| {
            let [before, _] = f.load_shared_vector::<u32, 2>(at + place * 8, 0);
            before
        });
        let entry = at + group * 8;
        if span > 1 {
            return self.among(group, f.load_shared_vector(entry, 0), tile);
        }
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
