//! CuTe's layout algebra for Rust: which element lies where, as a value that can be computed with.
//!
//! # What a layout is
//!
//! A [`Layout`] is a function from coordinates to offsets, given by a *shape* and a *stride*. Both are integers or
//! nested tuples of integers ([`IntTuple`]), nested alike, and are written `shape:stride`, in this manual, in code and
//! in error messages:
//!
//! | layout | meaning |
//! |---|---|
//! | `8:1` | 8 neighbours |
//! | `8:0` | one element, 8 times |
//! | `(4,8):(1,4)` | a 4 x 8 matrix, columns contiguous |
//! | `(4,8):(8,1)` | a 4 x 8 matrix, rows contiguous |
//! | `(6,2):(8,2)` | 6 rows that are 8 apart, 2 columns that are 2 apart |
//! | `(4,(2,4)):(2,(1,8))` | a 4 x 8 matrix whose pairs of columns interleave |
//!
//! A layout has one *mode* for each member of its outermost tuple. A *coordinate* is as coarse as one likes, and all
//! of these name the same element of `(4,(2,4)):(2,(1,8))`: the integer 23, one integer a mode `(3,5)`, one integer a
//! leaf `(3,(1,2))`. Integers count with the leftmost leaf fastest. The offset is the sum of leaf coordinates times leaf
//! strides: `3*2 + 1*1 + 2*8 = 23`.
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
//! The same layout as a picture, which [`draw`] makes of any layout, as text, SVG or LaTeX: rows are the first mode,
//! columns the second, and each cell has its offset.
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
//! Beside a row-major layout, darker from the first offset to the last:
//!
#![doc = include_str!("pictures/layouts.html")]
//!
//! # Words
//!
//! | word | meaning | of `(4,(2,4)):(2,(1,8))` |
//! |---|---|---|
//! | mode | a member of the outermost tuple, a layout itself | `4:2` and `(2,4):(1,8)` |
//! | leaf | an integer of a nested tuple | 4, 2 and 4 |
//! | extent, stride | a leaf of the shape, the leaf of the stride at its place | 4 and 2, … |
//! | rank, depth | number of modes, levels of parentheses | 2 and 2 |
//! | [size](Layout::size) | number of coordinates, the product of extents | 32 |
//! | [cosize](Layout::cosize) | one past the largest offset | 32 |
//! | compact | takes every offset below its size once | yes |
//! | injective | takes no offset twice | yes |
//! | broadcast | a leaf of stride 0 | none |
//! | [congruent](IntTuple::congruent) | nested alike | shape `(9,(9,9))` is |
//! | [compatible](IntTuple::compatible) | of the same sizes, nested alike or coarser | shapes `32` and `(4,8)` are |
//! | tile, rest | the two halves of a divided mode: inside a tile, from tile to tile | |
//! | [tiler](Tiler) | what picks the tile: a layout, a shape, or one tiler a mode | |
//! | profile | a tuple that says where to act: its integers are flags | |
//!
//! # Where to read on
//!
//! [`tutorial`] teaches the algebra by example; this page is its overview; [`checklist`] says for each of CuTe's names
//! what it is called here; with the cargo feature `proptest`, `guide` shows how to property-test a layout of your own.
//!
//! # Which operation is it?
//!
//! | to … | take |
//! |---|---|
//! | look up an offset | [`at`](Layout::at), [`at_modes`](Layout::at_modes), [`at_coord`](Layout::at_coord) |
//! | find the coordinate of an offset | [`coord_of`](Layout::coord_of); for all of them [`left_inverse`](Layout::left_inverse) |
//! | transpose, reorder modes | [`select`](Layout::select) |
//! | see the elements in another shape | [`with_shape`](Layout::with_shape), [`group`](Layout::group), [`flatten`](Layout::flatten) |
//! | take a row, a column, a tile | [`slice`](Layout::slice) |
//! | take every other row, or any regular part | [`composition_by`](Layout::composition_by) |
//! | cut a matrix into tiles | [`zipped_divide_by`](Layout::zipped_divide_by), then [`slice`](Layout::slice) |
//! | make a matrix of copies of a tile | [`tile_to_shape`](Layout::tile_to_shape), [`blocked_product`](Layout::blocked_product) |
//! | deal elements to threads in turn | [`raked_product`](Layout::raked_product), or a [`ThreadValue`] |
//! | move from one layout's order to another's | [`composition`](Layout::composition) with a [`right_inverse`](Layout::right_inverse) |
//! | know how wide a vector may be | [`max_common_vector`](Layout::max_common_vector), [`max_alignment`](Layout::max_alignment) |
//! | count in other elements, bytes for halves | [`recast`](Layout::recast) |
//! | avoid bank conflicts | [`Swizzle::after`] |
//! | know which element a tile's element is, or whether it exists | [`CoordLayout::identity`], divided alike |
//! | number the elements that a layout skips | [`complement`](Layout::complement) |
//!
//! # What surprises newcomers
//!
//! - Integer coordinates run down the first mode first, as in Fortran; a row-major *layout* does not change that.
//! - `8` and `(8)` differ: an integer mode, and a tuple of one. `Layout::flat(&[8], &[1])` is `(8):(1)`, its mode 0 is `8:1`.
//! - A tuple as a tiler acts mode by mode, a layout acts on the whole: `<4,2>` cuts tiles of 4 x 2 from a matrix,
//!   `(4,2):(1,4)` cuts runs of 8 elements down its columns.
//! - A last tile that does not fit is as large as the others: `logical_divide(10:1, 4:1)` is `(4,3):(1,4)`. What lies outside is
//!   told by an identity layout that is divided alike, and [`elem_less`](IntTuple::elem_less).
//! - A composition may have no layout as its result; the error says which extent and stride do not fit.
//!
//! # The operations
//!
//! Each is a `const fn` that satisfies one equation; where no layout does, it returns a [`LayoutError`] with the numbers
//! that decide it. L, A and B are arguments, T is a tiler, R is the result, `o` reads "after".
//!
//! | operation | equation |
//! |---|---|
//! | [`coalesce`](Layout::coalesce), [`coalesce_by`](Layout::coalesce_by) a profile | `R(i) = L(i)`, with the fewest leaves |
//! | [`coalesce_x`](Layout::coalesce_x) | the same, also for `i` beyond the size |
//! | [`filter_zeros`](Layout::filter_zeros), [`filter`](Layout::filter), [`filter_by`](Layout::filter_by) | L without its broadcasts |
//! | [`flatten`](Layout::flatten), [`unflatten`](Layout::unflatten), [`group`](Layout::group), [`wrap`](Layout::wrap) | `R(i) = L(i)`, nested otherwise |
//! | [`with_shape`](Layout::with_shape) | `R(i) = L(i)`, in another shape |
//! | [`concat`](Layout::concat), [`append`](Layout::append), [`prepend`](Layout::prepend), [`insert`](Layout::insert) | `R((a,b)) = A(a) + B(b)` |
//! | [`get`](Layout::get), [`take`](Layout::take), [`select`](Layout::select), [`replace`](Layout::replace), [`remove`](Layout::remove), [`reverse`](Layout::reverse), [`zip`](Layout::zip) | modes of L |
//! | [`slice`](Layout::slice), [`slice_at`](Layout::slice_at) any depth | `L(c) = offset + R(coordinates that are not fixed)` |
//! | [`dice`](Layout::dice), [`domain_offset`](Layout::domain_offset), [`coord_of`](Layout::coord_of) | the other modes; the start; the way back |
//! | [`composition`](Layout::composition), [`composition_by`](Layout::composition_by) mode | `R(c) = A(B(c))` |
//! | [`complement`](Layout::complement), [`complement_all`](Layout::complement_all) | `L(i) + R(j)` takes every value from 0 up once |
//! | [`right_inverse`](Layout::right_inverse) | `L(R(i)) = i` |
//! | [`left_inverse`](Layout::left_inverse) | `R(L(i)) = i` |
//! | [`right_inverse`](CoordLayout::right_inverse), [`left_inverse`](CoordLayout::left_inverse) of coordinate layouts | `L(R(c)) = c`, `R(L(i)) = i` |
//! | [`nullspace`](Layout::nullspace) | `L(R(i)) = 0` |
//! | [`max_common_layout`](Layout::max_common_layout), [`max_common_vector`](Layout::max_common_vector) | `A(R(i)) = B(R(i)) = i` |
//! | [`max_common_layout`](ComposedLayout::max_common_layout) of swizzled layouts | `C(R(i)) = C(R(0)) + i` |
//! | [`max_alignment`](Layout::max_alignment) | L in whole groups of R |
//! | [`domain_distribute`](Layout::domain_distribute) | `R(i) < R(i + 1)`, along whole modes |
//! | [`logical_divide`](Layout::logical_divide), [`logical_divide_by`](Layout::logical_divide_by) mode | `R = L o (T, complement(T, size(L)))` |
//! | [`zipped_divide`](Layout::zipped_divide), [`zipped_divide_by`](Layout::zipped_divide_by) | `R = ((tile, tile, …), (rest, rest, …))` |
//! | [`tiled_divide`](Layout::tiled_divide), [`flat_divide`](Layout::flat_divide) | `((tile, …), rest, …)` and `(tile, …, rest, …)` |
//! | [`tile_unzip`](Layout::tile_unzip) | `((A0,B0),(A1,B1),C)` as `((A0,A1),(B0,B1,C))` |
//! | [`logical_product`](Layout::logical_product), [`logical_product_by`](Layout::logical_product_by) mode | `R = (L, complement(L, size(L) * cosize(T)) o T)` |
//! | [`zipped_product`](Layout::zipped_product), [`tiled_product`](Layout::tiled_product), [`flat_product`](Layout::flat_product) | the same, arranged as divides are |
//! | [`blocked_product`](Layout::blocked_product) | `R = ((block, grid), (block, grid), …)` |
//! | [`raked_product`](Layout::raked_product) | `R = ((grid, block), (grid, block), …)` |
//! | [`tile_to_shape`](Layout::tile_to_shape) | a blocked product that fills a shape |
//! | [`upcast`](Layout::upcast), [`downcast`](Layout::downcast), [`recast`](Layout::recast) | `R(c') = floor(L(c) / n)` and back |
//! | [`column_major`](Layout::column_major), [`row_major`](Layout::row_major), [`ordered`](Layout::ordered) | every value below the size once |
//! | [`compact_like`](Layout::compact_like), [`fragment_like`](Layout::fragment_like) | the same with the strides' order of L |
//! | [`inner_partition`](Layout::inner_partition), [`local_tile`](Layout::local_tile) | `L((x,c)) = starts(c) + part(x)`, tiles |
//! | [`outer_partition`](Layout::outer_partition) | `L((c,x)) = starts(c) + part(x)`, places of tiles |
//! | [`thread_partition`](Layout::thread_partition), [`local_partition`](Layout::local_partition) | `L((p,x)) = starts(threads(p)) + part(x)` |
//! | [`apply`](Layout::apply) | `L(i)`, computed with another type's operators |
//!
//! By-mode operations take a [`Tiler`]: a layout, a shape, `_`, or one tiler a mode. [`IntTuple`] has the arithmetic of
//! shapes and coordinates: [`crd2idx`](IntTuple::crd2idx) and [`idx2crd`](IntTuple::idx2crd),
//! [`compatible`](IntTuple::compatible) and its kin, the orders [`elem_less`](IntTuple::elem_less),
//! [`lex_less`](IntTuple::lex_less) and [`colex_less`](IntTuple::colex_less), [`shape_div`](IntTuple::shape_div),
//! [`ceil_div`](IntTuple::ceil_div), and edits.
//!
//! A divide by neighbours, and one by every other row and column: cells are labelled by their tile and their place in it.
//!
#![doc = include_str!("pictures/tiles.html")]
//!
//! Two questions that come up in every kernel, answered by them:
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
//! // At which coordinate of a column-major copy does the i-th element of the row-major one lie?
//! let columns = Layout::flat(&[8, 12], &[1, 8])?;
//! let moved = columns.composition(&matrix.right_inverse()?)?;
//! assert_eq!(moved.to_string(), "(12,8):(8,1)");
//! # Ok::<(), cute_rs::LayoutError>(())
//! ```
//!
//! # Coordinate layouts
//!
//! A [`CoordLayout`] has strides that count along components of a coordinate ([`Basis`], CuTe's `E<i…>`), so it maps
//! coordinates to coordinates. Divided and sliced as the layout of a tensor is, an
//! [identity](CoordLayout::identity) says which element is meant: the coordinates of a tensor copy, and with
//! [`elem_less`](IntTuple::elem_less) the predicate of a tile that reaches beyond the tensor.
//!
//! # Tensors and partitions
//!
//! A [`Partition`] is a layout cut into parts that are all alike and begin in different places: tiles, what is at one place of
//! every tile, or what one thread has. A [`Tensor`] is such a part with its start, which may be a device's value: then only
//! the start is computed on the device, and the elements of the part lie at constant distances from it. A [`TiledCopy`] deals
//! the elements of a tile to threads ([`in_groups`](TiledCopy::in_groups) that of an instruction to several warps), a [`TiledMma`] those of A, B and C to the threads of instructions side by side. A
//! [`Predicate`] says which elements of a part of an identity are inside the tensor.
//!
//! # Swizzles
//!
//! Shared memory has 32 banks, and the elements of one column of a matrix would all lie in the same few. A [`Swizzle`],
//! written `Sw<B,M,S>`, XORs B bits of an offset onto others, which spreads a column over the banks and is its own
//! inverse. A [`ComposedLayout`] is a layout with a swizzle after it: `c -> Sw(offset + L(c))`. No strides produce it, but the
//! whole algebra of coordinates passes through to the layout before the swizzle; [slices](ComposedLayout::slice) keep
//! their offset inside, and [`decay`](ComposedLayout::decay) to plain strides where the bits do not collide.
//!
//! The banks of 8 rows of 128 bytes, in chunks of 16 bytes: read down the columns, all chunks of a column are in the same
//! four banks, and 32 lanes take 32 turns. After `Sw<3,0,3>` they take 4.
//!
#![doc = include_str!("pictures/banks.html")]
//!
//! # Thread-value layouts
//!
//! An instruction that a group of threads executes together says which thread holds which elements. A [`ThreadValue`]
//! is that fact as a layout `(thread, value) -> m + rows * n`; its projections onto rows and columns are layouts, too.
//!
//! ```
//! use cute_rs::atom::wgmma;
//!
//! let accumulator = wgmma::accumulator(128)?;
//! assert_eq!(accumulator.coord(37, 6), (17 + 8, 8 + 2)); // Thread 37 holds it as value 6.
//! # Ok::<(), cute_rs::LayoutError>(())
//! ```
//!
//! # Atoms
//!
//! Module [`atom`] has the layout facts of Hopper's instructions: operand tiles in shared memory and their swizzles
//! ([`atom::smem`]), the boxes by which tensor copies bring them ([`atom::boxes`], [`atom::tma`]), the descriptors by which `wgmma` finds
//! them ([`atom::descriptor`]), the registers that it reads and writes ([`atom::wgmma`]), and those of `stmatrix` and `ldmatrix`
//! ([`atom::stmatrix`]).
//!
//! # Values, types, other numbers
//!
//! - Values: [`Layout`] is `Copy` and has no heap. `const TILE: Layout = …` works, and so does a layout read from a file.
//! - Types: module [`types`] names layouts by types, so that generic code can depend on them and an operation without a
//!   result stops the build.
//! - Other numbers: [`Layout::apply`] evaluates a layout with anything that has [`Arithmetic`], such as the values of a
//!   code generator, in few operations.
//!
//! # What it costs
//!
//! At run time, an operation takes no heap at all, which a test with a counting allocator proves for rank 8. For layouts of
//! rank 4, one takes (release, one core of a server CPU, `cargo bench -p cute-rs --bench algebra`):
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
//! At compile time, 200 static layouts, each of several nested operations, add 0.55 s to `cargo check`
//! (`cargo test -p cute-rs --test compile_cost -- --ignored --nocapture`).
//!
//! # Compared with CuTe
//!
//! Names are CuTe's, except that methods which take a tiler of modes end in `_by` where there is one for a plain layout,
//! and `compact_order`, `make_ordered_layout`, `make_layout_like` and `make_fragment_like` are
//! [`ordered`](Layout::ordered), [`compact_like`](Layout::compact_like) and [`fragment_like`](Layout::fragment_like).
//! Where it differs, and what it leaves out:
//!
//! - Integers are not static or dynamic one by one. A layout is a value, and a type of [`types`] is a constant value;
//!   so results never depend on which numbers the compiler knew, extents of 1 always coalesce, and there are no `Int<N>`
//!   or ratio types.
//! - Composition is refused where CuTe's would be wrong or unchecked: where a sum of modes carries, and where modes run in
//!   opposite directions over several modes. It is defined for negative strides in B by `A(-x) = -A(x)`.
//! - [`complement`](Layout::complement), and with it divides and products, is refused for layouts whose modes repeat or
//!   interleave, where pycute's has overlapping copies.
//! - [`right_inverse`](Layout::right_inverse) steps over broadcasts, which end pycute's.
//! - A mode with `_` in a divide's tiler goes to the rest and leaves no mode in the tile, where pycute's `None` leaves `1:0`.
//! - [`blocked_product`](Layout::blocked_product) and [`tile_to_shape`](Layout::tile_to_shape) want equal ranks and do not
//!   append modes `1:0` in silence; [`padded`](Layout::padded) does so on request. Their results are not coalesced.
//! - A compact order with ties counts them from the left, so that the result is compact always.
//! - Partially known integers (`MixedBits`): a slice of a swizzled layout is asked for its plain form with
//!   [`decay`](ComposedLayout::decay) instead, and a code generator folds the rest.
//! - Tuple algorithms (`transform`, `fold`, …): tuples are plain values here, and loops over leaves do.
//! - Pointers, engines and data: the crate holds none, so recasting a tensor's pointer, and the offset that a negative
//!   stride needs there, are not its business; [`upcast`](Layout::upcast) refuses to join elements along one.
//!
//! # When not to use it
//!
//! - The crate holds no data. For arrays with views and arithmetic take `ndarray`; a layout answers only where an
//!   element lies.
//! - A tuple has at most [`MAX_LEAVES`] integers, and layouts whose sizes or offsets exceed 2^62 are refused.
//! - A `Layout` is some 700 bytes and its operations are meant for planning. In an inner loop, use the strides.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(any(test, feature = "proptest"))]
extern crate std;

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
