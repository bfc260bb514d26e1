//! Code that the operations of expressions share. Operations act inside composed and coordinate layouts:
//! swizzle, offset and components stay.

use alloc::vec::Vec;

use super::argument::{Argument, Operand};
use super::operations::Failure;
use super::{Fault, Value, range};
use crate::algebra::Tiler;
use crate::composed::ComposedLayout;
use crate::coord_layout::{Basis, CoordLayout};
use crate::error::LayoutError;
use crate::int_tuple::IntTuple;
use crate::layout::Layout;
use crate::swizzle::Swizzle;

type Changed = Result<Layout, LayoutError>;

/// A number of modes or leaves as a value.
pub(super) fn integer(value: usize) -> Result<Value, Failure> {
    i64::try_from(value).map(Value::Int).map_err(|_| Failure::Large)
}

/// The layout with these modes. Some of them may be coordinate layouts.
pub(super) fn side_by_side(a: &[Argument]) -> Result<Value, Failure> {
    if a.iter().all(|mode| mode.coords().is_none()) {
        let modes: Vec<_> = a.iter().map(Argument::layout).collect::<Result<_, _>>()?;
        return Ok(Layout::concat(&modes)?.into());
    }
    let (mut shapes, mut strides) = (Vec::new(), Vec::new());
    for mode in a {
        let part = mode.domain()?;
        shapes.push(part.shape());
        for (i, scale) in part.stride().leaves().enumerate() {
            let plain = || Basis::new(scale, &[]);
            strides.push(mode.coords().map_or_else(plain, |coords| Ok(coords.stride(i)))?);
        }
    }
    Ok(CoordLayout::new(IntTuple::tuple(&shapes)?, &strides, Basis::coprofile(&strides)?)?.into())
}

/// 1 if a relation of two tuples holds, else 0.
pub(super) fn relation(a: &[Argument], holds: fn(&IntTuple, &IntTuple) -> bool) -> Result<Value, Failure> {
    Ok(i64::from(holds(&a[0].tuple()?, &a[1].tuple()?)).into())
}

/// Changes the layout inside the first argument. A swizzle or an offset after the layout stays, and so do the
/// components of its strides.
pub(super) fn inside(a: &[Argument], change: impl FnOnce(&Layout) -> Changed) -> Result<Value, Failure> {
    if let Some(coords) = a[0].coords() {
        return Ok(coords.map_inner(change)?.into());
    }
    let composed = a[0].composed()?;
    let layout = change(&composed.layout)?;
    Ok(if a[0].is_composed() { ComposedLayout { layout, ..composed }.into() } else { layout.into() })
}

/// Applies `whole`, or, if there is a second argument, `by` with that profile.
pub(super) fn profiled(
    a: &[Argument],
    whole: fn(&Layout) -> Layout,
    by: fn(&Layout, &IntTuple) -> Changed,
) -> Result<Value, Failure> {
    let profile = a.get(1).map(Argument::tuple).transpose()?;
    inside(a, |layout| profile.map_or_else(|| Ok(whole(layout)), |profile| by(layout, &profile)))
}

/// Applies an operation that takes a tiler.
pub(super) fn tiled(a: &[Argument], operation: fn(&Layout, &Tiler<'_>) -> Changed) -> Result<Value, Failure> {
    let tiles = a[1].tiler()?;
    inside(a, |layout| {
        let mut result = Ok(*layout);
        tiles.lend(&mut |tiler| result = operation(layout, tiler));
        result
    })
}

/// The same for operations on offsets. No swizzle may come after the layout.
pub(super) fn tiled_plain(
    a: &[Argument],
    operation: fn(&Layout, &Tiler<'_>) -> Changed,
) -> Result<Value, Failure> {
    a[0].layout()?;
    tiled(a, operation)
}

/// The composition of two layouts. The second may be a coordinate layout into the modes of the first.
///
/// A swizzle composes with a swizzle, or with a layout, with an offset between them or without.
pub(super) fn composed(a: &[Argument]) -> Result<Value, Failure> {
    if let (Some(first), Some(second), 2) = (a[0].swizzle(), a[1].swizzle(), a.len()) {
        return Ok(first.composition(second)?.into());
    }
    if let Some(swizzle) = a[0].swizzle() {
        let offset = if a.len() == 3 { a[1].int()? } else { 0 };
        return Ok(swizzled(swizzle, offset, &a[a.len() - 1].composed()?)?.into());
    }
    if let Some(more) = a.get(2) {
        return Err(more.instead_of("no third argument, unless the first is a swizzle,").into());
    }
    match a[1].coords() {
        Some(coords) => inside(a, |l| l.composition_coords(&coords.covering(&l.shape())?)),
        None => tiled(a, Layout::composition_by),
    }
}

/// `Sw o offset o C`. Two consecutive swizzles become one; there must be no offset between them.
pub(super) fn swizzled(
    swizzle: Swizzle,
    offset: i64,
    inner: &ComposedLayout,
) -> Result<ComposedLayout, LayoutError> {
    if inner.swizzle.bits == 0 {
        return Ok(ComposedLayout { swizzle, offset: inner.offset + offset, ..*inner });
    }
    if offset != 0 {
        let bits = |swizzle: Swizzle| swizzle.source_mask() | swizzle.target_mask();
        return Err(LayoutError::SwizzlePair { first: bits(swizzle), second: bits(inner.swizzle) });
    }
    Ok(ComposedLayout { swizzle: swizzle.composition(inner.swizzle)?, ..*inner })
}

/// The right or left inverse of a layout, a composed layout, a coordinate layout, or a swizzle.
pub(super) fn inverse(a: &Argument, right: bool) -> Result<Value, Failure> {
    if let Some(swizzle) = a.swizzle() {
        Ok(swizzle.inverse().into())
    } else if let Some(coords) = a.coords() {
        Ok(if right { coords.right_inverse() } else { coords.left_inverse() }?.into())
    } else if a.is_composed() {
        let composed = a.composed()?;
        Ok(if right { composed.right_inverse() } else { composed.left_inverse() }?.into())
    } else {
        let layout = a.layout()?;
        Ok(if right { layout.right_inverse() } else { layout.left_inverse() }?.into())
    }
}

/// The product of a layout, or of a composed layout, with a layout.
pub(super) fn product(
    a: &[Argument],
    plain: fn(&Layout, &Layout) -> Changed,
    swizzled: fn(&ComposedLayout, &Layout) -> Result<ComposedLayout, LayoutError>,
) -> Result<Value, Failure> {
    let grid = a[1].layout()?;
    if a[0].is_composed() {
        return Ok(swizzled(&a[0].composed()?, &grid)?.into());
    }
    Ok(plain(&a[0].layout()?, &grid)?.into())
}

pub(super) fn at(layout: &Argument, coord: &Argument) -> Result<Value, Failure> {
    if let Operand::Value(Value::Inverse(inverse)) = layout.operand {
        let offset = coord.int()?;
        let reached = u64::try_from(offset).map_err(|_| LayoutError::NegativeStride { stride: offset })?;
        let inner = inverse.swizzle.apply(reached).cast_signed() - inverse.offset;
        let fits = range::reaches(&inverse.layout, inner);
        return if fits { Ok(inverse.at(offset).into()) } else { Err(Failure::Large) };
    }
    let (inner, place) = (layout.domain()?, coord.tuple()?);
    if !place.leaves().all(|c| range::reaches(&inner, c)) {
        return Err(Failure::Large);
    }
    match layout.located() {
        Some((coords, first)) => Ok(coords.at_coord(&place)?.elem_add(&first)?.into()),
        None => Ok(layout.composed()?.at_coord(&place)?.into()),
    }
}

/// The modes that a coordinate keeps open; with `open` false, the modes that it fixes.
pub(super) fn part(a: &[Argument], open: bool) -> Result<Value, Failure> {
    let is_layout = |argument: &Argument| {
        argument.is_composed()
            || matches!(argument.operand, Operand::Value(Value::Layout(_) | Value::Coords(_)))
    };
    // The layout may also come first: `slice(L,C)`.
    let (coord, target) = if is_layout(&a[0]) { (&a[1], &a[0]) } else { (&a[0], &a[1]) };
    let one = core::slice::from_ref(target);
    if matches!(coord.operand, Operand::Keep) && open {
        return inside(one, |l| Ok(*l));
    }
    let mut cut = Cut { coord, open, kept: Vec::new(), offset: 0 };
    cut.at(&target.domain()?, &coord.operand)?;
    if target.is_composed() {
        let composed = target.composed()?;
        let offset = composed.offset + if open { cut.offset } else { 0 };
        return Ok(ComposedLayout { layout: Layout::concat(&cut.kept)?, offset, ..composed }.into());
    }
    inside(one, |_| Layout::concat(&cut.kept))
}

/// The state of slicing a layout at a coordinate.
struct Cut<'a> {
    coord: &'a Argument,
    /// Whether to keep the open modes or the fixed ones.
    open: bool,
    kept: Vec<Layout>,
    /// The offset of the fixed modes.
    offset: i64,
}

impl Cut<'_> {
    fn at(&mut self, layout: &Layout, coord: &Operand) -> Result<(), Failure> {
        let mut each = |count: usize, member: &dyn Fn(usize) -> Operand| {
            if count != layout.rank() || layout.shape().is_int() {
                return Err(LayoutError::Rank { needed: layout.rank(), given: count }.into());
            }
            (0..count).try_for_each(|i| self.at(&layout.mode(i), &member(i)))
        };
        let is_open = match coord {
            Operand::Coord(members) => return each(members.len(), &|i| members[i].clone()),
            Operand::Value(Value::Tuple(tuple)) => {
                return each(tuple.rank(), &|i| Value::from(tuple.mode(i)).into());
            }
            Operand::Value(Value::Int(c)) if range::reaches(layout, *c) => {
                self.offset += layout.at(*c);
                false
            }
            Operand::Value(Value::Int(_)) => return Err(Failure::Large),
            Operand::Keep => true,
            Operand::Value(_) | Operand::Tiler(_) | Operand::Strides(..) => {
                return Err(self.coord.instead_of("a coordinate of integers and `_`").into());
            }
        };
        if is_open == self.open {
            self.kept.push(*layout);
        }
        Ok(())
    }
}

pub(super) fn complement(a: &[Argument]) -> Result<Value, Failure> {
    let layout = a[0].layout()?;
    let cotarget = match a.get(1) {
        Some(shape) => range::size(&shape.shape()?).ok_or(Failure::Large)?,
        None => layout.cosize(),
    };
    Ok(layout.complement(cotarget)?.into())
}

/// The size of each mode of a shape.
pub(super) fn shaped(argument: &Argument) -> Result<Vec<i64>, Fault> {
    Ok(argument.shape()?.modes().map(|mode| mode.size()).collect())
}

/// The modes, sorted by an order in CuTe's notation, which gives the position of each mode.
pub(super) fn by_rank(order: &Argument) -> Result<Vec<usize>, Fault> {
    let places = order.tuple()?;
    let mut modes: Vec<_> = (0..places.rank()).collect();
    modes.sort_by_key(|&mode| places.mode(mode).leaf(0));
    Ok(modes)
}
