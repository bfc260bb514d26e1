//! Arguments of operations, and their conversion to what an operation needs.

use alloc::format;
use alloc::vec::Vec;
use core::ops::Range;

use super::{Fault, Value, range};
use crate::algebra::Tiler;
use crate::composed::ComposedLayout;
use crate::coord_layout::{Basis, CoordLayout};
use crate::error::LayoutError;
use crate::int_tuple::IntTuple;
use crate::layout::Layout;
use crate::swizzle::Swizzle;

/// The result of evaluating an argument.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "most operands are values")]
pub(super) enum Operand {
    Value(Value),
    /// `_`.
    Keep,
    /// A tuple with `_` in it.
    Coord(Vec<Operand>),
    /// `<…>`.
    Tiler(Vec<Argument>),
    /// A stride along a component, or a tuple with one: the nested scales, and the basis of each.
    Strides(IntTuple, Vec<Basis>),
}

impl From<Value> for Operand {
    fn from(value: Value) -> Self {
        Self::Value(value)
    }
}

impl Operand {
    const fn noun(&self) -> &'static str {
        match self {
            Self::Value(value) => value.noun(),
            Self::Keep => "`_`",
            Self::Coord(_) => "a tuple with `_`",
            Self::Tiler(_) => "a tiler",
            Self::Strides(..) => "a stride along a component",
        }
    }
}

/// An operand and its position in the source.
#[derive(Clone, Debug)]
pub(super) struct Argument {
    pub(super) span: Range<usize>,
    pub(super) operand: Operand,
}

impl Argument {
    /// The error that the argument is not `wanted`.
    pub(super) fn instead_of(&self, wanted: &str) -> Fault {
        Fault::new(self.span.clone(), format!("{} where {wanted} is needed", self.operand.noun()))
    }

    /// The argument as an integer within [`range::LIMIT`].
    pub(super) fn int(&self) -> Result<i64, Fault> {
        let Operand::Value(Value::Int(value)) = self.operand else {
            return Err(self.instead_of("an integer"));
        };
        if value.unsigned_abs() > range::LIMIT.unsigned_abs() {
            return Err(Fault::new(self.span.clone(), format!("{value} is beyond {}", range::LIMIT)));
        }
        Ok(value)
    }

    /// The index of a mode, or a number of modes.
    pub(super) fn index(&self) -> Result<usize, Fault> {
        let value = self.int()?;
        usize::try_from(value).map_err(|_| Fault::new(self.span.clone(), format!("{value} is out of range")))
    }

    /// The argument as an integer or a tuple.
    pub(super) fn tuple(&self) -> Result<IntTuple, Fault> {
        if let Operand::Value(Value::Int(value)) = self.operand {
            Ok(IntTuple::int(value))
        } else if let Operand::Value(Value::Tuple(tuple)) = self.operand {
            Ok(tuple)
        } else {
            Err(self.instead_of("an integer or a tuple of integers"))
        }
    }

    /// The argument as a shape with a size in range.
    pub(super) fn shape(&self) -> Result<IntTuple, Fault> {
        let shape = self.tuple()?;
        let extents = || (0..shape.len()).map(|i| shape.leaf(i));
        if extents().any(|extent| extent < 1) {
            return Err(Fault::refused(self.span.clone(), "a shape", &LayoutError::Extent { shape }));
        }
        if range::size(&shape).is_none() {
            let message = format!("the shape {shape} has more than {} elements", range::LIMIT);
            return Err(Fault::new(self.span.clone(), message));
        }
        Ok(shape)
    }

    /// The argument as a layout. A shape stands for its column-major layout.
    pub(super) fn layout(&self) -> Result<Layout, Fault> {
        if let Operand::Value(Value::Layout(layout)) = self.operand {
            Ok(layout)
        } else if self.is_composed() {
            Err(self.instead_of("a layout without a swizzle"))
        } else if matches!(self.operand, Operand::Value(Value::Int(_) | Value::Tuple(_))) {
            let refused = |error| Fault::refused(self.span.clone(), "a shape", &error);
            Layout::column_major(self.shape()?).map_err(refused)
        } else {
            Err(self.instead_of("a layout or a shape"))
        }
    }

    /// The argument as a composed layout. A plain layout gets no swizzle and offset 0.
    pub(super) fn composed(&self) -> Result<ComposedLayout, Fault> {
        if let Operand::Value(Value::Composed(composed)) = self.operand {
            return Ok(composed);
        }
        Ok(ComposedLayout { swizzle: Swizzle::NONE, offset: 0, layout: self.layout()? })
    }

    /// The error that no coordinate was found at this offset.
    pub(super) fn nowhere(&self, offset: i64, layout: &Layout) -> Fault {
        Fault::new(self.span.clone(), format!("no coordinate of {layout} was found at offset {offset}"))
    }

    /// The argument as a coordinate layout.
    pub(super) const fn coords(&self) -> Option<CoordLayout> {
        if let Operand::Value(Value::Coords(coords)) = self.operand { Some(coords) } else { None }
    }

    /// The argument as a coordinate layout, or as a part of one, with its first coordinate.
    pub(super) fn located(&self) -> Option<(CoordLayout, IntTuple)> {
        if let Operand::Value(Value::Part(part)) = self.operand {
            return Some((part.layout, part.start));
        }
        self.coords().map(|coords| (coords, coords.profile()))
    }

    /// The argument as a swizzle.
    pub(super) const fn swizzle(&self) -> Option<Swizzle> {
        if let Operand::Value(Value::Swizzle(swizzle)) = self.operand { Some(swizzle) } else { None }
    }

    /// The layout without a swizzle, an offset or components: the same coordinates and plain strides.
    pub(super) fn domain(&self) -> Result<Layout, Fault> {
        match self.located() {
            Some((coords, _)) => Ok(*coords.inner()),
            None => Ok(self.composed()?.layout),
        }
    }

    /// The argument as strides; some may count along a component.
    pub(super) fn strides(&self) -> Result<(IntTuple, Vec<Basis>), Fault> {
        if let Operand::Strides(scales, strides) = &self.operand {
            return Ok((*scales, strides.clone()));
        }
        let scales = self.tuple()?;
        let plain = |scale| {
            Basis::new(scale, &[]).map_err(|error| Fault::refused(self.span.clone(), "a stride", &error))
        };
        Ok((scales, scales.leaves().map(plain).collect::<Result<_, _>>()?))
    }

    /// The argument as a tiler: one tiler per mode, or one layout for the whole.
    pub(super) fn tiler(&self) -> Result<Tiles, Fault> {
        match &self.operand {
            Operand::Keep => Ok(Tiles::Keep),
            Operand::Tiler(modes) => {
                Ok(Tiles::Modes(modes.iter().map(Self::tiler).collect::<Result<_, _>>()?))
            }
            Operand::Value(_) | Operand::Coord(_) | Operand::Strides(..) => Ok(Tiles::By(self.layout()?)),
        }
    }

    /// Whether the argument is a composed layout.
    pub(super) const fn is_composed(&self) -> bool {
        matches!(self.operand, Operand::Value(Value::Composed(_)))
    }
}

/// A [`Tiler`] that owns its layouts.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "most tilers are layouts")]
pub(super) enum Tiles {
    Keep,
    By(Layout),
    Modes(Vec<Tiles>),
}

impl Tiles {
    /// Lends the tiler to an operation.
    pub(super) fn lend(&self, operation: &mut dyn FnMut(&Tiler<'_>)) {
        match self {
            Self::Keep => operation(&Tiler::Keep),
            Self::By(layout) => operation(&Tiler::By(layout)),
            Self::Modes(modes) => Self::lend_modes(modes, &[], operation),
        }
    }

    /// Lends the modes one by one; `lent` are the modes before.
    fn lend_modes(modes: &[Self], lent: &[Tiler<'_>], operation: &mut dyn FnMut(&Tiler<'_>)) {
        let Some((first, rest)) = modes.split_first() else { return operation(&Tiler::Modes(lent)) };
        first.lend(&mut |tiler| Self::lend_modes(rest, &[lent, &[*tiler]].concat(), operation));
    }
}
