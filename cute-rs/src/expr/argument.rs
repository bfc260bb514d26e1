//! What operations are given.

use alloc::format;
use alloc::vec::Vec;
use core::ops::Range;

use super::{Fault, Value, range};
use crate::composed::ComposedLayout;
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

    /// Whether this is a layout with something after it.
    pub(super) const fn is_composed(&self) -> bool {
        matches!(self.operand, Operand::Value(Value::Composed(_)))
    }
}
