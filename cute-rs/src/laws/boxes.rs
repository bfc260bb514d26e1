//! The law of the boxes that tensor copies (TMA) move.

use alloc::format;
use alloc::vec::Vec;

use super::oracle::{Tree, digits};
use super::{Broken, Oracle, Verdict, equal};
use crate::algebra::Tiler;
use crate::atom::boxes::{BoxPlan, tma_box};
use crate::composed::ComposedLayout;
use crate::int_tuple::IntTuple;
use crate::layout::Layout;

/// Checks the boxes of a TMA copy. Each slice of a box becomes one run of bytes in shared memory, which the
/// hardware swizzles. All slices of all boxes together put each element of the tile exactly once, at the
/// offset that the shared layout gives. The boxes also obey the limits of the hardware: rank, extents,
/// strides, width.
///
/// # Errors
/// [`Broken`] if the law does not hold.
pub fn tensor_boxes(
    global: &Layout,
    shared: &ComposedLayout,
    tile: &[i64],
    element_bits: u32,
    slices: u32,
) -> Result<Verdict, Broken> {
    let shape = IntTuple::flat(tile).unwrap_or(IntTuple::EMPTY);
    let plan = tma_box(global, shared, &Tiler::Shape(&shape), element_bits);
    let Ok(plan) = plan.and_then(|plan| plan.sliced(slices)) else { return Ok(Verdict::NoResult) };
    let (of_global, of_shared) = (Oracle::of(global), Oracle::of(&shared.layout));
    let bytes = i64::from(element_bits / 8);
    let layouts = [global, &shared.layout];
    // The hardware's limits on a box.
    let extents: Vec<_> = plan.extents().iter().map(|&extent| i64::from(extent)).collect();
    equal(
        &((1..=5).contains(&extents.len()), extents.iter().all(|e| (1..=256).contains(e))),
        &(true, true),
        &layouts,
        "a box",
    )?;
    let strides: Vec<_> = plan.modes().iter().map(|&mode| of_global.leaves()[mode].1).collect();
    equal(&strides[0], &1, &layouts, "the contiguous stride")?;
    let aligned = strides[1..].iter().zip(&plan.modes()[1..]);
    let aligned = aligned.filter(|&(_, &mode)| of_global.leaves()[mode].0 > 1);
    equal(&aligned.into_iter().all(|(stride, _)| stride * bytes % 16 == 0), &true, &layouts, "the strides")?;
    let span = [16, 32, 64, 128][shared.swizzle.bits as usize];
    if shared.swizzle.bits > 0 {
        equal(&(extents[0] * bytes), &span, &layouts, "the width of a box")?;
    }
    // A swizzle of B bits XORs the B bits from bit 4 of the byte address with the B bits from bit 7.
    let permuted = |address: i64| address ^ ((address >> 7) & (span / 16 - 1)) << 4;
    let mut seen = alloc::vec![0; tile.iter().product::<i64>() as usize];
    for (place_number, place) in (0..).zip(plan.boxes()) {
        let first = Tree::of(&place.coord).leaves();
        for slice in 0..i64::from(slices) {
            let image = i64::from(place.offset_bytes) + slice * i64::from(plan.slice_bytes());
            equal(&(image % 128), &0, &layouts, "where an image begins")?;
            copied(&plan, &first, place_number, slice, &layouts)?;
            for i in 0..extents.iter().product() {
                let mut element = first.clone();
                for ((dim, &mode), digit) in plan.modes().iter().enumerate().zip(digits(&extents, i)) {
                    let behind = if dim == plan.sliced_dim() { slice * extents[dim] } else { 0 };
                    element[mode] += digit + behind;
                }
                let inside = element.iter().zip(tile).all(|(c, extent)| c < extent);
                equal(&inside, &true, &layouts, format!("element {element:?} of the tile"))?;
                let (place, number) = numbered(&of_shared, tile, &element);
                let want = swizzled(shared, shared.offset + place) * bytes;
                let what = format!("element {element:?} of the tile in shared memory");
                equal(&permuted(image + bytes * i), &want, &layouts, what)?;
                seen[number] += 1;
            }
        }
    }
    equal(&seen.iter().all(|&times| times == 1), &true, &layouts, "each element once")?;
    Ok(Verdict::Held)
}

/// Checks, for matrices, that the coordinates of a copy computed with `u32` are the coordinates of the box
/// plus the offset of its slice.
fn copied(plan: &BoxPlan, first: &[i64], number: u32, slice: i64, layouts: &[&Layout]) -> Result<(), Broken> {
    let (&[row, column], &[_, _]) = (first, plan.modes()) else { return Ok(()) };
    let tile = plan.slice([1000_u32, 2000], slice.unsigned_abs() as u32);
    let got = tile.and_then(|tile| plan.copy::<_, 2, 2>(tile, number));
    let mut element = [1000 + row, 2000 + column];
    let extent = i64::from(plan.extents()[plan.sliced_dim()]);
    element[plan.modes()[plan.sliced_dim()]] += slice * extent;
    let want = [element[plan.modes()[0]], element[plan.modes()[1]]];
    equal(&got.map(|coords| coords.map(i64::from)), &Ok(want), layouts, "the coordinates of a copy")
}

/// The offset of an element of the tile, and its integer coordinate.
fn numbered(shared: &Oracle, tile: &[i64], element: &[i64]) -> (i64, usize) {
    let number = element.iter().zip(tile).rev().fold(0, |number, (c, extent)| number * extent + c);
    (shared.at(number), number as usize)
}

/// The swizzled offset, computed bit by bit from the definition of `Sw<B,M,S>`.
fn swizzled(shared: &ComposedLayout, offset: i64) -> i64 {
    let swizzle = shared.swizzle;
    (0..swizzle.bits).fold(offset, |swizzled, bit| {
        let source = i64::from(swizzle.base + bit) + i64::from(swizzle.shift);
        swizzled ^ (((offset >> source) & 1) << (swizzle.base + bit))
    })
}
