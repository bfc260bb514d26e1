//! The schedulers of this crate as plain data.

use core::fmt;
use std::sync::Arc;

use crate::{DivideSpec, Drawn, Facts, RasterSpec, ReductionKind, Schedule, Streamed, Tailed, Walk, Whole};

/// A scheduler of this crate with all its parameters.
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
}

impl SchedulerSpec {
    /// The order of its tiles.
    pub const fn raster(self) -> RasterSpec {
        match self {
            Self::OneTile(Whole { raster })
            | Self::Persistent(Walk { raster })
            | Self::Dynamic(Drawn { raster })
            | Self::DividedTail(Tailed { raster, .. })
            | Self::StreamK(Streamed { raster, .. }) => raster,
        }
    }

    /// Whether its parameters are legal.
    ///
    /// # Errors
    /// The first rule that they break.
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
            Self::OneTile(_)
            | Self::Persistent(_)
            | Self::Dynamic(_)
            | Self::DividedTail(_)
            | Self::StreamK(_) => Ok(()),
        }
    }

    /// What a kernel has to know of it.
    pub const fn facts(self) -> Facts {
        let (reduction, draws, tiles_on_device) = match self {
            Self::OneTile(_) => (None, false, false),
            Self::Persistent(_) => (None, false, true),
            Self::Dynamic(_) => (None, true, true),
            Self::DividedTail(_) => (Some(ReductionKind::Ordered), true, true),
            Self::StreamK(Streamed { reduction, .. }) => (Some(reduction), false, false),
        };
        let raster = self.raster();
        Facts {
            reduction,
            draws,
            rows_last: raster.rows_last(),
            band: raster.band(),
            tiles_on_device,
            batches: true,
        }
    }

    /// The facts of a legal one; an illegal one stops the build with its sentence.
    ///
    /// # Panics
    /// While compiling, with the error's sentence.
    pub const fn checked_facts(self) -> Facts {
        match self.check() {
            Ok(()) => self.facts(),
            Err(error) => panic!("{}", error.sentence()),
        }
    }

    /// The value that emits it. Its parameters have to be legal.
    pub fn schedule(self) -> Arc<dyn Schedule> {
        match self {
            Self::OneTile(rule) => Arc::new(rule),
            Self::Persistent(rule) => Arc::new(rule),
            Self::Dynamic(rule) => Arc::new(rule),
            Self::DividedTail(rule) => Arc::new(rule),
            Self::StreamK(rule) => Arc::new(rule),
        }
    }
}

/// A scheduler that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScheduleError {
    /// A band of no tiles.
    EmptyBand,
    /// A square that Hilbert's curve does not fill.
    Square {
        /// Its side in tiles.
        side: u32,
    },
    /// So many parts of a tile.
    Parts {
        /// How many.
        parts: u32,
    },
    /// Parts of a tile that may have no k-tile.
    EmptyPart,
    /// No part of a tile.
    NoPart,
    /// Separate sums of parts that are not equal.
    Separate,
}

impl ScheduleError {
    /// What is wrong and what would mend it.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::EmptyBand => "a raster group holds at least one tile: use Grouped<_, U1> or more",
            Self::Square { .. } => {
                "Hilbert's curve fills squares whose side is a power of two from 2 to 64: use Hilbert<U8>"
            }
            Self::Parts { .. } => "a tile has 1 to 16 parts: use DividedTail<_, U3>, say",
            Self::EmptyPart => "a part of a tile has at least one k-tile: use DividedTail<_, U3, U1> or more",
            Self::NoPart => "a tile has at least one part: use EveryTile<U1> or more",
            Self::Separate => {
                "Separate adds up tiles of equal parts only: divide by EveryTile<S> or Heuristic, or add up by Ordered"
            }
        }
    }
}

impl fmt::Display for ScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Square { side } => write!(f, "a side of {side} tiles was given: ")?,
            Self::Parts { parts } => write!(f, "{parts} parts were given: ")?,
            Self::EmptyBand | Self::EmptyPart | Self::NoPart | Self::Separate => {}
        }
        f.write_str(self.sentence())
    }
}

impl core::error::Error for ScheduleError {}
