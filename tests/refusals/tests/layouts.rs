//! Illegal layout types stop the build with a message that names the layouts and the remedy.
//!
//! The expected messages lie beside the cases as `.stderr`; `TRYBUILD=overwrite` writes them anew.

#[test]
fn messages() {
    refusals::built_once("messages", refused);
}

fn refused() {
    let cases = trybuild::TestCases::new();
    // Constants are computed when code is generated, which a suite without a passing case leaves out.
    cases.pass("tests/layouts/legal.rs");
    for mistake in [
        // Composition.
        "indivisible_composition",
        "indivisible_extent",
        "carrying_composition",
        "mixed_signs",
        "tiler_of_too_many_modes",
        // Complement and inverse.
        "non_injective_complement",
        "negative_complement",
        "broadcast_left_inverse",
        // Tiles and copies.
        "indivisible_tile",
        "overlapping_tile",
        "indivisible_copies",
        "block_of_another_rank",
        "shape_that_blocks_do_not_fill",
        "order_that_names_a_mode_twice",
        // Other operations.
        "upcast_through_a_row",
        "missing_mode",
        "slice_of_another_rank",
        "zip_of_another_rank",
        "profile_finer_than_the_layout",
        "order_finer_than_the_shape",
        "too_many_leaves",
        "swizzle_wider_than_its_layout",
        "swizzle_that_overlaps",
        // Not what it should be.
        "zero_extent",
        "non_congruent_stride",
        "not_a_layout",
        "constant_of_no_layouts",
        "not_a_tuple",
        "not_a_tiler",
    ] {
        cases.compile_fail(format!("tests/layouts/{mistake}.rs"));
    }
}
