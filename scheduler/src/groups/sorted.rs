//! The sorted order of groups for [`Groups::balanced`](super::Groups::balanced), computed by a CTA.
//!
//! The table in shared memory begins with one word per place in the order, `tiles << 9 | group`: the number
//! of tiles of all groups before that place, and the group at that place (more than 9 bits in tables of more than 512
//! groups). The next word has the number of all tiles. Then follow the first rows of all groups, by group number, and the
//! end of the last group: with several groups per entry, the first rows of entries.
//!
//! Up to 320 groups, each thread compares its groups with all others. Larger tables are sorted by counting ([`counting`]).

use ptx::{Builder, Special, Value};

use super::counting;
use super::order::{FEW_ROWS, MANY_TILES, TileWidths};
use super::shared::{Offsets, SharedTable, find_place, scan, times};
use super::table::{Found, Table};

/// Tables of at most this number of groups are sorted by comparing each group with all others.
const COMPARED: u32 = 320;

/// Bits of a group's number in a word of a table of `most` groups.
const fn group_bits(most: u32) -> u32 {
    let bits = most.saturating_sub(1).checked_ilog2();
    match bits {
        Some(bits @ 9..) => bits + 1,
        _ => 9,
    }
}

/// The places of the groups that a thread handles: one per round.
pub(super) struct Ranked<'f> {
    pub(super) places: Vec<Value<'f, u32>>,
    /// Emits the group of a round, which may be past the last one.
    pub(super) group: Box<dyn Fn(u32) -> Value<'f, u32> + 'f>,
}

/// The table of groups in sorted order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sorted<'f> {
    pub(super) f: &'f Builder,
    /// The table's shared address, and the offset in bytes of the first rows.
    pub(super) at: Value<'f, u32>,
    rows_at: u32,
    /// Bits of a group's number in a word.
    bits: u32,
    /// Consecutive groups per first row.
    span: u32,
    /// Consecutive groups or places that a lane handles at a time.
    run: u32,
    pub(super) groups: Value<'f, u32>,
    offsets: Offsets<'f>,
}

impl<'f> Sorted<'f> {
    /// The largest number of tiles that fits in a word of a table of `most` groups.
    pub(super) const fn most_tiles(most: u32) -> u32 {
        (1 << (32 - group_bits(most))) - 1
    }

    /// Emits code for all threads of a CTA that writes the table. Also returns the number of tiles.
    pub(super) fn new(
        table: SharedTable<'f>,
        offsets: Offsets<'f>,
        cut: TileWidths,
        [height, workers]: [Value<'f, u32>; 2],
    ) -> (Self, Value<'f, u32>) {
        let SharedTable { f, at, most, span, threads } = table;
        let groups = offsets.groups;
        let many = (groups * height).at_least(workers * MANY_TILES);
        // Groups of fewer rows are spread among the others.
        let few = f.constant(FEW_ROWS).where_or(many, 0);
        let (bits, run) = (group_bits(most), most.div_ceil(COMPARED).next_power_of_two().max(span));
        let sorted = Self { f, at, rows_at: (most + 1) * 4, bits, span, run, groups, offsets };
        let warp = f.warp_index();
        f.if_(warp.equals(0), || {
            let rows = at + sorted.rows_at;
            offsets.each_group(f, run, &|first| f.store_shared(rows, 0, [first]), &|of_lane| {
                for of_entry in of_lane.chunks_exact(span as usize) {
                    let (first, last) = (&of_entry[0], &of_entry[of_entry.len() - 1]);
                    let entry = if span == 1 { first.number } else { first.number / span };
                    f.if_(first.exists, || f.store_shared(rows + entry * 4, 4, [last.end]));
                }
            });
        });
        let ranked = if most <= COMPARED {
            sorted.compared((most, threads), cut, few)
        } else {
            counting::ranked(&sorted, (most, threads), cut, few)
        };
        f.barrier_sync(0, threads);
        for (round, place) in (0..).zip(ranked.places) {
            let group = (ranked.group)(round);
            f.if_(group.less_than(groups), || f.store_shared(at + place * 4, 0, [group]));
        }
        f.barrier_sync(0, threads);
        f.if_(warp.equals(0), || sorted.count(cut, height));
        f.barrier_sync(0, threads);
        (sorted, sorted.word(groups) >> bits)
    }
    /// The places of the groups, each of which a thread compares with all others.
    fn compared(&self, (most, threads): (u32, u32), cut: TileWidths, few: Value<'f, u32>) -> Ranked<'f> {
        let Self { f, at, groups, .. } = *self;
        f.barrier_sync(0, threads);
        let thread = f.special(Special::ThreadX);
        let next = f.variable(thread);
        f.while_(
            || next.get().less_than(groups),
            || {
                let group = next.get();
                let [begin, end] = self.rows(group);
                f.store_shared(at + group * 4, 0, [cut.key(end - begin, few)]);
                next.set(next.get() + threads);
            },
        );
        f.barrier_sync(0, threads);
        // All threads read the keys before places overwrite them. So every thread first computes its places,
        // one per round, and stores them after the barrier.
        let group = move |round| thread + round * threads;
        let places = (0..most.div_ceil(threads)).map(|round| self.place(group(round))).collect();
        Ranked { places, group: Box::new(group) }
    }

    /// The word of a place.
    fn word(&self, place: Value<'f, u32>) -> Value<'f, u32> {
        let [word] = self.f.load_shared_vector::<u32, 1>(self.at + place * 4, 0);
        word
    }

    /// A group's first row and its end.
    pub(super) fn rows(&self, group: Value<'f, u32>) -> [Value<'f, u32>; 2] {
        if self.span > 1 {
            return self.rows_in_entry(group);
        }
        let at = self.at + group * 4 + self.rows_at;
        let row = |offset| {
            let [row] = self.f.load_shared_vector::<u32, 1>(at, offset);
            row
        };
        match self.offsets.room {
            None => [0, 4].map(row),
            Some(room) => [group * room, row(4)],
        }
    }

    /// As [`rows`](Self::rows), from the first row of the group's entry and the offsets of the groups up to it.
    fn rows_in_entry(&self, group: Value<'f, u32>) -> [Value<'f, u32>; 2] {
        let Self { f, at, rows_at, span, offsets, .. } = *self;
        if offsets.room.is_some() {
            return offsets.range(f, group, group);
        }
        let (entry, own) = (group / span, group % span);
        let ends: Vec<_> = (1..span).map(|i| offsets.offset(f, (entry * span + i).min(group))).collect();
        let [first] = f.load_shared_vector::<u32, 1>(at + entry * 4 + rows_at, 0);
        let first = (1..)
            .zip(ends)
            .fold(first, |first, (i, end): (u32, _)| first.max(end).where_or(own.at_least(i), first));
        offsets.range(f, group, first)
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
        self.spread(own, before.get(), alike.get())
    }

    /// The place of a group with a key, from its rank among the `alike` groups of its kind.
    pub(super) fn spread(
        &self,
        key: Value<'f, u32>,
        rank: Value<'f, u32>,
        alike: Value<'f, u32>,
    ) -> Value<'f, u32> {
        let others = self.groups - alike;
        // Each kind is spread evenly over all places, at (2 rank + 1) / alike. Of two equal places, the group
        // of many rows comes first.
        let (far, half) = ((rank * 2 + 1) * others, alike * 2);
        let few = key.at_least(1 << 16);
        let of_many = (far + half - 1 - alike).where_or(far.more_than(alike), 0) / half.max(1);
        let of_few = ((far + alike).where_or(far.at_least(alike), 0)) / half.max(1);
        rank + of_few.where_or(few, of_many).min(others)
    }

    /// Emits code for the lanes of a warp: an exclusive prefix sum of the groups' tiles, in sorted order.
    fn count(&self, cut: TileWidths, height: Value<'f, u32>) {
        let Self { f, at, bits, run, groups, .. } = *self;
        let lane = f.special(Special::Lane);
        let (tiles, base) = (f.variable(0u32), f.variable(0u32));
        f.while_(
            || base.get().less_than(groups),
            || {
                let first = base.get() + times(lane, run);
                let of_lane = (0..run).map(|i| {
                    let place = if i == 0 { first } else { first + i };
                    let inside = place.less_than(groups);
                    let group = self.word(place.min(groups - 1));
                    let [begin, end] = self.rows(group);
                    let own = (cut.tiles(end - begin) * height).where_or(inside, 0);
                    (place, inside, group, own)
                });
                let of_lane: Vec<_> = of_lane.collect();
                let all = of_lane.iter().map(|&(.., own)| own).reduce(|a, b| a + b);
                let all = all.unwrap_or(f.constant(0));
                let sum = scan(f, lane, all, &|a, b| a + b) + tiles.get();
                let mut before = sum - all;
                let mut words = Vec::new();
                for (i, &(place, inside, group, own)) in of_lane.iter().enumerate() {
                    words.push((place, inside, (before << bits) | group));
                    if i + 1 < of_lane.len() {
                        before = before + own;
                    }
                }
                // Lanes past the last group have read the last group's word too: no lane may overwrite it
                // before.
                f.warp_sync();
                for (place, inside, word) in words {
                    f.if_(inside, || f.store_shared(at + place * 4, 0, [word]));
                }
                tiles.set(f.shuffle(sum, 31));
                base.set(base.get() + 32 * run);
            },
        );
        f.if_(lane.equals(0), || f.store_shared(at + groups * 4, 0, [tiles.get() << bits]));
    }
}

impl<'f> Table<Value<'f, u32>> for Sorted<'f> {
    fn find(&self, tile: Value<'f, u32>) -> Found<Value<'f, u32>> {
        let place = find_place(self.f, self.groups, tile, &|place| self.word(place) >> self.bits);
        let word = self.word(place);
        let (group, tile) = (word & ((1 << self.bits) - 1), tile - (word >> self.bits));
        let [first, end] = self.rows(group);
        Found { group, tile, first, end }
    }
}
