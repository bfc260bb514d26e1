//! Register fragments of `wgmma`: which thread of the warpgroup holds which elements.
//!
//! Source: PTX ISA "Register Fragments and Shared Memory Matrix Layouts".
//!
//! ```
//! use cute_rs::atom::wgmma;
//!
//! assert!(wgmma::accumulator(256).is_ok()); // m64n256: 128 accumulators per thread
//! assert!(wgmma::accumulator(260).is_err()); // N is a multiple of 8, up to 256
//! ```

use crate::error::LayoutError;
use crate::thread_value::{ThreadValue, fragment};
use crate::tiled_mma::{MmaAtom, Operand};

/// `m64nNkK` with A and B in shared memory, shared by the 128 threads; `K` is `256 / element_bits`.
///
/// # Errors
/// Those of [`accumulator`]; [`LayoutError::Range`] unless the elements have 8, 16 or 32 bits.
pub const fn atom(n: u32, element_bits: u32) -> Result<MmaAtom, LayoutError> {
    if !matches!(element_bits, 8 | 16 | 32) {
        return Err(LayoutError::Range { name: "element bits", value: element_bits, low: 8, high: 32 });
    }
    const fn shared(mn: i64, k: i64) -> Result<ThreadValue, LayoutError> {
        fragment((&[128], &[0]), (&[mn, k], &[1, mn]), (mn, k))
    }
    let k = 256 / element_bits as i64;
    let c = ok!(accumulator(n));
    MmaAtom::new(ok!(shared(64, k)), ok!(shared(n as i64, k)), c)
}

/// [`atom`] with A in registers.
///
/// # Errors
/// Those of [`atom`].
pub const fn atom_with_a_in_registers(n: u32, element_bits: u32) -> Result<MmaAtom, LayoutError> {
    let (atom, a) = (ok!(atom(n, element_bits)), ok!(operand_a(element_bits)));
    MmaAtom::new(a, atom.operand(Operand::B), atom.operand(Operand::C))
}

/// The accumulator of `m64nN` in 32-bit registers: 128 threads with `n / 2` values each, onto a `64 x n`
/// tile.
///
/// Thread `t` is lane `l = t % 32` of warp `w = t / 32`. Value `v` is at row `16w + l/4 + 8(v/2 % 2)` and
/// column `8(v/4) + 2(l%4) + v%2`.
///
/// # Errors
/// [`LayoutError::Extents`] or [`LayoutError::Range`] unless `n` is 8 to 256 in steps of 8.
pub const fn accumulator(n: u32) -> Result<ThreadValue, LayoutError> {
    if n == 0 || !n.is_multiple_of(8) {
        return Err(LayoutError::Extents { name: "N of wgmma", extent: n, multiple: 8 });
    }
    if n > 256 {
        return Err(LayoutError::Range { name: "N of wgmma", value: n, low: 8, high: 256 });
    }
    let n = n as i64;
    fragment((&[4, 8, 4], &[128, 1, 16]), (&[2, 2, n / 8], &[64, 8, 512]), (64, n))
}

/// Operand A in registers: 128 threads with `128 / element_bits` elements each, onto a `64 x K` tile, where
/// `K` is `256 / element_bits`.
///
/// A 32-bit register holds `p = 32 / element_bits` neighbours along K, the first one in its lowest bits.
/// Value `v` is element `v % p` of register `v / p`. Thread `t` is lane `l = t % 32` of warp `w = t / 32`.
/// Value `v` is at row `16w + l/4 + 8(v/p % 2)` and column (K) `p(l%4) + v%p + 4p(v/2p)`.
///
/// # Errors
/// [`LayoutError::Range`] unless the elements have 8, 16 or 32 bits.
pub const fn operand_a(element_bits: u32) -> Result<ThreadValue, LayoutError> {
    if !matches!(element_bits, 8 | 16 | 32) {
        return Err(LayoutError::Range { name: "element bits", value: element_bits, low: 8, high: 32 });
    }
    let packed = (32 / element_bits) as i64;
    fragment(
        (&[4, 8, 4], &[64 * packed, 1, 16]),
        (&[packed, 2, 2], &[64, 8, 64 * packed * 4]),
        (64, 8 * packed),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    /// Every element of the tile belongs to exactly one value of one thread, as the formula says.
    fn check(fragment: &ThreadValue, values: i64, formula: impl Fn(i64, i64) -> (i64, i64)) {
        let (rows, columns) = fragment.tile();
        let layout = fragment.layout();
        assert_eq!((layout.mode(0).size(), layout.mode(1).size()), (128, values));
        let (m, n) = (fragment.rows().unwrap(), fragment.columns().unwrap());
        let mut owners = vec![0; (rows * columns) as usize];
        for t in 0..128 {
            for v in 0..values {
                let (row, column) = fragment.coord(t, v);
                assert_eq!((row, column), formula(t, v), "value {v} of thread {t}");
                assert_eq!(
                    (m.at_modes(&[t, v]), n.at_modes(&[t, v])),
                    (row, column),
                    "value {v} of thread {t}"
                );
                owners[(row + rows * column) as usize] += 1;
            }
        }
        assert!(owners.iter().all(|&count| count == 1), "each element has one owner");
    }

    #[test]
    fn accumulators_of_every_width() {
        for n in (8..=256).step_by(8) {
            check(&accumulator(n).unwrap(), i64::from(n / 2), |t, v| {
                let (w, g, c) = (t / 32, t % 32 / 4, t % 4);
                (16 * w + g + 8 * ((v >> 1) & 1), 8 * (v >> 2) + 2 * c + (v & 1))
            });
        }
    }

    #[test]
    fn operand_a_of_every_element_width() {
        let warp_and_lane = |t| (t / 32, t % 32 / 4, t % 4);
        check(&operand_a(16).unwrap(), 8, |t, v| {
            let (w, g, c) = warp_and_lane(t);
            (16 * w + g + 8 * ((v >> 1) & 1), 2 * c + (v & 1) + 8 * (v >> 2))
        });
        check(&operand_a(32).unwrap(), 4, |t, v| {
            let (w, g, c) = warp_and_lane(t);
            (16 * w + g + 8 * (v & 1), c + 4 * (v >> 1))
        });
        check(&operand_a(8).unwrap(), 16, |t, v| {
            let (w, g, c) = warp_and_lane(t);
            (16 * w + g + 8 * ((v >> 2) & 1), 4 * c + (v & 3) + 16 * (v >> 3))
        });
    }

    #[test]
    fn accumulators_pack_into_operand_a() {
        // 16 columns of the accumulator have the layout of one 16-bit operand A, value by value.
        let (d, a) = (accumulator(64).unwrap(), operand_a(16).unwrap());
        for (t, v) in (0..128).flat_map(|t| (0..32).map(move |v| (t, v))) {
            let (row, k) = a.coord(t, v % 8);
            assert_eq!(d.coord(t, v), (row, k + 16 * (v / 8)), "value {v} of thread {t}");
        }
    }

    #[test]
    fn other_shapes_do_not_exist() {
        let name = "N of wgmma";
        for (why, got, want) in [
            ("no columns", accumulator(0), LayoutError::Extents { name, extent: 0, multiple: 8 }),
            ("half a core matrix", accumulator(12), LayoutError::Extents { name, extent: 12, multiple: 8 }),
            ("too wide", accumulator(264), LayoutError::Range { name, value: 264, low: 8, high: 256 }),
            (
                "64-bit elements",
                operand_a(64),
                LayoutError::Range { name: "element bits", value: 64, low: 8, high: 32 },
            ),
        ] {
            assert_eq!(got, Err(want), "{why}");
        }
    }
}
