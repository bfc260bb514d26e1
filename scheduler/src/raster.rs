//! Raster orders: from a running number to a tile.

use core::marker::PhantomData;

use typenum::Unsigned;

use crate::{Index, Tiles};

/// An order of the output tiles: a bijection from `0..m*n` to tiles.
pub trait Raster: 'static {
    /// An identifier.
    fn name() -> String;

    /// One sentence for people.
    fn describe() -> String;

    /// Whether M is the direction whose end is reached last: where rows of tiles are added, the others keep their places.
    const ROWS_LAST: bool;

    /// Tiles across a band: those of a band along the other direction, [`ROWS_LAST`](Raster::ROWS_LAST) along N, are counted
    /// in 32 bits.
    const BAND: u32 = 1;

    /// The tile `(m, n)` that comes `id`-th.
    fn tile<I: Index>(id: I, tiles: Tiles<I>) -> (I, I);
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

impl Raster for AlongM {
    fn name() -> String {
        "along_m".to_owned()
    }

    fn describe() -> String {
        "column by column".to_owned()
    }

    const ROWS_LAST: bool = false;

    /// `id = m + n * tiles.m`.
    fn tile<I: Index>(id: I, tiles: Tiles<I>) -> (I, I) {
        (id % tiles.m, id / tiles.m)
    }
}

impl Raster for AlongN {
    fn name() -> String {
        "along_n".to_owned()
    }

    fn describe() -> String {
        "row by row".to_owned()
    }

    const ROWS_LAST: bool = true;

    /// `id = n + m * tiles.n`.
    fn tile<I: Index>(id: I, tiles: Tiles<I>) -> (I, I) {
        (id / tiles.n, id % tiles.n)
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

impl<G: Unsigned + 'static> Raster for Grouped<AlongM, G> {
    fn name() -> String {
        format!("along_m_by_{}", G::U32)
    }

    fn describe() -> String {
        format!("column by column in bands of {} tiles of M", G::U32)
    }

    const ROWS_LAST: bool = true;
    const BAND: u32 = nonzero(G::U32);

    fn tile<I: Index>(id: I, tiles: Tiles<I>) -> (I, I) {
        band(id, tiles.m, tiles.n, const { nonzero(G::U32) })
    }
}

impl<G: Unsigned + 'static> Raster for Grouped<AlongN, G> {
    fn name() -> String {
        format!("along_n_by_{}", G::U32)
    }

    fn describe() -> String {
        format!("row by row in bands of {} tiles of N", G::U32)
    }

    const ROWS_LAST: bool = false;
    const BAND: u32 = nonzero(G::U32);

    fn tile<I: Index>(id: I, tiles: Tiles<I>) -> (I, I) {
        let (n, m) = band(id, tiles.n, tiles.m, const { nonzero(G::U32) });
        (m, n)
    }
}

/// The group width, refused at compile time where it is zero.
const fn nonzero(group: u32) -> u32 {
    assert!(group > 0, "a raster group holds at least one tile: use Grouped<_, U1> or more");
    group
}

#[cfg(test)]
mod tests {
    use typenum::{U1, U3, U8};

    use super::*;

    /// Independent of [`Raster::tile`]: walks the tiles in two plain loops.
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
        (0..m * n).map(|id| R::tile(id, Tiles { m, n, k: 1 })).collect()
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
