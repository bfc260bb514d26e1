//! Scores and masks as text: `x-slope[h]*abs(q-k)`, `q>=k&document[b,q]:s32==document[b,k]:s32`.
//!
//! | text | is |
//! |---|---|
//! | `x` | the product of a query and a key times the scale; of scores alone |
//! | `q`, `k` | the number of the query, and of the key, in their sequence |
//! | `h`, `b` | the head of the query, and the sequence |
//! | `queries`, `keys` | how many queries and keys the sequence has |
//! | `bias[h,q,k]:bf16` | an element of an array in device memory, by whole numbers. Formats: `f32`, the default, `bf16`, `f16`, `e4m3`, `e5m2`; `s32`, `s8` and `u8` are whole numbers. A number beyond the array is its nearest one |
//! | `0.5`, `64` | constants; those without a fraction are whole numbers, to 2^30. `-inf` is the score of a key that is not seen |
//! | `a+b`, `a-b`, `a*b`, `-a` | arithmetic |
//! | `a/b`, `a%b` | of whole numbers the quotient rounded towards zero, and what it leaves; a quotient with a real number is real |
//! | `a<b`, `<=`, `>`, `>=`, `==`, `!=` | truths; the last two of whole numbers |
//! | `a&b`, `a\|b`, `!a` | of truths |
//! | `where(c,a,b)` | `a` where `c` is true, else `b` |
//! | `min(a,b)`, `max(a,b)`, `clamp(a,low,high)`, `abs(a)` | of whole or real numbers |
//! | `real(a)` | a whole number as a real one |
//! | `softcap(a,c)` | `c*tanh(a/c)` |
//! | `tanh`, `exp`, `exp2`, `log`, `log2`, `sqrt`, `rsqrt`, `sigmoid`, `erf`, `sin`, `cos` | functions of a real number |
//! | `d=q-k; d*d` | a value that is used several times |
//!
//! A mask's conditions on `q` and `k` that are joined by `&`, such as `q>=k`, `q-k<128` or `k<length[b]:s32`, are ranges of keys: what is outside of them is not computed.
//! The backward pass has the derivative by `x` from the same text.
//!
//! ```
//! use attention::{MaskFormula, ScoreFormula};
//!
//! let score: ScoreFormula = "softcap(x, 30) - slope[h] * abs(q - k)".parse()?;
//! assert_eq!(score.text(), "softcap(x,30)-slope[h]*abs(q-k)");
//! let mask: MaskFormula = "q >= k & q - k < 128".parse()?;
//! assert!(mask.arrays().next().is_none());
//!
//! let error = "x + bias[q, v]".parse::<ScoreFormula>().unwrap_err();
//! assert_eq!(error.to_string(), "`v` is no name of scores: there are x, q, k, h, b, queries, keys and inf\nx + bias[q, v]\n            ^");
//! # Ok::<(), collective::FormulaError>(())
//! ```

mod array;
mod evaluate;
mod ranges;
mod scores;
mod typed;

use core::fmt;
use core::hash::{Hash, Hasher};
use core::marker::PhantomData;
use core::str::FromStr;
use std::collections::BTreeMap;

use collective::expression::{self, Dialect, Expression, Operator, Parser};
use collective::process::Locked;
use collective::{Format, FormulaError};
use kernel::words::Worded;

pub(crate) use self::array::Array;
pub use self::evaluate::HostArrays;
pub(crate) use self::scores::FormulaScores;
pub(crate) use self::typed::Variable;
use self::typed::{Typed, of_text};

/// What a text is of: scores, or a mask.
pub trait FormulaKind: Copy + 'static {
    /// What it has to be, in words.
    #[doc(hidden)]
    const NEEDED: &'static str;
    /// Whether it is a truth.
    #[doc(hidden)]
    const IS_TRUTH: bool;
}

/// Of scores: a real number.
#[derive(Clone, Copy, Debug)]
pub struct OfScores;

/// Of a mask: whether a query sees a key.
#[derive(Clone, Copy, Debug)]
pub struct OfMask;

impl FormulaKind for OfScores {
    const NEEDED: &'static str = "a number";
    const IS_TRUTH: bool = false;
}

impl FormulaKind for OfMask {
    const NEEDED: &'static str = "a truth, such as q>=k,";
    const IS_TRUTH: bool = true;
}

/// Scores or a mask as a value, made from text. See the table in [`formula`](self).
///
/// Equal texts are one value: a text is read once and kept for the life of the process.
pub struct TextFormula<K>(&'static Known, PhantomData<K>);

/// What becomes of scores.
pub type ScoreFormula = TextFormula<OfScores>;

/// Which keys a query sees.
pub type MaskFormula = TextFormula<OfMask>;

/// A formula that has been read.
struct Known {
    text: String,
    root: Typed,
    arrays: Vec<Array>,
}

static KNOWN: Locked<BTreeMap<(bool, String), &'static Known>> = Locked::new(BTreeMap::new());

/// The grammar of scores and masks.
#[derive(Clone, Copy, Debug)]
struct Scoring;

/// An element of an array.
#[derive(Clone, Debug)]
struct Place {
    name: String,
    index: Vec<Expression<Scoring>>,
    format: Option<Format>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let index: Vec<_> = self.index.iter().map(Expression::to_string).collect();
        write!(f, "{}[{}]", self.name, index.join(","))?;
        self.format.map_or(Ok(()), |format| write!(f, ":{}", format.name()))
    }
}

impl Dialect for Scoring {
    type Place = Place;

    const OPERATORS: &'static [Operator] = &Operator::ALL;
    const RESERVED: &'static [&'static str] = &["x", "q", "k", "h", "b", "queries", "keys", "inf"];

    fn place(parser: &mut Parser<'_, Self>, at: usize, name: String) -> Result<Place, FormulaError> {
        if Self::RESERVED.contains(&name.as_str()) {
            return Err(parser.error(at, format!("`{name}` has a meaning of its own, and no index")));
        }
        let index = parser.list("]")?;
        let format = if parser.is(":") { Some(parser.format()?) } else { None };
        Ok(Place { name, index, format })
    }
}

impl<K: FormulaKind> TextFormula<K> {
    /// The text without blanks.
    pub fn text(self) -> &'static str {
        &self.0.text
    }

    /// The names of its arrays, with their formats and how many numbers an element is found by, in the order in which they are given.
    pub fn arrays(self) -> impl Iterator<Item = (&'static str, Format, usize)> {
        self.0.arrays.iter().map(|array| (array.name, array.format, array.index.len()))
    }

    const fn root(self) -> &'static Typed {
        &self.0.root
    }

    fn read(text: &str) -> Result<Self, FormulaError> {
        let find = |text: &str| KNOWN.lock().get(&(K::IS_TRUTH, text.to_owned())).copied();
        let known = |known| Self(known, PhantomData);
        if let Some(found) = find(text) {
            return Ok(known(found));
        }
        let parsed = expression::parse::<Scoring>(text)?;
        let canonical = parsed.to_string();
        let (root, arrays) = of_text(&parsed, text, K::IS_TRUTH)?;
        let refused = |reason| FormulaError { text: text.to_owned(), column: 0, reason };
        let found = match &root {
            Typed::Truth(_) => "a truth",
            Typed::Number(_) | Typed::Whole(_) => "a number",
        };
        if matches!(root, Typed::Truth(_)) != K::IS_TRUTH {
            return Err(refused(format!("the text is {found}, {} was needed", K::NEEDED)));
        }
        let mut all = KNOWN.lock();
        let key = (K::IS_TRUTH, canonical.clone());
        // Another thread may have read it meanwhile.
        let made = || &*Box::leak(Box::new(Known { text: canonical, root, arrays }));
        Ok(known(all.entry(key).or_insert_with(made)))
    }
}

impl<K: FormulaKind> FromStr for TextFormula<K> {
    type Err = FormulaError;

    fn from_str(text: &str) -> Result<Self, FormulaError> {
        Self::read(text)
    }
}

impl<K: FormulaKind> Worded for TextFormula<K> {
    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    fn text(self) -> Option<String> {
        Some(Self::text(self).to_owned())
    }
}

impl<K> Clone for TextFormula<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for TextFormula<K> {}

impl<K> fmt::Debug for TextFormula<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TextFormula").field(&self.0.text).finish()
    }
}

impl<K> fmt::Display for TextFormula<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.text)
    }
}

impl<K> PartialEq for TextFormula<K> {
    fn eq(&self, other: &Self) -> bool {
        // A forked process may have read the same text once more.
        core::ptr::eq(self.0, other.0) || self.0.text == other.0.text
    }
}

impl<K> Eq for TextFormula<K> {}

impl<K> Hash for TextFormula<K> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.text.hash(state);
    }
}

#[cfg(test)]
mod tests;
