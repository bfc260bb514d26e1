//! A check that a schedule computes each k-tile of each output tile exactly once. Use it to test a scheduler
//! of your own.
//!
//! ```
//! use scheduler::{AlongM, Persistent, TileScheduler, Tiles, covers};
//!
//! covers(&*Persistent::<AlongM>::schedule(), Tiles { m: 9, n: 7, k: 3 }, 132)?;
//! # Ok::<(), scheduler::CoverageError>(())
//! ```

use core::fmt;
use std::collections::BTreeMap;

use crate::{Schedule, SchedulerTraits, Tiles, Work};

/// A schedule does not compute each k-tile of each output tile exactly once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoverageError {
    /// The scheduler's name.
    pub scheduler: String,
    /// The problem's extent in tiles.
    pub tiles: Tiles<u32>,
    /// The number of workers.
    pub workers: u32,
    /// What is wrong.
    pub fault: CoverageFault,
}

/// What is wrong with a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoverageFault {
    /// No worker computes a tile.
    Missing {
        /// The tile along M and N.
        tile: [u32; 2],
    },
    /// No worker computes some k-tiles of a tile.
    Gap {
        /// The tile along M and N.
        tile: [u32; 2],
        /// The first missing k-tile, and one past the last.
        k: [u32; 2],
    },
    /// K-tiles of a tile are computed twice. If the problem has no k-tiles, the tile itself is computed
    /// twice.
    Twice {
        /// The tile along M and N.
        tile: [u32; 2],
        /// The first k-tile that is computed twice.
        k: u32,
    },
    /// A work unit is empty or lies outside the problem.
    Outside {
        /// The work unit.
        work: Work<u32>,
    },
    /// A tile is split, but the scheduler's [`SchedulerTraits`] have no reduction.
    Part {
        /// The work unit.
        work: Work<u32>,
    },
    /// There are more work units than the problem can have: the worker does not end.
    Endless {
        /// The worker.
        worker: u32,
        /// The largest possible number of work units.
        most: u64,
    },
}

impl fmt::Display for CoverageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scheduler, tiles: Tiles { m, n, k }, workers, fault } = self;
        write!(f, "scheduler `{scheduler}` on {m} x {n} tiles of {k} k-tiles with {workers} workers: ")?;
        match *fault {
            CoverageFault::Missing { tile: [m, n] } => write!(f, "no worker computes tile ({m}, {n})"),
            CoverageFault::Gap { tile: [m, n], k: [first, end] } => {
                write!(f, "no worker computes the k-tiles {first}..{end} of tile ({m}, {n})")
            }
            CoverageFault::Twice { tile: [m, n], k } => {
                write!(f, "tile ({m}, {n}) is computed twice from k-tile {k} on")
            }
            CoverageFault::Outside { work: Work { m, n, k_begin, k_end, .. } } => {
                write!(f, "empty or not in the problem: tile ({m}, {n}), k-tiles {k_begin}..{k_end}")
            }
            CoverageFault::Part { work: Work { m, n, k_begin, k_end, .. } } => write!(
                f,
                "a work unit has only the k-tiles {k_begin}..{k_end} of tile ({m}, {n}): assign whole tiles, \
                 or state a reduction in the scheduler's traits"
            ),
            CoverageFault::Endless { worker, most } => {
                write!(f, "worker {worker} does not end: the problem has at most {most} work units")
            }
        }
    }
}

impl std::error::Error for CoverageError {}

/// Checks that the host model of a schedule computes each k-tile of each output tile exactly once, on a
/// machine that holds `resident` workers at once.
///
/// # Errors
/// The first fault found: a work unit that must not exist, or a tile that is not computed exactly once.
pub fn covers(schedule: &dyn Schedule, tiles: Tiles<u32>, resident: u32) -> Result<(), CoverageError> {
    let workers = schedule.workers(tiles, resident);
    let units = (0..workers).map(|worker| schedule.work(tiles, worker, workers));
    covered(schedule, tiles, workers, units)
}

/// Makes the check of [`covers`] on work units that you provide, one iterator per worker. Use it for work
/// units that a device has recorded.
///
/// # Errors
/// As [`covers`].
pub fn covered(
    schedule: &dyn Schedule,
    tiles: Tiles<u32>,
    workers: u32,
    units: impl IntoIterator<Item = impl Iterator<Item = Work<u32>>>,
) -> Result<(), CoverageError> {
    let error = |fault| Err(CoverageError { scheduler: schedule.name(), tiles, workers, fault });
    let Tiles { m, n, k } = tiles;
    let SchedulerTraits { reduction, parts, slices, .. } = schedule.traits();
    let most = (u64::from(m) * u64::from(n))
        .saturating_mul(k.max(parts).max(1).into())
        .saturating_mul(slices.into());
    let mut by_tile = BTreeMap::<[u32; 3], Vec<[u32; 2]>>::new();
    let mut count = 0u64;
    for (worker, units) in (0..).zip(units) {
        for work in units {
            let Work { m: row, n: column, k_begin, k_end, slice, .. } = work;
            let (first, end) = slice.map_or((0, slices), |slice| (slice.first, slice.first + slice.count));
            count += 1;
            if count > most {
                return error(CoverageFault::Endless { worker, most });
            }
            // Under `ClusterK` the K-range of a CTA may be empty.
            let empty = k_begin == k_end && k > 0 && parts == 1;
            if row >= m
                || column >= n
                || k_end > k
                || k_begin > k_end
                || empty
                || first >= end
                || end > slices
            {
                return error(CoverageFault::Outside { work });
            }
            if reduction.is_none() && k_end - k_begin < k {
                return error(CoverageFault::Part { work });
            }
            for slice in first..end {
                by_tile.entry([row, column, slice]).or_default().push([k_begin, k_end]);
            }
        }
    }
    for row in 0..m {
        for [column, slice] in (0..n).flat_map(|column| (0..slices).map(move |slice| [column, slice])) {
            let tile = [row, column];
            let Some(units) = by_tile.get_mut(&[row, column, slice]) else {
                return error(CoverageFault::Missing { tile });
            };
            units.sort_unstable();
            if k == 0 && units.len() > parts as usize {
                return error(CoverageFault::Twice { tile, k: 0 });
            }
            let mut reached = 0;
            for &mut [begin, end] in units {
                if begin < reached {
                    return error(CoverageFault::Twice { tile, k: begin });
                }
                if begin > reached {
                    return error(CoverageFault::Gap { tile, k: [reached, begin] });
                }
                reached = end;
            }
            if reached < k {
                return error(CoverageFault::Gap { tile, k: [reached, k] });
            }
        }
    }
    Ok(())
}
