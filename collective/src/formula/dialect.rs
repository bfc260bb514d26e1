//! What formulas of epilogues add to the grammar: the elements of vectors and matrices.

use core::fmt;

use crate::element::Format;
use crate::expression::{self, Dialect, FormulaError, Is, Operator, Parser, stored};

/// The grammar of epilogues.
#[derive(Clone, Copy, Debug)]
pub(super) struct Epilogue;

pub(super) type Expr = expression::Expression<Epilogue>;

/// Something in device memory.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Place {
    pub(super) name: String,
    /// Whether each GEMM of a launch has its own.
    pub(super) each: bool,
    pub(super) index: Index,
    pub(super) format: Option<Format>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Index {
    Zero,
    Row,
    Column,
    Both,
    /// A matrix with this number of columns, repeated along N.
    Cyclic(u32),
}

/// Reads a text.
pub(super) fn parse(text: &str) -> Result<Expr, FormulaError> {
    let mut expr = expression::parse::<Epilogue>(text)?;
    // D's format has its own name, whichever was written.
    if let Is::Call { name, .. } = &mut expr.is
        && let Some(format) = stored(name)
    {
        format.name().clone_into(name);
    }
    Ok(expr)
}

impl Dialect for Epilogue {
    type Place = Place;

    const OPERATORS: &'static [Operator] = &Operator::ARITHMETIC;
    const RESERVED: &'static [&'static str] = &["acc", "c", "m", "n", "l"];

    fn place(parser: &mut Parser<'_, Self>, at: usize, name: String) -> Result<Place, FormulaError> {
        if Self::RESERVED.contains(&name.as_str()) && name != "c" {
            return Err(parser.error(at, format!("`{name}` has a meaning of its own, and no index")));
        }
        let (each, index) = index(parser)?;
        let format = if parser.is(":") { Some(parser.format()?) } else { None };
        Ok(Place { name, each, index, format })
    }

    fn refused(name: &str) -> Option<String> {
        matches!(name, "m" | "n" | "l").then(|| format!("`{name}` is an index: it stands in brackets"))
    }
}

/// What stands in brackets.
fn index(parser: &mut Parser<'_, Epilogue>) -> Result<(bool, Index), FormulaError> {
    let wrong = |parser: &Parser<'_, Epilogue>, at: usize, found: &str| {
        parser.error(
            at,
            format!(
                "{found} is no index: write [n], [m], [m,n], [m,n%64] or [0], and l for an own one per GEMM"
            ),
        )
    };
    let mut axes = Vec::new();
    let mut cycle = None;
    let begin = parser.at();
    loop {
        let (at, found) = (parser.at(), parser.found());
        let axis = match parser.take_number() {
            Some(number) => (number == 0.0).then_some("0"),
            None => {
                parser.take_word().and_then(|word| ["m", "n", "l"].into_iter().find(|axis| *axis == word))
            }
        };
        match (axis, found) {
            (Some(axis), _) => axes.push(axis),
            (None, Some(found)) => return Err(wrong(parser, at, &found)),
            (None, None) => return Err(parser.needed("an index")),
        }
        if parser.is("%") {
            cycle = Some(parser.take_number().ok_or_else(|| parser.needed("a number of columns"))?);
        }
        if !parser.is(",") {
            break;
        }
    }
    parser.need("]")?;
    let each = axes.first() == Some(&"l");
    let index = match (&axes[usize::from(each)..], cycle) {
        (["0"], None) => Index::Zero,
        (["n"], None) => Index::Column,
        (["m"], None) => Index::Row,
        (["m", "n"], None) => Index::Both,
        (["m", "n"], Some(columns)) => Index::Cyclic(columns as u32),
        _ => return Err(wrong(parser, begin, &format!("`[{}]`", axes.join(",")))),
    };
    Ok((each, index))
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, each, index, format } = self;
        let each = if *each { "l," } else { "" };
        match index {
            Index::Zero => write!(f, "{name}[{each}0]")?,
            Index::Row => write!(f, "{name}[{each}m]")?,
            Index::Column => write!(f, "{name}[{each}n]")?,
            Index::Both => write!(f, "{name}[{each}m,n]")?,
            Index::Cyclic(columns) => write!(f, "{name}[{each}m,n%{columns}]")?,
        }
        format.map_or(Ok(()), |format| write!(f, ":{}", format.name()))
    }
}
