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
            let (first, end) = slice.map_or((0, slices), |of| (of.first, of.first.saturating_add(of.count)));
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

#[cfg(test)]
mod tests {
    use ptx::Builder;

    use super::*;
    use crate::{Divided, ReductionKind, SchedulerSpec, SchedulerTraits, Slice, WorkLoop};

    /// A schedule that has only its traits: the work units are given.
    #[derive(Debug)]
    struct Stated(SchedulerTraits);

    impl Schedule for Stated {
        fn name(&self) -> String {
            "stated".to_owned()
        }

        fn describe(&self) -> String {
            self.name()
        }

        fn traits(&self) -> SchedulerTraits {
            self.0
        }

        fn spec(&self) -> Option<SchedulerSpec> {
            None
        }

        fn workers(&self, _tiles: Tiles<u32>, resident: u32) -> u32 {
            resident
        }

        fn divided(&self, _tiles: Tiles<u32>, _workers: u32) -> Divided {
            Divided::default()
        }

        fn parameters(&self, _tiles: Tiles<u32>, _workers: u32) -> Vec<(&'static str, u32)> {
            Vec::new()
        }

        /// Each worker has one tile along M.
        fn work(
            &self,
            Tiles { k, .. }: Tiles<u32>,
            worker: u32,
            _: u32,
        ) -> Box<dyn Iterator<Item = Work<u32>>> {
            Box::new(core::iter::once(unit(worker, 0, [0, k])))
        }

        fn emit<'f>(&self, _f: &'f Builder, _loop: &mut WorkLoop<'_, 'f>) {}
    }

    fn unit(m: u32, n: u32, [k_begin, k_end]: [u32; 2]) -> Work<u32> {
        Work { m, n, k_begin, k_end, split: None, slice: None }
    }

    fn sliced(m: u32, n: u32, [first, count]: [u32; 2]) -> Work<u32> {
        Work { slice: Some(Slice { first, count, of: 2 }), ..unit(m, n, [0, 3]) }
    }

    /// The fault of work units, which are dealt to two workers in turns.
    fn fault(traits: SchedulerTraits, k: u32, units: &[Work<u32>]) -> Option<CoverageFault> {
        let of = |worker: usize| units.iter().copied().skip(worker).step_by(2);
        let tiles = Tiles { m: 2, n: 2, k };
        covered(&Stated(traits), tiles, 2, [of(0), of(1)]).map_err(|error| error.fault).err()
    }

    const WHOLE: SchedulerTraits = SchedulerTraits::WHOLE;
    const SPLIT: SchedulerTraits = SchedulerTraits { reduction: Some(ReductionKind::Ordered), ..WHOLE };

    /// All but the last tile, whole.
    fn most(k: u32) -> Vec<Work<u32>> {
        [(0, 0), (0, 1), (1, 0)].map(|(m, n)| unit(m, n, [0, k])).to_vec()
    }

    #[test]
    fn each_k_tile_is_computed_once() {
        use CoverageFault::{Endless, Gap, Missing, Outside, Part, Twice};
        let tile = [1, 1];
        let last = |parts: &[[u32; 2]]| parts.iter().map(|&part| unit(1, 1, part)).collect::<Vec<_>>();
        let outside = |work| Some(Outside { work });
        for (why, traits, parts, wanted) in [
            ("whole", WHOLE, last(&[[0, 3]]), None),
            ("in parts, in any order", SPLIT, last(&[[2, 3], [0, 1], [1, 2]]), None),
            ("not at all", WHOLE, vec![], Some(Missing { tile })),
            ("a gap at the beginning", SPLIT, last(&[[1, 3]]), Some(Gap { tile, k: [0, 1] })),
            ("a gap in the middle", SPLIT, last(&[[0, 1], [2, 3]]), Some(Gap { tile, k: [1, 2] })),
            ("a gap at the end", SPLIT, last(&[[0, 2]]), Some(Gap { tile, k: [2, 3] })),
            ("the same part twice", SPLIT, last(&[[0, 3], [0, 3]]), Some(Twice { tile, k: 0 })),
            ("a k-tile twice", SPLIT, last(&[[0, 2], [1, 3]]), Some(Twice { tile, k: 1 })),
            ("the last k-tile twice", SPLIT, last(&[[0, 3], [2, 3]]), Some(Twice { tile, k: 2 })),
            ("twice, whole", WHOLE, last(&[[0, 3]; 2]), Some(Twice { tile, k: 0 })),
            ("a part, without a reduction", WHOLE, last(&[[0, 2]]), Some(Part { work: unit(1, 1, [0, 2]) })),
            ("empty", SPLIT, last(&[[1, 1]]), outside(unit(1, 1, [1, 1]))),
            ("backwards", SPLIT, last(&[[2, 1]]), outside(unit(1, 1, [2, 1]))),
            ("behind K", SPLIT, last(&[[0, 4]]), outside(unit(1, 1, [0, 4]))),
            ("behind M", WHOLE, vec![unit(2, 1, [0, 3])], outside(unit(2, 1, [0, 3]))),
            ("behind N", WHOLE, vec![unit(1, 2, [0, 3])], outside(unit(1, 2, [0, 3]))),
            // 2 x 2 tiles of 3 k-tiles.
            ("without an end", SPLIT, last(&[[0, 3]; 10]), Some(Endless { worker: 1, most: 12 })),
        ] {
            // The two workers take turns: the units of the last tile, then all others.
            let units = [parts, most(3)].concat();
            assert_eq!(fault(traits, 3, &units), wanted, "{why}");
        }
    }

    /// A tile without k-tiles is one work unit, or one per CTA of its cluster. A CTA of a cluster may have none of K.
    #[test]
    fn tiles_without_k_tiles_and_empty_parts() {
        let clusters = SchedulerTraits { parts: 2, ..SPLIT };
        let units = |count: usize, of: [u32; 2], k| [most(k), vec![unit(1, 1, of); count]].concat();
        let twice = Some(CoverageFault::Twice { tile: [1, 1], k: 0 });
        for (traits, count, wanted) in
            [(WHOLE, 1, None), (clusters, 2, None), (clusters, 3, twice), (clusters, 1, None)]
        {
            assert_eq!(fault(traits, 0, &units(count, [0, 0], 0)), wanted, "{count} of {traits:?}");
        }
        let endless = Some(CoverageFault::Endless { worker: 1, most: 4 });
        assert_eq!(fault(WHOLE, 0, &units(2, [0, 0], 0)), endless);
        let empty = [units(1, [0, 3], 3), units(1, [3, 3], 3)[3..].to_vec()].concat();
        assert_eq!(fault(clusters, 3, &empty), None);
        assert!(matches!(fault(SPLIT, 3, &empty), Some(CoverageFault::Outside { .. })));
    }

    #[test]
    fn each_slice_is_computed_once() {
        use CoverageFault::{Missing, Outside, Twice};
        let slices = SchedulerTraits { slices: 2, ..WHOLE };
        let tile = [1, 1];
        let outside = |of| Some(Outside { work: sliced(1, 1, of) });
        for (why, of, wanted) in [
            ("both at once", vec![[0, 2]], None),
            ("one by one", vec![[1, 1], [0, 1]], None),
            ("the second one alone", vec![[1, 1]], Some(Missing { tile })),
            ("the first one alone", vec![[0, 1]], Some(Missing { tile })),
            ("one twice", vec![[0, 2], [1, 1]], Some(Twice { tile, k: 0 })),
            ("none", vec![[0, 0]], outside([0, 0])),
            ("one that is not there", vec![[1, 2]], outside([1, 2])),
            ("beyond all numbers", vec![[u32::MAX, 2]], outside([u32::MAX, 2])),
        ] {
            let units = [most(3), of.into_iter().map(|of| sliced(1, 1, of)).collect()].concat();
            assert_eq!(fault(slices, 3, &units), wanted, "{why}");
        }
    }

    /// The host model is asked for each worker; messages have all numbers.
    #[test]
    fn faults_in_words() {
        let tiles = Tiles { m: 3, n: 1, k: 5 };
        assert_eq!(covers(&Stated(WHOLE), tiles, 3), Ok(()));
        let of = |fault: CoverageFault| {
            let (scheduler, workers) = ("stated".to_owned(), 7);
            CoverageError { scheduler, tiles, workers, fault }.to_string()
        };
        assert_eq!(
            covers(&Stated(WHOLE), tiles, 2).map_err(|error| error.fault),
            Err(CoverageFault::Missing { tile: [2, 0] })
        );
        let (tile, work) = ([1, 2], unit(1, 2, [3, 4]));
        for (fault, words) in [
            (CoverageFault::Missing { tile }, "no worker computes tile (1, 2)"),
            (CoverageFault::Gap { tile, k: [3, 4] }, "no worker computes the k-tiles 3..4 of tile (1, 2)"),
            (CoverageFault::Twice { tile, k: 3 }, "tile (1, 2) is computed twice from k-tile 3 on"),
            (CoverageFault::Outside { work }, "empty or not in the problem: tile (1, 2), k-tiles 3..4"),
            (
                CoverageFault::Part { work },
                "a work unit has only the k-tiles 3..4 of tile (1, 2): assign whole",
            ),
            (
                CoverageFault::Endless { worker: 6, most: 9 },
                "worker 6 does not end: the problem has at most 9",
            ),
        ] {
            let start = "scheduler `stated` on 3 x 1 tiles of 5 k-tiles with 7 workers: ";
            assert!(of(fault).starts_with(&format!("{start}{words}")), "{}", of(fault));
        }
    }
}
