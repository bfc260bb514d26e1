//! The boxes in which a tensor copy moves a tile, derived from the layouts of the tile in global and shared
//! memory.
//!
//! A tensor copy moves a box of at most 5 dimensions. In shared memory the box is one run of bytes, with the
//! first dimension fastest, permuted by a swizzle. In global memory its dimension 0 is contiguous, and the
//! other dimensions have strides.
//!
//! So a box is the longest run of the tile in shared memory whose elements take single steps along modes of
//! the tensor. With the tile's map `tile coordinate -> tensor coordinate`, it is the beginning of
//! `map o right_inverse(shared layout)`. The tile consists of several such boxes. A run that exceeds the
//! limits of a box is cut into equal boxes. Source: PTX ISA "Tensors", CUDA driver API
//! `cuTensorMapEncodeTiled`.
//!
//! ```
//! use cute_rs::atom::{Major, SwizzleMode, tma::TmaTiles};
//!
//! // 128 x 64 bf16, K-major: one box of 64 x 128 elements.
//! let tiles = TmaTiles::new(Major::K, SwizzleMode::B128, 16, 128, 64)?;
//! assert_eq!((tiles.plan().extents(), tiles.plan().count()), (&[64, 128][..], 1));
//! # Ok::<(), cute_rs::LayoutError>(())
//! ```

use super::SwizzleMode;
use crate::algebra::Tiler;
use crate::composed::ComposedLayout;
use crate::coord_layout::CoordLayout;
use crate::error::{BoxRule, LayoutError};
use crate::evaluate::Arithmetic;
use crate::int_tuple::{IntTuple, MAX_LEAVES};
use crate::layout::Layout;
use crate::partition::Start;

/// The largest number of dimensions of a box.
pub const MAX_DIMS: usize = 5;

/// The largest number of elements of a box along one dimension.
const MAX_EXTENT: i64 = 256;

/// Rows of a box and strides in global memory must be multiples of this number of bytes.
const GLOBAL_UNIT: i64 = 16;

/// Strides in global memory, in bytes, must be less than this.
const MAX_STRIDE: i64 = 1 << 40;

/// The boxes that move one tile of a tensor into shared memory or out of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BoxPlan {
    rank: usize,
    /// Extents of a box in elements, dimension 0 first; 1 beyond the rank.
    extents: [u32; MAX_DIMS],
    /// The leaf of the tensor's shape that is each dimension.
    modes: [usize; MAX_DIMS],
    /// Box number -> first coordinate of the box, relative to the tile.
    coords: CoordLayout,
    /// Box number -> offset of its image in elements, before the swizzle.
    offsets: Layout,
    /// The start of the first box's image, in elements.
    first: i64,
    mode: SwizzleMode,
    element_bits: u32,
    slices: u32,
    /// The last dimension along which a whole box has more than one element.
    sliced_dim: usize,
}

/// One box of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BoxPlace {
    /// The first coordinate of the box, relative to the tile's first element, with the nesting of the
    /// tensor's shape.
    pub coord: IntTuple,
    /// The start of the box's image in shared memory, in bytes from the start of the shared layout.
    pub offset_bytes: u32,
}

/// Plans the boxes that copy the tile `tile` of a tensor with the layout `global`. They place its elements
/// where the layout `shared` of the tile says: `shared(c) = image of the element global(tile(c))`.
///
/// ```
/// # use cute_rs::{IntTuple, Layout, Tiler};
/// # use cute_rs::atom::{Major, SwizzleMode, boxes::tma_box, smem};
/// // A 128 x 128 tile of 16-bit elements of a row-major matrix, in rows of 128 bytes of shared memory.
/// let matrix = Layout::flat(&[4096, 4096], &[4096, 1])?;
/// let shared = smem::tile(Major::K, SwizzleMode::B128, 16, 128, 128)?;
/// let plan = tma_box(&matrix, &shared, &Tiler::Shape(&IntTuple::from((128, 128))), 16)?;
/// assert_eq!((plan.extents(), plan.modes(), plan.count()), (&[64, 128][..], &[1, 0][..], 2));
/// assert_eq!((plan.get(1).coord, plan.get(1).offset_bytes), (IntTuple::from((0, 64)), 64 * 128 * 2));
/// # Ok::<(), cute_rs::LayoutError>(())
/// ```
///
/// # Errors
/// [`LayoutError::Box`] for the first [`BoxRule`] that is broken, with the mode of the tensor (a leaf of its
/// shape), the value and the limit; [`LayoutError::Range`] unless elements have 8, 16, 32 or 64 bits;
/// [`LayoutError::Profile`] if tile and shared layout differ in size; those of [`Layout::composition`],
/// [`Layout::right_inverse`] and [`Layout::logical_divide`].
pub const fn tma_box(
    global: &Layout,
    shared: &ComposedLayout,
    tile: &Tiler<'_>,
    element_bits: u32,
) -> Result<BoxPlan, LayoutError> {
    if !matches!(element_bits, 8 | 16 | 32 | 64) {
        return Err(LayoutError::Range { name: "element bits", value: element_bits, low: 8, high: 64 });
    }
    let element = (element_bits / 8) as i64;
    let Some(shared_mode) = mode_of(shared, element_bits) else {
        let (value, limit) = (shared.swizzle.bits as i64, 3);
        return Err(LayoutError::Box { rule: BoxRule::Swizzle, mode: 0, value, limit });
    };
    // Tile coordinate -> coordinate of the tensor.
    let map = ok!(CoordLayout::identity(global.shape())).composition_by(tile);
    let map = ok!(map);
    if map.size() != shared.size() {
        return Err(LayoutError::Profile { tuple: map.shape(), profile: shared.shape() });
    }
    // Offset in shared memory -> coordinate of the tensor.
    let inverse = ok!(shared.layout.right_inverse());
    let walk = *ok!(map.composition(&inverse)).coalesce().inner();
    let mut plan = BoxPlan {
        rank: 0,
        extents: [1; MAX_DIMS],
        modes: [0; MAX_DIMS],
        coords: map,
        offsets: shared.layout,
        first: shared.offset,
        mode: shared_mode,
        element_bits,
        slices: 1,
        sliced_dim: 0,
    };
    let mut size = 1;
    let mut is_dim = [false; MAX_LEAVES];
    each!(i, 0..walk.shape_ref().len(), {
        let (extent, step) = (walk.shape_ref().leaf(i), walk.stride_ref().leaf(i));
        let axis = walk.stride_ref().axis(i) as usize;
        if step != 1 || axis == 0 || is_dim[axis - 1] || plan.rank == MAX_DIMS {
            break;
        }
        let mode = axis - 1;
        let Some(part) = part_of(extent, size * element, shared_mode) else {
            return Err(LayoutError::Box { rule: BoxRule::Extent, mode, value: extent, limit: MAX_EXTENT });
        };
        is_dim[mode] = true;
        plan.extents[plan.rank] = part as u32;
        plan.modes[plan.rank] = mode;
        plan.sliced_dim = plan.rank;
        plan.rank += 1;
        size *= part;
        if part < extent {
            break;
        }
    });
    ok!(plan.check_row(global, element));
    // The other modes of the tensor are dimensions along which a box has one element.
    let mut leaf = 0;
    while leaf < global.shape_ref().len() {
        if global.shape_ref().leaf(leaf) > 1 && !is_dim[leaf] {
            if plan.rank == MAX_DIMS {
                let (value, limit) = (MAX_DIMS as i64 + 1, MAX_DIMS as i64);
                return Err(LayoutError::Box { rule: BoxRule::Rank, mode: leaf, value, limit });
            }
            plan.modes[plan.rank] = leaf;
            plan.rank += 1;
        }
        leaf += 1;
    }
    ok!(plan.check_tensor(global, element));
    // Divides the tile by the elements of one box; the rests are the boxes.
    let run = ok!(inverse.composition(&Layout::leaf(size, 1)));
    let (coords, offsets) = (ok!(map.logical_divide(&run)), ok!(shared.layout.logical_divide(&run)));
    plan.coords = coords.mode(1);
    plan.offsets = offsets.mode(1);
    ok!(plan.check_images());
    Ok(plan)
}

/// The extent of a box along a run of `extent` elements, each `bytes` apart in shared memory. It is the whole
/// run if a box can hold it, otherwise the largest equal part whose images begin on the period of the
/// swizzle. `None` if there is no such part.
const fn part_of(extent: i64, bytes: i64, mode: SwizzleMode) -> Option<i64> {
    let mut parts = (extent + MAX_EXTENT - 1) / MAX_EXTENT;
    while parts > 1 && parts < extent {
        if extent % parts == 0 && extent / parts * bytes % mode.alignment() as i64 == 0 {
            return Some(extent / parts);
        }
        parts += 1;
    }
    if extent > MAX_EXTENT { None } else { Some(extent) }
}

/// The extent of a box along `rows` rows of one swizzle width, as [`tma_box`] cuts them.
pub(super) const fn rows_of_a_box(rows: u32, mode: SwizzleMode) -> u32 {
    match part_of(rows as i64, mode.bytes() as i64, mode) {
        Some(part) => part as u32,
        None => rows,
    }
}

/// The swizzle mode of a layout.
pub(super) const fn mode_of(shared: &ComposedLayout, element_bits: u32) -> Option<SwizzleMode> {
    each!(i, 0..SwizzleMode::ALL.len(), {
        let swizzle = SwizzleMode::ALL[i].swizzle(element_bits);
        let given = shared.swizzle;
        let same = swizzle.bits == given.bits && swizzle.base == given.base && swizzle.shift == given.shift;
        if same || swizzle.bits == 0 && given.bits == 0 {
            return Some(SwizzleMode::ALL[i]);
        }
    });
    None
}

impl BoxPlan {
    /// Checks that dimension 0 is contiguous in global memory and as wide as the swizzle.
    const fn check_row(&self, global: &Layout, element: i64) -> Result<(), LayoutError> {
        let mode = self.modes[0];
        let bytes = self.extents[0] as i64 * element;
        let stride = if self.rank == 0 { 0 } else { global.stride_ref().leaf(mode) };
        if stride != 1 {
            return Err(LayoutError::Box { rule: BoxRule::Contiguous, mode, value: stride, limit: 1 });
        }
        let span = self.mode.bytes() as i64;
        if !matches!(self.mode, SwizzleMode::None) && bytes != span {
            return Err(LayoutError::Box { rule: BoxRule::Span, mode, value: bytes, limit: span });
        }
        if bytes % GLOBAL_UNIT != 0 {
            return Err(LayoutError::Box { rule: BoxRule::Row, mode, value: bytes, limit: GLOBAL_UNIT });
        }
        Ok(())
    }

    /// Checks that a tensor map can hold the tensor's extents and strides.
    const fn check_tensor(&self, global: &Layout, element: i64) -> Result<(), LayoutError> {
        each!(dim, 0..self.rank, {
            let mode = self.modes[dim];
            let (extent, stride) = (global.shape_ref().leaf(mode), global.stride_ref().leaf(mode));
            if extent > 1 << 32 {
                return Err(LayoutError::Box { rule: BoxRule::Tensor, mode, value: extent, limit: 1 << 32 });
            }
            let bytes = stride.saturating_mul(element);
            if dim > 0 && extent > 1 && (bytes < 1 || bytes % GLOBAL_UNIT != 0) {
                return Err(LayoutError::Box {
                    rule: BoxRule::Stride,
                    mode,
                    value: bytes,
                    limit: GLOBAL_UNIT,
                });
            }
            if bytes >= MAX_STRIDE {
                return Err(LayoutError::Box { rule: BoxRule::Far, mode, value: bytes, limit: MAX_STRIDE });
            }
        });
        Ok(())
    }

    /// Checks that the images begin on the period of the swizzle.
    const fn check_images(&self) -> Result<(), LayoutError> {
        let (element, limit) = ((self.element_bits / 8) as i64, self.mode.alignment() as i64);
        let mut value = self.first * element;
        each!(leaf, 0..self.offsets.stride_ref().len(), {
            if value % limit == 0 && self.offsets.shape_ref().leaf(leaf) > 1 {
                value = self.offsets.stride_ref().leaf(leaf) * element;
            }
        });
        if value % limit != 0 {
            return Err(LayoutError::Box { rule: BoxRule::Image, mode: self.modes[0], value, limit });
        }
        Ok(())
    }

    /// Number of dimensions of the copy.
    pub const fn rank(&self) -> usize {
        self.rank
    }

    /// Extents of each box in elements, the contiguous dimension first.
    pub const fn extents(&self) -> &[u32] {
        self.extents.split_at(self.rank).0
    }

    /// The leaf of the tensor's shape that is each dimension.
    pub const fn modes(&self) -> &[usize] {
        self.modes.split_at(self.rank).0
    }

    /// The swizzle mode of the images.
    pub const fn swizzle(&self) -> SwizzleMode {
        self.mode
    }

    /// Number of boxes.
    pub const fn count(&self) -> u32 {
        self.coords.size() as u32
    }

    /// Number of copies that share each box; see [`sliced`](Self::sliced).
    pub const fn slices(&self) -> u32 {
        self.slices
    }

    /// Box `i`.
    pub const fn get(&self, i: u32) -> BoxPlace {
        let offset = self.first + self.offsets.at(i as i64);
        BoxPlace { coord: self.coords.at(i as i64), offset_bytes: offset as u32 * (self.element_bits / 8) }
    }

    /// All boxes.
    pub fn boxes(&self) -> impl Iterator<Item = BoxPlace> + '_ {
        (0..self.count()).map(|i| self.get(i))
    }

    /// The layout `box number -> first coordinate`, relative to the tile's first element.
    pub const fn coords(&self) -> CoordLayout {
        self.coords
    }

    /// The dimension along which a box is sliced: the last one along which the box has more than one element.
    pub const fn sliced_dim(&self) -> usize {
        self.sliced_dim
    }

    /// The same boxes, each moved by `slices` copies. Use it when the CTAs of a cluster share a tile. Copy
    /// `i` moves part `i` along [`sliced_dim`](Self::sliced_dim). Its image begins `i` times
    /// [`slice_bytes`](Self::slice_bytes) after the start of the box's image.
    ///
    /// # Errors
    /// [`LayoutError::Box`] if `slices` does not divide the extent, if a slice is not a multiple of the
    /// swizzle's period, or if boxes have only one dimension.
    pub const fn sliced(mut self, slices: u32) -> Result<Self, LayoutError> {
        let dim = self.sliced_dim;
        let (mode, extent) = (self.modes[dim], self.extents[dim]);
        if slices == 0 || !extent.is_multiple_of(slices) || dim == 0 && slices > 1 {
            let (value, limit) = (extent as i64, slices as i64);
            return Err(LayoutError::Box { rule: BoxRule::Slices, mode, value, limit });
        }
        self.extents[dim] = extent / slices;
        self.slices *= slices;
        let (value, limit) = (self.slice_bytes() as i64, self.mode.alignment() as i64);
        if slices > 1 && value % limit != 0 {
            return Err(LayoutError::Box { rule: BoxRule::Image, mode, value, limit });
        }
        Ok(self)
    }

    /// The first coordinate of slice `slice` of the tile that begins at the coordinate `tile`, computed with
    /// `V`'s operators.
    ///
    /// # Errors
    /// [`LayoutError::Rank`] unless `tile` has as many components as the tensor's coordinates.
    pub fn slice<V: Arithmetic, const N: usize>(
        &self,
        mut tile: [V; N],
        slice: V,
    ) -> Result<[V; N], LayoutError> {
        let needed = self.coords.profile().len();
        let component = tile.get_mut(self.modes[self.sliced_dim]);
        match component {
            Some(component) if needed == N => {
                if self.slices > 1 {
                    *component = slice * self.extents[self.sliced_dim] + *component;
                }
                Ok(tile)
            }
            _ => Err(LayoutError::Rank { needed, given: N }),
        }
    }

    /// The coordinates for the copy instruction of box `i`, dimension 0 first, computed with `V`'s operators.
    /// `tile` is the first coordinate of the tile or of its slice.
    ///
    /// ```
    /// # use cute_rs::atom::{Major, SwizzleMode, tma::TmaTiles};
    /// // K-major: dimension 0 of the copy is component 1 of the coordinate (MN, K).
    /// let tiles = TmaTiles::new(Major::K, SwizzleMode::B128, 16, 128, 128)?.sliced(2)?;
    /// let slice = tiles.plan().slice([1000_u32, 256], 1)?;
    /// assert_eq!((slice, tiles.plan().copy(slice, 1)?), ([1064, 256], [256 + 64, 1064]));
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Rank`] unless `tile` has as many components as the tensor's coordinates, and `D` is the
    /// number of dimensions.
    pub fn copy<V: Arithmetic, const N: usize, const D: usize>(
        &self,
        tile: [V; N],
        i: u32,
    ) -> Result<[V; D], LayoutError> {
        if D != self.rank {
            return Err(LayoutError::Rank { needed: self.rank, given: D });
        }
        let first = tile.element(&self.coords, i.into())?;
        Ok(core::array::from_fn(|dim| first[self.modes[dim]]))
    }

    /// Bytes of one slice of a box.
    pub const fn slice_bytes(&self) -> u32 {
        let mut elements = 1;
        each!(dim, 0..self.rank, {
            elements *= self.extents[dim];
        });
        elements * (self.element_bits / 8)
    }

    /// Bytes that one slice of all boxes moves.
    pub const fn bytes(&self) -> u32 {
        self.count() * self.slice_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::atom::{Major, smem};
    use crate::swizzle::Swizzle;

    const PLAIN: Swizzle = Swizzle::NONE;

    fn flat(shape: &[i64], stride: &[i64]) -> Layout {
        Layout::flat(shape, stride).unwrap()
    }

    #[test]
    fn boxes_of_tensors() {
        let batch = flat(&[512, 256, 8], &[256, 1, 512 * 256]);
        let rows = smem::tile(Major::K, SwizzleMode::B128, 16, 128, 64).unwrap();
        let stacked = rows.append(&flat(&[2], &[128 * 64]).mode(0)).unwrap();
        for (why, global, shared, tile, extents, modes, count) in [
            ("a batch is a dimension", batch, rows, &[128, 64, 1][..], &[64, 128, 1][..], &[1, 0, 2][..], 1),
            ("two of a batch in one box", batch, stacked, &[128, 64, 2], &[64, 128, 2], &[1, 0, 2], 1),
            (
                "without a swizzle a box is as wide as the tile",
                flat(&[64, 96], &[96, 1]),
                PLAIN.after(flat(&[16, 96], &[96, 1])),
                &[16, 96],
                &[96, 16],
                &[1, 0],
                1,
            ),
            (
                "rows too long are cut into boxes",
                flat(&[512, 512], &[512, 1]),
                PLAIN.after(flat(&[2, 512], &[512, 1])),
                &[2, 512],
                &[256, 1],
                &[1, 0],
                4,
            ),
            (
                "too many rows are cut where the permutation begins anew: 264 are 3 times 88",
                flat(&[512, 64], &[64, 1]),
                smem::tile(Major::K, SwizzleMode::B128, 16, 264, 64).unwrap(),
                &[264, 64],
                &[64, 88],
                &[1, 0],
                3,
            ),
            (
                "padded rows are a box each",
                flat(&[64, 64], &[64, 1]),
                PLAIN.after(flat(&[4, 64], &[128, 1])),
                &[4, 64],
                &[64, 1],
                &[1, 0],
                4,
            ),
        ] {
            let tile = IntTuple::flat(tile).unwrap();
            let plan = tma_box(&global, &shared, &Tiler::Shape(&tile), 16).unwrap();
            assert_eq!((plan.extents(), plan.modes(), plan.count()), (extents, modes, count), "{why}");
        }
    }

    #[test]
    fn what_no_box_brings() {
        let matrix = flat(&[512, 512], &[512, 1]);
        let plain = |shape: &[i64], stride: &[i64]| PLAIN.after(flat(shape, stride));
        let swizzled = |m, n| SwizzleMode::B128.swizzle(16).after(flat(&[m, n], &[n, 1]));
        let six = flat(&[8, 2, 2, 2, 2, 2], &[1, 8, 16, 32, 64, 128]);
        let at = |rule, mode, value, limit| LayoutError::Box { rule, mode, value, limit };
        for (why, global, shared, tile, want) in [
            (
                "rows too long, of a prime number of 16 bytes",
                flat(&[512, 2104], &[2104, 1]),
                plain(&[2, 2104], &[2104, 1]),
                &[2, 2104][..],
                at(BoxRule::Extent, 1, 2104, 256),
            ),
            ("columns of rows", matrix, plain(&[8, 8], &[1, 8]), &[8, 8], at(BoxRule::Contiguous, 0, 512, 1)),
            ("rows of 256 bytes", matrix, swizzled(8, 128), &[8, 128], at(BoxRule::Span, 1, 256, 128)),
            ("rows of 64 bytes", matrix, swizzled(8, 32), &[8, 32], at(BoxRule::Span, 1, 64, 128)),
            ("rows of 8 bytes", matrix, plain(&[8, 4], &[4, 1]), &[8, 4], at(BoxRule::Row, 1, 8, 16)),
            (
                "an odd pitch",
                flat(&[512, 512], &[513, 1]),
                plain(&[8, 8], &[8, 1]),
                &[8, 8],
                at(BoxRule::Stride, 0, 1026, 16),
            ),
            (
                "a pitch of a terabyte",
                flat(&[512, 512], &[1 << 39, 1]),
                plain(&[8, 8], &[8, 1]),
                &[8, 8],
                at(BoxRule::Far, 0, 1 << 40, 1 << 40),
            ),
            ("six dimensions", six, plain(&[8], &[1]), &[8, 1, 1, 1, 1, 1], at(BoxRule::Rank, 5, 6, 5)),
            (
                "images of 48 bytes",
                flat(&[512, 512], &[1, 512]),
                plain(&[8, 4], &[1, 24]),
                &[8, 4],
                at(BoxRule::Image, 0, 48, 128),
            ),
            (
                "another permutation",
                matrix,
                Swizzle::new(2, 3, 4).unwrap().after(flat(&[8, 64], &[64, 1])),
                &[8, 64],
                at(BoxRule::Swizzle, 0, 2, 3),
            ),
        ] {
            let tile = IntTuple::flat(tile).unwrap();
            assert_eq!(tma_box(&global, &shared, &Tiler::Shape(&tile), 16), Err(want), "{why}");
        }
    }

    #[test]
    fn slices_have_whole_patterns() {
        let matrix = flat(&[512, 512], &[512, 1]);
        let shared = smem::tile(Major::K, SwizzleMode::B128, 16, 48, 64).unwrap();
        let plan = tma_box(&matrix, &shared, &Tiler::Shape(&(48, 64).into()), 16).unwrap();
        let at = |rule, value, limit| Err(LayoutError::Box { rule, mode: 0, value, limit });
        for (why, slices, want) in [
            ("none is no number of slices", 0, at(BoxRule::Slices, 48, 0)),
            ("one is the box", 1, Ok(48 * 128)),
            ("two of 24 rows", 2, Ok(24 * 128)),
            ("four of 12 rows cut a pattern", 4, at(BoxRule::Image, 12 * 128, 1024)),
            ("five do not divide", 5, at(BoxRule::Slices, 48, 5)),
        ] {
            assert_eq!(plan.sliced(slices).map(|plan| plan.slice_bytes()), want, "{why}");
        }
    }
}
