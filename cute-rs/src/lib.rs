//! CuTe's layout algebra for Rust: layouts as values that map coordinates to memory offsets.
//!
//! Use it to cut a matrix into tiles, to assign its elements to threads, and to swizzle shared memory.
//!
//! # What a layout is
//!
//! A [`Layout`] is a function from coordinates to offsets, given by a *shape* and a *stride*. Both are
//! integers or nested tuples of integers ([`IntTuple`]) with the same nesting. A layout is written
//! `shape:stride` in this manual, in code and in error messages:
//!
//! | layout | meaning |
//! |---|---|
//! | `8:1` | 8 consecutive elements |
//! | `8:0` | one element, repeated 8 times |
//! | `(4,8):(1,4)` | a 4 x 8 matrix, column-major |
//! | `(4,8):(8,1)` | a 4 x 8 matrix, row-major |
//! | `(6,2):(8,2)` | 6 rows with a stride of 8, 2 columns with a stride of 2 |
//! | `(4,(2,4)):(2,(1,8))` | a 4 x 8 matrix whose columns interleave in pairs |
//!
//! A layout has one *mode* for each member of its outermost tuple. A *coordinate* may be given at any level
//! of nesting. All of these name the same element of `(4,(2,4)):(2,(1,8))`:
//!
//! - the integer 23,
//! - one integer per mode, `(3,5)`,
//! - one integer per leaf, `(3,(1,2))`.
//!
//! An integer coordinate counts with the leftmost leaf fastest. The offset is the sum of leaf coordinates
//! times leaf strides: `3*2 + 1*1 + 2*8 = 23`.
//!
//! ```
//! use cute_rs::{IntTuple, Layout};
//!
//! let layout = Layout::new(IntTuple::from((4, (2, 4))), IntTuple::from((2, (1, 8))))?;
//! assert_eq!(layout.to_string(), "(4,(2,4)):(2,(1,8))");
//! assert_eq!(layout.coord(23).to_string(), "(3,(1,2))");
//! assert_eq!(layout.at(23), 23);
//! assert_eq!(layout.at_modes(&[3, 5]), 23);
//! assert_eq!(layout.at_coord(&IntTuple::from((3, (1, 2))))?, 23);
//! # Ok::<(), cute_rs::LayoutError>(())
//! ```
//!
//! [`draw`] draws any layout as text, SVG or LaTeX. Rows are the first mode, columns are the second, and each
//! cell shows its offset:
//!
//! ```
//! # use cute_rs::{IntTuple, Layout};
//! use cute_rs::draw::Picture;
//!
//! # let layout = Layout::new(IntTuple::from((4, (2, 4))), IntTuple::from((2, (1, 8))))?;
//! assert_eq!(Picture::of_layout(&layout)?.table(), "
//!      0  1  2  3  4  5  6  7
//!   +------------------------
//! 0 |  0  1  8  9 16 17 24 25
//! 1 |  2  3 10 11 18 19 26 27
//! 2 |  4  5 12 13 20 21 28 29
//! 3 |  6  7 14 15 22 23 30 31
//! ".trim_start_matches('\n'));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The same layout next to a row-major one. The colour gets darker from the first offset to the last:
//!
#![doc = include_str!("pictures/layouts.html")]
//!
//! # Terms
//!
//! | term | meaning | for `(4,(2,4)):(2,(1,8))` |
//! |---|---|---|
//! | mode | a member of the outermost tuple; it is itself a layout | `4:2` and `(2,4):(1,8)` |
//! | leaf | an integer of a nested tuple | 4, 2 and 4 |
//! | extent, stride | a leaf of the shape, and the leaf of the stride at the same place | 4 and 2, … |
//! | rank, depth | number of modes, levels of parentheses | 2 and 2 |
//! | [size](Layout::size) | number of coordinates, the product of extents | 32 |
//! | [cosize](Layout::cosize) | one past the largest offset | 32 |
//! | compact | takes every offset below its size exactly once | yes |
//! | injective | takes no offset twice | yes |
//! | broadcast | a leaf of stride 0 | none |
//! | [congruent](IntTuple::congruent) | of the same nesting | shape `(9,(9,9))` is |
//! | [compatible](IntTuple::compatible) | of the same sizes, with the same nesting or a coarser one | shapes `32` and `(4,8)` are |
//! | tile, rest | the two halves of a divided mode: inside a tile, and from tile to tile | |
//! | [tiler](Tiler) | selects the tile: a layout, a shape, or one tiler per mode | |
//! | profile | a tuple whose nesting says where to act; its values do not matter | |
//!
//! # Where to read on
//!
//! [`tutorial`] teaches the algebra by example; this page is the overview. [`checklist`] lists CuTe's names
//! and what each is called here. With the cargo feature `proptest`, `guide` shows how to property-test a
//! layout of your own.
//!
//! # Which operation is it?
//!
//! | to … | use |
//! |---|---|
//! | look up an offset | [`at`](Layout::at), [`at_modes`](Layout::at_modes), [`at_coord`](Layout::at_coord) |
//! | find the coordinate of an offset | [`coord_of`](Layout::coord_of); for all offsets [`left_inverse`](Layout::left_inverse) |
//! | transpose, reorder modes | [`select`](Layout::select) |
//! | give the elements another shape | [`with_shape`](Layout::with_shape), [`group`](Layout::group), [`flatten`](Layout::flatten) |
//! | take a row, a column or a tile | [`slice`](Layout::slice) |
//! | take every other row, or another regular subset | [`composition_by`](Layout::composition_by) |
//! | cut a matrix into tiles | [`zipped_divide_by`](Layout::zipped_divide_by), then [`slice`](Layout::slice) |
//! | fill a matrix with copies of a tile | [`tile_to_shape`](Layout::tile_to_shape), [`blocked_product`](Layout::blocked_product) |
//! | assign elements to threads round-robin | [`raked_product`](Layout::raked_product), or a [`ThreadValue`] |
//! | convert from one layout's order to another's | [`composition`](Layout::composition) with a [`right_inverse`](Layout::right_inverse) |
//! | find how wide a vector access may be | [`max_common_vector`](Layout::max_common_vector), [`max_alignment`](Layout::max_alignment) |
//! | count in elements of another width, such as bytes for halves | [`recast`](Layout::recast) |
//! | avoid bank conflicts | [`Swizzle::after`] |
//! | find which tensor element a tile's element is, or whether it exists | [`CoordLayout::identity`], divided in the same way |
//! | enumerate the offsets that a layout skips | [`complement`](Layout::complement) |
//!
//! # Common surprises
//!
//! - Integer coordinates run down the first mode first, as in Fortran. A row-major *layout* does not change
//!   that.
//! - `8` and `(8)` differ: one is an integer mode, the other a tuple with one mode.
//!   `Layout::flat(&[8], &[1])` is `(8):(1)`; its mode 0 is `8:1`.
//! - A tuple as a tiler acts mode by mode; a layout as a tiler acts on the whole. `<4,2>` cuts tiles of 4 x 2
//!   from a matrix, and `(4,2):(1,4)` cuts runs of 8 elements down its columns.
//! - A last tile that does not fit has the same size as the others: `logical_divide(10:1, 4:1)` is
//!   `(4,3):(1,4)`. To find the elements outside, divide an identity layout in the same way and compare with
//!   [`elem_less`](IntTuple::elem_less).
//! - Some compositions have no layout as their result. The error names the extent and the stride that do not
//!   fit.
//!
//! # The operations
//!
//! Each operation is a `const fn` that satisfies one equation. If no layout satisfies it, the operation
//! returns a [`LayoutError`] with the numbers that caused it. L, A and B are arguments, T is a tiler, R is
//! the result, and `o` reads "after".
//!
//! | operation | equation |
//! |---|---|
//! | [`coalesce`](Layout::coalesce), [`coalesce_by`](Layout::coalesce_by) a profile | `R(i) = L(i)`, with the fewest leaves |
//! | [`coalesce_x`](Layout::coalesce_x) | the same, also for `i` beyond the size |
//! | [`filter_zeros`](Layout::filter_zeros), [`filter`](Layout::filter), [`filter_by`](Layout::filter_by) | L without its broadcasts |
//! | [`flatten`](Layout::flatten), [`unflatten`](Layout::unflatten), [`group`](Layout::group), [`wrap`](Layout::wrap) | `R(i) = L(i)`, with another nesting |
//! | [`with_shape`](Layout::with_shape) | `R(i) = L(i)`, in another shape |
//! | [`concat`](Layout::concat), [`append`](Layout::append), [`prepend`](Layout::prepend), [`insert`](Layout::insert) | `R((a,b)) = A(a) + B(b)` |
//! | [`get`](Layout::get), [`take`](Layout::take), [`select`](Layout::select), [`replace`](Layout::replace), [`remove`](Layout::remove), [`reverse`](Layout::reverse), [`zip`](Layout::zip) | modes of L |
//! | [`slice`](Layout::slice), [`slice_at`](Layout::slice_at) any depth | `L(c) = offset + R(coordinates that are not fixed)` |
//! | [`dice`](Layout::dice), [`domain_offset`](Layout::domain_offset), [`coord_of`](Layout::coord_of) | the modes that a slice fixes; the layout from a coordinate on; the coordinate of an offset |
//! | [`composition`](Layout::composition), [`composition_by`](Layout::composition_by) mode | `R(c) = A(B(c))` |
//! | [`complement`](Layout::complement), [`complement_all`](Layout::complement_all) | `L(i) + R(j)` takes every value from 0 up once |
//! | [`right_inverse`](Layout::right_inverse) | `L(R(i)) = i` |
//! | [`left_inverse`](Layout::left_inverse) | `R(L(i)) = i` |
//! | [`right_inverse`](CoordLayout::right_inverse), [`left_inverse`](CoordLayout::left_inverse) of coordinate layouts | `L(R(c)) = c`, `R(L(i)) = i` |
//! | [`nullspace`](Layout::nullspace) | `L(R(i)) = 0` |
//! | [`max_common_layout`](Layout::max_common_layout), [`max_common_vector`](Layout::max_common_vector) | `A(R(i)) = B(R(i)) = i` |
//! | [`max_common_layout`](ComposedLayout::max_common_layout) of swizzled layouts | `C(R(i)) = C(R(0)) + i` |
//! | [`max_alignment`](Layout::max_alignment) | the offsets of L form aligned groups of R |
//! | [`domain_distribute`](Layout::domain_distribute) | `R(i) < R(i + 1)`, with steps along whole modes |
//! | [`logical_divide`](Layout::logical_divide), [`logical_divide_by`](Layout::logical_divide_by) mode | `R = L o (T, complement(T, size(L)))` |
//! | [`zipped_divide`](Layout::zipped_divide), [`zipped_divide_by`](Layout::zipped_divide_by) | `R = ((tile, tile, …), (rest, rest, …))` |
//! | [`tiled_divide`](Layout::tiled_divide), [`flat_divide`](Layout::flat_divide) | `((tile, …), rest, …)` and `(tile, …, rest, …)` |
//! | [`tile_unzip`](Layout::tile_unzip) | `((A0,B0),(A1,B1),C)` as `((A0,A1),(B0,B1,C))` |
//! | [`logical_product`](Layout::logical_product), [`logical_product_by`](Layout::logical_product_by) mode | `R = (L, complement(L, size(L) * cosize(T)) o T)` |
//! | [`zipped_product`](Layout::zipped_product), [`tiled_product`](Layout::tiled_product), [`flat_product`](Layout::flat_product) | the same, arranged like the divides |
//! | [`blocked_product`](Layout::blocked_product) | `R = ((block, grid), (block, grid), …)` |
//! | [`raked_product`](Layout::raked_product) | `R = ((grid, block), (grid, block), …)` |
//! | [`tile_to_shape`](Layout::tile_to_shape) | a blocked product that fills a shape |
//! | [`upcast`](Layout::upcast), [`downcast`](Layout::downcast), [`recast`](Layout::recast) | `R(c') = floor(L(c) / n)` and back |
//! | [`column_major`](Layout::column_major), [`row_major`](Layout::row_major), [`ordered`](Layout::ordered) | takes every value below the size once |
//! | [`compact_like`](Layout::compact_like), [`fragment_like`](Layout::fragment_like) | the same, with strides in the order of L's strides |
//! | [`inner_partition`](Layout::inner_partition), [`local_tile`](Layout::local_tile) | `L((x,c)) = starts(c) + part(x)`, tiles |
//! | [`outer_partition`](Layout::outer_partition) | `L((c,x)) = starts(c) + part(x)`, one place of every tile |
//! | [`thread_partition`](Layout::thread_partition), [`local_partition`](Layout::local_partition) | `L((p,x)) = starts(threads(p)) + part(x)` |
//! | [`apply`](Layout::apply) | `L(i)`, computed with another type's operators |
//!
//! By-mode operations take a [`Tiler`]: a layout, a shape, `_`, or one tiler per mode. [`IntTuple`] has the
//! arithmetic of shapes and coordinates: [`crd2idx`](IntTuple::crd2idx) and [`idx2crd`](IntTuple::idx2crd),
//! the relations [`congruent`](IntTuple::congruent) and [`compatible`](IntTuple::compatible), the orders
//! [`elem_less`](IntTuple::elem_less), [`lex_less`](IntTuple::lex_less) and
//! [`colex_less`](IntTuple::colex_less), [`shape_div`](IntTuple::shape_div),
//! [`ceil_div`](IntTuple::ceil_div), and edits.
//!
//! Two divides: one into tiles of neighbouring elements, one by every other row and column. Each cell is
//! labelled with its tile and its place in the tile:
//!
#![doc = include_str!("pictures/tiles.html")]
//!
//! Two questions that come up in every kernel, and the calls that answer them:
//!
//! ```
//! use cute_rs::Layout;
//!
//! // Which elements of a row-major 8 x 12 matrix are in tile (1,2) of 4 x 3 elements?
//! let matrix = Layout::flat(&[8, 12], &[12, 1])?;
//! let tiles = matrix.zipped_divide(&[Layout::flat(&[4], &[1])?, Layout::flat(&[3], &[1])?])?;
//! let tile_1_2 = 1 + 2 * 2; // There are two rows of tiles.
//! let (tile, start) = tiles.slice(&[None, Some(tile_1_2)])?;
//! assert_eq!(start, 4 * 12 + 2 * 3);
//! assert_eq!(tile.coalesce().to_string(), "(4,3):(12,1)");
//!
//! // At which offset of a column-major copy is the element at offset i of the row-major matrix?
//! let columns = Layout::flat(&[8, 12], &[1, 8])?;
//! let moved = columns.composition(&matrix.right_inverse()?)?;
//! assert_eq!(moved.to_string(), "(12,8):(8,1)");
//! # Ok::<(), cute_rs::LayoutError>(())
//! ```
//!
//! # Coordinate layouts
//!
//! A [`CoordLayout`] maps coordinates to coordinates: its strides count along components of a coordinate
//! ([`Basis`], CuTe's `E<i…>`). An [identity](CoordLayout::identity) layout, divided and sliced like the
//! layout of a tensor, says which tensor element is meant. It gives the coordinates of a tensor copy. With
//! [`elem_less`](IntTuple::elem_less), it gives the predicate of a tile that reaches beyond the tensor.
//!
//! # Tensors and partitions
//!
//! - A [`Partition`] is a layout cut into equal parts that begin in different places. A part is a tile, one
//!   place of every tile, or what one thread owns.
//! - A [`Tensor`] is a part together with its start. The start may be a device value: then only the start is
//!   computed on the device, and the elements have constant offsets from it.
//! - A [`TiledCopy`] assigns the elements of a tile to threads. [`in_groups`](TiledCopy::in_groups) extends
//!   the copy of one instruction to several warps.
//! - A [`TiledMma`] assigns the elements of A, B and C to the threads of adjacent instructions.
//! - A [`Predicate`] says which elements of a part of an identity layout are inside the tensor.
//!
//! # Swizzles
//!
//! Shared memory has 32 banks. Without a swizzle, the elements of one column of a matrix are all in the same
//! few banks. A [`Swizzle`], written `Sw<B,M,S>`, XORs B bits of an offset onto B others. This spreads a
//! column over the banks. A swizzle is its own inverse.
//!
//! A [`ComposedLayout`] is a layout followed by a swizzle: `c -> Sw(offset + L(c))`. Strides alone cannot
//! express it, but every operation on coordinates still applies to the layout before the swizzle.
//! [Slices](ComposedLayout::slice) keep their offset inside. [`decay`](ComposedLayout::decay) turns a slice
//! into plain strides where the bits do not collide.
//!
//! The pictures show the banks of 8 rows of 128 bytes, in chunks of 16 bytes. All chunks of a column are in
//! the same four banks, so an access of 32 lanes down the columns takes 32 wavefronts. After `Sw<3,0,3>` it
//! takes 4.
//!
#![doc = include_str!("pictures/banks.html")]
//!
//! # Thread-value layouts
//!
//! A [`ThreadValue`] says which thread holds which elements when a group of threads executes one instruction.
//! It is a layout `(thread, value) -> m + rows * n`. Its projections onto rows and columns are layouts, too.
//!
//! ```
//! use cute_rs::atom::wgmma;
//!
//! let accumulator = wgmma::accumulator(128)?;
//! assert_eq!(accumulator.coord(37, 6), (17 + 8, 8 + 2)); // Value 6 of thread 37.
//! # Ok::<(), cute_rs::LayoutError>(())
//! ```
//!
//! # Atoms
//!
//! Module [`atom`] describes the layouts of Hopper's instructions:
//!
//! - operand tiles in shared memory and their swizzles ([`atom::smem`]),
//! - the boxes in which tensor copies move these tiles ([`atom::boxes`], [`atom::tma`]),
//! - the descriptors that tell `wgmma` where a tile is ([`atom::descriptor`]),
//! - the registers of `wgmma` ([`atom::wgmma`]), `mma.sync` ([`atom::mma`]), and `stmatrix` and `ldmatrix`
//!   ([`atom::stmatrix`]),
//! - operands of 4 and 8 bits in the order in which threads load them ([`atom::unit`]).
//!
//! # Values, types, other numbers
//!
//! - Values: [`Layout`] is `Copy` and uses no heap. `const TILE: Layout = …` works, and so does a layout read
//!   from a file.
//! - Types: module [`types`] names layouts by types. Generic code can depend on them, and an operation
//!   without a result stops the build.
//! - Other numbers: [`Layout::apply`] evaluates a layout with any type that implements [`Arithmetic`], such
//!   as the values of a code generator. It uses few operations.
//!
//! # What it costs
//!
//! At run time, no operation allocates. A test with a counting allocator checks this for rank 8. Time of one
//! operation on layouts of rank 4 (release build, one core of a server CPU,
//! `cargo bench -p benchmarks --bench algebra`):
//!
//! | operation | time |
//! |---|---|
//! | [`at`](Layout::at), one evaluation | 12 ns |
//! | [`right_inverse`](Layout::right_inverse) | 0.09 us |
//! | [`complement`](Layout::complement) | 0.11 us |
//! | [`coalesce`](Layout::coalesce) | 0.13 us |
//! | [`composition`](Layout::composition) | 0.14 us |
//! | [`logical_product`](Layout::logical_product) | 0.37 us |
//! | [`logical_divide`](Layout::logical_divide) | 0.43 us |
//! | [`zipped_divide_by`](Layout::zipped_divide_by) four tilers | 2.5 us |
//!
//! At compile time, 200 static layouts of several nested operations each add 0.55 s to `cargo check`
//! (`cargo test -p cute-rs --test compile_cost -- --ignored --nocapture`).
//!
//! # Compared with CuTe
//!
//! Names are CuTe's, with two exceptions. A method that takes a tiler ends in `_by` if the plain name takes a
//! layout. `compact_order` and `make_ordered_layout` are [`ordered`](Layout::ordered), `make_layout_like` is
//! [`compact_like`](Layout::compact_like), and `make_fragment_like` is
//! [`fragment_like`](Layout::fragment_like). Differences, and what is left out:
//!
//! - Integers are not individually static or dynamic. A layout is a value, and a type of [`types`] is a
//!   constant value. So results never depend on which numbers the compiler knew, extents of 1 always
//!   coalesce, and there are no `Int<N>` or ratio types.
//! - Composition is refused where CuTe's result would be wrong or unchecked: where the sum of several modes
//!   carries, and where modes run in opposite directions across several modes. Negative strides in B follow
//!   `A(-x) = -A(x)`.
//! - [`complement`](Layout::complement), and with it divides and products, is refused for layouts whose modes
//!   repeat or interleave. pycute's result has overlapping copies there.
//! - [`right_inverse`](Layout::right_inverse) skips broadcasts; pycute's inverse ends at them.
//! - A mode with `_` in a divide's tiler goes to the rest and leaves no mode in the tile. pycute's `None`
//!   leaves `1:0`.
//! - [`blocked_product`](Layout::blocked_product) and [`tile_to_shape`](Layout::tile_to_shape) require equal
//!   ranks and never append modes `1:0` silently; call [`padded`](Layout::padded) for that. Their results are
//!   not coalesced.
//! - In a compact order with ties, modes with the same number are ordered from the left. So the result is
//!   always compact.
//! - There are no partially known integers (`MixedBits`). [`decay`](ComposedLayout::decay) returns the plain
//!   form of a slice of a swizzled layout, and a code generator folds the rest.
//! - There are no tuple algorithms such as `transform` and `fold`: tuples are plain values, so use a loop
//!   over the leaves.
//! - The crate holds no pointers, engines or data. It does not recast a tensor's pointer, and it does not add
//!   the offset that a negative stride needs there. [`upcast`](Layout::upcast) refuses to join elements along
//!   a negative stride.
//!
//! # When not to use it
//!
//! - The crate holds no data. For arrays with views and arithmetic use `ndarray`; a layout only says where an
//!   element is.
//! - A tuple has at most [`MAX_LEAVES`] integers, and layouts whose sizes or offsets exceed 2^62 are refused.
//! - A `Layout` is about 700 bytes, and its operations are meant for planning. In an inner loop, use the
//!   strides.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(any(test, feature = "proptest"))]
extern crate std;

/// `?` in a constant function.
macro_rules! ok {
    ($result:expr) => {
        match $result {
            Ok(value) => value,
            Err(error) => return Err(error),
        }
    };
}

/// `for` over a range of numbers in a constant function: `each!(i, 0..n, { .. })`.
macro_rules! each {
    ($i:ident, $from:tt..$to:expr, $body:block) => {{
        let (mut next, end) = ($from, $to);
        while next < end {
            let $i = next;
            next += 1;
            $body
        }
    }};
}

mod algebra;
pub mod atom;
pub mod checklist;
mod composed;
mod coord_layout;
pub mod draw;
mod error;
mod evaluate;
pub mod expr;
#[cfg(feature = "proptest")]
pub mod guide;
mod int_tuple;
#[cfg(feature = "proptest")]
pub mod laws;
mod layout;
mod lifted;
mod nest;
mod partition;
mod sentence;
#[cfg(feature = "proptest")]
pub mod strategies;
mod swizzle;
mod thread_value;
mod tiled_copy;
mod tiled_mma;
pub mod tutorial;
pub mod types;

pub use algebra::Tiler;
pub use composed::{ComposedLayout, SwizzledInverse};
pub use coord_layout::{Basis, CoordLayout};
pub use error::{BoxRule, LayoutError};
pub use evaluate::Arithmetic;
pub use int_tuple::{IntTuple, MAX_LEAVES};
pub use layout::{Coord, Layout};
pub use nest::Nest;
pub use partition::{Partition, Pattern, Predicate, Start, Tensor};
pub use swizzle::Swizzle;
pub use thread_value::ThreadValue;
pub use tiled_copy::TiledCopy;
pub use tiled_mma::{MmaAtom, Operand, TiledMma};
pub use typenum;
pub use types::{
    StaticComposed, StaticCoord, StaticCoords, StaticLayout, StaticSwizzle, StaticTiler, StaticTuple,
};
