//! How tiles are dealt to workers: the work of the one that ends last, and what the order of tiles costs.

use std::sync::Arc;

use scheduler::{Divided, Schedule, SchedulerTraits, Tiles};

use super::Machine;
use super::space::Subject;
use super::tiling::{Counts, Seen, Tiled, ceil};

/// How a kernel deals its tiles to workers.
pub(super) struct Dealing {
    /// Number of workers that run at once.
    pub(super) slots: u32,
    traits: SchedulerTraits,
    scheduler: Arc<dyn Schedule>,
    /// Whether the requests of CTAs for the same part of an operand may be joined before L2. CTAs must be launched in
    /// order, on SMs that are all free, and not multicast to each other.
    pub(super) may_join: bool,
}

/// What follows for a call.
#[derive(Default)]
pub(super) struct Dealt {
    /// Tiles along M and N as the scheduler sees them.
    pub(super) tiles: [f64; 2],
    /// K-tiles of all tiles, for each SM.
    pub(super) work: f64,
    /// Number of workers that can run at once, that do, and of those that request different data at once.
    pub(super) slots: f64,
    pub(super) at_once: f64,
    pub(super) crowd: f64,
    /// Microseconds of L2, bytes of the operands from DRAM, and bytes that may be read from there twice.
    pub(super) l2: f64,
    pub(super) dram: f64,
    pub(super) shared: f64,
    /// K-tiles of the busiest worker. Those of tiles that are split at different places along K.
    pub(super) k_tiles: f64,
    pub(super) unaligned: f64,
    /// Its work units, without slices of tiles along N; these slices; and work units that are parts of tiles along K.
    pub(super) pieces: f64,
    pub(super) slices: f64,
    pub(super) divided: f64,
    /// Parts per split tile, and the square root of the number of other parts.
    pub(super) parts: f64,
    pub(super) others: f64,
    /// Rows outside of A and of B that are requested at once.
    pub(super) outside: [f64; 2],
    /// Number of CTAs that run one after the other.
    pub(super) starts: f64,
}

impl Dealt {
    /// What no dealing of tiles to as many workers at once goes below: nothing is read twice. If no tile is split, some worker
    /// has its share of tiles, rounded up; otherwise all are equally busy, and exchange a partial sum.
    pub(super) fn least(
        machine: &Machine,
        (seen, tiled): (&Seen, &Tiled),
        (lanes, joins): (f64, bool),
        splits: bool,
    ) -> Self {
        let tiles = tiled.stacked(false);
        let [m, n, sms] = [tiles.m, tiles.n, machine.multiprocessors].map(f64::from);
        let share = m * n / lanes;
        let share = if splits { share } else { ceil(share) };
        let [l2, dram] = tiled.least(seen, joins);
        Self {
            tiles: [m, n],
            work: m * n * tiled.k_tiles / sms,
            slots: lanes,
            at_once: sms,
            l2,
            dram,
            k_tiles: share * tiled.k_tiles,
            pieces: share,
            divided: if splits { 1.0 } else { 0.0 },
            others: 1.0,
            starts: 1.0,
            ..Self::default()
        }
    }
}

impl Dealing {
    pub(super) fn of(subject: &Subject<'_>, machine: &Machine) -> Self {
        let Subject { plan, traits, scheduler, overlaps } = subject;
        let (cluster, parts) = (plan.cluster_size(), traits.parts);
        Self {
            slots: machine.at_once(cluster * parts, plan) * parts,
            traits: *traits,
            scheduler: Arc::clone(scheduler),
            may_join: !overlaps && cluster == 1 && traits.reduction.is_some() && parts == 1,
        }
    }

    pub(super) fn deal(&self, machine: &Machine, seen: &Seen, tiled: &Tiled, counts: &Counts) -> Dealt {
        let SchedulerTraits { rows_last, band, parts, slices, .. } = self.traits;
        let tiles = tiled.stacked(rows_last);
        let (workers, divided) = self.shared(tiles);
        let lanes = workers.min(self.slots);
        let all_join = self.joins(workers, divided);
        let each_joins = match tiled.one() {
            Some(one) if self.may_join && one != tiles => {
                let (workers, divided) = self.shared(one);
                self.joins(workers, divided)
            }
            Some(_) => all_join,
            None => false,
        };
        let [l2, dram, shared] = tiled.read(seen, counts, (rows_last, band), self.slots, each_joins);
        let (m, n) = (f64::from(tiles.m), f64::from(tiles.n));
        let Divided { units, tiles: divided } = divided;
        let (dealt, slices) = match slices {
            1 => ((m * n - f64::from(divided)).max(0.0) / f64::from(lanes), 0.0),
            slices => in_slices(m * n, lanes.into(), slices.into()),
        };
        // The narrowest tiles come last, and fill the last wave.
        let pieces = dealt + (ceil(dealt) - dealt) * tiled.narrowest;
        let whole = Dealt {
            tiles: [m, n],
            work: m * n * tiled.k_tiles / f64::from(machine.multiprocessors),
            slots: self.slots.into(),
            at_once: lanes.into(),
            // Joined requests do not crowd.
            crowd: if all_join { 0.0 } else { lanes.into() },
            l2,
            dram,
            shared: shared * machine.echo,
            k_tiles: pieces * tiled.k_tiles,
            pieces,
            slices,
            outside: tiled.outside.map(|rows| rows * f64::from(lanes)),
            starts: workers.div_ceil(self.slots).into(),
            ..Dealt::default()
        };
        if divided == 0 || units == 0 {
            return whole;
        }
        let own = f64::from(units.div_ceil(lanes));
        let length = (u64::from(divided) * u64::from(tiles.k)).div_ceil(units.into()) as f64;
        let even = units.is_multiple_of(divided) && parts == 1;
        let parts = f64::from(units) / f64::from(divided);
        Dealt {
            unaligned: if even { 0.0 } else { own * length },
            k_tiles: whole.k_tiles + own * length,
            pieces: pieces + own,
            divided: own,
            parts,
            others: (parts - 1.0).max(1.0).sqrt(),
            ..whole
        }
    }

    /// Workers of these tiles, and what is split among them.
    fn shared(&self, tiles: Tiles<u32>) -> (u32, Divided) {
        let workers = self.scheduler.workers(tiles, self.slots).max(1);
        (workers, self.scheduler.divided(tiles, workers))
    }

    /// Whether requests are joined: CTAs that follow each other read the same K-range of different tiles.
    fn joins(&self, workers: u32, Divided { units, tiles }: Divided) -> bool {
        self.may_join && units > 0 && units <= workers && units.is_multiple_of(tiles)
    }
}

/// Whole tiles, and slices of tiles, of the busiest of `lanes` workers if the last wave is sliced where each
/// worker gets at most one slice.
fn in_slices(all: f64, lanes: f64, slices: f64) -> (f64, f64) {
    let waves = (all / lanes).floor();
    let rest = all - waves * lanes;
    if rest * slices > lanes { (waves + 1.0, 0.0) } else { (waves, if rest > 0.0 { 1.0 } else { 0.0 }) }
}
