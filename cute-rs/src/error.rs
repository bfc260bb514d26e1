//! Errors of the algebra: why an operation on layouts has no result.

mod clause;

use core::fmt;

use crate::int_tuple::IntTuple;

/// Why an operation on layouts has no result, with the numbers that caused the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    clippy::large_enum_variant,
    reason = "errors are values without a heap, and hold the tuples they are about"
)]
#[non_exhaustive]
pub enum LayoutError {
    /// A tuple would have more leaves than [`MAX_LEAVES`](crate::MAX_LEAVES).
    Capacity {
        /// The number of leaves it would have.
        leaves: usize,
    },
    /// A tuple would be nested too deeply.
    Depth {
        /// The largest number of parentheses that one leaf can open.
        limit: usize,
    },
    /// A tuple would hold an empty tuple.
    EmptyMode {
        /// The number of the mode.
        mode: usize,
    },
    /// Shape and stride are nested differently.
    Congruence {
        /// The shape.
        shape: IntTuple,
        /// The stride.
        stride: IntTuple,
    },
    /// An extent of a shape is below 1.
    Extent {
        /// The shape.
        shape: IntTuple,
    },
    /// A stride of the second layout does not fit the shapes of the first.
    StrideDivisibility {
        /// Extent of the first layout's mode.
        shape: i64,
        /// The rest of the second layout's stride.
        stride: i64,
    },
    /// An extent of the second layout does not fit the shapes of the first.
    ShapeDivisibility {
        /// The number of elements that the first layout's mode offers.
        offered: i64,
        /// The rest of the second layout's extent.
        wanted: i64,
    },
    /// The sum of several modes of the second layout leaves a mode of the first, so it carries into the next
    /// mode.
    Carry {
        /// Extent of the first layout's mode.
        extent: i64,
        /// The largest coordinate that the sum reaches in it.
        reach: i64,
    },
    /// A stride is negative where only offsets of 0 and more are allowed.
    NegativeStride {
        /// The stride.
        stride: i64,
    },
    /// A number does not fit into 32 bits, unsigned.
    Width {
        /// The number.
        value: i64,
    },
    /// A layout repeats an offset or has modes that interleave, but each mode must step over all smaller
    /// ones.
    NotInjective {
        /// A mode's stride.
        stride: i64,
        /// The end of the modes of smaller stride. The stride must be a positive multiple of it.
        reach: i64,
    },
    /// A wrong number of modes or coordinates.
    Rank {
        /// The number that is needed.
        needed: usize,
        /// The number that was given.
        given: usize,
    },
    /// An order of modes does not name each mode once.
    Order {
        /// The mode that is named twice or does not exist.
        mode: usize,
        /// The number of modes.
        rank: usize,
    },
    /// An extent is not a multiple of the number of elements that an instruction moves or reads.
    Extents {
        /// The name of the extent.
        name: &'static str,
        /// Its value in elements.
        extent: u32,
        /// It must be one, two, or more times this many elements.
        multiple: u32,
    },
    /// A number lies outside the range that an instruction allows.
    Range {
        /// The name of the number.
        name: &'static str,
        /// Its value.
        value: u32,
        /// The smallest legal value.
        low: u32,
        /// The largest legal value.
        high: u32,
    },
    /// A mode does not exist.
    Mode {
        /// The mode.
        mode: usize,
        /// The number of modes.
        rank: usize,
    },
    /// A tuple does not have the required nesting.
    Profile {
        /// The tuple.
        tuple: IntTuple,
        /// The required nesting.
        profile: IntTuple,
    },
    /// Neither of an extent and a divisor divides the other.
    Indivisible {
        /// The shape that is divided.
        shape: IntTuple,
        /// The extent at which the division stops.
        extent: i64,
        /// The rest of the divisor at that extent.
        divisor: i64,
    },
    /// The size or an offset exceeds 2^62.
    Overflow {
        /// The shape.
        shape: IntTuple,
        /// The stride.
        stride: IntTuple,
    },
    /// A number that is computed from tuples does not fit into 64 bits.
    Wide {
        /// The name of the number.
        number: &'static str,
        /// The tuple it is computed from.
        tuple: IntTuple,
        /// The second tuple, if there are two.
        other: Option<IntTuple>,
    },
    /// A range of modes `begin..end` that ends before it begins, or that exceeds the rank.
    Modes {
        /// The first mode.
        begin: usize,
        /// One past the last mode.
        end: usize,
        /// The number of modes.
        rank: usize,
    },
    /// Modes step forwards and backwards together, so that their sum borrows from another mode.
    MixedSigns {
        /// The stride of the second layout that runs in the other direction.
        stride: i64,
    },
    /// A stride counts along a component of a coordinate, but an integer is needed or the component does not
    /// exist.
    Basis {
        /// The stride's value.
        scale: i64,
        /// The number of components.
        components: usize,
    },
    /// Two layouts must have the same size but do not.
    Sizes {
        /// The size of the first layout.
        size: i64,
        /// The size of the second layout.
        other: i64,
    },
    /// A stride counts along a component of a coordinate, and another stride counts along a part of that
    /// component.
    BasisSplit {
        /// The stride's value.
        scale: i64,
    },
    /// Elements of a layout cannot be joined into larger ones.
    Recast {
        /// Extent of the mode that prevents it.
        shape: i64,
        /// Its stride.
        stride: i64,
        /// The number of elements that one larger element would hold.
        factor: i64,
    },
    /// A swizzle has overlapping bits or bits above 62.
    SwizzleBits {
        /// The number of bits.
        bits: u32,
        /// The lowest bit that changes.
        base: u32,
        /// The distance from the changed bits to the source bits.
        shift: i32,
    },
    /// Two swizzles do not combine into one swizzle.
    SwizzlePair {
        /// Bits that the first swizzle reads or writes.
        first: u64,
        /// Bits that the second swizzle reads or writes.
        second: u64,
    },
    /// A number must be a power of two but is not.
    PowerOfTwo {
        /// The number.
        value: i64,
    },
    /// A swizzle reads only bits of offsets that the layout does not reach.
    SwizzleReach {
        /// One past the highest bit that the swizzle reads or changes.
        bits: u32,
        /// One past the largest offset of the layout.
        cosize: i64,
    },
    /// A mode of a thread-value layout, together with the modes before it, crosses from one column of the
    /// tile to the next.
    Straddles {
        /// The mode's extent.
        shape: i64,
        /// The mode's stride.
        stride: i64,
        /// Rows of the tile.
        rows: i64,
    },
    /// A layout must take each number below its size once but does not.
    NotCompact {
        /// Its size.
        size: i64,
        /// The number of consecutive values from 0 up that it takes.
        run: i64,
    },
    /// A thread-value layout leaves its tile.
    Outside {
        /// The largest integer coordinate that it reaches.
        last: i64,
        /// The number of elements of the tile.
        size: i64,
    },
    /// An element that one thread moves belongs to another thread.
    OtherThread {
        /// The thread that moves the element.
        thread: i64,
        /// The thread that holds the element.
        other: i64,
    },
    /// A box that no tensor copy can move.
    Box {
        /// The rule that is broken.
        rule: BoxRule,
        /// The mode of the tensor, as the number of a leaf of its shape.
        mode: usize,
        /// The value, in the unit that the rule states.
        value: i64,
        /// The limit, in the same unit.
        limit: i64,
    },
    /// The layouts of an instruction's matrices do not fit together.
    Multiply {
        /// The name of what must be equal.
        name: &'static str,
        /// The value of the first matrix.
        first: i64,
        /// The value of the second matrix.
        second: i64,
    },
}

/// A rule for boxes that tensor copies move, used in [`LayoutError::Box`]. Each rule says whether value and
/// limit count bytes or elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BoxRule {
    /// Dimension 0 must be contiguous in global memory. The value is its stride in elements.
    Contiguous,
    /// Dimension 0 must have as many bytes as a row of the swizzle.
    Span,
    /// The bytes of dimension 0 must be a multiple of the limit.
    Row,
    /// The elements of the box along a dimension must not exceed the limit.
    Extent,
    /// The number of dimensions of the tensor must not exceed the limit.
    Rank,
    /// The elements of the tensor along a dimension must not exceed the limit.
    Tensor,
    /// A stride in global memory, in bytes, must be a positive multiple of the limit.
    Stride,
    /// A stride in global memory, in bytes, must be less than the limit.
    Far,
    /// The bytes from one image in shared memory to the next must be a multiple of the limit.
    Image,
    /// The number of copies that share a box must divide its extent, along a dimension other than 0. The
    /// value is the extent in elements, the limit is the number of copies.
    Slices,
    /// The swizzle must be one of the hardware's. The value is the number of bits that it permutes.
    Swizzle,
}

impl BoxRule {
    /// The names of the value and of the limit.
    const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Contiguous => ("the stride of dimension 0, in elements,", "it must be "),
            Self::Span => ("a row of the box, in bytes,", "the swizzle needs "),
            Self::Row => ("a row of the box, in bytes,", "it must be a multiple of "),
            Self::Extent => ("the extent of the box", "it may be at most "),
            Self::Rank => ("the number of dimensions", "it may be at most "),
            Self::Tensor => ("the extent of the tensor", "it may be at most "),
            Self::Stride => ("the tensor's stride, in bytes,", "it must be a positive multiple of "),
            Self::Far => ("the tensor's stride, in bytes,", "it must be less than "),
            Self::Image => {
                ("the step between images in shared memory, in bytes,", "it must be a multiple of ")
            }
            Self::Slices => {
                ("the extent of the box", "more than one dimension and a multiple are needed of ")
            }
            Self::Swizzle => ("the bits of a swizzle that no tensor copy has", "the most of one are "),
        }
    }

    /// A suggestion what to change.
    const fn remedy(self) -> &'static str {
        match self {
            Self::Contiguous => "let the shared layout begin with the tensor's contiguous mode",
            Self::Span => "make the contiguous run of the shared layout as wide as the swizzle",
            Self::Row => "widen the contiguous run of the shared layout",
            Self::Extent => "use a smaller tile",
            Self::Rank => "coalesce modes of the tensor",
            Self::Tensor | Self::Far => "use a smaller tensor",
            Self::Stride => "pad the tensor",
            Self::Image => "align the parts of the shared layout",
            Self::Slices => "choose a number of copies that divides the extent",
            Self::Swizzle => "take the swizzle of a swizzle mode for these elements",
        }
    }
}

impl LayoutError {
    /// A suggestion what to change, for compiler messages.
    pub(crate) const fn remedy(&self) -> &'static str {
        match self {
            Self::Capacity { .. } => "coalesce the layouts or use fewer modes",
            Self::Depth { .. } | Self::EmptyMode { .. } => "flatten the tuple",
            Self::Congruence { .. } => "nest the stride as the shape is nested",
            Self::Extent { .. } => "use extents of 1 and more",
            Self::StrideDivisibility { .. } => {
                "choose a stride of the second layout that divides that extent or is a multiple of it"
            }
            Self::ShapeDivisibility { .. } => "choose an extent that is a multiple of what the mode offers",
            Self::Carry { .. } => "choose modes of the second layout that do not overlap",
            Self::NegativeStride { .. } => "use strides of 0 and more",
            Self::Width { .. } => "use 32-bit numbers",
            Self::NotInjective { stride: 0, .. } => "filter the layout, which takes broadcasts out",
            Self::NotInjective { .. } => {
                "give each mode a stride that is a multiple of where the smaller modes end, or stride 0"
            }
            Self::Rank { .. } => "give both the same number of modes",
            Self::Order { .. } => "name each mode once",
            Self::Extents { .. } => "choose a multiple",
            Self::Range { .. } => "choose a number within the range",
            Self::Mode { .. } => "name a mode that exists, counting from 0",
            Self::Profile { .. } => "use a profile that is nested alike or coarser",
            Self::Sizes { .. } => "give both as many elements",
            Self::Indivisible { .. } => "choose a divisor whose factors come in the order of the extents",
            Self::Overflow { .. } => "use smaller extents or strides",
            Self::Wide { .. } => "use smaller numbers",
            Self::Modes { .. } => {
                "let the range begin where it ends or before, and end at the number of modes or before"
            }
            Self::MixedSigns { .. } => {
                "walk all modes in one direction, or coalesce the first layout to one mode"
            }
            Self::Basis { .. } => "name a component of the coordinate's profile",
            Self::BasisSplit { .. } => "give all strides along one component the same path",
            Self::Recast { .. } => {
                "make the contiguous mode a multiple of the factor long, and all other strides multiples of it"
            }
            Self::SwizzleBits { .. } => "choose a shift of at least the bits, in either direction",
            Self::SwizzlePair { .. } => "join swizzles of one shift whose bits are neighbours",
            Self::PowerOfTwo { .. } => "choose a power of two",
            Self::SwizzleReach { .. } => "use fewer bits, a lower base, or a larger layout",
            Self::Straddles { .. } => "choose modes that stay within one column",
            Self::NotCompact { .. } => "give the modes strides without gaps or repetitions",
            Self::Outside { .. } => "use a larger tile or smaller strides",
            Self::Box { rule, .. } => rule.remedy(),
            Self::Multiply { .. } => "use the layouts of one instruction",
            Self::OtherThread { .. } => "exchange the elements between threads first",
        }
    }
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence().as_str())
    }
}

impl core::error::Error for LayoutError {}

#[cfg(test)]
mod tests;
