//! Layout expressions: text in CuTe's notation, evaluated to a value of the algebra. Use them to read layouts
//! from a command line or a file, or to try an operation quickly.
//!
//! ```
//! use cute_rs::expr::evaluate;
//!
//! let tiles = evaluate("zipped_divide((8,6):(6,1), <4,2>)")?;
//! assert_eq!(tiles.to_string(), "((4,2),(2,3)):((6,1),(24,2))");
//! assert_eq!(evaluate("size(complement((2,2):(1,6), 24))")?.to_string(), "6");
//! # Ok::<(), cute_rs::expr::ExprError>(())
//! ```
//!
//! # Grammar
//!
//! | text | value |
//! |---|---|
//! | `12`, `-3`, `_4` | an integer; the underscore of CuTe's static integers is ignored |
//! | `(4,(2,3))` | an integer tuple |
//! | `(4,(2,3)):(1,(4,8))` | the layout `shape:stride` |
//! | `(A,B)` | a layout whose modes are the layouts `A` and `B` |
//! | `2@1`, `2@1@0`, `E<0,1>` | a stride along a component of a coordinate: `E<0,1>` is `1@1@0` |
//! | `(4,5):(1@1,1@0)` | a coordinate layout: it yields coordinates |
//! | `Sw<3,4,3>` | a swizzle |
//! | `A o B` | the composition `c -> A(B(c))` of layouts and swizzles; an integer adds an offset |
//! | `Sw<3,4,3> o 16 o L` | the composed layout `c -> Sw<3,4,3>(16 + L(c))` |
//! | `L o -16 o Sw<3,4,3>` | the inverse of a composed layout, `i -> L(Sw<3,4,3>(i) - 16)` |
//! | `(64,32) o (4,8):(1@0,1@1)` | a part of a coordinate layout that starts at coordinate `(64,32)` |
//! | `<B0,_,<B1,B2>>` | a tiler with one entry per mode; `_` keeps a mode as it is |
//! | `name(A, …)` | an operation, see [`operations`] |
//!
//! Where an operation takes a layout, an integer or a tuple is a shape and stands for its column-major
//! layout: `(4,8)` is `(4,8):(1,4)`. This also holds for tilers. So `logical_divide(L, (4,2))` divides by the
//! one layout `(4,2):(1,4)`. In contrast, `logical_divide(L, <4,2>)` divides mode 0 by `4:1` and mode 1 by
//! `2:1`, as CuTe's `Shape<_4,_2>` does.
//!
//! `parse` reads layouts, tuples and swizzles from the same notation:
//!
//! ```
//! use cute_rs::{CoordLayout, IntTuple, Layout};
//!
//! let layout: Layout = "(4,(2,3)):(1,(4,8))".parse()?;
//! assert_eq!(layout.at_coord(&"(3,(1,2))".parse()?).unwrap_or(0), 3 + 4 + 16);
//! assert_eq!("coalesce((2,3):(1,2))".parse::<Layout>()?.to_string(), "6:1");
//! assert_eq!("(4,5):(1@0,1@1)".parse::<CoordLayout>()?.shape(), IntTuple::from((4, 5)));
//! # Ok::<(), cute_rs::expr::ExprError>(())
//! ```
//!
//! # Errors point at the character
//!
//! ```
//! # use cute_rs::expr::evaluate;
//! let text = evaluate("size(composition((6,2):(8,2), 4:4))").unwrap_err().to_string();
//! let [message, line, carets] = text.lines().collect::<Vec<_>>()[..] else { panic!() };
//! assert!(message.starts_with("column 6: composition: stride 4 neither divides the extent 6 it walks in"));
//! assert_eq!(line, "  size(composition((6,2):(8,2), 4:4))");
//! assert_eq!(carets, "       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^");
//! ```

mod apply;
mod argument;
mod calls;
mod operations;
mod parse;
mod parts;
mod range;
mod value;

use alloc::string::String;
use core::fmt;
use core::ops::Range;

use crate::error::LayoutError;
use parse::Node;

pub use operations::{Operation, operations};
pub use value::Value;

/// A parsed expression that is not yet evaluated. Use it to separate syntax errors from errors of operations.
///
/// ```
/// use cute_rs::expr::Expr;
///
/// let expr: Expr = "coalesce((2,(1,6)):(1,(6,2)))".parse()?;
/// assert_eq!(expr.evaluate()?.to_string(), "12:1");
/// # Ok::<(), cute_rs::expr::ExprError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Expr {
    source: String,
    root: Node,
}

impl Expr {
    /// Evaluates the expression. A text that is only a shape, such as `(4,8)`, gives the column-major layout
    /// of that shape.
    ///
    /// # Errors
    /// [`ExprError`] at the sub-expression that has no value.
    pub fn evaluate(&self) -> Result<Value, ExprError> {
        let layout =
            if self.root.is_shape() { apply::layout(&self.root).map(Value::Layout) } else { self.value() };
        layout.map_err(|fault| fault.within(&self.source))
    }

    /// The value without conversion: a tuple stays a tuple.
    fn value(&self) -> Result<Value, Fault> {
        apply::value(&self.root)
    }
}

impl core::str::FromStr for Expr {
    type Err = ExprError;

    fn from_str(source: &str) -> Result<Self, ExprError> {
        let root = parse::parse(source).map_err(|fault| fault.within(source))?;
        Ok(Self { source: source.into(), root })
    }
}

/// Parses and evaluates an expression. A text that is only a shape gives the column-major layout of that
/// shape.
///
/// ```
/// # use cute_rs::expr::{Value, evaluate};
/// assert_eq!(evaluate("(4,8)")?.to_string(), "(4,8):(1,4)");
/// let tile = evaluate("tile_to_shape(Sw<3,3,3> o 0 o (8,64):(64,1), (128,64))")?;
/// assert_eq!(tile.to_string(), "Sw<3,3,3> o 0 o ((8,16),(64,1)):((64,512),(1,0))");
/// assert_eq!(evaluate("right_inverse((4,8):(8,1))")?.to_string(), "(8,4):(4,1)");
/// assert_eq!(evaluate("cosize((4,8):(1,16))")?, Value::Int(116));
/// # Ok::<(), cute_rs::expr::ExprError>(())
/// ```
///
/// # Errors
/// [`ExprError`] if the text is not an expression or an operation has no result.
pub fn evaluate(source: &str) -> Result<Value, ExprError> {
    source.parse::<Expr>()?.evaluate()
}

/// An error in an expression, with its position. `Display` prints the message, the line of the expression,
/// and carets under the characters that the message is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExprError {
    source: String,
    span: Range<usize>,
    message: String,
}

impl ExprError {
    /// The message, without the expression.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The range of bytes of the expression that the message is about. It is empty at the end of the text.
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// The line and the column of the first character of [`span`](Self::span), each counted from 1. Columns
    /// count characters, not bytes.
    ///
    /// ```
    /// # use cute_rs::expr::evaluate;
    /// let error = evaluate("coalesce(\n  (4,8):(1))").unwrap_err();
    /// assert_eq!((error.position(), error.span()), ((2, 3), 12..21));
    /// assert_eq!(error.message(), "a layout: shape (4,8) and stride (1) are nested differently; nest the stride as \
    ///                              the shape is nested");
    /// ```
    pub fn position(&self) -> (usize, usize) {
        let before = &self.source[..self.span.start];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    }
}

impl fmt::Display for ExprError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (line, column) = self.position();
        if self.source.contains('\n') {
            write!(f, "line {line}, ")?;
        }
        let start = self.source[..self.span.start].rfind('\n').map_or(0, |newline| newline + 1);
        let end = self.source[start..].find('\n').map_or(self.source.len(), |newline| start + newline);
        let marked = self.span.start..self.span.end.clamp(self.span.start, end.max(self.span.start));
        let carets = self.source[marked].chars().count().max(1);
        write!(f, "column {column}: {}\n  {}\n  ", self.message, &self.source[start..end])?;
        // Tabs are kept, so that the carets line up at any tab width.
        for c in self.source[start..self.span.start].chars() {
            f.write_str(if c == '\t' { "\t" } else { " " })?;
        }
        (0..carets).try_for_each(|_| f.write_str("^"))
    }
}

impl core::error::Error for ExprError {}

/// An error message about a range of bytes of the source.
#[derive(Debug)]
struct Fault {
    span: Range<usize>,
    message: String,
}

impl Fault {
    fn new(span: Range<usize>, message: impl Into<String>) -> Self {
        Self { span, message: message.into() }
    }

    /// The error that the algebra has no result for the operation `what` at `span`.
    fn refused(span: Range<usize>, what: &str, error: &LayoutError) -> Self {
        Self::new(span, alloc::format!("{what}: {error}; {}", error.remedy()))
    }

    fn within(self, source: &str) -> ExprError {
        ExprError { source: source.into(), span: self.span, message: self.message }
    }
}
