//! The sorted order of groups for [`Groups::balanced`](super::Groups::balanced), computed by a CTA.
//!
//! The table in shared memory begins with one word per place in the order, `tiles << 9 | group`: the number
//! of tiles of all groups before that place, and the group at that place. The next word has the number of all
//! tiles. Then follow the first rows of all groups, by group number, and the end of the last group.

use ptx::{Builder, Special, Value};

use super::order::{Cut, FEW_ROWS, MANY_TILES};
use super::shared::{Offsets, SharedTable, find_place, scan};
use super::table::{Found, Table};

/// Bits of a group's number.
const GROUP_BITS: u32 = 9;

/// The table of groups in sorted order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sorted<'f> {
    f: &'f Builder,
    /// The table's shared address, and the offset in bytes of the first rows.
    at: Value<'f, u32>,
    rows_at: u32,
    groups: Value<'f, u32>,
    room: Option<Value<'f, u32>>,
}

impl<'f> Sorted<'f> {
    /// The largest number of tiles that fits in a word of the table.
    pub(super) const MOST_TILES: u32 = (1 << (32 - GROUP_BITS)) - 1;

    /// Emits code for all threads of a CTA that writes the table. Also returns the number of tiles.
    pub(super) fn new(
        table: SharedTable<'f>,
        offsets: Offsets<'f>,
        cut: Cut,
        [height, workers]: [Value<'f, u32>; 2],
    ) -> (Self, Value<'f, u32>) {
        let SharedTable { f, at, most, threads } = table;
        assert!(most < 1 << GROUP_BITS, "the table numbers fewer than 2^{GROUP_BITS} groups");
        let groups = offsets.groups;
        let many = (groups * height).at_least(workers * MANY_TILES);
        // Groups of fewer rows are spread among the others.
        let few = f.constant(FEW_ROWS).where_or(many, 0);
        let sorted = Self { f, at, rows_at: (most + 1) * 4, groups, room: offsets.room };
        let warp = f.warp_index();
        f.if_(warp.equals(0), || {
            let rows = at + sorted.rows_at;
            offsets.each_group(f, &|first| f.store_shared(rows, 0, [first]), &|group| {
                f.if_(group.exists, || f.store_shared(rows + group.number * 4, 4, [group.end]));
            });
        });
        f.barrier_sync(0, threads);
        let thread = f.special(Special::ThreadX);
        let next = f.variable(thread);
        f.while_(
            || next.get().less_than(groups),
            || {
                let group = next.get();
                let [begin, end] = sorted.rows(group);
                f.store_shared(at + group * 4, 0, [cut.key(end - begin, few)]);
                next.set(next.get() + threads);
            },
        );
        f.barrier_sync(0, threads);
        // All threads read the keys before places overwrite them. So every thread first computes its places,
        // one per round, and stores them after the barrier.
        let rounds = most.div_ceil(threads);
        let places: Vec<_> = (0..rounds).map(|round| sorted.place(thread + round * threads)).collect();
        f.barrier_sync(0, threads);
        for (round, place) in (0..rounds).zip(places) {
            let group = thread + round * threads;
            f.if_(group.less_than(groups), || f.store_shared(at + place * 4, 0, [group]));
        }
        f.barrier_sync(0, threads);
        f.if_(warp.equals(0), || sorted.count(cut, height));
        f.barrier_sync(0, threads);
        (sorted, sorted.word(groups) >> GROUP_BITS)
    }

    /// The word of a place.
    fn word(&self, place: Value<'f, u32>) -> Value<'f, u32> {
        let [word] = self.f.load_shared_vector::<u32, 1>(self.at + place * 4, 0);
        word
    }

    /// A group's first row and its end.
    fn rows(&self, group: Value<'f, u32>) -> [Value<'f, u32>; 2] {
        let at = self.at + group * 4 + self.rows_at;
        let row = |offset| {
            let [row] = self.f.load_shared_vector::<u32, 1>(at, offset);
            row
        };
        match self.room {
            None => [0, 4].map(row),
            Some(room) => [group * room, row(4)],
        }
    }

    /// The place of a group, computed from the keys of all groups.
    fn place(&self, group: Value<'f, u32>) -> Value<'f, u32> {
        let (f, groups) = (self.f, self.groups);
        let own = self.word(group.min(groups - 1));
        let (before, alike) = (f.variable(0u32), f.variable(0u32));
        f.repeat(groups, |other| {
            let theirs = self.word(other);
            let one = f.constant(1u32);
            let same = ((theirs ^ own) >> 16u32).equals(0);
            let first = theirs.more_than(own) | (theirs.equals(own) & other.less_than(group));
            alike.set(alike.get() + one.where_or(same, 0));
            before.set(before.get() + one.where_or(same & first, 0));
        });
        let (rank, alike) = (before.get(), alike.get());
        let others = groups - alike;
        // Each kind is spread evenly over all places, at (2 rank + 1) / alike. Of two equal places, the group
        // of many rows comes first.
        let (far, half) = ((rank * 2 + 1) * others, alike * 2);
        let few = own.at_least(1 << 16);
        let of_many = (far + half - 1 - alike).where_or(far.more_than(alike), 0) / half.max(1);
        let of_few = ((far + alike).where_or(far.at_least(alike), 0)) / half.max(1);
        rank + of_few.where_or(few, of_many).min(others)
    }

    /// Emits code for the lanes of a warp: an exclusive prefix sum of the groups' tiles, in sorted order.
    fn count(&self, cut: Cut, height: Value<'f, u32>) {
        let Self { f, at, groups, .. } = *self;
        let lane = f.special(Special::Lane);
        let (tiles, base) = (f.variable(0u32), f.variable(0u32));
        f.while_(
            || base.get().less_than(groups),
            || {
                let place = base.get() + lane;
                let inside = place.less_than(groups);
                let group = self.word(place.min(groups - 1));
                let [begin, end] = self.rows(group);
                let own = (cut.tiles(end - begin) * height).where_or(inside, 0);
                let sum = scan(f, lane, own, &|a, b| a + b) + tiles.get();
                let word = ((sum - own) << GROUP_BITS) | group;
                // Lanes past the last group have read the last group's word too: no lane may overwrite it
                // before.
                f.warp_sync();
                f.if_(inside, || f.store_shared(at + place * 4, 0, [word]));
                tiles.set(f.shuffle(sum, 31));
                base.set(base.get() + 32);
            },
        );
        f.if_(lane.equals(0), || f.store_shared(at + groups * 4, 0, [tiles.get() << GROUP_BITS]));
    }
}

impl<'f> Table<Value<'f, u32>> for Sorted<'f> {
    fn find(&self, tile: Value<'f, u32>) -> Found<Value<'f, u32>> {
        let place = find_place(self.f, self.groups, tile, &|place| self.word(place) >> GROUP_BITS);
        let word = self.word(place);
        let (group, tile) = (word & ((1 << GROUP_BITS) - 1), tile - (word >> GROUP_BITS));
        let [first, end] = self.rows(group);
        Found { group, tile, first, end }
    }
}
