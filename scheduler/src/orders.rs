//! The raster orders of this crate, one after the other: a type, and what it says of itself.

use core::marker::PhantomData;

use typenum::U8;

use crate::{Index, Natural, Raster, RasterSize, RasterSpec, Tiles, hilbert};

/// The orders that words of specs name, with a usual size.
pub(crate) const ORDERS: [RasterSpec; 5] = [
    AlongM::RASTER,
    AlongN::RASTER,
    Grouped::<AlongM, U8>::RASTER,
    Grouped::<AlongN, U8>::RASTER,
    Hilbert::<U8>::RASTER,
];

/// Column by column: `m` varies fastest.
#[derive(Clone, Copy, Debug, Default)]
pub struct AlongM;

impl Raster for AlongM {
    const NAME: &'static str = "along_m";
    const WORD: &'static str = "m";
    const ROWS_LAST: bool = false;

    fn describe(_size: u32) -> String {
        "column by column".to_owned()
    }

    #[track_caller]
    fn tile<I: Index>(id: I, tiles: Tiles<I>, _size: u32) -> (I, I) {
        (id % tiles.m, id / tiles.m)
    }
}

/// Row by row: `n` varies fastest.
#[derive(Clone, Copy, Debug, Default)]
pub struct AlongN;

impl Raster for AlongN {
    const NAME: &'static str = "along_n";
    const WORD: &'static str = "n";
    const ROWS_LAST: bool = true;

    fn describe(_size: u32) -> String {
        "row by row".to_owned()
    }

    #[track_caller]
    fn tile<I: Index>(id: I, tiles: Tiles<I>, _size: u32) -> (I, I) {
        (id / tiles.n, id % tiles.n)
    }
}

/// Bands of `G` tiles, so that tiles that run at the same time share operands in L2.
///
/// With [`AlongM`] a band is `G` tiles high and is walked column by column; with [`AlongN`] it is `G` tiles
/// wide and is walked row by row. The last band may be narrower.
#[derive(Clone, Copy, Debug, Default)]
pub struct Grouped<R, G>(PhantomData<(R, G)>);

impl<G: Natural> Raster for Grouped<AlongM, G> {
    const NAME: &'static str = "along_m_by";
    const WORD: &'static str = "m";
    const SIZE: RasterSize = RasterSize::Bands(G::U32);
    const ROWS_LAST: bool = true;

    fn describe(size: u32) -> String {
        format!("column by column in bands of {size} tiles of M")
    }

    #[track_caller]
    fn tile<I: Index>(id: I, tiles: Tiles<I>, size: u32) -> (I, I) {
        band(id, tiles.m, tiles.n, size.max(1))
    }
}

impl<G: Natural> Raster for Grouped<AlongN, G> {
    const NAME: &'static str = "along_n_by";
    const WORD: &'static str = "n";
    const SIZE: RasterSize = RasterSize::Bands(G::U32);
    const ROWS_LAST: bool = false;

    fn describe(size: u32) -> String {
        format!("row by row in bands of {size} tiles of N")
    }

    #[track_caller]
    fn tile<I: Index>(id: I, tiles: Tiles<I>, size: u32) -> (I, I) {
        let (n, m) = band(id, tiles.n, tiles.m, size.max(1));
        (m, n)
    }
}

/// Bands of `S` tiles along M, walked along N. Hilbert's curve fills each square of `S x S` tiles of a band,
/// and begins next to the end of the curve in the square before.
///
/// Neighbours in the order are neighbours in the output at every scale up to `S`, so tiles that run at the
/// same time share operands. `S` is a power of two from 2 to 64. The rest of a band where no whole square
/// fits, and a last band that is narrower, are walked column by column.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hilbert<S>(PhantomData<S>);

impl<S: Natural> Raster for Hilbert<S> {
    const NAME: &'static str = "hilbert";
    const WORD: &'static str = "hilbert";
    const SIZE: RasterSize = RasterSize::Squares(S::U32);
    const ROWS_LAST: bool = true;

    fn describe(size: u32) -> String {
        format!("along Hilbert's curve through squares of {size} x {size} tiles, in bands along N")
    }

    #[track_caller]
    fn tile<I: Index>(id: I, tiles: Tiles<I>, size: u32) -> (I, I) {
        hilbert::tile(id, tiles, size, || band(id, tiles.m, tiles.n, size))
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

    /// Each word is that of one order; a size is part of the words of orders that have one, and of no other.
    #[test]
    fn orders_have_words() {
        for order in ORDERS {
            let word = order.word().expect("specs name it");
            let (name, digits) = word.split_at(word.find('8').unwrap_or(word.len()));
            let size = (!digits.is_empty()).then_some(8);
            assert_eq!(RasterSpec::named(name, size), Some(order), "{word}");
            let other = size.map_or(Some(8), |_| None);
            assert_ne!(RasterSpec::named(name, other), Some(order), "{word}");
            assert_eq!(ORDERS.iter().filter(|of| of.name() == order.name()).count(), 1, "{word}");
            let four = order.sized(4);
            assert_eq!(four == order, size.is_none(), "{word}");
            assert_eq!(four.band(), if size.is_some() { 4 } else { 1 }, "{word}");
        }
    }
}
