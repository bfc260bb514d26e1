//! Tensors: a layout with its start, on the host or on a device.

use super::Partition;
use crate::algebra::Tiler;
use crate::composed::ComposedLayout;
use crate::coord_layout::CoordLayout;
use crate::error::LayoutError;
use crate::evaluate::{Arithmetic, unsigned};
use crate::int_tuple::{IntTuple, MAX_LEAVES};
use crate::layout::Layout;

/// A layout with its start: `T(x) = start + layout(x)`. Use it to compute the start of a part on a device.
///
/// The layout is known on the host. The start may be a device value: an offset `V` for a [`Layout`], an
/// offset before the swizzle for a [`ComposedLayout`], or a coordinate `[V; N]` for a [`CoordLayout`]. A
/// kernel selects a part by a thread or tile number, and the device computes only the start. The places of
/// the elements within the part are constant.
///
/// ```
/// # use cute_rs::{CoordLayout, IntTuple, Tensor, Tiler};
/// // Which elements of a matrix are in a tile? On the host with `u32`, in a kernel with device values.
/// let identity = CoordLayout::identity(IntTuple::from((128, 96)))?;
/// let matrix = Tensor::new(identity, [0_u32, 0]);
/// let tile = matrix.local_tile(&Tiler::Shape(&IntTuple::from((64, 32))), &[Some(1), Some(2)])?;
/// assert_eq!((tile.start, tile.layout.to_string().as_str()), ([64, 64], "(64,32):(1@0,1@1)"));
/// assert_eq!(tile.at(3 + 64 * 5)?, [64 + 3, 64 + 5]);
/// # Ok::<(), cute_rs::LayoutError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tensor<L, S> {
    /// The places of the elements, relative to the start.
    pub layout: L,
    /// The start.
    pub start: S,
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for crate::Layout {}
    impl Sealed for crate::ComposedLayout {}
    impl Sealed for crate::CoordLayout {}
}

/// A kind of layout that can be cut into parts: [`Layout`], [`ComposedLayout`] or [`CoordLayout`].
pub trait Pattern: Copy + sealed::Sealed {
    /// The function of coordinates; its strides carry their components.
    #[doc(hidden)]
    fn function(&self) -> &Layout;

    /// The same kind of layout with another function of coordinates.
    #[doc(hidden)]
    fn with_function(&self, function: Layout) -> Self;
}

impl Pattern for Layout {
    fn function(&self) -> &Layout {
        self
    }

    fn with_function(&self, function: Layout) -> Self {
        function
    }
}

impl Pattern for ComposedLayout {
    fn function(&self) -> &Layout {
        &self.layout
    }

    fn with_function(&self, function: Layout) -> Self {
        self.with_inner(function)
    }
}

impl Pattern for CoordLayout {
    fn function(&self) -> &Layout {
        self.inner()
    }

    fn with_function(&self, function: Layout) -> Self {
        self.with_inner(function)
    }
}

/// A type for the start of a layout of kind `L`.
pub trait Start<L>: Copy {
    /// The type of a coordinate that selects a part.
    type Coord: Arithmetic;

    /// Adds the offset, or coordinate, of `steps` at `coord` to this start: `self + steps(coord)`.
    ///
    /// # Errors
    /// Those of [`Layout::apply`]; [`LayoutError::Rank`] for a coordinate with another number of components.
    fn moved(self, pattern: &L, steps: &Layout, coord: Self::Coord) -> Result<Self, LayoutError>;

    /// The element at a constant integer coordinate.
    ///
    /// # Errors
    /// [`LayoutError::NegativeStride`] or [`LayoutError::Width`] for an offset that does not fit into a
    /// `u32`; [`LayoutError::Rank`] for a coordinate with another number of components.
    fn element(self, pattern: &L, coord: i64) -> Result<Self, LayoutError>;
}

/// `start + steps(coord)`, or `start` if all steps are zero.
fn further<V: Arithmetic>(start: V, steps: &Layout, coord: V) -> Result<V, LayoutError> {
    let stays = (0..steps.stride_ref().len()).all(|i| steps.stride_ref().leaf(i) == 0);
    if stays { Ok(start) } else { Ok(steps.apply(coord)? + start) }
}

fn plus<V: Arithmetic>(start: V, offset: i64) -> Result<V, LayoutError> {
    Ok(if offset == 0 { start } else { start + unsigned(offset)? })
}

impl<V: Arithmetic> Start<Layout> for V {
    type Coord = V;

    fn moved(self, _pattern: &Layout, steps: &Layout, coord: V) -> Result<V, LayoutError> {
        further(self, steps, coord)
    }

    fn element(self, pattern: &Layout, coord: i64) -> Result<V, LayoutError> {
        plus(self, pattern.at(coord))
    }
}

impl<V: Arithmetic> Start<ComposedLayout> for V {
    type Coord = V;

    fn moved(self, _pattern: &ComposedLayout, steps: &Layout, coord: V) -> Result<V, LayoutError> {
        further(self, steps, coord)
    }

    fn element(self, pattern: &ComposedLayout, coord: i64) -> Result<V, LayoutError> {
        let offset = pattern.offset.wrapping_add(pattern.layout.at(coord));
        Ok(pattern.swizzle.apply_to(plus(self, offset)?))
    }
}

impl<V: Arithmetic, const N: usize> Start<CoordLayout> for [V; N] {
    type Coord = V;

    fn moved(mut self, pattern: &CoordLayout, steps: &Layout, coord: V) -> Result<Self, LayoutError> {
        components(pattern, N)?;
        let steps = pattern.with_inner(*steps);
        for (i, component) in self.iter_mut().enumerate() {
            *component = further(*component, &steps.component(i), coord)?;
        }
        Ok(self)
    }

    fn element(mut self, pattern: &CoordLayout, coord: i64) -> Result<Self, LayoutError> {
        components(pattern, N)?;
        let element = pattern.at(coord);
        for (i, component) in self.iter_mut().enumerate() {
            *component = plus(*component, element.leaf(i))?;
        }
        Ok(self)
    }
}

const fn components(pattern: &CoordLayout, given: usize) -> Result<(), LayoutError> {
    let needed = pattern.profile().len();
    if needed == given { Ok(()) } else { Err(LayoutError::Rank { needed, given }) }
}

impl<L: Pattern> Partition<L> {
    /// The part that a coordinate selects, of a layout that begins at `start`. An open mode, `None`, becomes
    /// the last mode of the part. A single coordinate numbers all parts.
    ///
    /// # Errors
    /// [`LayoutError::Rank`] unless there is one entry per mode, or a single entry; those of
    /// [`Start::moved`].
    pub fn tensor<S: Start<L>>(
        &self,
        start: S,
        coord: &[Option<S::Coord>],
    ) -> Result<Tensor<L, S>, LayoutError> {
        let zeros = coord.iter().map(|c| c.as_ref().map(|_| 0));
        let mut open = [None; MAX_LEAVES];
        for (open, zero) in open.iter_mut().zip(zeros) {
            *open = zero;
        }
        if coord.len() > MAX_LEAVES {
            return Err(LayoutError::Rank { needed: self.rank(), given: coord.len() });
        }
        let open = &open[..coord.len()];
        let (part, _) = self.with(*self.part.function()).at(open)?;
        let starts = self.starts.numbered(open)?;
        let mut chosen = coord.iter().enumerate().filter_map(|(i, c)| c.map(|c| (starts.mode(i), c)));
        let start = chosen.try_fold(start, |start, (steps, c)| start.moved(&self.part, &steps, c))?;
        Ok(Tensor { layout: self.part.with_function(part), start })
    }
}

impl<L, S> Tensor<L, S> {
    /// Creates a tensor from a layout and its start.
    pub const fn new(layout: L, start: S) -> Self {
        Self { layout, start }
    }
}

impl<L: Pattern, S: Start<L>> Tensor<L, S> {
    /// The part at a coordinate of the partition that `cut` makes of the layout.
    ///
    /// # Errors
    /// Those of `cut` and of [`Partition::tensor`].
    pub fn part(
        &self,
        cut: impl FnOnce(&Layout) -> Result<Partition<Layout>, LayoutError>,
        coord: &[Option<S::Coord>],
    ) -> Result<Self, LayoutError> {
        let parts = cut(self.layout.function())?;
        parts.of(&self.layout).tensor(self.start, coord)
    }

    /// One tile. See [`Layout::local_tile`].
    ///
    /// # Errors
    /// Those of [`Layout::local_tile`] and [`Partition::tensor`].
    pub fn local_tile(&self, tiler: &Tiler<'_>, coord: &[Option<S::Coord>]) -> Result<Self, LayoutError> {
        self.part(|layout| layout.inner_partition(tiler), coord)
    }

    /// What is at one place of every tile. See [`Layout::outer_partition`].
    ///
    /// # Errors
    /// Those of [`Layout::outer_partition`] and [`Partition::tensor`].
    pub fn outer_partition(
        &self,
        tiler: &Tiler<'_>,
        coord: &[Option<S::Coord>],
    ) -> Result<Self, LayoutError> {
        self.part(|layout| layout.outer_partition(tiler), coord)
    }

    /// The elements of one thread. See [`Layout::local_partition`].
    ///
    /// # Errors
    /// Those of [`Layout::local_partition`] and [`Partition::tensor`].
    pub fn local_partition(&self, threads: &Layout, index: S::Coord) -> Result<Self, LayoutError> {
        self.part(|layout| layout.thread_partition(threads), &[Some(index)])
    }

    /// The open modes, starting at the coordinates of the fixed ones. See [`Layout::slice`].
    ///
    /// ```
    /// # use cute_rs::{Layout, Tensor};
    /// let rows = Tensor::new(Layout::flat(&[4, 8], &[8, 1])?, 100_u32);
    /// let row = rows.slice(&[Some(2), None])?;
    /// assert_eq!((row.layout.to_string().as_str(), row.start), ("(8):(1)", 116));
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Partition::tensor`].
    pub fn slice(&self, coord: &[Option<S::Coord>]) -> Result<Self, LayoutError> {
        self.part(|layout| Ok(Partition::new(Layout::EMPTY, *layout)), coord)
    }

    /// The element at a constant integer coordinate: its offset (swizzled for a [`ComposedLayout`]) or its
    /// coordinate.
    ///
    /// # Errors
    /// [`LayoutError::NegativeStride`] or [`LayoutError::Width`] for an offset that does not fit into a
    /// `u32`.
    pub fn at(&self, coord: i64) -> Result<S, LayoutError> {
        self.start.element(&self.layout, coord)
    }
}

/// Says which elements of a part are inside a tensor: a coordinate layout, its first coordinate, and the
/// tensor's shape.
///
/// `P(x) = (start + layout(x) < shape)`, component by component
///
/// ```
/// # use cute_rs::{CoordLayout, IntTuple, Predicate, Tiler};
/// // The last 64 x 32 tile of a 100 x 60 matrix.
/// let shape = IntTuple::from((100, 60));
/// let tiler = IntTuple::from((64, 32));
/// let (tile, start) = CoordLayout::identity(shape)?.local_tile(&Tiler::Shape(&tiler), &[Some(1), Some(1)])?;
/// let inside = Predicate::new(tile, start, shape)?;
/// assert_eq!((inside.at(35), inside.at(36), inside.count()), (true, false, 36 * 28));
/// # Ok::<(), cute_rs::LayoutError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Predicate {
    layout: CoordLayout,
    start: IntTuple,
    shape: IntTuple,
}

impl Predicate {
    /// Creates the predicate that compares the elements of a part with the shape of the whole tensor.
    ///
    /// # Errors
    /// [`LayoutError::Profile`] unless the start and the shape have the nesting of the layout's coordinates.
    pub const fn new(layout: CoordLayout, start: IntTuple, shape: IntTuple) -> Result<Self, LayoutError> {
        let profile = layout.profile();
        if !profile.congruent(&start) {
            return Err(LayoutError::Profile { tuple: start, profile });
        }
        if !profile.congruent(&shape) {
            return Err(LayoutError::Profile { tuple: shape, profile });
        }
        Ok(Self { layout, start, shape })
    }

    /// Whether the element at an integer coordinate is inside the tensor.
    pub const fn at(&self, coord: i64) -> bool {
        let element = self.layout.at(coord);
        each!(i, 0..element.len(), {
            let component = self.start.leaf(i).wrapping_add(element.leaf(i));
            if component < 0 || component >= self.shape.leaf(i) {
                return false;
            }
        });
        true
    }

    /// Number of elements that are inside the tensor.
    pub const fn count(&self) -> i64 {
        let (mut count, mut coord) = (0, 0);
        while coord < self.layout.size() {
            if self.at(coord) {
                count += 1;
            }
            coord += 1;
        }
        count
    }

    /// Whether every element is inside the tensor.
    pub const fn is_full(&self) -> bool {
        self.count() == self.layout.size()
    }
}
