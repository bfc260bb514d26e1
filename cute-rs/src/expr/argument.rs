//! What operations are given.

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

/// What an argument evaluates to.
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
    /// A stride along a component, or a tuple with one: the values as they are nested, and what each counts along.
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

/// An operand, and where it is written.
#[derive(Clone, Debug)]
pub(super) struct Argument {
    pub(super) span: Range<usize>,
    pub(super) operand: Operand,
}

impl Argument {
    /// This is something else than what is wanted.
    pub(super) fn instead_of(&self, wanted: &str) -> Fault {
        Fault::new(self.span.clone(), format!("{} where {wanted} is needed", self.operand.noun()))
    }

    /// An integer.
    pub(super) fn int(&self) -> Result<i64, Fault> {
        let Operand::Value(Value::Int(value)) = self.operand else {
            return Err(self.instead_of("an integer"));
        };
        if value.unsigned_abs() > range::LIMIT.unsigned_abs() {
            return Err(Fault::new(self.span.clone(), format!("{value} is beyond {}", range::LIMIT)));
        }
        Ok(value)
    }

    /// The number of a mode, or how many modes.
    pub(super) fn index(&self) -> Result<usize, Fault> {
        let value = self.int()?;
        usize::try_from(value).map_err(|_| Fault::new(self.span.clone(), format!("{value} counts no modes")))
    }

    /// An integer or a tuple.
    pub(super) fn tuple(&self) -> Result<IntTuple, Fault> {
        if let Operand::Value(Value::Int(value)) = self.operand {
            Ok(IntTuple::int(value))
        } else if let Operand::Value(Value::Tuple(tuple)) = self.operand {
            Ok(tuple)
        } else {
            Err(self.instead_of("an integer or a tuple of integers"))
        }
    }

    /// A shape whose size is in range.
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

    /// A layout, or a shape that stands for a column-major one.
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

    /// A layout with what comes after it. A plain layout has nothing after it.
    pub(super) fn composed(&self) -> Result<ComposedLayout, Fault> {
        if let Operand::Value(Value::Composed(composed)) = self.operand {
            return Ok(composed);
        }
        Ok(ComposedLayout { swizzle: Swizzle::NONE, offset: 0, layout: self.layout()? })
    }

    /// No coordinate leads to this offset.
    pub(super) fn nowhere(&self, offset: i64, layout: &Layout) -> Fault {
        Fault::new(self.span.clone(), format!("no coordinate of {layout} was found at offset {offset}"))
    }

    /// A layout that yields coordinates.
    pub(super) const fn coords(&self) -> Option<CoordLayout> {
        if let Operand::Value(Value::Coords(coords)) = self.operand { Some(coords) } else { None }
    }

    /// A layout that yields coordinates or a part of one, and its first coordinate.
    pub(super) fn located(&self) -> Option<(CoordLayout, IntTuple)> {
        if let Operand::Value(Value::Part(part)) = self.operand {
            return Some((part.layout, part.start));
        }
        self.coords().map(|coords| (coords, coords.profile()))
    }

    /// A swizzle.
    pub(super) const fn swizzle(&self) -> Option<Swizzle> {
        if let Operand::Value(Value::Swizzle(swizzle)) = self.operand { Some(swizzle) } else { None }
    }

    /// The layout of the coordinates' leaves, whatever it yields.
    pub(super) fn domain(&self) -> Result<Layout, Fault> {
        match self.located() {
            Some((coords, _)) => Ok(*coords.inner()),
            None => Ok(self.composed()?.layout),
        }
    }

    /// Strides, of which some may count along a component.
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

    /// A tiler of modes, or one layout for all.
    pub(super) fn tiler(&self) -> Result<Tiles, Fault> {
        match &self.operand {
            Operand::Keep => Ok(Tiles::Keep),
            Operand::Tiler(modes) => {
                Ok(Tiles::Modes(modes.iter().map(Self::tiler).collect::<Result<_, _>>()?))
            }
            Operand::Value(_) | Operand::Coord(_) | Operand::Strides(..) => Ok(Tiles::By(self.layout()?)),
        }
    }

    /// Whether this is a layout with something after it.
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

    /// Lends the modes one by one, those before them at hand.
    fn lend_modes(modes: &[Self], lent: &[Tiler<'_>], operation: &mut dyn FnMut(&Tiler<'_>)) {
        let Some((first, rest)) = modes.split_first() else { return operation(&Tiler::Modes(lent)) };
        first.lend(&mut |tiler| Self::lend_modes(rest, &[lent, &[*tiler]].concat(), operation));
    }
}
