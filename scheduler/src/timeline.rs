//! A model of when and where each work unit runs, with times in k-tiles. Use it to draw or to estimate a
//! schedule.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use crate::{ReductionKind, Tiles, Work};

/// What a slot does during a span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Multiplies a work unit.
    Multiply(Work<u32>),
    /// Waits for the other work units of the same tile.
    Wait(Work<u32>),
    /// Adds up partial sums of the work unit's tile (Stream-K fixup).
    FixUp(Work<u32>),
}

/// One activity of a slot. Times are in k-tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The slot, from 0: a place where one worker at a time is resident.
    pub slot: u32,
    /// The worker that runs there.
    pub worker: u32,
    /// The time at which the activity begins.
    pub start: u64,
    /// The time at which the activity ends.
    pub end: u64,
    /// The activity.
    pub activity: Activity,
}

/// The predicted time line of a launch. The unit of time is one k-tile of the multiplication.
///
/// The machine has a number of slots: workers that can be resident at once. Workers start in order, each on
/// the slot that is free first, as the hardware assigns CTAs. Only multiplying, waiting for partial sums and
/// adding them up take time. Loads and epilogues are assumed to overlap the next tile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeline {
    /// The number of workers that are resident at once.
    pub slots: u32,
    /// The activities, sorted by slot, then by time.
    pub spans: Vec<Span>,
    /// The time at which the last activity ends.
    pub end: u64,
}

/// The progress of a split tile.
#[derive(Default)]
struct Sum {
    k_tiles: u32,
    units: u64,
    /// The time at which the last work unit so far has been multiplied.
    end: u64,
    /// Spans that wait for the tile's work units.
    waiting: Vec<Span>,
}

/// The work units of a worker, in order.
type Pieces = Box<dyn Iterator<Item = Work<u32>>>;

/// The time of a work unit, in k-tiles.
type Length<'l> = &'l dyn Fn(&Work<u32>) -> u64;

struct Run<'l, W> {
    tiles: Tiles<u32>,
    reduction: Option<ReductionKind>,
    length: Length<'l>,
    work: W,
    /// If workers draw: the work units in the order of their numbers. With `None` each worker has its own
    /// work units.
    drawn: Option<Pieces>,
    workers: core::ops::Range<u32>,
    /// Per slot: its worker, and the work units that the worker has not begun.
    present: HashMap<u32, (u32, Pieces)>,
    free: BinaryHeap<Reverse<(u64, u32)>>,
    sums: HashMap<(u32, u32), Sum>,
    spans: Vec<Span>,
}

impl Timeline {
    /// The time line of `workers` workers on `slots` slots. `work` is the host model: the work units of a
    /// worker. A work unit takes as long as it has k-tiles, and a slice of
    /// a tile that part of the time.
    pub fn new<W>(
        tiles: Tiles<u32>,
        workers: u32,
        slots: u32,
        reduction: Option<ReductionKind>,
        work: W,
    ) -> Self
    where
        W: Fn(u32) -> Box<dyn Iterator<Item = Work<u32>>>,
    {
        let length = |work: &Work<u32>| {
            let [count, of] = work.slice.map_or([1, 1], |slice| [slice.count, slice.of]);
            (u64::from(work.k_end - work.k_begin) * u64::from(count)).div_ceil(of.into())
        };
        Self::of_lengths(tiles, [workers, slots], reduction, work, false, &length)
    }

    /// As [`new`](Self::new), with the time of each work unit given by `length`, in k-tiles. With `drawn`, a
    /// worker that is ready takes the work unit with the next number.
    pub fn of_lengths<W>(
        tiles: Tiles<u32>,
        [workers, slots]: [u32; 2],
        reduction: Option<ReductionKind>,
        work: W,
        drawn: bool,
        length: &dyn Fn(&Work<u32>) -> u64,
    ) -> Self
    where
        W: Fn(u32) -> Box<dyn Iterator<Item = Work<u32>>>,
    {
        let slots = slots.max(1);
        // The work units of worker `w` of `W` have the numbers `w`, `w + W`, …: take one per worker in each
        // round.
        let drawn = drawn.then(|| {
            let mut all: Vec<Pieces> = (0..workers).map(&work).collect();
            let mut numbered = Vec::new();
            loop {
                let before = numbered.len();
                numbered.extend(all.iter_mut().filter_map(Iterator::next));
                if numbered.len() == before {
                    break Box::new(numbered.into_iter()) as Pieces;
                }
            }
        });
        let mut run = Run {
            tiles,
            reduction,
            length,
            work,
            drawn,
            workers: 0..workers,
            present: HashMap::new(),
            free: (0..slots.min(workers)).map(|slot| Reverse((0, slot))).collect(),
            sums: HashMap::new(),
            spans: Vec::new(),
        };
        while let Some(Reverse((time, slot))) = run.free.pop() {
            run.step(time, slot);
        }
        let mut spans = run.spans;
        spans.sort_by_key(|span| (span.slot, span.start, span.end));
        let end = spans.iter().map(|span| span.end).max().unwrap_or(0);
        Self { slots, spans, end }
    }

    /// The total time of the activities for which `counts` is true, over all slots, in k-tiles.
    pub fn spent(&self, counts: impl Fn(&Activity) -> bool) -> u64 {
        self.spans.iter().filter(|span| counts(&span.activity)).map(|span| span.end - span.start).sum()
    }
}

impl<W: Fn(u32) -> Pieces> Run<'_, W> {
    /// A slot that is free at `time` takes its worker's next work unit. If there is none, it takes the next
    /// worker.
    fn step(&mut self, time: u64, slot: u32) {
        let drawn = &mut self.drawn;
        let next = self.present.get_mut(&slot).and_then(|(worker, rest)| {
            let units = drawn.as_mut().unwrap_or(rest);
            Some((*worker, units.next()?))
        });
        let Some((worker, unit)) = next else {
            if let Some(worker) = self.workers.next() {
                self.present.insert(slot, (worker, (self.work)(worker)));
                self.free.push(Reverse((time, slot)));
            }
            return;
        };
        let length = unit.k_end - unit.k_begin;
        let end = time + (self.length)(&unit);
        let multiply = Span { slot, worker, start: time, end, activity: Activity::Multiply(unit) };
        self.spans.push(multiply);
        let divided = length < self.tiles.k;
        match self.reduction.filter(|_| divided) {
            None => self.free.push(Reverse((end, slot))),
            Some(reduction) => self.exchange(reduction, multiply, unit),
        }
    }

    /// The exchange of partial sums after a work unit of a split tile has been multiplied.
    fn exchange(&mut self, reduction: ReductionKind, multiply: Span, unit: Work<u32>) {
        let Span { slot, end, .. } = multiply;
        let sum = self.sums.entry((unit.m, unit.n)).or_default();
        sum.k_tiles += unit.k_end - unit.k_begin;
        sum.units += 1;
        sum.end = sum.end.max(end);
        let wait = Span { start: end, activity: Activity::Wait(unit), ..multiply };
        match reduction {
            ReductionKind::Atomic => self.add_up(wait, 1),
            ReductionKind::Ordered if unit.k_end < self.tiles.k => self.free.push(Reverse((end, slot))),
            ReductionKind::Ordered | ReductionKind::Separate | ReductionKind::Clustered => {
                sum.waiting.push(wait);
            }
        }
        let sum = self.sums.entry((unit.m, unit.n)).or_default();
        if sum.k_tiles == self.tiles.k {
            let (ready, others) = (sum.end, sum.units - 1);
            for wait in core::mem::take(&mut sum.waiting) {
                self.add_up(Span { end: wait.start.max(ready), ..wait }, others);
            }
        }
    }

    /// Ends the wait of a slot, which then adds `sums` partial sums.
    fn add_up(&mut self, wait: Span, sums: u64) {
        let cost = u64::from(self.reduction.map_or(0, ReductionKind::cost));
        let (Activity::Multiply(unit) | Activity::Wait(unit) | Activity::FixUp(unit)) = wait.activity;
        // The cost scales with the width of the tile, as its multiplication does.
        let all = u64::from(unit.k_end - unit.k_begin).max(1);
        let end = wait.end + (sums * cost * (self.length)(&unit)).div_ceil(all);
        if wait.end > wait.start {
            self.spans.push(wait);
        }
        if let (true, Activity::Wait(unit)) = (end > wait.end, wait.activity) {
            self.spans.push(Span { start: wait.end, end, activity: Activity::FixUp(unit), ..wait });
        }
        self.free.push(Reverse((end, wait.slot)));
    }
}

#[cfg(test)]
mod tests {
    use typenum::{U1, U2};

    use super::*;
    use crate::{
        AlongM, Atomic, EveryTile, NarrowTail, OneTile, Ordered, Persistent, Remainder, StreamK,
        TileScheduler,
    };

    fn timeline<S: TileScheduler>(tiles: Tiles<u32>, slots: u32) -> Timeline {
        let rule = S::schedule();
        let workers = rule.workers(tiles, slots);
        Timeline::new(tiles, workers, slots, S::TRAITS.reduction, |worker| rule.work(tiles, worker, workers))
    }

    /// Times computed by hand: the end, and the time spent multiplying, waiting and adding up.
    #[test]
    fn times_are_those_of_pencil_and_paper() {
        let tiles = |m, n, k| Tiles { m, n, k };
        let spent = |t: &Timeline| {
            [
                t.end,
                t.spent(|a| matches!(a, Activity::Multiply(_))),
                t.spent(|a| matches!(a, Activity::Wait(_))),
                t.spent(|a| matches!(a, Activity::FixUp(_))),
            ]
        };
        for (why, timeline, want) in [
            ("two waves", timeline::<Persistent<AlongM>>(tiles(3, 1, 10), 2), [20, 30, 0, 0]),
            ("the hardware deals out", timeline::<OneTile<AlongM>>(tiles(5, 1, 4), 2), [12, 20, 0, 0]),
            ("nothing to multiply", timeline::<Persistent<AlongM>>(tiles(2, 2, 0), 2), [0, 0, 0, 0]),
            ("no tiles", timeline::<Persistent<AlongM>>(tiles(0, 2, 5), 2), [0, 0, 0, 0]),
            // Halves of 4: the second adds the partial sum of the first, which costs 3.
            (
                "halves in order",
                timeline::<StreamK<AlongM, Ordered, EveryTile<U2, U1>>>(tiles(1, 1, 8), 2),
                [7, 8, 0, 3],
            ),
            (
                "halves as they come",
                timeline::<StreamK<AlongM, Atomic, EveryTile<U2, U1>>>(tiles(1, 1, 8), 2),
                [5, 8, 0, 2],
            ),
            // 9 k-tiles per worker: 6 + 3 and 3 + 6. The second begins with all 6 of tile 2 and never waits.
            (
                "a wave and a half",
                timeline::<StreamK<AlongM, Ordered, Remainder<U1>>>(tiles(3, 1, 6), 2),
                [12, 18, 0, 3],
            ),
            (
                "a wave and a half, the half in slices",
                timeline::<NarrowTail<AlongM>>(tiles(3, 1, 10), 2),
                [15, 30, 0, 0],
            ),
        ] {
            assert_eq!(spent(&timeline), want, "{why}: {timeline:?}");
        }
    }

    /// A worker that has ended draws the next work unit, and a work unit takes as long as `length` says.
    #[test]
    fn drawn_pieces_go_to_whoever_has_ended() {
        let tiles = Tiles { m: 4, n: 1, k: 10 };
        let work = |worker| Persistent::<AlongM>::schedule().work(tiles, worker, 2);
        // The times of tiles 0 to 3.
        let length = |work: &Work<u32>| [10, 4, 5, 3][work.m as usize];
        let of = |drawn| Timeline::of_lengths(tiles, [2, 2], None, work, drawn, &length);
        // Drawn: tile 0 on one slot, tiles 1, 2 and 3 on the other. Assigned: 0 and 2, and 1 and 3.
        assert_eq!((of(true).end, of(false).end), (12, 15));
        let who: Vec<_> = of(true).spans.iter().map(|span| (span.slot, span.start, span.end)).collect();
        assert_eq!(who, [(0, 0, 10), (1, 0, 4), (1, 4, 9), (1, 9, 12)]);
    }

    /// No slot does two things at the same time, and everything is multiplied.
    #[test]
    fn slots_do_one_thing_at_a_time() {
        for k in [1, 7, 33] {
            for slots in [1, 3, 8] {
                let tiles = Tiles { m: 5, n: 3, k };
                for timeline in [
                    timeline::<StreamK<AlongM, Ordered, Remainder<U1>>>(tiles, slots),
                    timeline::<StreamK<AlongM, crate::Separate, EveryTile<U2, U1>>>(tiles, slots),
                    timeline::<OneTile<AlongM>>(tiles, slots),
                ] {
                    for pair in timeline.spans.windows(2) {
                        assert!(pair[0].slot < pair[1].slot || pair[0].end <= pair[1].start, "{pair:?}");
                    }
                    let multiplied = timeline.spent(|activity| matches!(activity, Activity::Multiply(_)));
                    assert_eq!(multiplied, u64::from(tiles.m * tiles.n * k));
                }
            }
        }
    }
}
