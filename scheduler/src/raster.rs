//! Raster orders: from a tile number to a tile. Choose one for the reuse of operands in L2.

use core::fmt::Debug;
use core::marker::PhantomData;

use crate::{Index, Natural, ScheduleError, Tiles, hilbert};

/// A raster order as a type: [`AlongM`], [`AlongN`], [`Grouped`] or [`Hilbert`].
pub trait Raster: Copy + Default + Debug + Send + Sync + 'static {
    /// The raster order as a value.
    const RASTER: RasterSpec;
}

/// A raster order: a bijection from the numbers `0..m*n` to the output tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RasterSpec {
    /// [`AlongM`].
    AlongM,
    /// [`AlongN`].
    AlongN,
    /// [`Grouped<AlongM, G>`](Grouped): the height of a band in tiles, `G`.
    BandsOfM(u32),
    /// [`Grouped<AlongN, G>`](Grouped): the width of a band in tiles, `G`.
    BandsOfN(u32),
    /// [`Hilbert<S>`](crate::Hilbert): the side of a square in tiles, `S`.
    Hilbert(u32),
}

/// Column by column: `m` varies fastest.
#[derive(Clone, Copy, Debug, Default)]
pub struct AlongM;

/// Row by row: `n` varies fastest.
#[derive(Clone, Copy, Debug, Default)]
pub struct AlongN;

/// Bands of `G` tiles, so that tiles that run at the same time share operands in L2.
///
/// With [`AlongM`] a band is `G` tiles high and is walked column by column; with [`AlongN`] it is `G` tiles
/// wide and is walked row by row. The last band may be narrower.
#[derive(Clone, Copy, Debug, Default)]
pub struct Grouped<R, G>(PhantomData<(R, G)>);

/// Bands of `S` tiles along M, walked along N. Hilbert's curve fills each square of `S x S` tiles of a band,
/// and begins next to the end of the curve in the square before.
///
/// Neighbours in the order are neighbours in the output at every scale up to `S`, so tiles that run at the
/// same time share operands. `S` is a power of two from 2 to 64. The rest of a band where no whole square
/// fits, and a last band that is narrower, are walked column by column.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hilbert<S>(PhantomData<S>);

impl Raster for AlongM {
    const RASTER: RasterSpec = RasterSpec::AlongM;
}

impl Raster for AlongN {
    const RASTER: RasterSpec = RasterSpec::AlongN;
}

impl<G: Natural> Raster for Grouped<AlongM, G> {
    const RASTER: RasterSpec = RasterSpec::BandsOfM(G::U32);
}

impl<G: Natural> Raster for Grouped<AlongN, G> {
    const RASTER: RasterSpec = RasterSpec::BandsOfN(G::U32);
}

impl<S: Natural> Raster for Hilbert<S> {
    const RASTER: RasterSpec = RasterSpec::Hilbert(S::U32);
}

impl RasterSpec {
    /// Checks the parameter of the order.
    ///
    /// # Errors
    /// A band of 0 tiles, or a side that is not a power of two from 2 to 64.
    pub const fn check(self) -> Result<(), ScheduleError> {
        match self {
            Self::BandsOfM(0) | Self::BandsOfN(0) => Err(ScheduleError::EmptyBand),
            Self::Hilbert(side) if !hilbert::fills(side) => Err(ScheduleError::Square { side }),
            Self::AlongM | Self::AlongN | Self::BandsOfM(_) | Self::BandsOfN(_) | Self::Hilbert(_) => Ok(()),
        }
    }

    /// The name that kernel names contain: an identifier.
    pub fn name(self) -> String {
        match self {
            Self::AlongM => "along_m".to_owned(),
            Self::AlongN => "along_n".to_owned(),
            Self::BandsOfM(group) => format!("along_m_by_{group}"),
            Self::BandsOfN(group) => format!("along_n_by_{group}"),
            Self::Hilbert(side) => format!("hilbert_{side}"),
        }
    }

    /// A description in words, for output to people.
    pub fn describe(self) -> String {
        match self {
            Self::AlongM => "column by column".to_owned(),
            Self::AlongN => "row by row".to_owned(),
            Self::BandsOfM(group) => format!("column by column in bands of {group} tiles of M"),
            Self::BandsOfN(group) => format!("row by row in bands of {group} tiles of N"),
            Self::Hilbert(side) => {
                format!("along Hilbert's curve through squares of {side} x {side} tiles, in bands along N")
            }
        }
    }

    /// Whether the order reaches the end of M last. Then additional rows of tiles do not change the numbers
    /// of the others.
    pub const fn rows_last(self) -> bool {
        match self {
            Self::AlongM | Self::BandsOfN(_) => false,
            Self::AlongN | Self::BandsOfM(_) | Self::Hilbert(_) => true,
        }
    }

    /// The width of a band in tiles: along M if [`rows_last`](Self::rows_last), otherwise along N. The number
    /// of tiles of a whole band must fit in 32 bits.
    pub const fn band(self) -> u32 {
        match self {
            Self::AlongM | Self::AlongN => 1,
            Self::BandsOfM(group) | Self::BandsOfN(group) | Self::Hilbert(group) => group,
        }
    }

    /// The tile `(m, n)` with number `id` in the order.
    #[track_caller]
    pub fn tile<I: Index>(self, id: I, tiles: Tiles<I>) -> (I, I) {
        match self {
            Self::AlongM => (id % tiles.m, id / tiles.m),
            Self::AlongN => (id / tiles.n, id % tiles.n),
            Self::BandsOfM(group) => band(id, tiles.m, tiles.n, group.max(1)),
            Self::BandsOfN(group) => {
                let (n, m) = band(id, tiles.n, tiles.m, group.max(1));
                (m, n)
            }
            Self::Hilbert(side) => hilbert::tile(id, tiles, side, || band(id, tiles.m, tiles.n, side)),
        }
    }
}

/// The tile with number `id` in bands of `group` tiles of the minor direction: returns `(minor, major)`.
#[track_caller]
pub(crate) fn band<I: Index>(id: I, minor: I, major: I, group: u32) -> (I, I) {
    let per_band = major * group;
    let first = (id / per_band) * group;
    let inside = id % per_band;
    let width = (minor - first).least(group);
    (first + inside % width, inside / width)
}

#[cfg(test)]
mod tests {
    use typenum::{U1, U3, U8};

    use super::*;

    /// The expected order, from plain loops: independent of [`RasterSpec::tile`].
    fn bands(minor: u32, major: u32, group: u32) -> Vec<(u32, u32)> {
        let mut order = Vec::new();
        for first in (0..minor).step_by(group as usize) {
            for across in 0..major {
                for inside in first..minor.min(first + group) {
                    order.push((inside, across));
                }
            }
        }
        order
    }

    fn order<R: Raster>(m: u32, n: u32) -> Vec<(u32, u32)> {
        (0..m * n).map(|id| R::RASTER.tile(id, Tiles { m, n, k: 1 })).collect()
    }

    fn swapped(order: Vec<(u32, u32)>) -> Vec<(u32, u32)> {
        order.into_iter().map(|(a, b)| (b, a)).collect()
    }

    #[test]
    fn orders_are_the_plain_loops() {
        for (m, n) in [(1, 1), (1, 7), (7, 1), (3, 5), (8, 8), (9, 4), (16, 3), (13, 17)] {
            let why = format!("{m} x {n} tiles");
            assert_eq!(order::<AlongM>(m, n), bands(m, n, m), "{why}: the whole height is one band");
            assert_eq!(order::<AlongN>(m, n), swapped(bands(n, m, n)), "{why}");
            assert_eq!(order::<Grouped<AlongM, U1>>(m, n), bands(m, n, 1), "{why}");
            assert_eq!(order::<Grouped<AlongM, U3>>(m, n), bands(m, n, 3), "{why}");
            assert_eq!(order::<Grouped<AlongM, U8>>(m, n), bands(m, n, 8), "{why}");
            assert_eq!(order::<Grouped<AlongN, U3>>(m, n), swapped(bands(n, m, 3)), "{why}");
        }
    }
}
