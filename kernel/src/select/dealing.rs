//! How tiles are dealt to workers: the work of the one that ends last, and what the order of tiles costs.

use std::sync::Arc;

use scheduler::{Divided, Facts, Schedule, Tiles};

use super::Machine;
use super::model::Subject;
use super::tiling::{Counts, Seen, Tiled};

/// How a kernel deals its tiles to workers.
pub(super) struct Dealing {
    /// Number of workers that run at once.
    pub(super) slots: u32,
    facts: Facts,
    scheduler: Arc<dyn Schedule>,
    /// Whether the requests of CTAs for the same part of an operand may be joined before L2. CTAs must be launched in
    /// order, on SMs that are all free, and not multicast to each other.
    pub(super) may_join: bool,
}

/// What follows for a call.
pub(super) struct Dealt {
    /// Tiles along M and N as the scheduler sees them.
    pub(super) tiles: [f64; 2],
    /// K-tiles of all tiles, for each SM.
    pub(super) k_tiles: f64,
    /// Number of workers that run at once, and of those that request different data at once.
    pub(super) at_once: f64,
    pub(super) crowd: f64,
    pub(super) waves: f64,
    pub(super) busiest: Busiest,
    /// Microseconds of L2, and bytes of the operands from DRAM.
    pub(super) l2: f64,
    pub(super) dram: f64,
}

/// The work of the busiest worker.
#[derive(Default)]
pub(super) struct Busiest {
    pub(super) k_tiles: f64,
    /// K-tiles of these that belong to tiles split at different places along K.
    pub(super) unaligned: f64,
    /// Work units, without slices of tiles.
    pub(super) pieces: f64,
    /// Slices of tiles along N.
    pub(super) slices: f64,
    /// Work units of these that are parts of tiles along K.
    pub(super) divided: f64,
    /// Parts per split tile, and the square root of the number of other parts.
    pub(super) parts: f64,
    pub(super) others: f64,
    /// Number of CTAs that run one after the other.
    pub(super) starts: f64,
}

impl Dealing {
    pub(super) fn of(subject: &Subject<'_>, machine: &Machine) -> Self {
        let Subject { plan, facts, scheduler, overlaps } = *subject;
        let (cluster, parts) = (plan.cluster_size(), facts.parts);
        Self {
            slots: machine.at_once(cluster * parts, plan) * parts,
            facts: *facts,
            scheduler: Arc::clone(scheduler),
            may_join: !overlaps && cluster == 1 && facts.reduction.is_some() && parts == 1,
        }
    }

    pub(super) fn deal(&self, machine: &Machine, seen: &Seen, tiled: &Tiled, counts: &Counts) -> Dealt {
        let Facts { rows_last, band, .. } = self.facts;
        let tiles = tiled.stacked(rows_last);
        let workers = self.scheduler.workers(tiles, self.slots).max(1);
        let divided = self.scheduler.divided(tiles, workers);
        let busiest = self.busiest(tiles, divided, tiled, workers);
        let at_once = f64::from(workers.min(self.slots));
        // CTAs that follow each other read the same K-range of different tiles.
        let joins = |Divided { units, tiles }: Divided, workers: u32| {
            units > 0 && units <= workers && units.is_multiple_of(tiles)
        };
        let of_one = |tiles: Tiles<u32>| {
            let workers = self.scheduler.workers(tiles, self.slots);
            joins(self.scheduler.divided(tiles, workers), workers)
        };
        let all_join = self.may_join && joins(divided, workers);
        let each_joins = match tiled.one() {
            Some(one) if self.may_join && one != tiles => of_one(one),
            Some(_) => all_join,
            None => false,
        };
        let [l2, dram, shared] = tiled.read(seen, counts, (rows_last, band), self.slots, each_joins);
        let (m, n) = (f64::from(tiles.m), f64::from(tiles.n));
        Dealt {
            tiles: [m, n],
            k_tiles: m * n * tiled.k_tiles / f64::from(machine.multiprocessors),
            at_once,
            // Joined requests do not crowd.
            crowd: if all_join { 0.0 } else { at_once },
            waves: m * n / f64::from(self.slots),
            busiest,
            l2: l2 / machine.l2,
            dram: dram + shared * machine.echo,
        }
    }

    fn busiest(&self, tiles: Tiles<u32>, divided: Divided, tiled: &Tiled, workers: u32) -> Busiest {
        let Tiled { k_tiles, narrowest, .. } = *tiled;
        let Tiles { m, n, k } = tiles;
        let all = f64::from(m) * f64::from(n);
        let Divided { units, tiles: divided } = divided;
        let lanes = workers.min(self.slots);
        let (dealt, slices) = match self.facts.slices {
            1 => ((all - f64::from(divided)).max(0.0) / f64::from(lanes), 0.0),
            slices => in_slices(all, lanes.into(), slices.into()),
        };
        // The narrowest tiles come last, and fill the last wave.
        let pieces = dealt + (dealt.ceil() - dealt) * narrowest;
        let (k_tiles, starts) = (pieces * k_tiles, workers.div_ceil(self.slots).into());
        let whole = Busiest { k_tiles, pieces, slices, starts, ..Busiest::default() };
        if divided == 0 || units == 0 {
            return whole;
        }
        let own = f64::from(units.div_ceil(lanes));
        let length = (u64::from(divided) * u64::from(k)).div_ceil(units.into()) as f64;
        let even = units.is_multiple_of(divided) && self.facts.parts == 1;
        let parts = f64::from(units) / f64::from(divided);
        Busiest {
            unaligned: if even { 0.0 } else { own * length },
            k_tiles: k_tiles + own * length,
            pieces: pieces + own,
            divided: own,
            parts,
            others: (parts - 1.0).max(1.0).sqrt(),
            ..whole
        }
    }
}

/// Whole tiles, and slices of tiles, of the busiest of `lanes` workers if the last wave is sliced where each
/// worker gets at most one slice.
fn in_slices(all: f64, lanes: f64, slices: f64) -> (f64, f64) {
    let waves = (all / lanes).floor();
    let rest = all - waves * lanes;
    if rest * slices > lanes { (waves + 1.0, 0.0) } else { (waves, if rest > 0.0 { 1.0 } else { 0.0 }) }
}
