//! Operand A of 4 or 8 bits, stored in the order in which the threads of `wgmma` load it into registers.
//!
//! Use it when the multiply is in 16 bits but A is stored in elements of 4 or 8 bits. A *unit* is 64 rows of
//! A by 256 bits of stored elements along K. It has 2048 bytes, 16 for each thread of a warpgroup. So each
//! thread loads its elements with one vector load. The two elements that go into one register are 16 bits
//! apart, so that one mask extracts both.
//!
//! ```
//! use cute_rs::atom::unit;
//!
//! assert_eq!(unit::k(4), 64); // 256 bits of 4-bit elements
//! assert_eq!(unit::layout(4)?.size(), 64 * 64);
//! # Ok::<(), cute_rs::LayoutError>(())
//! ```

use crate::error::LayoutError;
use crate::int_tuple::IntTuple;
use crate::layout::Layout;

/// Rows of a unit.
pub const ROWS: u32 = 64;

/// Bytes of a unit.
pub const BYTES: u32 = 2048;

/// K of a unit: 64 for elements of 4 bits, 32 for elements of 8 bits.
pub const fn k(bits: u32) -> u32 {
    match 256_u32.checked_div(bits) {
        Some(k) => k,
        None => 0,
    }
}

/// The layout `(row, k) -> element` of a unit.
///
/// Thread `t` is lane `l = t % 32` of warp `w = t / 32`. The elements of a thread are consecutive, and those
/// of the first instruction along K come first. An instruction has the elements at row `16w + l/4 + 8h` and
/// column (K) `2(l%4) + p + 8c`. `p` selects a half of 16 bits. Within a half, a 4-bit element is at place
/// `2c + h`. For 8-bit elements, `h` is the place within the half, and `c` is the word.
///
/// # Errors
/// [`LayoutError::Range`] unless the elements have 4 or 8 bits.
pub const fn layout(bits: u32) -> Result<Layout, LayoutError> {
    matrix(bits, ROWS, k(bits))
}

/// The layout `(row, k) -> element` of a matrix of whole units. Units along K are consecutive.
///
/// # Errors
/// [`LayoutError::Range`] unless the elements have 4 or 8 bits; [`LayoutError::Extents`] unless the rows are
/// a positive multiple of 64 and the columns a positive multiple of a unit's K.
pub const fn matrix(bits: u32, rows: u32, columns: u32) -> Result<Layout, LayoutError> {
    if !matches!(bits, 4 | 8) {
        return Err(LayoutError::Range { name: "element bits", value: bits, low: 4, high: 8 });
    }
    if rows == 0 || !rows.is_multiple_of(ROWS) {
        return Err(LayoutError::Extents { name: "rows of units", extent: rows, multiple: ROWS });
    }
    let unit_k = k(bits);
    if columns == 0 || !columns.is_multiple_of(unit_k) {
        return Err(LayoutError::Extents { name: "K of units", extent: columns, multiple: unit_k });
    }
    let (steps, elements) = (unit_k as i64 / 16, 128 / bits as i64);
    let (blocks, units) = ((rows / ROWS) as i64, (columns / unit_k) as i64);
    let (of_warp, of_unit) = (32 * elements, 128 * elements);
    // Element of a register's pair, then register of its four: rows 8 further, K 8 further.
    let [pair, h, c] = if bits == 4 { [4, 1, 2] } else { [2, 1, 4] };
    let pairs = (
        nested(&[8, 2, 4, blocks], &[2, 4, 2, steps, units]),
        nested(&[4 * elements, h, of_warp, units * of_unit], &[pair, elements, c, 8, of_unit]),
    );
    Layout::new(ok!(pairs.0), ok!(pairs.1))
}

const fn nested(a: &[i64], b: &[i64]) -> Result<IntTuple, LayoutError> {
    IntTuple::tuple(&[ok!(IntTuple::flat(a)), ok!(IntTuple::flat(b))])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::atom::wgmma;
    use std::vec;

    /// The elements of a thread's fragments are consecutive, and the two elements of a register are 16 bits
    /// apart.
    #[test]
    fn units_hold_the_fragments_of_threads() {
        let fragment = wgmma::operand_a(16).unwrap();
        for bits in [4, 8] {
            let (unit, of_thread) = (layout(bits).unwrap(), i64::from(128 / bits));
            for (t, step, v) in (0..128)
                .flat_map(|t| (0..i64::from(k(bits)) / 16).flat_map(move |s| (0..8).map(move |v| (t, s, v))))
            {
                let (row, column) = fragment.coord(t, v);
                let place = unit.at_modes(&[row, column + 16 * step]);
                let (pair, register) = (v % 2, v / 2);
                let within = match bits {
                    4 => 4 * pair + register,
                    _ => register / 2 * 4 + 2 * pair + register % 2,
                };
                assert_eq!(place, t * of_thread + step * 8 + within, "{bits} bits, {t}, {step}, {v}");
            }
        }
    }

    /// Every element of a matrix has its own place, and no place is left over.
    #[test]
    fn matrices_are_as_large_as_their_elements() {
        for (bits, rows, columns) in [(4, 64, 64), (4, 192, 128), (8, 64, 32), (8, 128, 160)] {
            let layout = matrix(bits, rows, columns).unwrap();
            let mut places = vec![0; (rows * columns) as usize];
            for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
                places[layout.at_modes(&[row.into(), column.into()]) as usize] += 1;
            }
            assert!(places.iter().all(|&count| count == 1), "{bits} {rows} {columns}");
        }
    }

    #[test]
    fn other_units_do_not_exist() {
        for (got, want) in [
            (layout(16), LayoutError::Range { name: "element bits", value: 16, low: 4, high: 8 }),
            (matrix(4, 32, 64), LayoutError::Extents { name: "rows of units", extent: 32, multiple: 64 }),
            (matrix(8, 64, 48), LayoutError::Extents { name: "K of units", extent: 48, multiple: 32 }),
        ] {
            assert_eq!(got, Err(want));
        }
    }
}
