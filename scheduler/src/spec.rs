//! The schedulers of this crate as plain data.

use std::sync::Arc;

use ptx::Builder;

use crate::dynamic::drawn;
use crate::single::whole;
use crate::stream_k::Streamed;
use crate::tail::Tailed;
use crate::{
    DivideSpec, Divided, Index, RasterSpec, ReductionKind, Schedule, ScheduleError, SchedulerTraits, Tiles,
    Work, WorkLoop, cluster_k, narrow_tail,
};

/// A scheduler of this crate with all its parameters, as plain data. Use it to choose a scheduler at run
/// time. Its parameters must be legal where it schedules: [`check`](Self::check) says whether they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SchedulerSpec {
    /// The order of tiles.
    pub raster: RasterSpec,
    /// What workers compute of the tiles in this order.
    pub rule: Rule,
}

/// What workers compute of the tiles in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// [`OneTile`](crate::OneTile).
    OneTile,
    /// [`Persistent`](crate::Persistent).
    Persistent,
    /// [`Dynamic`](crate::Dynamic).
    Dynamic,
    /// [`DividedTail`](crate::DividedTail).
    DividedTail {
        /// Work units per split tile, 1 to 16.
        parts: u32,
        /// The smallest number of k-tiles of a work unit.
        least: u32,
    },
    /// [`StreamK`](crate::StreamK).
    StreamK {
        /// How partial sums are added up.
        reduction: ReductionKind,
        /// Which tiles are split.
        divide: DivideSpec,
        /// The smallest number of k-tiles of a work unit.
        least: u32,
    },
    /// [`ClusterK`](crate::ClusterK).
    ClusterK {
        /// CTAs per cluster, 2 to 8. Each has a K-range of the tile, which may be empty.
        parts: u32,
    },
    /// [`NarrowTail`](crate::NarrowTail).
    NarrowTail {
        /// Slices per tile of the last wave, 2 to 8.
        parts: u32,
    },
}

/// A function that gives the work unit of a number.
type Pieces<'i, I> = Box<dyn Fn(I) -> Work<I> + 'i>;

impl SchedulerSpec {
    /// Checks the parameters.
    ///
    /// # Errors
    /// The first rule that the parameters break.
    pub const fn check(self) -> Result<(), ScheduleError> {
        if let Err(error) = self.raster.check() {
            return Err(error);
        }
        match self.rule {
            Rule::DividedTail { parts, .. } if parts == 0 || parts > Tailed::MOST_PARTS => {
                Err(ScheduleError::Parts { parts })
            }
            Rule::DividedTail { least: 0, .. } => Err(ScheduleError::EmptyPart),
            Rule::StreamK { divide: DivideSpec::EveryTile(0), .. } => Err(ScheduleError::NoPart),
            Rule::StreamK { reduction: ReductionKind::Separate, divide: DivideSpec::Remainder, .. } => {
                Err(ScheduleError::Separate)
            }
            Rule::StreamK { reduction: ReductionKind::Clustered, .. } => Err(ScheduleError::Clustered),
            Rule::ClusterK { parts } if parts < 2 || parts > cluster_k::MOST_PARTS => {
                Err(ScheduleError::ClusterParts { parts })
            }
            Rule::NarrowTail { parts } if parts < 2 || parts > narrow_tail::MOST_PARTS => {
                Err(ScheduleError::Slices { parts })
            }
            Rule::OneTile
            | Rule::Persistent
            | Rule::Dynamic
            | Rule::DividedTail { .. }
            | Rule::StreamK { .. }
            | Rule::ClusterK { .. }
            | Rule::NarrowTail { .. } => Ok(()),
        }
    }

    /// What a kernel has to know about the scheduler.
    pub const fn traits(self) -> SchedulerTraits {
        let (reduction, draws, tiles_on_device) = match self.rule {
            Rule::OneTile | Rule::NarrowTail { .. } => (None, false, false),
            Rule::Persistent => (None, false, true),
            Rule::Dynamic => (None, true, true),
            Rule::DividedTail { .. } => (Some(ReductionKind::Ordered), true, true),
            Rule::StreamK { reduction, .. } => (Some(reduction), false, false),
            Rule::ClusterK { .. } => (Some(ReductionKind::Clustered), false, false),
        };
        SchedulerTraits {
            reduction,
            draws,
            rows_last: self.raster.rows_last(),
            band: self.raster.band(),
            tiles_on_device,
            parts: if let Rule::ClusterK { parts } = self.rule { parts } else { 1 },
            slices: if let Rule::NarrowTail { parts } = self.rule { parts } else { 1 },
            batches: true,
            feeds: false,
        }
    }

    /// The traits, after [`check`](Self::check). In a constant, illegal parameters stop the build.
    ///
    /// # Panics
    /// If the parameters are illegal, with the sentence of the error.
    pub const fn checked_traits(self) -> SchedulerTraits {
        match self.check() {
            Ok(()) => self.traits(),
            Err(error) => panic!("{}", error.sentence()),
        }
    }

    /// The scheduler as a value that can be emitted.
    pub fn schedule(self) -> Arc<dyn Schedule> {
        Arc::new(self)
    }

    fn streamed(self) -> Option<Streamed> {
        let Rule::StreamK { reduction, divide, least } = self.rule else { return None };
        Some(Streamed { raster: self.raster, reduction, divide, least })
    }

    /// How many numbers workers share out, and the work unit of a number; for the rules of which a worker may compute several units.
    #[track_caller]
    fn units<'i, I: Index + 'i>(self, tiles: Tiles<I>, workers: I) -> (I, Pieces<'i, I>) {
        let raster = self.raster;
        match self.rule {
            Rule::DividedTail { parts, least } => {
                let (count, unit) = Tailed { raster, parts, least }.units(tiles, workers);
                (count, Box::new(unit))
            }
            Rule::NarrowTail { parts } => {
                let (count, unit) = narrow_tail::units(raster, parts, tiles, workers);
                (count, Box::new(unit))
            }
            Rule::OneTile
            | Rule::Persistent
            | Rule::Dynamic
            | Rule::StreamK { .. }
            | Rule::ClusterK { .. } => {
                (tiles.m * tiles.n, Box::new(move |id| whole(raster, id, tiles, tiles.k.constant(0))))
            }
        }
    }
}

impl Schedule for SchedulerSpec {
    fn name(&self) -> String {
        let raster = self.raster.name();
        let by = |least: u32, usual| if least == usual { String::new() } else { format!("_by_{least}") };
        match self.rule {
            Rule::OneTile => format!("one_tile_{raster}"),
            Rule::Persistent => format!("persistent_{raster}"),
            Rule::Dynamic => format!("dynamic_{raster}"),
            Rule::DividedTail { parts, least } => format!("dynamic_tail_{parts}{}_{raster}", by(least, 16)),
            Rule::StreamK { reduction, divide, least } => {
                let reduction = match reduction {
                    ReductionKind::Ordered => "",
                    ReductionKind::Atomic => "_atomic",
                    ReductionKind::Separate => "_separate",
                    ReductionKind::Clustered => "_clustered",
                };
                format!("stream_k_{}{reduction}{}_{raster}", divide.name(), by(least, 4))
            }
            Rule::ClusterK { parts } => format!("cluster_k_{parts}_{raster}"),
            Rule::NarrowTail { parts } => format!("narrow_tail_{parts}_{raster}"),
        }
    }

    fn describe(&self) -> String {
        let order = self.raster.describe();
        match self.rule {
            Rule::OneTile => format!("one tile per CTA, {order}"),
            Rule::Persistent => format!("persistent CTAs, {order}"),
            Rule::Dynamic => format!("persistent CTAs that take tiles from a counter, {order}"),
            Rule::DividedTail { parts, .. } => format!(
                "persistent CTAs that take tiles from a counter, {order}, the last of few waves divided along K by {parts}"
            ),
            Rule::StreamK { divide, .. } => format!("persistent CTAs, {order}, {}", divide.describe()),
            Rule::ClusterK { parts } => {
                format!("one tile per cluster, split along K among {parts} CTAs, {order}")
            }
            Rule::NarrowTail { parts } => {
                format!("persistent CTAs, {order}, the tiles of the last wave in {parts} slices along N")
            }
        }
    }

    fn traits(&self) -> SchedulerTraits {
        Self::traits(*self)
    }

    /// `None` if the raster order is one of your own, which specs do not name.
    fn spec(&self) -> Option<SchedulerSpec> {
        self.raster.is_named().then_some(*self)
    }

    fn workers(&self, tiles: Tiles<u32>, resident: u32) -> u32 {
        let (all, resident, raster) = (tiles.count().unwrap_or(0), resident.max(1), self.raster);
        match self.rule {
            Rule::OneTile => all,
            Rule::Persistent | Rule::Dynamic => all.min(resident),
            Rule::DividedTail { parts, least } => Tailed { raster, parts, least }.workers(all, resident),
            Rule::StreamK { .. } => self.streamed().map_or(0, |rule| rule.workers(tiles, resident)),
            // The product saturates: then there are more workers than a launch can have, and the launch is refused.
            Rule::ClusterK { parts } => all.saturating_mul(parts),
            Rule::NarrowTail { parts } => narrow_tail::workers(parts, all, resident),
        }
    }

    fn divided(&self, tiles: Tiles<u32>, workers: u32) -> Divided {
        match self.rule {
            Rule::DividedTail { parts, least } => {
                Tailed { raster: self.raster, parts, least }.divided(tiles, workers)
            }
            Rule::ClusterK { .. } => Divided { units: workers, tiles: tiles.count().unwrap_or(0) },
            Rule::OneTile
            | Rule::Persistent
            | Rule::Dynamic
            | Rule::StreamK { .. }
            | Rule::NarrowTail { .. } => {
                self.streamed().map_or(Divided::default(), |rule| rule.divided(tiles, workers))
            }
        }
    }

    fn parameters(&self, tiles: Tiles<u32>, workers: u32) -> Vec<(&'static str, u32)> {
        self.streamed().map_or(Vec::new(), |rule| rule.parameters(tiles, workers))
    }

    /// Workers that draw are equally fast: the assignment is that of a fixed stride.
    fn work(&self, tiles: Tiles<u32>, worker: u32, workers: u32) -> Box<dyn Iterator<Item = Work<u32>>> {
        let (raster, all) = (self.raster, tiles.count().unwrap_or(0));
        let tiles = tiles.count().map_or(Tiles { m: 0, n: 0, ..tiles }, |_| tiles);
        let most =
            if matches!(self.rule, Rule::NarrowTail { .. }) { narrow_tail::MOST_WORKERS } else { u32::MAX };
        let workers = workers.clamp(1, most);
        match self.rule {
            Rule::OneTile => Box::new((worker < all).then(|| whole(raster, worker, tiles, 0)).into_iter()),
            Rule::ClusterK { parts } => {
                let inside = worker / parts < all;
                Box::new(inside.then(|| cluster_k::part(raster, parts, worker, tiles)).into_iter())
            }
            Rule::StreamK { .. } => {
                Box::new(self.streamed().into_iter().flat_map(move |rule| rule.work(tiles, worker, workers)))
            }
            Rule::Persistent | Rule::Dynamic | Rule::DividedTail { .. } | Rule::NarrowTail { .. } => {
                let (count, unit) = self.units(tiles, workers);
                Box::new((worker..count).step_by(workers as usize).map(unit))
            }
        }
    }

    fn emit<'f>(&self, f: &'f Builder, loop_: &mut WorkLoop<'_, 'f>) {
        let (tiles, worker, raster) = (loop_.tiles, loop_.worker, self.raster);
        match self.rule {
            Rule::OneTile => (loop_.body)(whole(raster, worker, tiles, f.constant(0))),
            Rule::ClusterK { parts } => (loop_.body)(cluster_k::part(raster, parts, worker, tiles)),
            Rule::StreamK { .. } => {
                if let Some(rule) = self.streamed() {
                    rule.emit(f, loop_);
                }
            }
            Rule::Persistent | Rule::Dynamic | Rule::DividedTail { .. } | Rule::NarrowTail { .. } => {
                let (count, unit) = self.units(tiles, loop_.workers);
                drawn(f, count, loop_, &unit);
            }
        }
    }
}
