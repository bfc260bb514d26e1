//! A tutorial: layouts and their algebra by example, from the simple to the advanced.
//!
//! The examples are the ones in CuTe's documentation, so you can compare results line by line. Read this
//! first if you do not know CuTe. The examples use [`expr::evaluate`](crate::expr::evaluate), which reads
//! CuTe's notation. Every function in an expression is the method of [`Layout`](crate::Layout) of the same
//! name.
//!
//! # A layout is a function
//!
//! A layout has a shape and a stride of the same nesting. The offset of a coordinate is the sum of its digits
//! times the strides:
//!
//! ```
//! use cute_rs::{IntTuple, Layout};
//!
//! let layout = Layout::new(IntTuple::from((2, (2, 2))), IntTuple::from((4, (2, 1))))?;
//! let rows = [0, 1].map(|m| [0, 1, 2, 3].map(|n| layout.at_modes(&[m, n])));
//! assert_eq!(rows, [[0, 2, 1, 3], [4, 6, 5, 7]]);
//! assert_eq!([0, 1, 2, 3, 4, 5, 6, 7].map(|i| layout.at(i)), [0, 4, 2, 6, 1, 5, 3, 7]);
//!
//! // Generated strides: column-major (leftmost leaf contiguous) or row-major (rightmost leaf contiguous).
//! let shape = IntTuple::from((2, (2, 2)));
//! assert_eq!(Layout::column_major(shape)?.to_string(), "(2,(2,2)):(1,(2,4))");
//! assert_eq!(Layout::row_major(shape)?.to_string(), "(2,(2,2)):(4,(2,1))");
//!
//! // A vector with a nested mode is still a vector: (4,2) elements in one mode.
//! let vector = Layout::new(IntTuple::from(((4, 2),)), IntTuple::from(((2, 1),)))?;
//! assert_eq!([0, 1, 2, 3, 4, 5, 6, 7].map(|i| vector.at(i)), [0, 2, 4, 6, 1, 3, 5, 7]);
//! # Ok::<(), cute_rs::LayoutError>(())
//! ```
//!
//! # Coordinates at any level of nesting
//!
//! A shape A is *compatible* with B if every coordinate of A is also a coordinate of B. This means that the
//! sizes agree wherever A has an integer. So every layout can be read as a vector, and a matrix with nested
//! modes can be read as a plain matrix.
//!
//! ```
//! use cute_rs::{IntTuple, Layout};
//!
//! let (six_four, halves) = (IntTuple::from((4, 6)), IntTuple::from(((2, 2), 6)));
//! for (a, b, compatible) in [
//!     (IntTuple::int(24), IntTuple::int(32), false),
//!     (IntTuple::int(24), six_four, true),
//!     (six_four, halves, true),
//!     (halves, IntTuple::from(((2, 2), (3, 2))), true),
//!     (IntTuple::int(24), IntTuple::from(((2, 3), 4)), true),
//!     (IntTuple::from(((2, 3), 4)), IntTuple::from(((2, 2), (3, 2))), false),
//!     (IntTuple::int(24), IntTuple::from((24,)), true),
//!     (IntTuple::from((24,)), IntTuple::int(24), false),
//!     (IntTuple::from((24,)), six_four, false),
//! ] {
//!     assert_eq!(a.compatible(&b), compatible, "{a} and {b}");
//! }
//!
//! // The same element of shape (3,(2,3)) by three coordinates, and its offset with strides (3,(12,1)).
//! let layout = Layout::new(IntTuple::from((3, (2, 3))), IntTuple::from((3, (12, 1))))?;
//! assert_eq!(layout.coord(16).to_string(), "(1,(1,2))");
//! for coord in [IntTuple::int(16), IntTuple::from((1, 5)), IntTuple::from((1, (1, 2)))] {
//!     assert_eq!((layout.shape().crd2idx(&coord)?, layout.at_coord(&coord)?), (16, 17));
//! }
//! # Ok::<(), cute_rs::LayoutError>(())
//! ```
//!
//! Integer coordinates enumerate the nested ones, with the leftmost digit fastest:
//!
//! ```
//! use cute_rs::IntTuple;
//!
//! let shape = IntTuple::from((3, (2, 3)));
//! let natural: Vec<_> = shape.coords().map(|coord| coord.to_string()).collect();
//! assert_eq!(natural[..5], ["(0,(0,0))", "(1,(0,0))", "(2,(0,0))", "(0,(1,0))", "(1,(1,0))"]);
//! assert_eq!(natural[13..], ["(1,(0,2))", "(2,(0,2))", "(0,(1,2))", "(1,(1,2))", "(2,(1,2))"]);
//! // One integer per mode: the same elements as a 3 x 6 matrix.
//! let matrix = shape.product_each()?;
//! assert_eq!(natural[13], shape.idx2crd(13).to_string());
//! assert_eq!(matrix.idx2crd(13), IntTuple::from((1, 4)));
//! # Ok::<(), cute_rs::LayoutError>(())
//! ```
//!
//! [`draw`](crate::draw) shows the offsets as a picture, in text, SVG or LaTeX:
//!
//! ```
//! use cute_rs::draw::Picture;
//! use cute_rs::{IntTuple, Layout};
//!
//! let layout = Layout::new(IntTuple::from((3, (2, 3))), IntTuple::from((3, (12, 1))))?;
//! assert_eq!(Picture::of_layout(&layout)?.table(), "
//!      0  1  2  3  4  5
//!   +------------------
//! 0 |  0 12  1 13  2 14
//! 1 |  3 15  4 16  5 17
//! 2 |  6 18  7 19  8 20
//! ".trim_start_matches('\n'));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Modes and concatenation
//!
//! ```
//! use cute_rs::{IntTuple, Layout};
//!
//! let a = Layout::new(IntTuple::from((4, (3, 6))), IntTuple::from((1, (4, 12))))?;
//! assert_eq!(a.mode(1).to_string(), "(3,6):(4,12)");
//! assert_eq!((a.get(&[1, 0])?.to_string(), a.get(&[1, 1])?.to_string()), ("3:4".into(), "6:12".into()));
//!
//! let b = Layout::flat(&[2, 3, 5, 7], &[1, 2, 6, 30])?;
//! assert_eq!(b.select(&[1, 3])?.to_string(), "(3,7):(2,30)");
//! assert_eq!(b.select(&[0, 1, 3])?.to_string(), "(2,3,7):(1,2,30)");
//! assert_eq!(b.take(1, 3)?.to_string(), "(3,5):(2,6)");
//! assert_eq!(b.group(0, 2)?.to_string(), "((2,3),5,7):((1,2),6,30)");
//! assert_eq!(b.group(0, 2)?.group(1, 3)?.to_string(), "((2,3),(5,7)):((1,2),(6,30))");
//! assert_eq!(b.group(0, 2)?.group(1, 3)?.flatten(), b);
//!
//! let (three, four) = (Layout::flat(&[3], &[1])?.mode(0), Layout::flat(&[4], &[3])?.mode(0));
//! assert_eq!(Layout::concat(&[three, four])?.to_string(), "(3,4):(1,3)");
//! assert_eq!(Layout::concat(&[four, three])?.to_string(), "(4,3):(3,1)");
//! assert_eq!(Layout::concat(&[three, four])?.append(&three)?.to_string(), "(3,4,3):(1,3,1)");
//! assert_eq!(Layout::concat(&[three, four])?.replace(1, &three)?.to_string(), "(3,3):(1,1)");
//! // A layout as a mode of another adds one level of parentheses.
//! let (row, column) = (Layout::concat(&[three, four])?, Layout::concat(&[four, three])?);
//! assert_eq!(Layout::concat(&[row, column])?.to_string(), "((3,4),(4,3)):((1,3),(3,1))");
//! assert_eq!(three.wrap()?.wrap()?.to_string(), "((3)):((1))");
//! assert_eq!(Layout::concat(&[three, three.wrap()?, three])?.to_string(), "(3,(3),3):(1,(1),1)");
//! # Ok::<(), cute_rs::LayoutError>(())
//! ```
//!
//! # Coalesce
//!
//! Coalescing returns the same function with fewer modes. Modes of extent 1 vanish, and a mode that continues
//! where the previous one ends is merged into it.
//!
//! ```
//! use cute_rs::{IntTuple, Layout};
//!
//! let layout = Layout::new(IntTuple::from((2, (1, 6))), IntTuple::from((1, (6, 2))))?;
//! assert_eq!(layout.coalesce().to_string(), "12:1");
//! // Each mode on its own, so that the result is still a matrix.
//! assert_eq!(layout.coalesce_by(&IntTuple::from((1, 1)))?.to_string(), "(2,6):(1,2)");
//! # Ok::<(), cute_rs::LayoutError>(())
//! ```
//!
//! # Composition
//!
//! `R = A o B` means `R(c) = A(B(c))`. B selects coordinates of A, and R has B's shape.
//!
//! ```
//! use cute_rs::expr::evaluate;
//!
//! for (expression, result) in [
//!     ("composition((6,2):(8,2), (4,3):(3,1))", "((2,2),3):((24,2),8)"),
//!     // Its modes: every third element of A, and three consecutive elements.
//!     ("composition((6,2):(8,2), 4:3)", "(2,2):(24,2)"),
//!     ("composition((6,2):(8,2), 3:1)", "3:8"),
//!     // A vector as a row-major matrix, and a matrix with another shape.
//!     ("composition(20:2, (5,4):(4,1))", "(5,4):(8,2)"),
//!     ("composition((10,2):(16,4), (5,4):(1,5))", "(5,(2,2)):(16,(80,4))"),
//!     // Mode by mode: 3 rows with a step of 4, 8 columns with a step of 2. Then a shape, whose steps are 1.
//!     ("composition((12,(4,8)):(59,(13,1)), <3:4,8:2>)", "(3,(2,4)):(236,(26,1))"),
//!     ("composition((12,(4,8)):(59,(13,1)), <3,8>)", "(3,(4,2)):(59,(13,1))"),
//! ] {
//!     assert_eq!(evaluate(expression)?.to_string(), result);
//! }
//! # Ok::<(), cute_rs::expr::ExprError>(())
//! ```
//!
//! The offsets of the first result, one for each integer coordinate of B:
//!
//! ```
//! use cute_rs::Layout;
//!
//! let (a, b) = (Layout::flat(&[6, 2], &[8, 2])?, Layout::flat(&[4, 3], &[3, 1])?);
//! let r = a.composition(&b)?;
//! let table: Vec<_> = (0..12).map(|c| r.at(c)).collect();
//! assert_eq!(table, [0, 24, 2, 26, 8, 32, 10, 34, 16, 40, 18, 42]);
//! assert!((0..12).all(|c| r.at(c) == a.at(b.at(c))));
//! # Ok::<(), cute_rs::LayoutError>(())
//! ```
//!
//! Composition divides a stride out of a shape with `shape_div`, and keeps an extent of it with `shape_mod`:
//!
//! ```
//! use cute_rs::IntTuple;
//!
//! for (shape, n, rest) in [
//!     (IntTuple::from((6, 2)), 2, "(3,2)"),
//!     (IntTuple::from((6, 2)), 3, "(2,2)"),
//!     (IntTuple::from((6, 2)), 6, "(1,2)"),
//!     (IntTuple::from((6, 2)), 12, "(1,1)"),
//!     (IntTuple::from((3, 6, 2, 8)), 6, "(1,3,2,8)"),
//!     (IntTuple::from((3, 6, 2, 8)), 9, "(1,2,2,8)"),
//!     (IntTuple::from((3, 6, 2, 8)), 72, "(1,1,1,4)"),
//! ] {
//!     assert_eq!(shape.shape_div(&IntTuple::int(n))?.to_string(), rest);
//! }
//! for (shape, n, kept) in [
//!     (IntTuple::from((6, 2)), 2, "(2,1)"),
//!     (IntTuple::from((6, 2)), 3, "(3,1)"),
//!     (IntTuple::from((6, 2)), 6, "(6,1)"),
//!     (IntTuple::from((6, 2)), 12, "(6,2)"),
//!     (IntTuple::from((3, 6, 2, 8)), 9, "(3,3,1,1)"),
//!     (IntTuple::from((1, 2, 2, 8)), 2, "(1,2,1,1)"),
//!     (IntTuple::from((1, 2, 2, 8)), 16, "(1,2,2,4)"),
//! ] {
//!     assert_eq!(shape.shape_mod(n)?.to_string(), kept);
//! }
//! # Ok::<(), cute_rs::LayoutError>(())
//! ```
//!
//! Both together compose with one mode: skip 9 coordinates per step, and keep 16 steps.
//!
//! ```
//! use cute_rs::Layout;
//!
//! let (w, x, y, z) = (1, 10, 100, 1000);
//! let a = Layout::flat(&[3, 6, 2, 8], &[w, x, y, z])?;
//! let r = a.composition(&Layout::flat(&[16], &[9])?.mode(0))?;
//! assert_eq!(r.coalesce(), Layout::flat(&[2, 2, 4], &[3 * x, y, z])?);
//! // Every 72nd coordinate is in the last mode.
//! assert_eq!(a.composition(&Layout::flat(&[4], &[72])?)?.to_string(), "(4):(2000)");
//! # Ok::<(), cute_rs::LayoutError>(())
//! ```
//!
//! # Complement
//!
//! The complement of a layout covers what the layout leaves out, up to a given size. It says where copies of
//! the layout begin.
//!
//! ```
//! use cute_rs::expr::evaluate;
//!
//! for (layout, complement) in [
//!     ("4:1", "6:4"),
//!     ("6:4", "4:1"),
//!     ("(4,6):(1,4)", "1:0"),
//!     ("4:2", "(2,3):(1,8)"),
//!     ("(2,4):(1,6)", "3:2"),
//!     ("(2,2):(1,6)", "(3,2):(2,12)"),
//! ] {
//!     assert_eq!(evaluate(&format!("complement({layout}, 24)"))?.to_string(), complement);
//! }
//! # Ok::<(), cute_rs::expr::ExprError>(())
//! ```
//!
//! # Divide
//!
//! A divide splits a layout into one tile and the set of tiles:
//! `logical_divide(A, B) = A o (B, complement(B, size(A)))`.
//!
//! ```
//! use cute_rs::expr::evaluate;
//! use cute_rs::{IntTuple, Layout, Tiler};
//!
//! let line = evaluate("logical_divide((4,2,3):(2,1,8), 4:2)")?;
//! assert_eq!(line.to_string(), "((2,2),(2,3)):((4,1),(2,8))");
//!
//! // A matrix divided by <3:3, (2,4):(1,8)>, in the four arrangements.
//! let matrix = Layout::new(IntTuple::from((9, (4, 8))), IntTuple::from((59, (13, 1))))?;
//! let (rows, columns) = (Layout::flat(&[3], &[3])?.mode(0), Layout::flat(&[2, 4], &[1, 8])?);
//! let tilers = [Tiler::By(&rows), Tiler::By(&columns)];
//! let tiler = Tiler::Modes(&tilers);
//! for (tiles, shape) in [
//!     (matrix.logical_divide_by(&tiler)?, "((3,3),((2,4),(2,2)))"),
//!     (matrix.zipped_divide_by(&tiler)?, "((3,(2,4)),(3,(2,2)))"),
//!     (matrix.tiled_divide(&tiler)?, "((3,(2,4)),3,(2,2))"),
//!     (matrix.flat_divide(&tiler)?, "(3,(2,4),3,(2,2))"),
//! ] {
//!     assert_eq!(tiles.shape().to_string(), shape);
//! }
//! // The tile itself is the composition with the tiler.
//! assert_eq!(matrix.zipped_divide_by(&tiler)?.mode(0), matrix.composition_by(&tiler)?);
//! assert_eq!(matrix.composition_by(&tiler)?.to_string(), "(3,(2,4)):(177,(13,2))");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The second mode of a zipped divide numbers the tiles. Here are the offsets of tile 3, tile 7 and tile
//! (1,2):
//!
//! ```
//! use cute_rs::{IntTuple, Layout, Tiler};
//!
//! let matrix = Layout::new(IntTuple::from((9, (4, 8))), IntTuple::from((59, (13, 1))))?;
//! let (rows, columns) = (Layout::flat(&[3], &[3])?.mode(0), Layout::flat(&[2, 4], &[1, 8])?);
//! let tiles = matrix.zipped_divide_by(&Tiler::Modes(&[Tiler::By(&rows), Tiler::By(&columns)]))?;
//! assert_eq!(tiles.to_string(), "((3,(2,4)),(3,(2,2))):((177,(13,2)),(59,(26,1)))");
//! assert_eq!([3, 7].map(|tile| tiles.at_modes(&[0, tile])), [26, 59 + 1]);
//! assert_eq!(tiles.at_coord(&IntTuple::from((0, (1, 2))))?, 59 + 1);
//! # Ok::<(), cute_rs::LayoutError>(())
//! ```
//!
//! # Slices
//!
//! A slice fixes some modes and keeps the modes with `_`. It returns the layout of the kept modes and the
//! offset where it begins.
//!
//! ```
//! use cute_rs::expr::evaluate;
//!
//! let tensor = "((3,2),(2,5,2)):((4,1),(2,13,100))";
//! for (coord, part) in [
//!     ("(2,_)", "((2,5,2)):((2,13,100))"),
//!     ("(_,5)", "((3,2)):((4,1))"),
//!     ("((_,_),5)", "(3,2):(4,1)"),
//!     ("((_,1),(0,_,1))", "(3,5):(4,13)"),
//!     ("((2,_),(_,3,_))", "(2,2,2):(1,2,100)"),
//! ] {
//!     assert_eq!(evaluate(&format!("slice({coord}, {tensor})"))?.to_string(), part);
//! }
//! // The start offsets: integer 5 of the second mode is (1,2,0).
//! assert_eq!(evaluate(&format!("at({tensor}, (0,5))"))?.to_string(), "28");
//! assert_eq!(evaluate(&format!("at({tensor}, ((0,1),(0,0,1)))"))?.to_string(), "101");
//! # Ok::<(), cute_rs::expr::ExprError>(())
//! ```
//!
//! # Partitions
//!
//! A divide followed by a slice assigns a tensor to workers. Fix the tile, and a worker gets one tile. Fix
//! the place in the tile, and a worker gets one element of every tile.
//!
//! ```
//! use cute_rs::{IntTuple, Layout, Tiler};
//!
//! let tensor = Layout::column_major(IntTuple::from((8, 24)))?;
//! let tiles = tensor.zipped_divide_by(&Tiler::Shape(&IntTuple::from((4, 8))))?;
//! assert_eq!(tiles.shape().to_string(), "((4,8),(2,3))");
//! // The CTA at (1,2) has the tile that starts at row 4, column 16.
//! let (tile, start) = tiles.slice(&[None, Some(1 + 2 * 2)])?;
//! assert_eq!((tile.to_string(), start), ("((4,8)):((1,8))".into(), 4 + 16 * 8));
//! // Thread 9 of 32 has the element at row 1, column 2 of every tile.
//! let (elements, start) = tiles.slice(&[Some(9), None])?;
//! assert_eq!((elements.to_string(), start), ("((2,3)):((4,64))".into(), 1 + 2 * 8));
//!
//! // Alternatively, a layout (thread, value) -> element says which values a thread has. The tensor composed
//! // with it has the modes threads and values.
//! let owners = Layout::new(IntTuple::from(((2, 4), (2, 2))), IntTuple::from(((8, 1), (4, 16))))?;
//! let by_thread = Layout::row_major(IntTuple::from((4, 8)))?.composition(&owners)?;
//! assert_eq!(by_thread.to_string(), "((2,4),(2,2)):((2,8),(1,4))");
//! let (values, start) = by_thread.slice(&[Some(5), None])?;
//! assert_eq!((values.to_string(), start), ("((2,2)):((1,4))".into(), 2 + 2 * 8));
//! # Ok::<(), cute_rs::LayoutError>(())
//! ```
//!
//! # Product
//!
//! A product repeats a block: `logical_product(A, B) = (A, complement(A, size(A) * cosize(B)) o B)`.
//!
//! ```
//! use cute_rs::expr::evaluate;
//!
//! for (expression, result) in [
//!     ("logical_product((2,2):(4,1), 6:1)", "((2,2),(2,3)):((4,1),(2,8))"),
//!     ("logical_product((2,2):(4,1), (4,2):(2,1))", "((2,2),(4,2)):((4,1),(8,2))"),
//!     // A row-major block of 2 x 5, repeated over a column-major grid of 3 x 4, mode by mode.
//!     ("blocked_product((2,5):(5,1), (3,4):(1,3))", "((2,3),(5,4)):((5,10),(1,30))"),
//! ] {
//!     assert_eq!(evaluate(expression)?.to_string(), result);
//! }
//!
//! // `logical_product` by mode gives the same, but its tilers must know the block's strides. Prefer
//! // `blocked_product`.
//! let by_mode = evaluate("logical_product((2,5):(5,1), <3:5,4:6>)")?;
//! assert_eq!(by_mode.to_string(), "((2,3),(5,4)):((5,10),(1,30))");
//! assert_eq!(evaluate("zipped_product((2,5):(5,1), <3:5,4:6>)")?.to_string(), "((2,5),(3,4)):((5,1),(10,30))");
//! assert_eq!(evaluate("flat_product((2,5):(5,1), <3:5,4:6>)")?.to_string(), "(2,5,3,4):(5,1,10,30)");
//!
//! // Interleaved: neighbours are the same element of neighbouring blocks.
//! use cute_rs::Layout;
//! let (block, grid) = (Layout::flat(&[2, 5], &[5, 1])?, Layout::flat(&[3, 4], &[1, 3])?);
//! assert_eq!(block.raked_product(&grid)?.to_string(), "((3,2),(4,5)):((10,5),(30,1))");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Coordinates as offsets
//!
//! A tensor copy takes coordinates, not addresses. A stride may count along one component of a coordinate:
//! `2@1` is 2 in component 1, and `2@1@0` is 2 in component 1 of component 0.
//!
//! ```
//! use cute_rs::{Basis, CoordLayout, IntTuple};
//!
//! for (path, text) in [(&[][..], "1"), (&[0], "1@0"), (&[0, 1], "1@1@0"), (&[1, 0], "1@0@1")] {
//!     assert_eq!(Basis::new(1, path)?.to_string(), text);
//! }
//! let profile = IntTuple::from((0, 0));
//! let strides = [Basis::new(1, &[1])?, Basis::new(1, &[0])?];
//! let swapped = CoordLayout::new(IntTuple::from((4, 5)), &strides, profile)?;
//! assert_eq!(swapped.to_string(), "(4,5):(1@1,1@0)");
//! assert_eq!(swapped.at_modes(&[3, 4]).to_string(), "(4,3)");
//!
//! // 2*2@1@0 + 3*1@1 + 4*5@1 + 7*1@0@0 is the coordinate ((7,4),23).
//! let paths = [(2, &[0, 1][..]), (1, &[1]), (5, &[1]), (1, &[0, 0])];
//! let strides = paths.map(|(scale, path)| Basis::new(scale, path)).into_iter().collect::<Result<Vec<_>, _>>()?;
//! let sums = CoordLayout::new(IntTuple::from((8, 8, 8, 8)), &strides, IntTuple::from(((0, 0), 0)))?;
//! assert_eq!(sums.at_modes(&[2, 3, 4, 7]).to_string(), "((7,4),23)");
//! # Ok::<(), cute_rs::LayoutError>(())
//! ```
//!
//! A kernel passes the coordinates of a tile to the tensor copy. They come from the tiles of an identity
//! layout: here tiles of 128 x 64 elements of a 256 x 192 tensor with one batch. A slice at a tile returns
//! the coordinate to copy from.
//!
//! ```
//! use cute_rs::expr::evaluate;
//! use cute_rs::{CoordLayout, IntTuple, Tiler};
//!
//! let tensor = CoordLayout::identity(IntTuple::from((256, 192, 1)))?;
//! let tiles = tensor.tiled_divide(&Tiler::Shape(&IntTuple::from((128, 64))))?;
//! assert_eq!(tiles.to_string(), "((128,64),2,3,1):((1@0,1@1),128@0,64@1,1@2)");
//! let (_, start) = tiles.slice(&[None, Some(1), Some(2), Some(0)])?;
//! assert_eq!(start, IntTuple::from((128, 128, 0)));
//!
//! // Swapped rows and columns of a coordinate, as text.
//! assert_eq!(evaluate("at((4,5):(1@1,1@0), (3,4))")?.to_string(), "(4,3)");
//! assert_eq!(evaluate("(4,5):(E<1>,E<0>)")?.to_string(), "(4,5):(1@1,1@0)");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Tiles, and the parts of threads
//!
//! A kernel takes a tile of a matrix, and each of its threads takes a part of the tile. Both come from a
//! divide with one half evaluated. `local_tile` keeps the tile and evaluates where it begins.
//! `local_partition` keeps one place of every tile. A part that does not begin at offset 0 is printed with
//! its offset before the layout.
//!
//! ```
//! use cute_rs::expr::evaluate;
//!
//! for (expression, result) in [
//!     // Tile (1,2) of a row-major 8 x 12 matrix in 4 x 3 tiles; then all tiles of tile row 1.
//!     ("local_tile((8,12):(12,1), <4,3>, (1,2))", "Sw<0,0,0> o 54 o (4,3):(12,1)"),
//!     ("local_tile((8,12):(12,1), <4,3>, (1,_))", "Sw<0,0,0> o 48 o (4,3,4):(12,1,3)"),
//!     // Element (1,2) of every tile.
//!     ("outer_partition((8,12):(12,1), <4,3>, (1,2))", "Sw<0,0,0> o 14 o (2,4):(48,3)"),
//!     // The tile is assigned to 2 x 4 threads, numbered along rows: thread 6 is at row 1, column 2.
//!     ("local_partition((4,8):(8,1), (2,4):(4,1), 6)", "Sw<0,0,0> o 10 o (2,2):(16,4)"),
//! ] {
//!     assert_eq!(evaluate(expression)?.to_string(), result);
//! }
//! # Ok::<(), cute_rs::expr::ExprError>(())
//! ```
//!
//! With an identity layout for the matrix, the same calls say *which* elements these are, and so which of
//! them exist:
//!
//! ```
//! use cute_rs::{CoordLayout, IntTuple, Predicate, Tiler};
//!
//! let (shape, tile) = (IntTuple::from((8, 10)), IntTuple::from((4, 3)));
//! let identity = CoordLayout::identity(shape)?;
//! let (part, first) = identity.local_tile(&Tiler::Shape(&tile), &[Some(1), Some(3)])?;
//! assert_eq!((first.to_string(), part.to_string()), ("(4,9)".into(), "(4,3):(1@0,1@1)".into()));
//! let inside = Predicate::new(part, first, shape)?;
//! assert_eq!([0, 3, 4].map(|element| inside.at(element)), [true, true, false]); // Column 10 does not exist.
//! # Ok::<(), cute_rs::LayoutError>(())
//! ```
//!
//! On a device, the coordinate is a value that only the kernel knows. A [`Tensor`](crate::Tensor) computes
//! the start of the part with device values, and everything else stays constant. Here `u32` stands for the
//! device value:
//!
//! ```
//! use cute_rs::{Layout, Tensor, TiledCopy};
//!
//! // 32 threads copy 4 x 32 elements, 4 consecutive ones each. The copy repeats down a row-major matrix.
//! let copy = TiledCopy::new(&Layout::flat(&[4, 8], &[8, 1])?, &Layout::flat(&[1, 4], &[4, 1])?)?;
//! let matrix = Tensor::new(Layout::flat(&[16, 32], &[32, 1])?, 0_u32);
//! let thread = 13_u32;
//! let own = copy.partition_s(&matrix.layout)?.tensor(matrix.start, &[Some(thread)])?;
//! assert_eq!(own.start, 32 + 5 * 4);
//! assert_eq!(own.layout.to_string(), "(4,4,1):(1,128,0)");
//! # Ok::<(), cute_rs::LayoutError>(())
//! ```
//!
//! An instruction assigns its matrices to threads in its own way, and several groups of threads can work next
//! to each other:
//!
//! ```
//! use cute_rs::{CoordLayout, IntTuple, Operand, TiledMma, atom::wgmma};
//!
//! // Two warpgroups share 128 rows. Each thread holds 32 accumulators of the 64 x 64 elements of its
//! // warpgroup.
//! let mma = TiledMma::new(wgmma::atom(64, 16)?, [2, 1, 1])?;
//! assert_eq!(mma.fragment_shape(Operand::C, [128, 64])?.to_string(), "((2,2,8),1,1)");
//! let c = mma.partition(Operand::C, &CoordLayout::identity(IntTuple::from((128, 64)))?)?;
//! let (part, first) = c.at(&[Some(128 + 37)])?; // Thread 37 of the second group.
//! assert_eq!((first.to_string(), part.at(5).to_string()), ("(81,2)".into(), "(0,9)".into()));
//! # Ok::<(), cute_rs::LayoutError>(())
//! ```
//!
//! If a group executes several instructions, its parts have modes for them: `(value, along M, along N)`.
//! Operands that `wgmma` reads from shared memory belong to no thread. Their parts say where each instruction
//! begins to read, which goes into its descriptors:
//!
//! ```
//! use cute_rs::atom::{Major, SwizzleMode, descriptor::MatrixDescriptor, wgmma};
//! use cute_rs::{Operand, TiledMma};
//!
//! // Two warpgroups multiply a 256 x 64 tile of A: two blocks of rows each, and four instructions along K.
//! let mma = TiledMma::new(wgmma::atom(64, 16)?, [2, 1, 1])?;
//! let tile = MatrixDescriptor::new(Major::K, SwizzleMode::B128, 16, 256, 64)?;
//! let a = mma.partition(Operand::A, tile.layout())?;
//! // Thread and group select a part: for any thread of the second group it begins 64 rows further down.
//! let begins = |thread, group| a.at(&[Some(thread), Some(group), Some(0), Some(0)]).map(|part| part.1);
//! assert_eq!((begins(0, 0)?, begins(99, 1)?), (0, 64 * 64));
//! // Block and step are modes of the part: steps of 128 rows and of 16 elements.
//! let places = [0, 1].map(|block| [0, 1, 2, 3].map(|step| a.part().at_modes(&[0, block, step])));
//! assert_eq!(places, [[0, 16, 32, 48], [8192, 8208, 8224, 8240]]);
//! # Ok::<(), cute_rs::LayoutError>(())
//! ```
//!
//! Some instructions exchange elements between threads when they store: `stmatrix` reads a fragment from the
//! registers of a warp, and each lane writes a row. Such a copy has two layouts. Four warps, each 16 rows
//! below the previous one, extend it to a warpgroup:
//!
//! ```
//! use cute_rs::atom::{Major, SwizzleMode, smem, stmatrix, wgmma};
//!
//! let store = stmatrix::stmatrix(4, false)?.in_groups(&[4, 1])?;
//! assert_eq!((store.tile().to_string().as_str(), store.threads()), ("(64,16)", 128));
//! // It reads the accumulators of 16 columns in the order in which `wgmma` leaves them.
//! assert_eq!(store.retile(&wgmma::accumulator(16)?.layout())?.coalesce().to_string(), "8:1");
//!
//! // Thread 37, which is lane 5 of warp 1, writes row 21. The first of its four writes is at column 0, and
//! // the swizzle moves it by 5 chunks.
//! let tile = smem::tile(Major::K, SwizzleMode::B128, 16, 64, 64)?;
//! let rows = store.partition_d(&tile)?.tensor(0_u32, &[Some(37)])?;
//! assert_eq!((rows.layout.shape().to_string().as_str(), rows.at(0)?), ("((8),1,4)", 21 * 64 + 5 * 8));
//! # Ok::<(), cute_rs::LayoutError>(())
//! ```
//!
//! # The boxes of a tensor copy
//!
//! A tensor copy moves boxes. In shared memory a box is one contiguous run, and in global memory it is a
//! rectangle. The layouts determine the rectangle. `right_inverse(shared)` walks through shared memory
//! element by element and gives the place of each element in the tile. The tile's map gives its place in the
//! tensor. The box is the longest beginning of this walk that takes single steps along modes of the tensor.
//!
//! ```
//! use cute_rs::atom::{Major, SwizzleMode, boxes::tma_box, smem};
//! use cute_rs::{CoordLayout, IntTuple, Layout, Tiler};
//!
//! // A tile of 64 x 128 elements of 16 bits, rows contiguous, in swizzled rows of 128 bytes.
//! let (shape, tile) = (IntTuple::from((1024, 4096)), IntTuple::from((64, 128)));
//! let shared = smem::tile(Major::K, SwizzleMode::B128, 16, 64, 128)?;
//! let map = CoordLayout::identity(shape)?.composition_by(&Tiler::Shape(&tile))?;
//! let walk = map.composition(&shared.layout.right_inverse()?)?;
//! assert_eq!(walk.coalesce().to_string(), "(64,64,2):(1@1,1@0,64@1)");
//!
//! // A box has 64 columns and 64 rows. There are 2 boxes; the second is 64 columns further.
//! let plan = tma_box(&Layout::row_major(shape)?, &shared, &Tiler::Shape(&tile), 16)?;
//! assert_eq!((plan.extents(), plan.modes(), plan.count()), (&[64, 64][..], &[1, 0][..], 2));
//! assert_eq!(plan.coords().to_string(), "2:64@1");
//!
//! // A box that no copy can move is refused with the mode, the value and the limit.
//! let wide = SwizzleMode::B128.swizzle(16).after(Layout::row_major(tile)?);
//! let refused = tma_box(&Layout::row_major(shape)?, &wide, &Tiler::Shape(&tile), 16).unwrap_err();
//! assert_eq!(refused.to_string(), "mode 1: a row of the box, in bytes, is 256, the swizzle needs 128");
//! # Ok::<(), cute_rs::LayoutError>(())
//! ```
