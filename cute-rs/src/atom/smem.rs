//! Operand tiles in shared memory, in the layouts that `wgmma` reads and tensor copies write.
//!
//! A tile `(MN, K)` consists of atoms: 8 rows of one swizzle width W. K-major atoms are `(8, W):(W, 1)`
//! elements, MN-major atoms are `(W, 8):(1, W)`. The atoms of one column block (K-major) or one row block
//! (MN-major) are consecutive. So a tensor copy whose inner box extent is the swizzle width moves the whole
//! block at once.
//! Source: PTX ISA "Shared Memory Matrix Layout", canonical layouts.
//!
//! ```
//! use cute_rs::atom::{Major, SwizzleMode, smem};
//!
//! assert_eq!(smem::widest_mode(Major::K, 16, 128, 64), SwizzleMode::B128);
//! assert_eq!(smem::widest_mode(Major::K, 16, 128, 32), SwizzleMode::B64);
//! ```

use super::boxes::mode_of;
use super::{Major, SwizzleMode};
use crate::composed::ComposedLayout;
use crate::error::LayoutError;
use crate::layout::Layout;

/// The widest swizzle whose rows divide the tile's contiguous extent.
pub const fn widest_mode(major: Major, element_bits: u32, mn: u32, k: u32) -> SwizzleMode {
    let contiguous = match major {
        Major::K => k,
        Major::Mn => mn,
    };
    let mut i = 0;
    while i + 1 < SwizzleMode::ALL.len() {
        if contiguous.is_multiple_of(SwizzleMode::ALL[i].elements(element_bits)) {
            return SwizzleMode::ALL[i];
        }
        i += 1;
    }
    SwizzleMode::None
}

/// The swizzle mode whose atom this layout is; `None` for a layout that `wgmma` does not read.
///
/// ```
/// # use cute_rs::atom::{Major, SwizzleMode, smem};
/// # use cute_rs::{Layout, StaticComposed};
/// # use cute_rs::typenum::{U2, U3, U8, U32};
/// use cute_rs::types::{RowMajor, Sw, Swizzled};
///
/// type Atom = Swizzled<Sw<U2, U3, U3>, RowMajor<(U8, U32)>>;
/// assert_eq!(smem::atom_mode(Major::K, 16, &Atom::COMPOSED), Some(SwizzleMode::B64));
/// assert_eq!(smem::atom_mode(Major::K, 8, &Atom::COMPOSED), None, "32 bytes a row, and a swizzle of 64");
/// ```
pub const fn atom_mode(major: Major, element_bits: u32, atom: &ComposedLayout) -> Option<SwizzleMode> {
    let Some(mode) = mode_of(atom, element_bits) else { return None };
    let width = mode.elements(element_bits) as i64;
    let (extents, strides) = match major {
        Major::K => ([8, width], [width, 1]),
        Major::Mn => ([width, 8], [1, width]),
    };
    if atom.offset != 0 || atom.layout.shape_ref().rank() != 2 {
        return None;
    }
    each!(i, 0..2, {
        let mode = atom.layout.mode(i).coalesce();
        let (shape, stride) = (mode.shape_ref(), mode.stride_ref());
        if shape.len() != 1 || shape.leaf(0) != extents[i] || stride.leaf(0) != strides[i] {
            return None;
        }
    });
    Some(mode)
}

/// The extents of a tile's layout atom along M or N and along K. This is the check of [`tile`] without its layout.
///
/// # Errors
/// [`LayoutError::Extents`] if an extent of the tile is not a positive multiple of the atom's.
pub const fn atom_extents(
    major: Major,
    mode: SwizzleMode,
    element_bits: u32,
    mn: u32,
    k: u32,
) -> Result<[u32; 2], LayoutError> {
    let width = mode.elements(element_bits);
    let [mn_atom, k_atom] = match major {
        Major::K => [8, width],
        Major::Mn => [width, 8],
    };
    if mn == 0 || !mn.is_multiple_of(mn_atom) {
        return Err(LayoutError::Extents { name: "the tile's M or N extent", extent: mn, multiple: mn_atom });
    }
    if k == 0 || !k.is_multiple_of(k_atom) {
        return Err(LayoutError::Extents { name: "the tile's K extent", extent: k, multiple: k_atom });
    }
    Ok([mn_atom, k_atom])
}

/// The layout `(mn, k) -> element offset` of a tile, swizzled.
///
/// ```
/// # use cute_rs::atom::{Major, SwizzleMode, smem};
/// let tile = smem::tile(Major::K, SwizzleMode::B128, 16, 128, 64)?;
/// assert_eq!(tile.to_string(), "Sw<3,3,3> o 0 o ((8,16),(64,1)):((64,512),(1,0))");
/// # Ok::<(), cute_rs::LayoutError>(())
/// ```
///
/// # Errors
/// [`LayoutError::Extents`] if an extent is not a positive multiple of the atom's.
pub const fn tile(
    major: Major,
    mode: SwizzleMode,
    element_bits: u32,
    mn: u32,
    k: u32,
) -> Result<ComposedLayout, LayoutError> {
    let width = mode.elements(element_bits);
    let [mn_atom, k_atom] = ok!(atom_extents(major, mode, element_bits, mn, k));
    let (stride, order) = match major {
        Major::K => ([width as i64, 1], [0, 1]),
        Major::Mn => ([1, width as i64], [1, 0]),
    };
    let layout = ok!(Layout::flat(&[mn_atom as i64, k_atom as i64], &stride))
        .tile_to_shape(&[mn as i64, k as i64], &order);
    let layout = ok!(layout);
    Ok(ComposedLayout { swizzle: mode.swizzle(element_bits), offset: 0, layout })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::atom::tests::tiles;
    use std::vec;

    /// The byte address of chunk `chunk` (16 bytes) of row `row`, in a run of rows of one swizzle width. A
    /// line of 128 bytes holds one or several rows. The number of the line is XORed onto the chunk's place in
    /// it.
    fn chunk_address(mode: SwizzleMode, row: u32, chunk: u32) -> u32 {
        let (line, place) = match mode {
            SwizzleMode::None => return row * 16,
            SwizzleMode::B32 => (row >> 2, ((row & 3) * 2 + chunk) ^ ((row >> 2) & 1)),
            SwizzleMode::B64 => (row >> 1, ((row & 1) * 4 + chunk) ^ ((row >> 1) & 3)),
            SwizzleMode::B128 => (row, chunk ^ (row & 7)),
        };
        line * 128 + place * 16
    }

    #[test]
    fn tiles_are_columns_or_rows_of_swizzled_blocks() {
        for (major, mode, bits, mn, k) in tiles() {
            let tile = tile(major, mode, bits, mn, k).unwrap();
            let (bytes, width) = (bits / 8, mode.elements(bits));
            let mut seen = vec![false; (mn * k) as usize];
            for (m, kk) in (0..k).flat_map(|kk| (0..mn).map(move |m| (m, kk))) {
                // A block is one swizzle width of the contiguous direction and all of the other.
                let (contiguous, row, rows) = match major {
                    Major::K => (kk, m, mn),
                    Major::Mn => (m, kk, k),
                };
                let (block, byte) = (contiguous / width, contiguous % width * bytes);
                let start = block * rows * mode.bytes();
                let want = start + chunk_address(mode, row, byte / 16) + byte % 16;
                let element = tile.at_modes(&[m.into(), kk.into()]);
                assert_eq!(
                    element * i64::from(bytes),
                    i64::from(want),
                    "element ({m},{kk}) of {mn}x{k}, {major:?}, {mode:?}, {bits} bits"
                );
                assert!(!core::mem::replace(&mut seen[element as usize], true), "each offset is taken once");
            }
            assert!(seen.iter().all(|&taken| taken), "the tile has no gaps");
        }
    }

    #[test]
    fn extents_are_whole_atoms() {
        let (mn, k) = ("the tile's M or N extent", "the tile's K extent");
        for (why, major, extents, (name, extent, multiple)) in [
            ("rows, K-major", Major::K, (12, 64), (mn, 12, 8)),
            ("no rows", Major::K, (0, 64), (mn, 0, 8)),
            ("half a swizzle width", Major::K, (64, 32), (k, 32, 64)),
            ("half a swizzle width, MN-major", Major::Mn, (32, 64), (mn, 32, 64)),
            ("no K", Major::Mn, (64, 0), (k, 0, 8)),
        ] {
            let got = tile(major, SwizzleMode::B128, 16, extents.0, extents.1);
            assert_eq!(got, Err(LayoutError::Extents { name, extent, multiple }), "{why}");
        }
    }

    #[test]
    fn atoms_are_those_that_tiles_consist_of() {
        for major in [Major::K, Major::Mn] {
            for (mode, bits) in
                SwizzleMode::ALL.into_iter().flat_map(|mode| [8, 16, 32].map(|bits| (mode, bits)))
            {
                let width = mode.elements(bits);
                let (mn, k) = if major == Major::K { (8, width) } else { (width, 8) };
                let atom = tile(major, mode, bits, mn, k).unwrap();
                assert_eq!(atom_mode(major, bits, &atom), Some(mode), "{major:?} {mode:?} {bits}");
                let other = if major == Major::K { Major::Mn } else { Major::K };
                assert_eq!(atom_mode(other, bits, &atom), None, "{other:?} {mode:?} {bits}");
                let two = tile(major, mode, bits, 2 * mn, k).unwrap();
                assert_eq!(atom_mode(major, bits, &two), None, "two atoms are none");
            }
        }
    }

    #[test]
    fn the_widest_mode_that_divides() {
        for (why, major, bits, mn, k, want) in [
            ("whole lines", Major::K, 16, 128, 64, SwizzleMode::B128),
            ("half lines", Major::K, 16, 128, 32, SwizzleMode::B64),
            ("three quarters of a line", Major::K, 16, 128, 48, SwizzleMode::B32),
            ("one chunk", Major::K, 16, 128, 8, SwizzleMode::None),
            ("the contiguous direction decides", Major::Mn, 16, 32, 64, SwizzleMode::B64),
            ("the element's width counts", Major::K, 8, 128, 64, SwizzleMode::B64),
        ] {
            assert_eq!(widest_mode(major, bits, mn, k), want, "{why}");
        }
    }
}
