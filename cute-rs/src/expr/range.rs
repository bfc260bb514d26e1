//! The range of numbers in expressions.
//!
//! The algebra computes with numbers up to `2^62`. An expression can be any text, so this module keeps its
//! numbers well below that limit. Before and after each operation, a layout may reach over at most `2^40`
//! elements.

use alloc::format;
use alloc::string::String;

use super::Value;
use crate::int_tuple::IntTuple;
use crate::layout::Layout;
use crate::swizzle::Swizzle;

/// The largest size and the largest reach of a layout in an expression, in elements.
pub(super) const LIMIT: i64 = 1 << 40;

/// The limit of intermediate results.
const WIDEST: i128 = 1 << 62;

/// The product of the leaves of a shape, or `None` beyond [`LIMIT`].
pub(super) fn size(shape: &IntTuple) -> Option<i64> {
    let mut size: i64 = 1;
    for i in 0..shape.len() {
        size = size.checked_mul(shape.leaf(i))?;
    }
    (-LIMIT..=LIMIT).contains(&size).then_some(size)
}

/// The reach of a layout: the sum of extents times absolute strides, or `None` beyond [`LIMIT`].
fn reach(layout: &Layout) -> Option<i64> {
    let mut reach: i64 = 0;
    for i in 0..layout.shape().len() {
        let step = layout.stride().leaf(i).checked_abs()?;
        reach = reach.checked_add(layout.shape().leaf(i).checked_mul(step)?)?;
    }
    (reach <= LIMIT).then_some(reach)
}

/// Whether a layout can be evaluated at a coordinate without overflow. The coordinate may be beyond its size.
pub(super) fn reaches(layout: &Layout, coord: i64) -> bool {
    let steps = (0..layout.stride().len()).map(|i| layout.stride().leaf(i).abs());
    i128::from(coord).abs() * i128::from(steps.max().unwrap_or(0)) <= WIDEST >> 6
}

/// Checks that operations can compute with a value. The error says what is wrong with it.
pub(super) fn check(value: &Value) -> Result<(), String> {
    let fits = |layout: &Layout| size(&layout.shape()).is_some() && reach(layout).is_some();
    match value {
        Value::Int(_) | Value::Tuple(_) => Ok(()),
        Value::Layout(layout) if fits(layout) => Ok(()),
        Value::Coords(coords) if fits(coords.inner()) => Ok(()),
        Value::Composed(composed)
            if fits(&composed.layout) && composed.offset.unsigned_abs() <= LIMIT.unsigned_abs() =>
        {
            check_swizzle(composed.swizzle)
        }
        Value::Part(part) if fits(part.layout.inner()) => Ok(()),
        Value::Inverse(inverse)
            if fits(&inverse.layout) && inverse.offset.unsigned_abs() <= LIMIT.unsigned_abs() =>
        {
            check_swizzle(inverse.swizzle)
        }
        Value::Layout(_) | Value::Composed(_) | Value::Coords(_) | Value::Part(_) | Value::Inverse(_) => {
            Err(format!("a layout in an expression has and reaches over at most {LIMIT} elements"))
        }
        Value::Swizzle(swizzle) => check_swizzle(*swizzle),
    }
}

/// Checks that a swizzle's bits are below bit 32 and that it reads no bit that it changes.
fn check_swizzle(swizzle: Swizzle) -> Result<(), String> {
    let (bits, base) = (u64::from(swizzle.bits), u64::from(swizzle.base));
    let shift = i64::from(swizzle.shift).unsigned_abs();
    if bits > shift {
        Err(format!("{swizzle} reads bits that it changes; choose S of at least B"))
    } else if bits + base + shift > 32 {
        Err(format!("{swizzle} reads bits above bit 31; choose numbers whose sum is at most 32"))
    } else {
        Ok(())
    }
}
