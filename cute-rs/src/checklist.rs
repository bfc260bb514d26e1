//! CuTe's functions and their names in this crate, one table per header.
//!
//! If you know CuTe, find the name on the left. Methods of [`IntTuple`], [`Layout`], [`ComposedLayout`],
//! [`CoordLayout`] and [`Swizzle`] are given with their type. Most methods of `Layout` also exist on the
//! other layouts. What this crate leaves out is listed with the reason.
//!
//! # Integer tuples, shapes, coordinates
//!
//! | CuTe | here |
//! |---|---|
//! | `IntTuple`, `Shape`, `Stride`, `Step`, `Coord`, `Tile` | [`IntTuple`] for integers only; [`Coord`] with `_`; [`Tiler`] |
//! | `rank`, `depth`, `size` | [`IntTuple::rank`], [`depth`](IntTuple::depth), [`product`](IntTuple::product) |
//! | `get<I…>`, `front`, `back` | [`IntTuple::get`] with a path, [`mode`](IntTuple::mode); `modes().next_back()` |
//! | `take`, `select`, `group` | [`IntTuple::take`], [`select`](IntTuple::select), [`group`](IntTuple::group) |
//! | `flatten`, `flatten_to_tuple` | [`IntTuple::flatten`]; for an integer [`wrap`](IntTuple::wrap) |
//! | `unflatten`, `wrap`, `unwrap` | [`IntTuple::unflatten`], [`wrap`](IntTuple::wrap), [`unwrap_modes`](IntTuple::unwrap_modes) |
//! | `congruent`, `weakly_congruent`, `compatible` | [`IntTuple::congruent`], [`weakly_congruent`](IntTuple::weakly_congruent), [`compatible`](IntTuple::compatible) |
//! | `evenly_divides`, `weakly_compatible` | [`IntTuple::evenly_divides`], of the shape that is divided |
//! | `product`, `product_each`, `product_like` | [`IntTuple::product`], [`product_each`](IntTuple::product_each), [`product_like`](IntTuple::product_like) |
//! | `evenly_divides`, `weakly_compatible` | [`IntTuple::evenly_divides`], called on the shape that is divided |
//! | `max`, `min`, `gcd`, `lcm` of leaves | [`IntTuple::max`], [`min`](IntTuple::min), [`gcd`](IntTuple::gcd), [`lcm`](IntTuple::lcm) |
//! | sums of two tuples | [`IntTuple::elem_add`] |
//! | `max`, `min` of two tuples | [`IntTuple::elem_max`], [`elem_min`](IntTuple::elem_min) |
//! | `abs`, `signum`, `elem_scale` | [`IntTuple::abs`], [`signum`](IntTuple::signum), [`elem_scale`](IntTuple::elem_scale) |
//! | `ceil_div`, `round_up` | [`IntTuple::ceil_div`], [`round_up`](IntTuple::round_up) |
//! | `shape_div`, and the `shape_mod` of its documentation | [`IntTuple::shape_div`], [`shape_mod`](IntTuple::shape_mod) |
//! | `elem_less`, `elem_leq` | [`IntTuple::elem_less`], [`elem_leq`](IntTuple::elem_leq) |
//! | `lex_less`, `lex_leq`, `colex_less`, `colex_leq` | [`IntTuple::lex_less`], [`lex_leq`](IntTuple::lex_leq), [`colex_less`](IntTuple::colex_less), [`colex_leq`](IntTuple::colex_leq) |
//! | `elem_gtr`, `elem_geq`, `lex_gtr`, … | the same with the arguments swapped |
//! | `crd2idx(coord, shape)` | [`IntTuple::crd2idx`] |
//! | `crd2idx(coord, shape, stride)` | [`Layout::at_coord`] |
//! | `idx2crd`, `crd2crd` | [`IntTuple::idx2crd`], [`crd2crd`](IntTuple::crd2crd) |
//! | `increment` | [`IntTuple::increment`] |
//! | `make_coord_iterator(shape)` | [`IntTuple::coords`] |
//! | `make_coord_iterator(shape, order)` | [`IntTuple::coords_in`] |
//! | `_`, `X` | [`Tiler::Keep`], [`Coord::Keep`], [`Keep`](crate::types::Keep); in a slice `None` |
//! | `slice`, `dice` of tuples | [`Layout::slice_at`], [`dice_at`](Layout::dice_at) of the layout with that shape |
//! | `lift_*` | left out: the modes that a slice keeps are known, and [`wrap`](IntTuple::wrap) gives them a rank |
//!
//! # Algorithms on tuples
//!
//! | CuTe | here |
//! |---|---|
//! | `for_each`, `transform`, `transform_apply` | [`IntTuple::modes`] and the methods of [`Iterator`] |
//! | `transform_leaf` | [`IntTuple::map`] |
//! | `fold`, `fold_first`, `find`, `find_if`, `any_of`, `all_of`, `none_of` | [`IntTuple::leaves`] with `fold`, `reduce`, `position`, `any`, `all` |
//! | `filter_tuple` | [`IntTuple::modes`] with `filter`, then [`IntTuple::tuple`] |
//! | `iscan`, `escan` | [`IntTuple::prefix_product`] for products, otherwise `leaves().scan(…)` |
//! | `tuple_cat` | [`IntTuple::concat`] |
//! | `append`, `prepend`, `insert`, `remove` | [`IntTuple::append`], [`prepend`](IntTuple::prepend), [`insert`](IntTuple::insert), [`remove`](IntTuple::remove) |
//! | `replace`, `replace_front`, `replace_back` | [`IntTuple::replace`] |
//! | `repeat`, `repeat_like` | [`IntTuple::repeat`], [`filled`](IntTuple::filled) |
//! | `reverse`, `zip` | [`IntTuple::reverse`], [`zip`](IntTuple::zip) |
//! | `zip2_by` | [`Layout::tile_unzip`] |
//! | `apply`, `tapply` | left out: Rust's tuples are not variadic; use a loop over [`modes`](IntTuple::modes) |
//! | `SortByKey` | left out: it serves CuTe's complement; here, [`complement`](Layout::complement) sorts values |
//!
//! # Strides along components
//!
//! | CuTe | here |
//! |---|---|
//! | `E<i…>`, `ScaledBasis` | [`Basis`]; in [expressions](crate::expr) `E<0,1>`, `2@1@0` |
//! | `basis_value`, `basis_get` | [`Basis::scale`]; [`Basis::path`] for [`IntTuple::get`] |
//! | `make_basis_like` | the strides of [`CoordLayout::identity`] |
//! | `ArithmeticTuple`, `as_arithmetic_tuple` | what [`CoordLayout::at`] returns: sums along components |
//! | `make_inttuple_iter`, `ArithmeticTupleIterator` | left out: [`CoordLayout::slice`] returns the start of a slice, so no iterator carries it |
//! | `coshape`, `cosize`, `coprofile` | [`CoordLayout::coshape`], its product, [`Basis::coprofile`] |
//! | inverses with basis strides | [`CoordLayout::right_inverse`], [`left_inverse`](CoordLayout::left_inverse); CuTe has them for integer strides only |
//! | `complement`, `nullspace`, products with basis strides | left out: the offsets of a coordinate layout are not integers; those of one component are, see [`CoordLayout::component`] |
//! | `composition` with basis strides | [`Layout::composition_coords`], [`CoordLayout::then`] |
//!
//! # Integers
//!
//! | CuTe | here |
//! |---|---|
//! | `Int<N>`, `C<v>`, `_4` | [`typenum`] in [types], plain integers in values |
//! | static results of operations | constants: operations are `const fn`, and the combinators of [`types`] call them |
//! | `R<n,d>` | left out: [`recast`](Layout::recast) takes both widths |
//! | `popcount`, `bit_width`, `rotl`, `has_single_bit`, … | left out: the standard library has them |
//! | `FastDivmod` | left out: [`Layout::apply`] requires a division; the number's type decides how to do it |
//!
//! # Layouts
//!
//! | CuTe | here |
//! |---|---|
//! | `make_layout(shape, stride)` | [`Layout::new`], [`flat`](Layout::flat); [`Strided`](crate::types::Strided) |
//! | `LayoutLeft`, `GenColMajor`, `compact_major` | [`Layout::column_major`]; [`ColumnMajor`](crate::types::ColumnMajor) |
//! | `LayoutRight`, `GenRowMajor` | [`Layout::row_major`]; [`RowMajor`](crate::types::RowMajor) |
//! | `make_layout(A, B, …)` | [`Layout::concat`] |
//! | `make_ordered_layout`, `compact_order` | [`Layout::ordered`] |
//! | `make_layout_like`, `make_fragment_like` | [`Layout::compact_like`], [`fragment_like`](Layout::fragment_like) |
//! | `make_identity_layout` | [`CoordLayout::identity`] |
//! | `shape`, `stride`, `size`, `rank`, `depth`, `cosize`, `layout<I…>` | the methods of the same name; [`Layout::get`] with a path |
//! | `L(c)` | [`Layout::at`] with an integer, [`at_modes`](Layout::at_modes) with one integer per mode, [`at_coord`](Layout::at_coord) with any coordinate |
//! | `L(2,_)`, `slice_and_offset` | [`Layout::slice`]; at any depth [`slice_at`](Layout::slice_at) |
//! | `slice`, `dice` | the same, without the offset; [`Layout::dice`], [`dice_at`](Layout::dice_at) |
//! | `domain_offset` | [`Layout::domain_offset`] |
//! | `get_hier_coord`, `get_1d_coord` | [`Layout::coord_of`], [`index_of`](Layout::index_of) |
//! | `get_flat_coord` | [`IntTuple::idx2crd`] of `shape().product_each()` at [`index_of`](Layout::index_of) |
//! | `append`, `prepend`, `replace`, `group`, `take`, `select` | [`Layout::append`], [`prepend`](Layout::prepend), [`replace`](Layout::replace), [`group`](Layout::group), [`take`](Layout::take), [`select`](Layout::select) |
//! | `flatten`, `unflatten` | [`Layout::flatten`], [`unflatten`](Layout::unflatten) |
//! | `transform_layout` | left out: [`Layout::mode`] in a loop, then [`concat`](Layout::concat) |
//! | `with_shape` | [`Layout::with_shape`] |
//! | `compose`, `tile` | [`Layout::composition_by`], [`tiled_divide`](Layout::tiled_divide) |
//! | `coalesce`, with a profile | [`Layout::coalesce`], [`coalesce_by`](Layout::coalesce_by) |
//! | `coalesce_x` | [`Layout::coalesce_x`] |
//! | `coalesce(shape)` | left out: it keeps static extents apart from dynamic ones, and there are no dynamic ones here |
//! | `filter_zeros`, `filter`, with a profile | [`Layout::filter_zeros`], [`filter`](Layout::filter), [`filter_by`](Layout::filter_by) |
//! | `composition`, by mode | [`Layout::composition`], [`composition_by`](Layout::composition_by) |
//! | `complement` | [`Layout::complement`]; up to the layout's own cosize [`complement_all`](Layout::complement_all) |
//! | `right_inverse`, `left_inverse`, `nullspace` | [`Layout::right_inverse`], [`left_inverse`](Layout::left_inverse), [`nullspace`](Layout::nullspace) |
//! | `max_common_layout`, `max_common_vector` | [`Layout::max_common_layout`], [`max_common_vector`](Layout::max_common_vector) |
//! | `max_alignment`, `domain_distribute` | [`Layout::max_alignment`], [`domain_distribute`](Layout::domain_distribute) |
//! | `logical_divide`, by mode | [`Layout::logical_divide`], [`logical_divide_by`](Layout::logical_divide_by) |
//! | `zipped_divide`, `tiled_divide`, `flat_divide` | [`Layout::zipped_divide_by`], [`tiled_divide`](Layout::tiled_divide), [`flat_divide`](Layout::flat_divide) |
//! | `tile_unzip` | [`Layout::tile_unzip`] |
//! | `ceil_div(shape, tiler)` | [`IntTuple::ceil_div`]; for a tiler of layouts, the shape of mode 1 of [`zipped_divide_by`](Layout::zipped_divide_by) |
//! | `logical_product`, by mode | [`Layout::logical_product`], [`logical_product_by`](Layout::logical_product_by) |
//! | `zipped_product`, `tiled_product`, `flat_product` | [`Layout::zipped_product`], [`tiled_product`](Layout::tiled_product), [`flat_product`](Layout::flat_product) |
//! | `blocked_product`, `raked_product` | [`Layout::blocked_product`], [`raked_product`](Layout::raked_product) |
//! | `tile_to_shape` | [`Layout::tile_to_shape`] |
//! | `upcast<N>`, `downcast<N>`, `recast_layout<Old,New>` | [`Layout::upcast`], [`downcast`](Layout::downcast), [`recast`](Layout::recast) |
//! | `zip` | [`Layout::zip`] |
//!
//! # Swizzles and composed layouts
//!
//! | CuTe | here |
//! |---|---|
//! | `Swizzle<B,M,S>` | [`Swizzle::new`]; [`Sw`](crate::types::Sw) |
//! | `make_swizzle<Ymask,Zmask>` | [`Swizzle::from_masks`] |
//! | `composition` of swizzles, inverse | [`Swizzle::composition`], [`inverse`](Swizzle::inverse) |
//! | `upcast`, `downcast`, alignment | [`Swizzle::upcast`], [`downcast`](Swizzle::downcast), [`max_alignment`](Swizzle::max_alignment) |
//! | `ComposedLayout{A, offset, B}`, `composition(Swizzle, L)` | [`ComposedLayout`]; [`Swizzle::after`] |
//! | `get_swizzle_portion`, `get_nonswizzle_portion` | the fields of [`ComposedLayout`] |
//! | the algebra on it | the methods of [`ComposedLayout`] |
//! | `cosize` | [`ComposedLayout::cosize`], rounded up to whole patterns of the swizzle |
//! | `max_common_layout`, `max_common_vector` | [`ComposedLayout::max_common_layout`], [`max_common_vector`](ComposedLayout::max_common_vector); of two swizzled layouts [`max_common_layout_swizzled`](ComposedLayout::max_common_layout_swizzled) |
//! | `MixedBits`, decay of slices | [`ComposedLayout::decay`] |
//! | composed layouts with functions other than swizzles | left out: a layout after a layout is a layout, see [`composition`](Layout::composition) |
//! | `smem_ptr_flag_bits` | left out: [`ComposedLayout::recast`] when the element's width is known |
//! | `as_position_independent_swizzle_layout` | left out: a swizzle always belongs to the layout, since there are no pointers |
//!
//! # Tensors
//!
//! The crate has layouts and no data: a [`Tensor`] is a layout and its start.
//!
//! | CuTe | here |
//! |---|---|
//! | `make_tensor(iterator, layout)` | [`Tensor::new`] with any start that offsets can be added to |
//! | `make_identity_tensor`, `make_coord_tensor` | [`CoordLayout`] |
//! | `make_tensor_like`, `make_fragment_like` | [`Layout::compact_like`], [`fragment_like`](Layout::fragment_like) |
//! | `t(coord)`, `t(_,k)`, `t[i]` | [`Layout::at_coord`], [`slice`](Layout::slice), [`at`](Layout::at), which give offsets |
//! | `inner_partition(t, tiler, coord)`, `local_tile` | [`Layout::inner_partition`], [`local_tile`](Layout::local_tile) |
//! | `outer_partition(t, tiler, coord)` | [`Layout::outer_partition`] |
//! | `local_partition(t, threads, index)` | [`Layout::local_partition`]; for all threads [`thread_partition`](Layout::thread_partition) |
//! | `Step<_1,X,_1>`, the projection of `local_tile` and `local_partition` | [`Layout::local_tile_along`], [`thread_partition_along`](Layout::thread_partition_along) |
//! | divides, compositions, filters of tensors | those of their layouts |
//! | predicates by `elem_less` | [`Predicate`]; [`CoordLayout::at`] with [`IntTuple::elem_less`] |
//! | `recast<T>(tensor)` | [`Layout::recast`], which refuses results that are not whole elements |
//! | engines, pointers, memory spaces, `ZipTensor`, sub-byte arrays | left out: data |
//!
//! # Atoms and printing
//!
//! | CuTe | here |
//! |---|---|
//! | layouts of an instruction's threads and values | [`ThreadValue`]; [`atom::wgmma`](crate::atom::wgmma) |
//! | `TiledCopy`, `ThrCopy` | [`TiledCopy`], whose partitions cover all threads |
//! | `MMA_Atom`, `TiledMMA`, `ThrMMA` | [`MmaAtom`], [`TiledMma`] |
//! | `copy`, `gemm`, `fill`, … on tensors | left out: they run on the device |
//! | shared-memory atoms of `wgmma` | [`atom::smem`](crate::atom::smem), [`atom::SwizzleMode`](crate::atom::SwizzleMode) |
//! | `make_gmma_desc` | [`atom::descriptor`](crate::atom::descriptor) |
//! | `make_tma_copy`, `tma_partition`, `get_tma_tensor` | [`atom::boxes::tma_box`](crate::atom::boxes::tma_box), its [`coords`](crate::atom::boxes::BoxPlan::coords); for operand tiles [`atom::tma`](crate::atom::tma) |
//! | `make_tma_copy` with multicast | [`BoxPlan::sliced`](crate::atom::boxes::BoxPlan::sliced) |
//! | `make_tiled_copy(atom, threads, values)` | [`TiledCopy::new`]; for an instruction's copy [`in_groups`](TiledCopy::in_groups); for given layouts [`between`](TiledCopy::between) |
//! | `stmatrix`, `ldmatrix` | [`atom::stmatrix`](crate::atom::stmatrix) |
//! | `make_cotiled_copy`, `make_tiled_copy_S`, `_D` | [`TiledCopy::between`], with the data's layouts or another copy's [`source`](TiledCopy::source) and [`destination`](TiledCopy::destination) |
//! | `make_tiled_copy_C_atom` | left out: [`TiledCopy::of_fragment`] of the [`ThreadValue`] of a narrower instruction |
//! | `make_tiled_copy_A`, `_B`, `_C` | [`TiledMma::thread_value`], then [`TiledCopy::of_fragment`] |
//! | `partition_S`, `partition_D`, `retile_S`, `retile_D` | [`TiledCopy::partition_s`], [`partition_d`](TiledCopy::partition_d), [`retile`](TiledCopy::retile) |
//! | `partition_A`, `partition_B`, `partition_C` | [`TiledMma::partition`] |
//! | `make_fragment_A`, `_B` of `wgmma`: iterators of descriptors | [`TiledMma::partition`] of [`MatrixDescriptor::layout`](crate::atom::descriptor::MatrixDescriptor::layout): the start of each instruction's operand |
//! | `partition_shape_C`, `partition_fragment_C` | [`TiledMma::fragment_shape`], [`fragment`](TiledMma::fragment) |
//! | `tile_size`, `tile_shape`, `get_layoutA_TV`, `_B_TV`, `_C_TV` | [`TiledMma::tile_shape`], [`thread_value`](TiledMma::thread_value) |
//! | `print`, `print_type` | `Display` prints the notation of this manual; `parse` reads it, see [`expr`](crate::expr) |
//! | `print_layout` | [`Picture::table`](crate::draw::Picture::table) |
//! | `print_latex`, `print_latex_tv`, `print_svg` | [`Picture::latex`](crate::draw::Picture::latex), [`svg`](crate::draw::Picture::svg); of thread-value layouts [`of_thread_value`](crate::draw::Picture::of_thread_value) |
//! | `print_tensor`, `thread0`, `block0` | left out: they need data or a device |
//!
//! # Instructions and device code
//!
//! This crate says where elements are. Instructions that move or multiply them are in other crates.
//!
//! | CuTe | here |
//! |---|---|
//! | `Copy_Atom::with`: barriers, multicast masks, cache hints | left out: these are operands of instructions, not of layouts; see `ptx::TensorLoad` |
//! | copy and matrix instructions, `cp.async`, bulk and tensor copies, `movmatrix`, `wgmma` fences and groups | left out: methods of `ptx::Builder` |
//! | `elect_one`, cluster barriers, ranks, `mapa` | left out: methods of `ptx::Builder` |
//! | `create_tma_multicast_mask` | left out: a mask of CTA ranks; [`BoxPlan::sliced`](crate::atom::boxes::BoxPlan::sliced) gives the slices that the CTAs copy |
//! | legality of tensor maps | [`BoxRule`](crate::BoxRule) for boxes, strides and swizzles; addresses are checked where they are known |
//! | im2col copies | left out: these kernels compute no convolutions |
//! | descriptors edited on the device | left out: `ptx::Builder` |
//! | `ss_op_selector`, `rs_op_selector` | left out: N of the instruction is the tile's N, as the kernel's type says |
//! | FP64 and complex instructions | left out, except `f64` in [`atom::mma::doubles`](crate::atom::mma::doubles); other fragments can be given as [`ThreadValue`] |
//! | `cooperative_copy`, `cooperative_gemm`, `copy_if`, `axpby`, `reduce`, … | left out: a kernel writes these loops over its parts |
//!
//! # pycute
//!
//! | pycute | here |
//! |---|---|
//! | `flatten`, `signum`, `product`, `inner_product`, `tuple_max`, `elem_scale`, `shape_div` | [`IntTuple`], as above |
//! | `prefix_product` | [`IntTuple::prefix_product`] |
//! | `idx2crd`, `crd2idx`, `crd2crd`, `slice_` | [`IntTuple::idx2crd`], [`crd2idx`](IntTuple::crd2idx), [`crd2crd`](IntTuple::crd2crd); [`Layout::slice_at`] |
//! | `Layout`, `make_layout`, `coalesce`, `filter`, `composition`, `complement`, `right_inverse`, `left_inverse` | [`Layout`], as above |
//! | `logical_*`, `zipped_*`, `tiled_*` divide and product | [`Layout`], as above |
//! | `hier_unzip` | done by [`Layout::zipped_divide_by`] and [`zipped_product`](Layout::zipped_product); on its own [`tile_unzip`](Layout::tile_unzip) |
//! | `slice_and_offset` | [`Layout::slice_at`] |
//! | `Swizzle`, `ComposedLayout` | [`Swizzle`], [`ComposedLayout`] |
//!
//! [types]: crate::types
//!
//! ```
//! use cute_rs::Layout;
//!
//! // `composition(make_layout(make_shape(4, 8)), make_layout(2, 4))` in this crate.
//! let layout: Layout = "(4,8):(1,4)".parse()?;
//! let every_fourth: Layout = "2:4".parse()?;
//! assert_eq!(layout.composition(&every_fourth)?.to_string(), "2:4");
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

#[allow(unused_imports, reason = "links of the documentation")]
use crate::{
    Basis, ComposedLayout, Coord, CoordLayout, IntTuple, Layout, MmaAtom, Predicate, Swizzle, Tensor,
    ThreadValue, TiledCopy, TiledMma, Tiler, typenum, types,
};
