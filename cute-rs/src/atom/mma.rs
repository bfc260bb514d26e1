//! `mma.sync` and plain multiplications by a warpgroup: four warps, each with 16 rows of a tile of 64.
//!
//! The accumulators are those of [`super::wgmma`]: warp `w` has rows `16w` to `16w + 15`, and instruction `j` of a warp has
//! columns `8j` to `8j + 7`. So whatever reads one reads the other. A and B come through registers, and what this module says
//! besides is which bytes of shared memory each lane has to name or to load.
//! Source: PTX ISA "Matrix Fragments for mma" and "ldmatrix".
//!
//! ```
//! use cute_rs::atom::mma;
//!
//! assert!(mma::atom(64, 16).is_ok()); // m64n64 of bf16, 16 rows a warp
//! assert!(mma::atom(60, 16).is_err()); // an instruction has 8 columns
//! ```

use super::{Major, wgmma};
use crate::error::LayoutError;
use crate::thread_value::{ThreadValue, fragment};
use crate::tiled_mma::MmaAtom;

/// `n / 8` instructions `m16n8kK` of each warp, with A and B in registers; `K` is `256 / element_bits`.
///
/// A is [`wgmma::operand_a`]. All warps have the same B: a register holds `p = 32 / element_bits` neighbours along K, and value
/// `v` of lane `l` is column (K) `p(l%4) + v%p + 4p(v/p % 2)` of row (N) `l/4 + 8(v/2p)`.
///
/// # Errors
/// Those of [`wgmma::accumulator`]; [`LayoutError::Range`] unless the elements have 8, 16 or 32 bits.
pub const fn atom(n: u32, element_bits: u32) -> Result<MmaAtom, LayoutError> {
    let a = match wgmma::operand_a(element_bits) {
        Ok(a) => a,
        Err(error) => return Err(error),
    };
    let (columns, packed) = (n as i64, (32 / element_bits) as i64);
    let b = fragment(
        (&[4, 8, 4], &[columns * packed, 1, 0]),
        (&[packed, 2, columns / 8], &[columns, columns * packed * 4, 8]),
        (columns, 8 * packed),
    );
    joined(Ok(a), b, wgmma::accumulator(n))
}

/// What the lanes name to `ldmatrix`, for 16 columns of [`atom`]: each a row of 16 bytes, which are its values.
///
/// One `ldmatrix.x4` of A gives a warp its four registers. One of B gives registers of two instructions: the first ones of both,
/// then the second ones. A matrix that is contiguous along M or N is read with `.trans`, which exists for elements of 16 bits.
///
/// ```
/// # use cute_rs::{Operand, atom::{Major, mma}};
/// let rows = mma::ldmatrix([Major::K, Major::Mn], 16)?;
/// // Lane 21 of the first warp names row 5 of A, from K = 8 on, and of B the line K = 5 from column 8 on: of matrices 2 and 1.
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

/// The rows of 16 x 32 bytes: matrix `i` is at `8(i % 2)` along M or N, and at 16 bytes times `i / 2` along K. From warp to warp the
/// next 16 are `warp` further.
const fn rows(major: Major, mn: i64, warp: i64, element_bits: u32) -> Result<ThreadValue, LayoutError> {
    let chunk = (128 / element_bits) as i64;
    let tile = (mn, 2 * chunk);
    match major {
        Major::K => fragment((&[8, 2, 2, 4], &[1, 8, mn * chunk, warp]), (&[chunk], &[mn]), tile),
        Major::Mn => fragment((&[8, 2, 2, 4], &[mn, 8, mn * chunk, warp]), (&[chunk], &[1]), tile),
    }
}

/// `n / 8` instructions `m16n8k8` of `f64` of each warp, and what their lanes load: two neighbours along K of each row, 16 bytes at once.
///
/// The instruction has elements `l%4` and `l%4 + 4` of K in lane `l`. Here these are elements `2(l%4)` and `2(l%4) + 1` of the matrices, of
/// A's as of B's: K is permuted in both alike, which changes no sum but its order. Rows of 64 bytes are read without bank conflicts.
///
/// # Errors
/// Those of [`wgmma::accumulator`].
pub const fn doubles(n: u32) -> Result<MmaAtom, LayoutError> {
    let columns = n as i64;
    let a = fragment((&[4, 8, 4], &[128, 1, 16]), (&[2, 2], &[64, 8]), (64, 8));
    let b = fragment((&[4, 8, 4], &[2 * columns, 1, 0]), (&[2, columns / 8], &[columns, 8]), (columns, 8));
    joined(a, b, wgmma::accumulator(n))
}

/// Plain multiplications of elements of 32 bits: what a thread loads of A and of B for the elements of C that it has of 8 columns, two
/// in each of two rows, for `k` of K.
///
/// # Errors
/// [`LayoutError::Extent`] for no K.
pub const fn fma(k: u32) -> Result<MmaAtom, LayoutError> {
    let k = k as i64;
    // Of A the rows, of B the columns, each with all of K.
    let a = fragment((&[4, 8, 4], &[0, 1, 16]), (&[k, 2], &[64, 8]), (64, k));
    let b = fragment((&[4, 8, 4], &[2, 0, 0]), (&[k, 2], &[8, 1]), (8, k));
    joined(a, b, wgmma::accumulator(8))
}

const fn joined(
    a: Result<ThreadValue, LayoutError>,
    b: Result<ThreadValue, LayoutError>,
    c: Result<ThreadValue, LayoutError>,
) -> Result<MmaAtom, LayoutError> {
    match (a, b, c) {
        (Ok(a), Ok(b), Ok(c)) => MmaAtom::new(a, b, c),
        (_, _, Err(error)) | (Err(error), ..) | (_, Err(error), _) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tiled_mma::Operand;
    use std::vec::Vec;

    /// Kinds of operands that `ldmatrix` brings.
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

    /// Register `j` of lane `4g + c` receives 32 bits of matrix `j`, whose row `r` lane `8j + r` names: the `c`-th of row `g`, or
    /// with `.trans` the `g`-th 16 bits of rows `2c` and `2c + 1`.
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

    /// What lane `4g + c` loads as pair `e` are the elements that the instruction has of it at K = `c + 4e`, if K is permuted.
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
