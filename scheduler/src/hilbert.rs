//! The raster order along Hilbert's curve.

use crate::{Index, Tiles};

/// The tile with number `id`. `plain` gives the tile with that number if bands are walked column by column.
pub(crate) fn tile<I: Index>(id: I, tiles: Tiles<I>, side: u32, plain: impl FnOnce() -> (I, I)) -> (I, I) {
    let per_band = tiles.n * side;
    let (first, inside) = ((id / per_band) * side, id % per_band);
    let (square, along) = (inside / (side * side), inside % (side * side));
    let (x, y) = curve(along, side);
    let (plain_m, plain_n) = plain();
    // The curve is used in whole squares only: in bands of full height, where all columns of the square
    // exist.
    let pick = |curved: I, plain: I| {
        let whole = square.less(tiles.n / side, curved, plain);
        first.less((tiles.m / side) * side, whole, plain)
    };
    (pick(first + y, plain_m), pick(square * side + x, plain_n))
}

/// Whether the curve fills squares of this side.
pub(crate) const fn fills(side: u32) -> bool {
    side.is_power_of_two() && side >= 2 && side <= 64
}

/// The `id`-th place of the curve from `(0, 0)` to `(side - 1, 0)`. Two bits of `id` choose a quadrant at
/// each scale, smallest scale first. In the lower quadrants x and y are swapped, and in the right one also
/// mirrored.
fn curve<I: Index>(id: I, side: u32) -> (I, I) {
    let zero = id.constant(0);
    let (mut x, mut y, mut rest) = (zero, zero, id);
    let mut scale = 1;
    while scale < side {
        let right = (rest / 2) % 2;
        let up = (rest + right) % 2;
        let last = id.constant(scale - 1);
        let flip = |place: I| right.less(1, place, last - place);
        let turned = (flip(y), flip(x));
        (x, y) = (up.less(1, turned.0, x), up.less(1, turned.1, y));
        (x, y) = (x + right * scale, y + up * scale);
        (rest, scale) = (rest / 4, scale * 2);
    }
    (x, y)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use typenum::{U2, U4, U8};

    use super::*;
    use crate::{Hilbert, Natural, Raster};

    fn order<R: Raster>(m: u32, n: u32) -> Vec<(u32, u32)> {
        (0..m * n).map(|id| R::RASTER.tile(id, Tiles { m, n, k: 1 })).collect()
    }

    /// Each tile occurs once. Inside whole squares each step goes to a neighbour, and each aligned run of a
    /// power of four places fills a square: this defines Hilbert's curve.
    fn check<S: Natural>(m: u32, n: u32) {
        let order = order::<Hilbert<S>>(m, n);
        let side = S::U32;
        let why = format!("{m} x {n} tiles in squares of {side}");
        assert!(order.iter().all(|&(i, j)| i < m && j < n), "{why}");
        assert_eq!(order.iter().collect::<HashSet<_>>().len(), (m * n) as usize, "{why}");
        let whole_columns = n / side * side;
        for band in 0..m / side {
            let start = (band * side * n) as usize;
            let squares = &order[start..start + (side * whole_columns) as usize];
            for pair in squares.windows(2) {
                let [(a, b), (c, d)] = pair else { continue };
                assert_eq!(a.abs_diff(*c) + b.abs_diff(*d), 1, "{why}: {pair:?}");
            }
            let mut edge = 2;
            while edge <= side {
                for part in squares.chunks_exact((edge * edge) as usize) {
                    let places: HashSet<_> = part.iter().map(|(i, j)| (i / edge, j / edge)).collect();
                    assert_eq!(places.len(), 1, "{why}: {part:?} leave a square of {edge}");
                }
                edge *= 2;
            }
        }
    }

    #[test]
    fn it_is_hilbert_s_curve_where_squares_fit() {
        for (m, n) in
            [(1, 1), (2, 2), (4, 4), (8, 8), (16, 24), (64, 32), (9, 17), (3, 40), (40, 3), (23, 29)]
        {
            check::<U2>(m, n);
            check::<U4>(m, n);
            check::<U8>(m, n);
        }
    }
}
