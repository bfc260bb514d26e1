//! A guide to testing your own layouts with this crate's strategies and laws.
//!
//! Read it when you write a property test; it needs the cargo feature `proptest`.
//!
//! # A first example
//!
//! Suppose that a kernel stores its tile in consecutive blocks of 8 x 8 contiguous elements. Is each offset
//! used by one element only? Can vectors of 8 elements be copied into the tile from a row-major matrix?
//!
//! ```
//! use cute_rs::strategies::choices;
//! use cute_rs::{IntTuple, Layout, laws};
//!
//! let blocked_tiles = choices(|choices| {
//!     let (rows, columns) = (choices.between(1, 4), choices.between(1, 4));
//!     let stride = IntTuple::from(((8, 64), (1, 64 * rows)));
//!     Layout::new(IntTuple::from(((8, rows), (8, columns))), stride).expect("positive extents")
//! });
//! laws::check(1000, 100, blocked_tiles, |tile| {
//!     let matrix = Layout::row_major(tile.shape().product_each().expect("few modes")).expect("positive extents");
//!     assert_eq!(tile.max_common_vector(&matrix).expect("equal sizes") % 8, 0);
//!     laws::common(&tile, &matrix)?;
//!     laws::inverses(&tile)
//! });
//! ```
//!
//! [`laws::check`](crate::laws::check) draws random cases until 1000 have held. Here it requires that 100 per
//! cent of all cases have a result. If a law is broken, it panics with the smallest case it finds, the
//! layouts in `shape:stride` notation, and the paths of SVG pictures of them.
//!
//! # In a test that uses `proptest!`
//!
//! The strategies are ordinary `proptest` strategies, and a broken law converts into `proptest`'s error:
//!
//! ```
//! use cute_rs::{laws, strategies};
//! use proptest::prelude::*;
//!
//! proptest! {
//!     # #![proptest_config(ProptestConfig::with_cases(50))]
//!     # /*
//!     #[test]
//!     # */
//!     fn tiles_cover((layout, tiler) in strategies::divisible_tilers()) {
//!         laws::logical_divide(&layout, &tiler)?;
//!     }
//! }
//! # tiles_cover();
//! ```
//!
//! # A law of your own
//!
//! Judge results with an [`Oracle`](crate::laws::Oracle), which reads a layout's text and evaluates it in
//! plain arithmetic. A law that calls the code under test on both sides proves nothing.
//!
//! ```
//! use cute_rs::laws::Oracle;
//! use cute_rs::strategies::composable_pairs;
//! use proptest::prelude::*;
//!
//! // A composition takes no value that A does not take.
//! proptest!(|((a, b) in composable_pairs())| {
//!     let values = Oracle::of(&a).offsets();
//!     let composed = a.composition(&b).map_err(|error| TestCaseError::fail(error.to_string()))?;
//!     prop_assert!(Oracle::of(&composed).offsets().iter().all(|offset| values.contains(offset)));
//! });
//! ```
//!
//! # List of laws
//!
//! | law | about |
//! |---|---|
//! | [`tuple_structure`](crate::laws::tuple_structure), [`tuple_relations`](crate::laws::tuple_relations), [`tuple_edits`](crate::laws::tuple_edits), [`coordinates`](crate::laws::coordinates), [`ordered_coordinates`](crate::laws::ordered_coordinates), [`shape_division`](crate::laws::shape_division) | integer tuples |
//! | [`evaluation`](crate::laws::evaluation), [`coalesce`](crate::laws::coalesce), [`slices`](crate::laws::slices), [`layout_edits`](crate::laws::layout_edits), [`generated_strides`](crate::laws::generated_strides) | one layout |
//! | [`composition`](crate::laws::composition), [`composition_by_mode`](crate::laws::composition_by_mode), [`with_shape`](crate::laws::with_shape), [`complement`](crate::laws::complement), [`inverses`](crate::laws::inverses) | the algebra |
//! | [`logical_divide`](crate::laws::logical_divide), [`divides_by_mode`](crate::laws::divides_by_mode) | divides in all arrangements |
//! | [`logical_product`](crate::laws::logical_product), [`products_by_mode`](crate::laws::products_by_mode), [`blocked_and_raked`](crate::laws::blocked_and_raked), [`filled_shape`](crate::laws::filled_shape) | products in all arrangements |
//! | [`common`](crate::laws::common), [`alignment`](crate::laws::alignment), [`distribution`](crate::laws::distribution), [`recasts`](crate::laws::recasts) | vectors and elements |
//! | [`swizzle`](crate::laws::swizzle), [`composed`](crate::laws::composed), [`composed_products`](crate::laws::composed_products) | swizzles |
//! | [`thread_value`](crate::laws::thread_value) | which thread holds which element |
//! | [`identity`](crate::laws::identity), [`coordinate_layout`](crate::laws::coordinate_layout) | coordinate layouts |
//!
//! The strategies are in [`strategies`](crate::strategies). Their cases have ranks up to 5, depths up to 3
//! and at most 256 elements, so that a law can enumerate all elements.
