//! Raster orders: from a running number to a tile.

use core::marker::PhantomData;

use typenum::Unsigned;

use crate::{Index, ScheduleError, Tiles, hilbert};

/// An order of the output tiles as a type.
pub trait Raster: 'static {
    /// Which.
    const RASTER: RasterSpec;
}

/// An order of the output tiles: a bijection from `0..m*n` to tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RasterSpec {
    /// [`AlongM`].
    AlongM,
    /// [`AlongN`].
    AlongN,
    /// [`Grouped<AlongM, G>`](Grouped) with so many tiles in a band.
    BandsOfM(u32),
    /// [`Grouped<AlongN, G>`](Grouped) with so many tiles in a band.
    BandsOfN(u32),
    /// [`Hilbert`](crate::Hilbert) with squares of so many tiles a side.
    Hilbert(u32),
}

/// Down the columns of tiles: `m` varies fastest.
#[derive(Clone, Copy, Debug)]
pub struct AlongM;

/// Along the rows of tiles: `n` varies fastest.
#[derive(Clone, Copy, Debug)]
pub struct AlongN;

/// Bands of `G` tiles, so that the tiles in flight at one time share operands in L2.
///
/// With [`AlongM`] a band is `G` tiles high and is walked column by column; with [`AlongN`] it is `G` tiles wide
/// and is walked row by row. The last band may be narrower.
#[derive(Clone, Copy, Debug)]
pub struct Grouped<R, G>(PhantomData<(R, G)>);

/// Bands of `S` tiles of M, walked along N; every `S x S` square of a band is filled by Hilbert's curve, which begins
/// where the curve of the square before has ended.
///
/// Neighbours in the order are neighbours in the output at every scale up to `S`, so that whichever tiles run at one
/// time share operands. `S` is a power of two from 2 to 64. What is left of a band when no whole square fits, and a
/// last band that is narrower, are walked column by column.
#[derive(Clone, Copy, Debug)]
pub struct Hilbert<S>(PhantomData<S>);

impl Raster for AlongM {
    const RASTER: RasterSpec = RasterSpec::AlongM;
}

impl Raster for AlongN {
    const RASTER: RasterSpec = RasterSpec::AlongN;
}

impl<G: Unsigned + 'static> Raster for Grouped<AlongM, G> {
    const RASTER: RasterSpec = RasterSpec::BandsOfM(G::U32);
}

impl<G: Unsigned + 'static> Raster for Grouped<AlongN, G> {
    const RASTER: RasterSpec = RasterSpec::BandsOfN(G::U32);
}

impl<S: Unsigned + 'static> Raster for Hilbert<S> {
    const RASTER: RasterSpec = RasterSpec::Hilbert(S::U32);
}

impl RasterSpec {
    /// Whether it is an order at all.
    ///
    /// # Errors
    /// A band of no tiles, or a square that Hilbert's curve does not fill.
    pub const fn check(self) -> Result<(), ScheduleError> {
        match self {
            Self::BandsOfM(0) | Self::BandsOfN(0) => Err(ScheduleError::EmptyBand),
            Self::Hilbert(side) if !hilbert::fills(side) => Err(ScheduleError::Square { side }),
            Self::AlongM | Self::AlongN | Self::BandsOfM(_) | Self::BandsOfN(_) | Self::Hilbert(_) => Ok(()),
        }
    }

    /// An identifier.
    pub fn name(self) -> String {
        match self {
            Self::AlongM => "along_m".to_owned(),
            Self::AlongN => "along_n".to_owned(),
            Self::BandsOfM(group) => format!("along_m_by_{group}"),
            Self::BandsOfN(group) => format!("along_n_by_{group}"),
            Self::Hilbert(side) => format!("hilbert_{side}"),
        }
    }

    /// One sentence for people.
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

    /// Whether M is the direction whose end is reached last: where rows of tiles are added, the others keep their places.
    pub const fn rows_last(self) -> bool {
        match self {
            Self::AlongM | Self::BandsOfN(_) => false,
            Self::AlongN | Self::BandsOfM(_) | Self::Hilbert(_) => true,
        }
    }

    /// Tiles across a band: those of a band along the other direction, [`rows_last`](Self::rows_last) along N, are counted
    /// in 32 bits.
    pub const fn band(self) -> u32 {
        match self {
            Self::AlongM | Self::AlongN => 1,
            Self::BandsOfM(group) | Self::BandsOfN(group) | Self::Hilbert(group) => group,
        }
    }

    /// The tile `(m, n)` that comes `id`-th.
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

/// Walks bands of `group` along the minor direction: returns `(minor, major)`.
pub(crate) fn band<I: Index>(id: I, minor: I, major: I, group: u32) -> (I, I) {
    let per_band = major * group;
    let first = (id / per_band) * group;
    let inside = id % per_band;
    let width = (minor - first).at_most(group);
    (first + inside % width, inside / width)
}

#[cfg(test)]
mod tests {
    use typenum::{U1, U3, U8};

    use super::*;

    /// Independent of [`RasterSpec::tile`]: walks the tiles in two plain loops.
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
