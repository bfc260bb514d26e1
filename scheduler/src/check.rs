//! Whether a schedule computes everything once: for tests of schedulers of your own.
//!
//! ```
//! use scheduler::{AlongM, Persistent, TileScheduler, Tiles, covers};
//!
//! covers(&*Persistent::<AlongM>::schedule(), Tiles { m: 9, n: 7, k: 3 }, 132)?;
//! # Ok::<(), scheduler::CoverageError>(())
//! ```

use core::fmt;
use std::collections::BTreeMap;

use crate::{Facts, Schedule, Tiles, Work};

/// A schedule that does not compute every k-tile of every output tile once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoverageError {
    /// The scheduler's name.
    pub scheduler: String,
    /// The problem.
    pub tiles: Tiles<u32>,
    /// How many workers there are.
    pub workers: u32,
    /// What is wrong.
    pub fault: CoverageFault,
}

/// What is wrong with a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoverageFault {
    /// Nobody computes a tile.
    Missing {
        /// The tile along M and N.
        tile: [u32; 2],
    },
    /// Nobody computes some k-tiles of a tile.
    Gap {
        /// The tile along M and N.
        tile: [u32; 2],
        /// The first and one past the last.
        k: [u32; 2],
    },
    /// K-tiles of a tile are computed twice; of a problem without any, the tile is.
    Twice {
        /// The tile along M and N.
        tile: [u32; 2],
        /// The first k-tile that is.
        k: u32,
    },
    /// A piece is not part of the problem.
    Outside {
        /// The piece.
        work: Work<u32>,
    },
    /// A part of a tile where the scheduler says that it deals out whole tiles alone.
    Part {
        /// The piece.
        work: Work<u32>,
    },
    /// A worker that never ends.
    Endless {
        /// The worker.
        worker: u32,
        /// The most pieces that there can be.
        most: u64,
    },
}

impl fmt::Display for CoverageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scheduler, tiles: Tiles { m, n, k }, workers, fault } = self;
        write!(f, "scheduler `{scheduler}` on {m} x {n} tiles of {k} k-tiles with {workers} workers: ")?;
        match *fault {
            CoverageFault::Missing { tile: [m, n] } => write!(f, "nobody computes tile ({m}, {n})"),
            CoverageFault::Gap { tile: [m, n], k: [first, end] } => {
                write!(f, "nobody computes the k-tiles {first}..{end} of tile ({m}, {n})")
            }
            CoverageFault::Twice { tile: [m, n], k } => {
                write!(f, "tile ({m}, {n}) is computed twice from k-tile {k} on")
            }
            CoverageFault::Outside { work: Work { m, n, k_begin, k_end, .. } } => {
                write!(f, "a piece is tile ({m}, {n}), k-tiles {k_begin}..{k_end}, which there is not")
            }
            CoverageFault::Part { work: Work { m, n, k_begin, k_end, .. } } => write!(
                f,
                "a piece is the k-tiles {k_begin}..{k_end} of tile ({m}, {n}), and a scheduler whose facts have no reduction deals out \
                 whole tiles"
            ),
            CoverageFault::Endless { worker, most } => {
                write!(f, "worker {worker} does not end: there are {most} pieces at most")
            }
        }
    }
}

impl std::error::Error for CoverageError {}

/// Checks that the host model of a schedule computes every k-tile of every output tile of a problem once, on a machine that
/// runs `slots` workers at once.
///
/// # Errors
/// The first tile that is not computed, or not once.
pub fn covers(schedule: &dyn Schedule, tiles: Tiles<u32>, slots: u32) -> Result<(), CoverageError> {
    let workers = schedule.workers(tiles, slots);
    let pieces = (0..workers).map(|worker| schedule.work(tiles, worker, workers));
    covered(schedule, tiles, workers, pieces)
}

/// The same of pieces by worker, wherever they were found.
///
/// # Errors
/// As [`covers`].
pub fn covered(
    schedule: &dyn Schedule,
    tiles: Tiles<u32>,
    workers: u32,
    pieces: impl IntoIterator<Item = impl Iterator<Item = Work<u32>>>,
) -> Result<(), CoverageError> {
    let error = |fault| Err(CoverageError { scheduler: schedule.name(), tiles, workers, fault });
    let Tiles { m, n, k } = tiles;
    let Facts { reduction, parts, .. } = schedule.facts();
    let most = (u64::from(m) * u64::from(n)).saturating_mul(k.max(parts).max(1).into());
    let mut by_tile = BTreeMap::<[u32; 2], Vec<[u32; 2]>>::new();
    let mut count = 0u64;
    for (worker, pieces) in (0..).zip(pieces) {
        for work in pieces {
            let Work { m: row, n: column, k_begin, k_end, .. } = work;
            count += 1;
            if count > most {
                return error(CoverageFault::Endless { worker, most });
            }
            // Each CTA of a cluster has a part, which may be empty.
            let empty = k_begin == k_end && k > 0 && parts == 1;
            if row >= m || column >= n || k_end > k || k_begin > k_end || empty {
                return error(CoverageFault::Outside { work });
            }
            if reduction.is_none() && k_end - k_begin < k {
                return error(CoverageFault::Part { work });
            }
            by_tile.entry([row, column]).or_default().push([k_begin, k_end]);
        }
    }
    for row in 0..m {
        for column in 0..n {
            let tile = [row, column];
            let Some(pieces) = by_tile.get_mut(&tile) else {
                return error(CoverageFault::Missing { tile });
            };
            pieces.sort_unstable();
            if k == 0 && pieces.len() > parts as usize {
                return error(CoverageFault::Twice { tile, k: 0 });
            }
            let mut reached = 0;
            for &mut [begin, end] in pieces {
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
