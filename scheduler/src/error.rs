//! Errors: illegal scheduler parameters, and too many tiles.

use core::fmt;

/// A scheduler with illegal parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScheduleError {
    /// A band of the raster order has no tiles.
    EmptyBand,
    /// Hilbert's curve does not fill squares of this side.
    Square {
        /// The side in tiles.
        side: u32,
    },
    /// [`DividedTail`](crate::DividedTail) with an illegal number of splits per tile.
    Parts {
        /// The number of splits that was given.
        parts: u32,
    },
    /// [`ClusterK`](crate::ClusterK) with an illegal number of CTAs per cluster.
    ClusterParts {
        /// The number of CTAs that was given.
        parts: u32,
    },
    /// [`NarrowTail`](crate::NarrowTail) with an illegal number of slices per tile.
    Slices {
        /// The number of slices that was given.
        parts: u32,
    },
    /// [`DividedTail`](crate::DividedTail) whose work units may have no k-tile.
    EmptyPart,
    /// [`EveryTile`](crate::EveryTile) with no split.
    NoPart,
    /// [`Separate`](crate::Separate) with splits that are not equal.
    Separate,
    /// [`ReductionKind::Clustered`](crate::ReductionKind::Clustered) without [`ClusterK`](crate::ClusterK).
    Clustered,
}

impl ScheduleError {
    /// One sentence: what is wrong and how to correct it.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::EmptyBand => "a raster group holds at least one tile: use Grouped<_, U1> or more",
            Self::Square { .. } => {
                "Hilbert's curve fills squares whose side is a power of two from 2 to 64: use Hilbert<U8>"
            }
            Self::Parts { .. } => "a tile has 1 to 16 parts: use DividedTail<_, U3>, say",
            Self::ClusterParts { .. } => {
                "2 to 8 CTAs of a cluster share a tile's K: use ClusterK<_, U4>, say"
            }
            Self::Slices { .. } => "a tile of the last wave has 2 to 8 slices: use NarrowTail<_, U2>, say",
            Self::EmptyPart => "a part of a tile has at least one k-tile: use DividedTail<_, U3, U1> or more",
            Self::NoPart => "a tile has at least one part: use EveryTile<U1> or more",
            Self::Clustered => {
                "the clustered reduction is for ClusterK only: use ClusterK, or reduce by Ordered"
            }
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
            Self::Parts { parts } | Self::ClusterParts { parts } | Self::Slices { parts } => {
                write!(f, "{parts} parts were given: ")?;
            }
            Self::EmptyBand | Self::EmptyPart | Self::NoPart | Self::Separate | Self::Clustered => {}
        }
        f.write_str(self.sentence())
    }
}

impl core::error::Error for ScheduleError {}

/// The launch has more output tiles than it can number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyTiles {
    /// Tiles along M.
    pub m: u128,
    /// Tiles along N.
    pub n: u128,
    /// The largest allowed number of tiles, M times N.
    pub most: u32,
}

impl fmt::Display for TooManyTiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { m, n, most } = self;
        write!(
            f,
            "there are {m} x {n} tiles, at most {most} are allowed: take a larger tile, or several launches"
        )
    }
}

impl core::error::Error for TooManyTiles {}
