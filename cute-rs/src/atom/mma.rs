//! `mma.sync` and plain multiplications by a warpgroup: four warps, each with 16 rows of a tile of 64.
//!
//! The accumulators have the layout of [`super::wgmma`]: warp `w` has rows `16w` to `16w + 15`, and
//! instruction `j` of a warp has columns `8j` to `8j + 7`. So an epilogue works with both. A and B are in
//! registers. This module also says which bytes of shared memory each lane loads or addresses.
//! Source: PTX ISA "Matrix Fragments for mma" and "ldmatrix".
//!
//! ```
//! use cute_rs::atom::mma;
//!
//! assert!(mma::atom(64, 16).is_ok()); // m64n64 of bf16, 16 rows per warp
//! assert!(mma::atom(60, 16).is_err()); // an instruction has 8 columns
//! ```

use super::{Major, wgmma};
use crate::error::LayoutError;
use crate::thread_value::{ThreadValue, fragment};
use crate::tiled_mma::MmaAtom;

/// `n / 8` instructions `m16n8kK` per warp, with A and B in registers; `K` is `256 / element_bits`.
///
/// A has the layout of [`wgmma::operand_a`]. All warps have the same B. A register holds
/// `p = 32 / element_bits` neighbours along K. Value `v` of lane `l` is at column (K)
/// `p(l%4) + v%p + 4p(v/p % 2)` and row (N) `l/4 + 8(v/2p)`.
///
/// # Errors
/// Those of [`wgmma::accumulator`]; [`LayoutError::Range`] unless the elements have 8, 16 or 32 bits.
pub const fn atom(n: u32, element_bits: u32) -> Result<MmaAtom, LayoutError> {
    let a = ok!(wgmma::operand_a(element_bits));
    let (columns, packed) = (n as i64, (32 / element_bits) as i64);
    let b = fragment(
        (&[4, 8, 4], &[columns * packed, 1, 0]),
        (&[packed, 2, columns / 8], &[columns, columns * packed * 4, 8]),
        (columns, 8 * packed),
    );
    joined(Ok(a), b, wgmma::accumulator(n))
}

/// The rows that the lanes address in `ldmatrix`, for 16 columns of [`atom`]. Each lane addresses one row of
/// 16 bytes; its values are the elements of that row.
///
/// One `ldmatrix.x4` of A fills the four registers of A in a warp. One of B fills registers of two
/// instructions: first the first register of both, then the second register of both. A matrix that is
/// contiguous along M or N is read with `.trans`, which exists for elements of 16 bits.
///
/// ```
/// # use cute_rs::{Operand, atom::{Major, mma}};
/// let rows = mma::ldmatrix([Major::K, Major::Mn], 16)?;
/// // Lane 21 addresses row 5 of A from K = 8 on, in matrix 2. Lane 13 addresses K = 5 of B from column 8 on,
/// // in matrix 1.
/// assert_eq!(rows.operand(Operand::A).coord(21, 0), (5, 8));
/// assert_eq!(rows.operand(Operand::B).coord(13, 0), (8, 5));
/// # Ok::<(), cute_rs::LayoutError>(())
/// ```
///
/// # Errors
/// [`LayoutError::Range`] unless the elements have 8, 16 or 32 bits, 16 where a matrix is not K-major.
pub const fn ldmatrix([a, b]: [Major; 2], element_bits: u32) -> Result<MmaAtom, LayoutError> {
    let k_major = matches!((a, b), (Major::K, Major::K));
    let (low, high) = if k_major { (8, 32) } else { (16, 16) };
    if !matches!(element_bits, 8 | 16 | 32) || element_bits < low || element_bits > high {
        return Err(LayoutError::Range { name: "element bits", value: element_bits, low, high });
    }
    joined(rows(a, 64, 16, element_bits), rows(b, 16, 0, element_bits), wgmma::accumulator(16))
}

/// The rows of 16 bytes that lanes address: matrix `i` begins at `8(i % 2)` along M or N and at `16(i / 2)`
/// bytes along K. The matrices of the next warp are `warp` further.
const fn rows(major: Major, mn: i64, warp: i64, element_bits: u32) -> Result<ThreadValue, LayoutError> {
    let chunk = (128 / element_bits) as i64;
    let tile = (mn, 2 * chunk);
    match major {
        Major::K => fragment((&[8, 2, 2, 4], &[1, 8, mn * chunk, warp]), (&[chunk], &[mn]), tile),
        Major::Mn => fragment((&[8, 2, 2, 4], &[mn, 8, mn * chunk, warp]), (&[chunk], &[1]), tile),
    }
}

/// `n / 8` instructions `m16n8k8` of `f64` per warp. Each lane loads two neighbours along K of each row, 16
/// bytes at once.
///
/// In the instruction, lane `l` has elements `l%4` and `l%4 + 4` of K. Here these are elements `2(l%4)` and
/// `2(l%4) + 1` of both A and B. K is permuted in the same way in both, which changes only the order of
/// summation. Rows of 64 bytes are read without bank conflicts.
///
/// # Errors
/// Those of [`wgmma::accumulator`].
pub const fn doubles(n: u32) -> Result<MmaAtom, LayoutError> {
    let columns = n as i64;
    let a = fragment((&[4, 8, 4], &[128, 1, 16]), (&[2, 2], &[64, 8]), (64, 8));
    let b = fragment((&[4, 8, 4], &[2 * columns, 1, 0]), (&[2, columns / 8], &[columns, 8]), (columns, 8));
    joined(a, b, wgmma::accumulator(n))
}

/// Plain multiplications of 32-bit elements: the elements of A and B that a thread loads for `k` of K. The
/// thread's elements of C, among 8 columns, are two in each of two rows.
///
/// # Errors
/// [`LayoutError::Extent`] if `k` is 0.
pub const fn fma(k: u32) -> Result<MmaAtom, LayoutError> {
    let k = k as i64;
    // The rows of A and the columns of B, each with all of K.
    let a = fragment((&[4, 8, 4], &[0, 1, 16]), (&[k, 2], &[64, 8]), (64, k));
    let b = fragment((&[4, 8, 4], &[2, 0, 0]), (&[k, 2], &[8, 1]), (8, k));
    joined(a, b, wgmma::accumulator(8))
}

const fn joined(
    a: Result<ThreadValue, LayoutError>,
    b: Result<ThreadValue, LayoutError>,
    c: Result<ThreadValue, LayoutError>,
) -> Result<MmaAtom, LayoutError> {
    let c = ok!(c);
    MmaAtom::new(ok!(a), ok!(b), c)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tiled_mma::Operand;
    use std::vec::Vec;

    /// The kinds of operands that `ldmatrix` loads.
    const KINDS: [(Major, u32); 4] = [(Major::K, 8), (Major::K, 16), (Major::K, 32), (Major::Mn, 16)];

    #[test]
    fn operand_b_of_every_element_width() {
        for bits in [8, 16, 32] {
            let (b, p) = (atom(24, bits).unwrap().operand(Operand::B), i64::from(32 / bits));
            assert_eq!(b.tile(), (24, 8 * p));
            for (t, v) in (0..128).flat_map(|t| (0..6 * p).map(move |v| (t, v))) {
                let (g, c) = (t % 32 / 4, t % 4);
                let want = (g + 8 * (v / (2 * p)), p * c + v % p + 4 * p * (v / p % 2));
                assert_eq!(b.coord(t, v), want, "{bits} bits, value {v} of thread {t}");
            }
        }
    }

    /// Register `j` of lane `4g + c` receives 32 bits of matrix `j`, whose row `r` lane `8j + r` addresses.
    /// It is word `c` of row `g`, or with `.trans` the 16-bit element `g` of rows `2c` and `2c + 1`.
    #[test]
    fn lanes_receive_their_fragments() {
        for (major, bits) in KINDS {
            let p = i64::from(32 / bits);
            let (rows, held) = (ldmatrix([major; 2], bits).unwrap(), atom(16, bits).unwrap());
            for (operand, register) in [
                (Operand::A, (|j| j) as fn(i64) -> i64),
                // The first registers of both instructions, then the second ones.
                (Operand::B, |j| 2 * (j % 2) + j / 2),
            ] {
                let (rows, held) = (rows.operand(operand), held.operand(operand));
                for (t, j, e) in
                    (0..128).flat_map(|t| (0..4).flat_map(move |j| (0..p).map(move |e| (t, j, e))))
                {
                    let (w, g, c) = (t / 32, t % 32 / 4, t % 4);
                    let got = match major {
                        Major::K => rows.coord(32 * w + 8 * j + g, p * c + e),
                        Major::Mn => rows.coord(32 * w + 8 * j + 2 * c + e, g),
                    };
                    let want = held.coord(t, register(j) * p + e);
                    assert_eq!(got, want, "{operand:?}, {major:?}, {bits} bits: register {j} of thread {t}");
                }
            }
        }
    }

    #[test]
    fn threads_load_what_their_sums_are_of() {
        let atom = fma(4).unwrap();
        let [a, b, c] = [Operand::A, Operand::B, Operand::C].map(|operand| atom.operand(operand));
        for (t, v, k) in (0..128).flat_map(|t| (0..4).flat_map(move |v| (0..4).map(move |k| (t, v, k)))) {
            let (row, column) = c.coord(t, v);
            assert_eq!(a.coord(t, k + 4 * (v / 2)), (row, k), "value {v} of thread {t}");
            assert_eq!(b.coord(t, k + 4 * (v % 2)), (column, k), "value {v} of thread {t}");
        }
    }

    /// Pair `e` that lane `4g + c` loads has the elements that the instruction needs at K = `c + 4e`, if K is
    /// permuted.
    #[test]
    fn pairs_of_f64_are_a_permutation_of_k() {
        let atom = doubles(16).unwrap();
        let [a, b] = [Operand::A, Operand::B].map(|operand| atom.operand(operand));
        let permuted = |k: i64| 2 * (k % 4) + k / 4;
        let mut seen: Vec<_> = (0..8).map(permuted).collect();
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..8));
        for (t, v) in (0..128).flat_map(|t| (0..4).map(move |v| (t, v))) {
            let (w, g, c) = (t / 32, t % 32 / 4, t % 4);
            let (e, other) = (v % 2, v / 2);
            assert_eq!(
                a.coord(t, v),
                (16 * w + g + 8 * other, permuted(c + 4 * e)),
                "value {v} of thread {t}"
            );
            assert_eq!(b.coord(t, v), (g + 8 * other, permuted(c + 4 * e)), "value {v} of thread {t}");
        }
    }

    #[test]
    fn other_shapes_do_not_exist() {
        let name = "element bits";
        for (why, got, want) in [
            (
                "no transposed bytes",
                ldmatrix([Major::Mn, Major::K], 8),
                LayoutError::Range { name, value: 8, low: 16, high: 16 },
            ),
            (
                "64-bit elements",
                ldmatrix([Major::K; 2], 64),
                LayoutError::Range { name, value: 64, low: 8, high: 32 },
            ),
            ("64-bit fragments", atom(8, 64), LayoutError::Range { name, value: 64, low: 8, high: 32 }),
        ] {
            assert_eq!(got, Err(want), "{why}");
        }
    }
}
