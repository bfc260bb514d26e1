//! The schedulers of this crate as plain data.

use std::sync::Arc;

use crate::{
    Clustered, DivideSpec, Drawn, Narrowed, RasterSpec, ReductionKind, Schedule, ScheduleError,
    SchedulerTraits, Streamed, Tailed, Walk, Whole,
};

/// A scheduler of this crate with all its parameters, as plain data. Use it to choose a scheduler at run
/// time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SchedulerSpec {
    /// [`OneTile`](crate::OneTile).
    OneTile(Whole),
    /// [`Persistent`](crate::Persistent).
    Persistent(Walk),
    /// [`Dynamic`](crate::Dynamic).
    Dynamic(Drawn),
    /// [`DividedTail`](crate::DividedTail).
    DividedTail(Tailed),
    /// [`StreamK`](crate::StreamK).
    StreamK(Streamed),
    /// [`ClusterK`](crate::ClusterK).
    ClusterK(Clustered),
    /// [`NarrowTail`](crate::NarrowTail).
    NarrowTail(Narrowed),
}

impl SchedulerSpec {
    /// The raster order.
    pub const fn raster(self) -> RasterSpec {
        match self {
            Self::OneTile(Whole { raster })
            | Self::Persistent(Walk { raster })
            | Self::Dynamic(Drawn { raster })
            | Self::DividedTail(Tailed { raster, .. })
            | Self::StreamK(Streamed { raster, .. })
            | Self::ClusterK(Clustered { raster, .. })
            | Self::NarrowTail(Narrowed { raster, .. }) => raster,
        }
    }

    /// The raster order, to change it.
    pub const fn raster_mut(&mut self) -> &mut RasterSpec {
        match self {
            Self::OneTile(Whole { raster })
            | Self::Persistent(Walk { raster })
            | Self::Dynamic(Drawn { raster })
            | Self::DividedTail(Tailed { raster, .. })
            | Self::StreamK(Streamed { raster, .. })
            | Self::ClusterK(Clustered { raster, .. })
            | Self::NarrowTail(Narrowed { raster, .. }) => raster,
        }
    }

    /// Checks the parameters.
    ///
    /// # Errors
    /// The first rule that the parameters break.
    pub const fn check(self) -> Result<(), ScheduleError> {
        if let Err(error) = self.raster().check() {
            return Err(error);
        }
        match self {
            Self::DividedTail(Tailed { parts, .. }) if parts == 0 || parts > Tailed::MOST_PARTS => {
                Err(ScheduleError::Parts { parts })
            }
            Self::DividedTail(Tailed { least: 0, .. }) => Err(ScheduleError::EmptyPart),
            Self::StreamK(Streamed { divide: DivideSpec::EveryTile(0), .. }) => Err(ScheduleError::NoPart),
            Self::StreamK(Streamed {
                reduction: ReductionKind::Separate,
                divide: DivideSpec::Remainder,
                ..
            }) => Err(ScheduleError::Separate),
            Self::StreamK(Streamed { reduction: ReductionKind::Clustered, .. }) => {
                Err(ScheduleError::Clustered)
            }
            Self::ClusterK(Clustered { parts, .. }) if parts < 2 || parts > Clustered::MOST_PARTS => {
                Err(ScheduleError::ClusterParts { parts })
            }
            Self::NarrowTail(Narrowed { parts, .. }) if parts < 2 || parts > Narrowed::MOST_PARTS => {
                Err(ScheduleError::Slices { parts })
            }
            Self::OneTile(_)
            | Self::Persistent(_)
            | Self::Dynamic(_)
            | Self::DividedTail(_)
            | Self::StreamK(_)
            | Self::ClusterK(_)
            | Self::NarrowTail(_) => Ok(()),
        }
    }

    /// What a kernel has to know about the scheduler.
    pub const fn traits(self) -> SchedulerTraits {
        let (reduction, draws, tiles_on_device) = match self {
            Self::OneTile(_) => (None, false, false),
            Self::Persistent(_) => (None, false, true),
            Self::Dynamic(_) => (None, true, true),
            Self::DividedTail(_) => (Some(ReductionKind::Ordered), true, true),
            Self::StreamK(Streamed { reduction, .. }) => (Some(reduction), false, false),
            Self::ClusterK(_) => (Some(ReductionKind::Clustered), false, false),
            Self::NarrowTail(_) => (None, false, false),
        };
        let parts = if let Self::ClusterK(Clustered { parts, .. }) = self { parts } else { 1 };
        let slices = if let Self::NarrowTail(Narrowed { parts, .. }) = self { parts } else { 1 };
        let raster = self.raster();
        SchedulerTraits {
            reduction,
            draws,
            rows_last: raster.rows_last(),
            band: raster.band(),
            tiles_on_device,
            parts,
            slices,
            batches: true,
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

    /// The scheduler as a value that can be emitted. The parameters must be legal: call
    /// [`check`](Self::check) first.
    pub fn schedule(self) -> Arc<dyn Schedule> {
        match self {
            Self::OneTile(rule) => Arc::new(rule),
            Self::Persistent(rule) => Arc::new(rule),
            Self::Dynamic(rule) => Arc::new(rule),
            Self::DividedTail(rule) => Arc::new(rule),
            Self::StreamK(rule) => Arc::new(rule),
            Self::ClusterK(rule) => Arc::new(rule),
            Self::NarrowTail(rule) => Arc::new(rule),
        }
    }
}
