//! Schedulers that cannot be, and tiles that they cannot number.

use core::fmt;

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
    /// So many CTAs of a cluster that share a tile's K.
    ClusterParts {
        /// How many.
        parts: u32,
    },
    /// Parts of a tile that may have no k-tile.
    EmptyPart,
    /// No part of a tile.
    NoPart,
    /// Separate sums of parts that are not equal.
    Separate,
    /// Workers that are no cluster, and would add up in one.
    Clustered,
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
            Self::ClusterParts { .. } => {
                "2 to 8 CTAs of a cluster share a tile's K: use ClusterK<_, U4>, say"
            }
            Self::EmptyPart => "a part of a tile has at least one k-tile: use DividedTail<_, U3, U1> or more",
            Self::NoPart => "a tile has at least one part: use EveryTile<U1> or more",
            Self::Clustered => {
                "the CTAs of a cluster add up tiles of ClusterK alone: divide by it, or add up by Ordered"
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
            Self::Parts { parts } | Self::ClusterParts { parts } => write!(f, "{parts} parts were given: ")?,
            Self::EmptyBand | Self::EmptyPart | Self::NoPart | Self::Separate | Self::Clustered => {}
        }
        f.write_str(self.sentence())
    }
}

impl core::error::Error for ScheduleError {}

/// More output tiles than are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyTiles {
    /// Tiles along M.
    pub m: u128,
    /// Tiles along N.
    pub n: u128,
    /// Most of both together.
    pub most: u32,
}

impl fmt::Display for TooManyTiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { m, n, most } = self;
        write!(
            f,
            "there are {m} x {n} tiles, at most {most} are numbered: take a larger tile, or launch in parts"
        )
    }
}

impl core::error::Error for TooManyTiles {}
