//! Values of expressions.

use alloc::format;
use core::fmt;
use core::str::FromStr;

use super::{Expr, ExprError, Fault};
use crate::composed::{ComposedLayout, SwizzledInverse};
use crate::coord_layout::CoordLayout;
use crate::int_tuple::IntTuple;
use crate::layout::Layout;
use crate::partition::Tensor;
use crate::swizzle::Swizzle;

/// The value of an expression.
///
/// `Display` prints CuTe's notation, and `parse` reads it back:
///
/// ```
/// use cute_rs::IntTuple;
/// use cute_rs::expr::{Value, evaluate};
///
/// let composed = evaluate("Sw<2,4,3> o composition((6,2):(8,2), (4,3):(3,1))")?;
/// assert_eq!(composed.to_string(), "Sw<2,4,3> o 0 o ((2,2),3):((24,2),8)");
/// assert_eq!(composed.to_string().parse(), Ok(composed));
/// assert_eq!("(4,8)".parse(), Ok(Value::Tuple(IntTuple::from((4, 8))))); // Not a layout: no operation asked for one.
/// # Ok::<(), cute_rs::expr::ExprError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "values of the algebra are `Copy` and have no heap")]
#[non_exhaustive]
pub enum Value {
    /// An integer.
    Int(i64),
    /// An integer tuple that is not a single integer.
    Tuple(IntTuple),
    /// A layout.
    Layout(Layout),
    /// A swizzle.
    Swizzle(Swizzle),
    /// A composed layout: a layout with an offset or a swizzle after it.
    Composed(ComposedLayout),
    /// A coordinate layout. Its profile is the coarsest that its strides allow.
    Coords(CoordLayout),
    /// A part of a coordinate layout with its first coordinate, such as `(64,32) o (4,8):(1@0,1@1)`.
    Part(Tensor<CoordLayout, IntTuple>),
    /// The inverse of a composed layout, `L o -OFFSET o Sw<B,M,S>`.
    Inverse(SwizzledInverse),
}

impl Value {
    /// The value as a composed layout, or `None` if it is not a layout of offsets. A plain layout gets no
    /// swizzle and offset 0.
    ///
    /// ```
    /// # use cute_rs::{Swizzle, expr::{Value, evaluate}};
    /// let rows = evaluate("(8,8):(8,1)")?.composed();
    /// assert!(rows.is_some_and(|rows| rows.swizzle == Swizzle::NONE && rows.at_modes(&[1, 2]) == 10));
    /// assert_eq!(Value::Int(8).composed(), None);
    /// # Ok::<(), cute_rs::expr::ExprError>(())
    /// ```
    pub const fn composed(&self) -> Option<ComposedLayout> {
        match *self {
            Self::Layout(layout) => Some(ComposedLayout { swizzle: Swizzle::NONE, offset: 0, layout }),
            Self::Composed(composed) => Some(composed),
            Self::Int(_)
            | Self::Tuple(_)
            | Self::Swizzle(_)
            | Self::Coords(_)
            | Self::Part(_)
            | Self::Inverse(_) => None,
        }
    }

    /// The kind of the value, for error messages.
    pub(super) const fn noun(&self) -> &'static str {
        match self {
            Self::Int(_) => "an integer",
            Self::Tuple(_) => "a tuple",
            Self::Layout(_) => "a layout",
            Self::Swizzle(_) => "a swizzle",
            Self::Composed(_) => "a composed layout",
            Self::Coords(_) => "a coordinate layout",
            Self::Part(_) => "a part of a coordinate layout",
            Self::Inverse(_) => "an inverse of a composed layout",
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(value) => value.fmt(f),
            Self::Tuple(tuple) => tuple.fmt(f),
            Self::Layout(layout) => layout.fmt(f),
            Self::Swizzle(swizzle) => swizzle.fmt(f),
            Self::Composed(composed) => composed.fmt(f),
            Self::Coords(coords) => coords.fmt(f),
            Self::Part(part) => write!(f, "{} o {}", part.start, part.layout),
            Self::Inverse(inverse) => inverse.fmt(f),
        }
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<IntTuple> for Value {
    /// Converts a single integer to [`Value::Int`].
    fn from(tuple: IntTuple) -> Self {
        if tuple.is_int() { Self::Int(tuple.leaf(0)) } else { Self::Tuple(tuple) }
    }
}

impl From<Layout> for Value {
    fn from(layout: Layout) -> Self {
        Self::Layout(layout)
    }
}

impl From<Swizzle> for Value {
    fn from(swizzle: Swizzle) -> Self {
        Self::Swizzle(swizzle)
    }
}

impl From<ComposedLayout> for Value {
    fn from(composed: ComposedLayout) -> Self {
        Self::Composed(composed)
    }
}

impl From<SwizzledInverse> for Value {
    fn from(inverse: SwizzledInverse) -> Self {
        Self::Inverse(inverse)
    }
}

impl From<CoordLayout> for Value {
    /// Converts a layout without a stride along a component to [`Value::Layout`]. Otherwise, the profile
    /// leaves out the components after the last one that a stride counts along.
    fn from(coords: CoordLayout) -> Self {
        coords.coarsest().map_or_else(Self::Layout, Self::Coords)
    }
}

impl FromStr for Value {
    type Err = ExprError;

    /// Reads the output of `Display`, or any expression. A tuple stays a tuple: it does not become a layout.
    fn from_str(source: &str) -> Result<Self, ExprError> {
        let expr: Expr = source.parse()?;
        expr.value().map_err(|fault| fault.within(source))
    }
}

/// Reads an expression and converts its value with `take`. `wanted` names the kind for the error message.
fn read<T>(source: &str, wanted: &str, take: fn(Value) -> Option<T>) -> Result<T, ExprError> {
    let expr: Expr = source.parse()?;
    let value = expr.value().map_err(|fault| fault.within(source))?;
    let message = || format!("{} where {wanted} is needed", value.noun());
    take(value).ok_or_else(|| Fault::new(0..source.len(), message()).within(source))
}

impl FromStr for IntTuple {
    type Err = ExprError;

    /// Reads a tuple such as `(4,(2,3))`, an integer, or an expression that gives one.
    fn from_str(source: &str) -> Result<Self, ExprError> {
        read(source, "an integer or a tuple of integers", |value| match value {
            Value::Int(value) => Some(Self::int(value)),
            Value::Tuple(tuple) => Some(tuple),
            Value::Layout(_)
            | Value::Swizzle(_)
            | Value::Composed(_)
            | Value::Coords(_)
            | Value::Part(_)
            | Value::Inverse(_) => None,
        })
    }
}

impl FromStr for Layout {
    type Err = ExprError;

    /// Reads a layout such as `(4,8):(8,1)`, or an expression that gives one. A shape such as `(4,8)` gives
    /// the column-major layout of that shape.
    fn from_str(source: &str) -> Result<Self, ExprError> {
        let expr: Expr = source.parse()?;
        let Value::Layout(layout) = expr.evaluate()? else {
            return read(source, "a layout", |_| None);
        };
        Ok(layout)
    }
}

impl FromStr for ComposedLayout {
    type Err = ExprError;

    /// Reads a layout with a swizzle, such as `Sw<3,4,3> o 0 o (8,64):(64,1)`, or without one.
    fn from_str(source: &str) -> Result<Self, ExprError> {
        read(source, "a layout", |value| value.composed())
    }
}

impl FromStr for CoordLayout {
    type Err = ExprError;

    /// Reads a coordinate layout such as `(4,5):(1@1,1@0)`. Its profile is the coarsest that its strides
    /// allow.
    fn from_str(source: &str) -> Result<Self, ExprError> {
        read(source, "a coordinate layout", |value| {
            if let Value::Coords(coords) = value { Some(coords) } else { None }
        })
    }
}

impl FromStr for Swizzle {
    type Err = ExprError;

    /// Reads a swizzle such as `Sw<3,4,3>`.
    fn from_str(source: &str) -> Result<Self, ExprError> {
        read(
            source,
            "a swizzle",
            |value| if let Value::Swizzle(swizzle) = value { Some(swizzle) } else { None },
        )
    }
}
