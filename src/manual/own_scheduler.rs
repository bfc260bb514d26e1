//! A scheduler: each worker gets a run of consecutive tiles in row-major order, and computes them from last
//! to first.

use falchion::ptx::Builder;
use falchion::scheduler::{SchedulerTraits, TileScheduler, Tiles, Work, WorkLoop};

/// The scheduler.
#[derive(Clone, Copy, Debug, Default)]
pub struct Runs;

impl TileScheduler for Runs {
    const TRAITS: SchedulerTraits = SchedulerTraits::WHOLE;
    fn name(&self) -> String {
        "runs".into()
    }
    fn describe(&self) -> String {
        "persistent CTAs, each with a run of neighbouring tiles".into()
    }
    fn workers(&self, tiles: Tiles<u32>, resident: u32) -> u32 {
        tiles.count().unwrap_or(0).min(resident.max(1))
    }
    fn work(&self, tiles: Tiles<u32>, worker: u32, workers: u32) -> Box<dyn Iterator<Item = Work<u32>>> {
        let all = tiles.count().unwrap_or(0);
        let length = all.div_ceil(workers.max(1));
        let (first, end) = ((worker * length).min(all), (worker * length + length).min(all));
        let unit = move |id| Work {
            m: id / tiles.n,
            n: id % tiles.n,
            k_begin: 0,
            k_end: tiles.k,
            split: None,
            slice: None,
        };
        Box::new((first..end).rev().map(unit))
    }
    fn emit<'f>(&self, f: &'f Builder, WorkLoop { tiles, worker, workers, body, .. }: &mut WorkLoop<'_, 'f>) {
        let all = tiles.m * tiles.n;
        let length = (all + *workers - 1) / *workers;
        let first = (*worker * length).min(all);
        let left = f.variable((first + length).min(all));
        f.while_(
            || left.get().more_than(first),
            || {
                left.set(left.get() - 1);
                let (m, n) = (left.get() / tiles.n, left.get() % tiles.n);
                body(Work { m, n, k_begin: f.constant(0), k_end: tiles.k, split: None, slice: None });
            },
        );
    }
}
