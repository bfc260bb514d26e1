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
//! # The operations
//!
//! Each is a `const fn` that satisfies one equation; where no layout does, it returns a [`LayoutError`] with the numbers
//! that decide it. L, A and B are arguments, T is a tiler, R is the result, `o` reads "after".
//!
//! | operation | equation |
//! |---|---|
//! | [`coalesce`](Layout::coalesce) | `R(i) = L(i)`, with the fewest leaves |
//! | [`flatten`](Layout::flatten) | `R(i) = L(i)`, without nesting |
//! | [`group`](Layout::group) | `R(i) = L(i)`, some modes as one |
//! | [`concat`](Layout::concat) | `R((a,b)) = A(a) + B(b)` |
//! | [`slice`](Layout::slice) | `L(c) = offset + R(coordinates that are not fixed)` |
//! | [`composition`](Layout::composition) | `R(c) = A(B(c))` |
//! | [`complement`](Layout::complement) | `L(i) + R(j)` takes every value from 0 up once |
//! | [`right_inverse`](Layout::right_inverse) | `L(R(i)) = i` |
//! | [`left_inverse`](Layout::left_inverse) | `R(L(i)) = i` |
//! | [`logical_divide`](Layout::logical_divide) | `R = L o (T, complement(T, size(L)))` |
//! | [`zipped_divide`](Layout::zipped_divide) | the same in every mode, `R = ((tile, tile, …), (rest, rest, …))` |
//! | [`logical_product`](Layout::logical_product) | `R = (L, complement(L, size(L) * cosize(T)) o T)` |
//! | [`blocked_product`](Layout::blocked_product) | the same in every mode, `R = ((block, grid), (block, grid), …)` |
//! | [`tile_to_shape`](Layout::tile_to_shape) | a blocked product that fills a shape |
//! | [`apply`](Layout::apply) | `L(i)`, computed with another type's operators |
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
//! # Swizzles
//!
//! Shared memory has 32 banks, and the elements of one column of a matrix would all lie in the same few. A [`Swizzle`],
//! written `Sw<B,M,S>`, XORs B bits of an offset onto lower ones, which spreads a column over the banks and is its own
//! inverse. A [`ComposedLayout`] is a layout with a swizzle after it: `c -> Sw(offset + L(c))`. It is no layout, since no
//! strides produce it, so the algebra is done before the swizzle.
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
//! ([`atom::smem`]), the boxes by which tensor copies bring them ([`atom::tma`]), the descriptors by which `wgmma` finds
//! them ([`atom::descriptor`]), and the registers that it reads and writes ([`atom::wgmma`]).
//!
//! # Values, types, other numbers
//!
//! - Values: [`Layout`] is `Copy` and has no heap. `const TILE: Layout = …` works, and so does a layout read from a file.
//! - Types: module [`types`] names layouts by types, so that generic code can depend on them and an operation without a
//!   result stops the build.
//! - Other numbers: [`Layout::apply`] evaluates a layout with anything that has [`Arithmetic`], such as the values of a
//!   code generator, in few operations.
//!
//! # When not to use it
//!
//! - The crate holds no data. For arrays with views and arithmetic take `ndarray`; a layout answers only where an
//!   element lies.
//! - A tuple has at most [`MAX_LEAVES`] integers, and they are `i64` without overflow checks of their own: sizes and
//!   offsets beyond 2^63 are out of scope.
//! - A `Layout` is some 700 bytes and its operations are meant for planning. In an inner loop, use the strides.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(any(test, feature = "proptest"))]
extern crate std;

mod algebra;
pub mod atom;
mod composed;
mod coord_layout;
pub mod draw;
mod error;
mod evaluate;
pub mod expr;
mod int_tuple;
#[cfg(feature = "proptest")]
pub mod laws;
mod layout;
mod nest;
mod sentence;
#[cfg(feature = "proptest")]
pub mod strategies;
mod swizzle;
mod thread_value;
pub mod types;

pub use algebra::Tiler;
pub use composed::{ComposedLayout, SwizzledInverse};
pub use coord_layout::{Basis, CoordLayout};
pub use error::LayoutError;
pub use evaluate::Arithmetic;
pub use int_tuple::{IntTuple, MAX_LEAVES};
pub use layout::{Coord, Layout};
pub use nest::Nest;
pub use swizzle::Swizzle;
pub use thread_value::ThreadValue;
pub use typenum;
pub use types::{
    StaticComposed, StaticCoord, StaticCoords, StaticLayout, StaticSwizzle, StaticTiler, StaticTuple,
};
