//! `stmatrix` and `ldmatrix`: copies of 8 x 8 matrices of 16-bit elements between the registers of a warp and
//! shared memory.
//!
//! Each matrix occupies one register of every lane, in the fragment layout of tensor instructions. Its rows
//! of 16 bytes can be anywhere in shared memory: lane `8i + r` provides the address of row `r` of matrix `i`.
//! Source: PTX ISA "stmatrix" and "ldmatrix".
//!
//! ```
//! use cute_rs::atom::stmatrix::stmatrix;
//!
//! assert!(stmatrix(4, false).is_ok()); // stmatrix.x4
//! assert!(stmatrix(3, false).is_err()); // there is no x3
//! ```

use crate::algebra::pair;
use crate::error::LayoutError;
use crate::int_tuple::IntTuple;
use crate::layout::Layout;
use crate::tiled_copy::TiledCopy;

/// `stmatrix` of 1, 2 or 4 matrices, as a copy of a tile of `8 x 8`, `16 x 8` or `16 x 16` elements. Matrix
/// `i` is at row `8(i % 2)` and column `8(i / 2)`. With fewer than 4 matrices, the lanes whose address is
/// ignored repeat the rows of the first lanes.
///
/// Lane `l` reads from its registers, as value `v`, row `l/4 + 8(v/2 % 2)`, column `2(l%4) + v%2 + 8(v/4)`.
/// It writes the eight columns of one row. With `transposed`, rows and columns of each matrix are swapped in
/// the registers.
///
/// ```
/// use cute_rs::atom::stmatrix;
///
/// let four = stmatrix::stmatrix(4, false)?;
/// assert_eq!(four.source().to_string(), "((4,8),(2,2,2)):((32,1),(16,8,128))");
/// assert_eq!(four.destination().to_string(), "((16,2),(8)):((1,128),(16))");
/// assert_eq!(four.destination().at_modes(&[21, 0]), 5 + 16 * 8); // Lane 21: row 5, from column 8.
/// # Ok::<(), cute_rs::LayoutError>(())
/// ```
///
/// # Errors
/// [`LayoutError::Range`] above 4; [`LayoutError::PowerOfTwo`] for 0 and 3.
pub const fn stmatrix(matrices: u32, transposed: bool) -> Result<TiledCopy, LayoutError> {
    if matrices > 4 {
        return Err(LayoutError::Range { name: "matrices", value: matrices, low: 1, high: 4 });
    }
    if !matrices.is_power_of_two() {
        return Err(LayoutError::PowerOfTwo { value: matrices as i64 });
    }
    // The number of matrices below each other and next to each other.
    let (below, beside) = (if matrices > 1 { 2 } else { 1 }, if matrices > 2 { 2 } else { 1 });
    let (row, column) = (1, 8 * below);
    let (along, across) = if transposed { (row, column) } else { (column, row) };
    let source = both((&[4, 8], &[2 * along, across]), (&[2, below, beside], &[along, 8 * row, 8 * column]));
    let others = 4 / (below * beside);
    let destination = both((&[8 * below, beside, others], &[row, 8 * column, 0]), (&[8], &[column]));
    TiledCopy::between(ok!(source), ok!(destination), ok!(IntTuple::flat(&[8 * below, 8 * beside])))
}

/// `ldmatrix` of 1, 2 or 4 matrices: the reverse of [`stmatrix`].
///
/// # Errors
/// Those of [`stmatrix`].
pub const fn ldmatrix(matrices: u32, transposed: bool) -> Result<TiledCopy, LayoutError> {
    let store = ok!(stmatrix(matrices, transposed));
    TiledCopy::between(store.destination(), store.source(), store.tile())
}

/// A layout `(thread, value)`, without modes of extent 1.
const fn both(thread: (&[i64], &[i64]), value: (&[i64], &[i64])) -> Result<Layout, LayoutError> {
    const fn mode(extents: &[i64], strides: &[i64]) -> Result<(IntTuple, IntTuple), LayoutError> {
        let (mut shape, mut stride) = (IntTuple::EMPTY, IntTuple::EMPTY);
        each!(i, 0..extents.len(), {
            if extents[i] > 1 {
                ok!(shape.push(extents[i], 0));
                ok!(stride.push(strides[i], 0));
            }
        });
        Ok((ok!(shape.close()), ok!(stride.close())))
    }
    let (threads, of_threads) = ok!(mode(thread.0, thread.1));
    let (values, of_values) = ok!(mode(value.0, value.1));
    Layout::new(ok!(pair(threads, values)), ok!(pair(of_threads, of_values)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::atom::wgmma;
    use std::string::ToString;

    #[test]
    fn lanes_and_rows_are_those_of_the_manual() {
        for (matrices, transposed) in [1, 2, 4].into_iter().flat_map(|n| [(n, false), (n, true)]) {
            let (store, load) =
                (stmatrix(matrices, transposed).unwrap(), ldmatrix(matrices, transposed).unwrap());
            let (registers, rows, tile) = (store.source(), store.destination(), store.tile());
            assert_eq!((load.source(), load.destination(), load.tile()), (rows, registers, tile));
            assert_eq!((store.threads(), store.values()), (32, i64::from(matrices) * 2));
            let height = tile.leaf(0);
            for (lane, value) in (0..32).flat_map(|lane| (0..store.values()).map(move |v| (lane, v))) {
                let (matrix, half) = (value / 2, value % 2);
                let (mut row, mut column) = (lane / 4, lane % 4 * 2 + half);
                if transposed {
                    (row, column) = (column, row);
                }
                let want = (row + matrix % 2 * 8) + height * (column + matrix / 2 * 8);
                assert_eq!(registers.at_modes(&[lane, value]), want, "x{matrices}: value {value} of {lane}");
            }
            for (lane, column) in (0..32).flat_map(|lane| (0..8).map(move |column| (lane, column))) {
                let (matrix, row) = (lane / 8 % i64::from(matrices), lane % 8);
                let want = (row + matrix % 2 * 8) + height * (column + matrix / 2 * 8);
                assert_eq!(rows.at_modes(&[lane, column]), want, "x{matrices}: column {column} of {lane}");
            }
        }
    }

    #[test]
    fn four_warps_store_an_accumulator() {
        // The registers of 16 columns are used as they are.
        let fragment = wgmma::accumulator(16).unwrap().layout();
        let store = stmatrix(4, false).unwrap().in_groups(&[4, 1]).unwrap();
        assert_eq!(store.retile(&fragment).unwrap().coalesce().to_string(), "8:1");
        let halves = stmatrix(2, false).unwrap().in_groups(&[4, 2]).unwrap();
        assert!(halves.retile(&fragment).is_err(), "that is the work of eight warps");
    }

    #[test]
    fn other_numbers_of_matrices_do_not_exist() {
        for (matrices, want) in [
            (0, LayoutError::PowerOfTwo { value: 0 }),
            (3, LayoutError::PowerOfTwo { value: 3 }),
            (8, LayoutError::Range { name: "matrices", value: 8, low: 1, high: 4 }),
        ] {
            assert_eq!(stmatrix(matrices, false), Err(want));
        }
    }
}
