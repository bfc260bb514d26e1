//! Epilogues as text: `gelu(alpha*acc + bias[n])`.
//!
//! A [`Formula`] is a [`tree`](crate::tree) as a value. It comes from text, for every form, format, batch and
//! group; its nodes are those of the library.
//!
//! | text | is |
//! |---|---|
//! | `acc` | the accumulator |
//! | `0.5`, `1e-3` | a constant |
//! | `alpha` | a number from the host; with 0, products are multiplied by 0 like by any other number |
//! | `scale[0]` | a number in device memory |
//! | `bias[n]`, `scale[m]` | a vector with an element per column, per row |
//! | `x[m,n]`, `x[m,n%128]` | a row-major matrix; one of 128 columns that is repeated along N |
//! | `beta*c` | a multiple of C, which is read only if beta is not zero |
//! | `bias[l,n]` | the same with an own vector for each GEMM of a launch; also for `[l,m]`, `[l,m,n]`, `[l,0]` |
//! | `bias[n]:f32` | a format: `f32`, `bf16`, `f16`, `e4m3`, `e5m2`, `s8`, `u8`, `s32`, `f64`. Default: that of 16-bit operands and of `f64`, `bf16` for 8-bit floats, `s32` in `s32(x)`, else `f32` |
//! | `a + b`, `a - b`, `a * b`, `a / b`, `-a` | arithmetic; `a*b + c` is rounded once |
//! | `relu(x)`, `clamp(x, low, high)`, `max(x, y)` | the functions of [`functions`](crate::functions), by their names, and your own: [`Formula::define`] |
//! | `d_silu(gradient, x)` | the gradient times a function's derivative at x |
//! | `gated(silu, x)` | `silu(gate) * up` of alternating columns of x; `gated8`, `gated16` of blocks, `gated_split` of halves |
//! | `rotate(x, angles[m,n%64])`, `dropout(mask, x)` | a node that is called by a name: the table of [`tree`](crate::tree) has them |
//! | `store(aux[m,n], x)` | x, also written to a matrix |
//! | `reduce_sum(sums[n], x)` | x, also reduced to a row; `[m]`: to a column; `[0]`: to a number. Also `reduce_max`, `reduce_amax` |
//! | `ordered_sum(sums[n], x)` | the same in a fixed order. Its scratch memory is the input `sums_scratch` |
//! | `y = relu(acc); y*y` | a value that is used several times and computed once |
//! | `e4m3(x)` | x, and D is of this format unless the kernel says otherwise. Only around all else. `s8(x)`, `u8(x)`: rounded and saturated, of 8-bit integer operands |
//! | `s32(x)` | x in integers modulo 2^32, of 8-bit integer operands. With operands of `f64`, x is computed in `f64` |
//!
//! ```
//! use collective::Formula;
//!
//! let formula: Formula = "gelu(alpha*acc + beta*c + bias[n])".parse()?;
//! assert_eq!(formula.text(), "gelu(alpha*acc+beta*c+bias[n])");
//!
//! let error = "relu(acc + bais[k])".parse::<Formula>().unwrap_err();
//! assert_eq!(error.to_string(), "`k` is no index: write [n], [m], [m,n], [m,n%64] or [0], and l for an own one per GEMM
//! relu(acc + bais[k])
//!                 ^");
//! # Ok::<(), collective::FormulaError>(())
//! ```

mod dialect;
mod inputs;
mod kinds;
mod lower;
mod own;
mod spelled;

use core::fmt;
use core::hash::{Hash, Hasher};
use core::str::FromStr;
use std::collections::BTreeMap;

pub use inputs::{FormulaArguments, Input};
pub use own::FormulaFunction;

use crate::element::Format;
use crate::expression::FormulaError;
use crate::process::{Locked, Once};
use crate::tree::{Arithmetic, Item, NodeTraits};

/// An epilogue's tree as a value, made from text. See the table in [`formula`](self).
///
/// Equal texts are one value: a text is read once and kept for the life of the process.
#[derive(Clone, Copy)]
pub struct Formula(&'static Known);

/// A formula that has been read.
struct Known {
    /// The name, if it is one of [`Formula::NAMED`].
    name: Option<&'static str>,
    /// The text without blanks.
    text: String,
    /// D's format, if the text says it.
    output: Option<Format>,
    /// The tree with vectors and matrices of each of [`DEFAULTS`], or why there is none.
    trees: [Result<Tree, &'static str>; 5],
}

/// The formats that vectors and matrices have if the text does not say it. In the last two the tree computes, too.
const DEFAULTS: [Format; 5] = [Format::Bf16, Format::F16, Format::F32, Format::S32, Format::F64];

/// A tree as a list of nodes, each before its children.
struct Tree {
    items: Vec<Item>,
    traits: NodeTraits,
    /// The name in kernels' names.
    name: String,
}

/// A formula whose vectors and matrices have a format.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lowered {
    formula: Formula,
    /// Which of the trees.
    of: usize,
}

impl Lowered {
    /// The formula.
    pub fn formula(self) -> Formula {
        self.formula
    }

    const fn tree(self) -> Option<&'static Tree> {
        match &self.formula.0.trees[self.of] {
            Ok(tree) => Some(tree),
            Err(_) => None,
        }
    }

    /// What the tree asks of the plan, or why it cannot be computed of such operands.
    pub(crate) const fn checked(self) -> Result<NodeTraits, &'static str> {
        match &self.formula.0.trees[self.of] {
            Ok(tree) => Ok(tree.traits),
            Err(sentence) => Err(sentence),
        }
    }

    /// The nodes, each before its children; none if the formula is refused for such operands.
    pub(crate) fn items(self) -> &'static [Item] {
        self.tree().map_or(&[], |tree| &tree.items)
    }

    /// The tree's name, as in kernels' names.
    pub fn name(self) -> &'static str {
        self.tree().map_or("", |tree| &tree.name)
    }

    pub(crate) const fn traits(self) -> NodeTraits {
        match self.tree() {
            Some(tree) => tree.traits,
            None => NodeTraits::LEAF,
        }
    }

    /// What the tree computes in.
    pub const fn arithmetic(self) -> Arithmetic {
        Arithmetic::of(DEFAULTS[self.of])
    }

    /// The tree as a Rust type, with names of [`tree`](crate::tree) and [`functions`](crate::functions).
    pub fn rust_type(self) -> String {
        kinds::rust_type(self.items())
    }
}

/// Every formula that has been read, by text.
static KNOWN: Locked<BTreeMap<&'static str, Formula>> = Locked::new(BTreeMap::new());

/// The formulas with a name, in the order of [`Formula::NAMED`].
static NAMED: Once<Vec<Formula>> = Once::new();

impl Formula {
    /// The formulas with a name of their own.
    pub const NAMED: [(&'static str, &'static str); 19] = [
        ("scaled", "alpha*acc"),
        ("bias", "alpha*acc + bias[n]"),
        ("bias-relu", "relu(alpha*acc + bias[n])"),
        ("bias-gelu", "gelu_tanh_fastest(alpha*acc + bias[n])"),
        ("bias-silu", "silu_fast(alpha*acc + bias[n])"),
        ("residual", "alpha*acc + bias[n] + beta*c"),
        ("row-scaled", "scale[m]*acc + bias[n]"),
        ("swiglu", "gated(silu_fast, alpha*acc)"),
        ("swiglu-blocks", "gated8(silu_fast, alpha*acc)"),
        ("swiglu-split", "gated_split(silu_fast, alpha*acc)"),
        ("bias-dropout", "dropout(mask, alpha*acc + bias[n])"),
        ("rope", "rotate(alpha*acc, angles[m,n%128])"),
        ("bias-sums-ordered", "ordered_sum(sums[n], alpha*acc + bias[n])"),
        ("geglu", "gated(gelu_tanh_fastest, alpha*acc)"),
        ("bias-amax", "reduce_amax(amax[0], alpha*acc + bias[n])"),
        ("bias-sums", "reduce_sum(sums[n], alpha*acc + bias[n])"),
        ("bias-fp8", "e4m3(reduce_amax(amax[0], alpha*acc + bias[n])*scale[0]:f32)"),
        ("row-column-scaled", "acc*rows[m]:f32*columns[n]:f32"),
        ("quantized", "quantize_e4m3(scales, alpha*acc)"),
    ];

    /// Every formula with a name.
    pub fn all() -> impl ExactSizeIterator<Item = Self> + Clone {
        let of = |(_, text): &(&str, &str)| Self::read(text).expect("a named formula is legal");
        NAMED.get_or_init(|| Self::NAMED.iter().map(of).collect()).iter().copied()
    }

    /// The formula of this name; `None` if there is none.
    pub fn named(name: &str) -> Option<Self> {
        Self::all().find(|formula| formula.name() == name)
    }

    /// Its name; the text, if it has none. [`FromStr`] reads both.
    pub fn name(self) -> &'static str {
        self.0.name.unwrap_or(&self.0.text)
    }

    /// The text without blanks.
    pub fn text(self) -> &'static str {
        &self.0.text
    }

    /// D's default format for operands of this format: `f32` for integers.
    pub const fn output(self, operand: Format) -> Format {
        match self.0.output {
            Some(format) => format,
            None if operand.is_float() => operand.output(),
            None => Format::F32,
        }
    }

    /// How many times the columns of A * B are halved on the way to D.
    pub const fn halvings(self) -> u32 {
        self.lowered(Format::Bf16).traits().halved()
    }

    /// Whether it reduces all of D to one number, whatever else it does.
    pub fn reduces_all(self) -> bool {
        let items = self.lowered(Format::Bf16).items();
        items.iter().any(|item| kinds::reduces_all(item.node))
    }

    /// The tree for operands of this format. Vectors and matrices whose format is not in the text have that
    /// of 16-bit operands, `bf16` for 8-bit floats, `f64` for `f64`, `s32` where D is `s32`, else `f32`.
    pub const fn lowered(self, operand: Format) -> Lowered {
        let of = if matches!(self.0.output, Some(Format::S32)) {
            3
        } else if matches!(operand, Format::F64) {
            4
        } else if matches!(operand, Format::F16) {
            1
        } else if operand.is_float() && operand.bits() <= 16 {
            0
        } else {
            2
        };
        Lowered { formula: self, of }
    }

    /// Reads a text.
    fn read(text: &str) -> Result<Self, FormulaError> {
        if let Some(formula) = KNOWN.lock().get(text) {
            return Ok(*formula);
        }
        let parsed = dialect::parse(text)?;
        let canonical = parsed.to_string();
        let mut known = KNOWN.lock();
        if let Some(formula) = known.get(canonical.as_str()) {
            return Ok(*formula);
        }
        drop(known);
        let output = lower::output(&parsed);
        let whole = output == Some(Format::S32);
        let tree = |format| {
            let lower::Root { items, traits } = lower::lower(&parsed, format, text)?;
            Ok(Tree { name: kinds::name(&items), items, traits })
        };
        // The one that every formula has.
        drop(tree(if whole { Format::S32 } else { Format::Bf16 })?);
        let trees = DEFAULTS.map(|format| {
            tree(format).map_err(|error: FormulaError| &*Box::leak(error.to_string().into_boxed_str()))
        });
        let blank = |text: &str| text.replace(' ', "");
        let name = Self::NAMED.iter().find(|(_, text)| blank(text) == canonical).map(|(name, _)| *name);
        known = KNOWN.lock();
        // Another thread may have read it meanwhile.
        if let Some(formula) = known.get(canonical.as_str()) {
            return Ok(*formula);
        }
        let formula = Self(Box::leak(Box::new(Known { name, text: canonical, output, trees })));
        known.insert(formula.text(), formula);
        Ok(formula)
    }
}

impl FromStr for Formula {
    type Err = FormulaError;

    /// Reads a name or a text.
    fn from_str(text: &str) -> Result<Self, FormulaError> {
        if let Some(formula) = Self::named(text.trim()) {
            return Ok(formula);
        }
        Self::read(text).map_err(|error| {
            // A name, most likely.
            let of_names = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
            if text.is_empty() || !text.bytes().all(of_names) {
                return error;
            }
            let named = Self::NAMED.map(|(name, _)| name);
            let reason = if lower::is_function(text) {
                let biased = format!("bias-{text}");
                let known = if named.contains(&biased.as_str()) { format!(", which is {biased}") } else { String::new() };
                format!("`{text}` is a function: write {text}(alpha*acc), or {text}(alpha*acc+bias[n]){known}")
            } else {
                let names = named.join(", ");
                format!(
                    "`{text}` is no formula with a name: they are {names}; or write one such as gelu(alpha*acc+bias[n])"
                )
            };
            FormulaError { reason, ..error }
        })
    }
}

impl fmt::Display for Formula {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for Formula {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Formula({})", self.name())
    }
}

impl PartialEq for Formula {
    fn eq(&self, other: &Self) -> bool {
        // A forked process may have read the same text once more.
        core::ptr::eq(self.0, other.0) || self.0.text == other.0.text
    }
}

impl Eq for Formula {}

impl Hash for Formula {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text().hash(state);
    }
}

#[cfg(test)]
mod tests;
