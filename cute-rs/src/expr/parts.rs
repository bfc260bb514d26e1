//! Operations of expressions that select a part of a layout: tiles and partitions.

use alloc::vec::Vec;

use super::argument::{Argument, Operand};
use super::operations::Failure;
use super::{Value, range};
use crate::algebra::Tiler;
use crate::composed::ComposedLayout;
use crate::coord_layout::CoordLayout;
use crate::error::LayoutError;
use crate::int_tuple::IntTuple;
use crate::layout::Layout;
use crate::partition::{Partition, Tensor};

/// Partitions the first argument by the second, and returns the part at the third.
pub(super) fn partition(
    a: &[Argument],
    cut: fn(&Layout, &Tiler<'_>) -> Result<Partition<Layout>, LayoutError>,
) -> Result<Value, Failure> {
    let (layout, tiles) = (a[0].domain()?, a[1].tiler()?);
    let mut parts = Err(LayoutError::Rank { needed: 1, given: 0 });
    tiles.lend(&mut |tiler| parts = cut(&layout, tiler));
    part_of(&a[0], &parts?, &a[2])
}

/// The part at a coordinate. If the part does not start at 0, the result also has its offset, or its first
/// coordinate if `whole` yields coordinates.
pub(super) fn part_of(
    whole: &Argument,
    parts: &Partition<Layout>,
    coord: &Argument,
) -> Result<Value, Failure> {
    let starts = parts.starts();
    let fixed = |operand: &Operand| match operand {
        Operand::Keep => Ok(None),
        Operand::Value(Value::Int(c)) if range::reaches(&starts, *c) => Ok(Some(*c)),
        Operand::Value(Value::Int(_)) => Err(Failure::Large),
        Operand::Value(_) | Operand::Coord(_) | Operand::Tiler(_) | Operand::Strides(..) => {
            Err(coord.instead_of("an integer or `_` for each mode").into())
        }
    };
    let coords: Vec<_> = match &coord.operand {
        Operand::Coord(members) => members.iter().map(fixed).collect::<Result<_, _>>()?,
        Operand::Value(Value::Tuple(tuple)) => {
            tuple.modes().map(|mode| fixed(&Value::from(mode).into())).collect::<Result<_, _>>()?
        }
        Operand::Keep | Operand::Value(_) | Operand::Tiler(_) | Operand::Strides(..) => {
            Vec::from([fixed(&coord.operand)?])
        }
    };
    if let Some((layout, first)) = whole.located() {
        return located(&parts.of(&layout), &coords, &first);
    }
    let (layout, start) = parts.at(&coords)?;
    let before = whole.composed()?;
    let offset = before.offset + start;
    let plain = offset == 0 && !whole.is_composed();
    Ok(if plain { layout.into() } else { ComposedLayout { layout, offset, ..before }.into() })
}

/// The part of a coordinate layout that starts at `first`. If the part has no stride along a component, the
/// result is its first coordinate.
fn located(
    parts: &Partition<CoordLayout>,
    coords: &[Option<i64>],
    first: &IntTuple,
) -> Result<Value, Failure> {
    let (layout, start) = parts.at(coords)?;
    let start = start.elem_add(first)?;
    if layout.coarsest().is_err() {
        return Ok(Value::Tuple(start));
    }
    let at_zero = start.leaves().all(|leaf| leaf == 0);
    Ok(if at_zero { layout.into() } else { Value::Part(Tensor { layout, start }) })
}
