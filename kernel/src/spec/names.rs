//! The words of a spec's values.

use collective::{Arrivals, CachePolicy, Form, Producer, Roles, TileLayout};
use cute_rs::atom::{Major, SwizzleMode};
use scheduler::ReductionKind;

pub(super) const FORMS: [(&str, Form); 6] = [
    ("single", Form::Single),
    ("batched", Form::Batched),
    ("ragged", Form::GroupedContiguous),
    ("masked", Form::GroupedMasked),
    ("k-grouped", Form::KGrouped),
    ("grouped", Form::PointerArray),
];
pub(super) const ROLES: [(&str, Roles); 3] = [
    ("cooperative", Roles::Cooperative),
    ("pingpong", Roles::Pingpong),
    ("unspecialised", Roles::Unspecialised),
];
pub(super) const ARRIVALS: [(&str, Arrivals); 3] =
    [("warpgroup", Arrivals::Warpgroup), ("warp", Arrivals::Warp), ("thread", Arrivals::Thread)];
pub(super) const LOADS: [(&str, Producer); 2] = [("tma", Producer::Thread), ("copy", Producer::Warpgroup)];
pub(super) const CACHES: [(&str, CachePolicy); 3] = [
    ("normal", CachePolicy::Normal),
    ("evict-first", CachePolicy::EvictFirst),
    ("evict-last", CachePolicy::EvictLast),
];
pub(super) const SWIZZLES: [(&str, TileLayout); 5] = [
    ("widest", TileLayout::Widest),
    ("128", TileLayout::Slabs(SwizzleMode::B128)),
    ("64", TileLayout::Slabs(SwizzleMode::B64)),
    ("32", TileLayout::Slabs(SwizzleMode::B32)),
    ("none", TileLayout::Slabs(SwizzleMode::None)),
];
pub(super) const LAYOUTS: [(&str, [Major; 2]); 4] = [
    ("kk", [Major::K, Major::K]),
    ("kn", [Major::K, Major::Mn]),
    ("mk", [Major::Mn, Major::K]),
    ("mn", [Major::Mn, Major::Mn]),
];
pub(super) const SWITCH: [(&str, bool); 2] = [("no", false), ("yes", true)];
pub(super) const REDUCTIONS: [(&str, ReductionKind); 3] = [
    ("ordered", ReductionKind::Ordered),
    ("atomic", ReductionKind::Atomic),
    ("separate", ReductionKind::Separate),
];

/// The word of a form.
#[cfg(feature = "records")]
pub(crate) fn form_name(form: Form) -> &'static str {
    name_of(&FORMS, form)
}

/// The form of a word.
#[cfg(feature = "records")]
pub(crate) fn form_named(name: &str) -> Option<Form> {
    named(&FORMS, name)
}

/// The word of the contiguous directions of A and B.
#[cfg(feature = "records")]
pub(crate) fn layout_name(majors: [Major; 2]) -> &'static str {
    name_of(&LAYOUTS, majors)
}

/// The contiguous directions of A and B of a word.
#[cfg(feature = "records")]
pub(crate) fn layout_named(name: &str) -> Option<[Major; 2]> {
    named(&LAYOUTS, name)
}

#[cfg(feature = "records")]
fn named<T: Copy>(names: &[(&'static str, T)], name: &str) -> Option<T> {
    names.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
}

pub(super) fn name_of<T: Copy + PartialEq>(names: &[(&'static str, T)], value: T) -> &'static str {
    names.iter().find(|(_, known)| *known == value).map_or("", |(name, _)| name)
}
