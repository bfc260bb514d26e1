//! Products whose weights are divided among ranks.

mod column;
mod cut;
mod embedding;
mod experts;
mod loss;
mod product;
mod row;

pub use column::ColumnParallel;
pub use cut::{Cut, Scales, Weights};
pub(crate) use cut::{Part, divided};
pub use embedding::Embedding;
pub use experts::{Experts, Routes};
pub use loss::CrossEntropy;
pub use product::{Argument, Operand};
pub(crate) use product::{scale_count, weight_scale_count};
pub use row::RowParallel;

use falchion::collective::Format;

use crate::element::{Element, Kind};
use crate::error::Error;
use crate::tensor::Slice;

/// Whether ranks hold all tokens, or each its part of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tokens {
    /// Every rank holds all tokens.
    Whole,
    /// Each rank holds the same number of tokens, in the order of the ranks: sequence parallelism.
    Divided,
}

/// The rows that a layer multiplies: row-major numbers, one row per token, and their scales.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a, T> {
    values: Slice<'a, T>,
    scales: Option<Slice<'a, f32>>,
}

impl<'a, T: Element> Input<'a, T> {
    /// `e4m3` numbers, of which each 128 of a row have a scale: `(K / 128, tokens)`, tokens contiguous and
    /// rounded up to a multiple of 4.
    pub fn scaled(values: Slice<'a, T>, scales: Slice<'a, f32>) -> Self {
        Self { values, scales: Some(scales) }
    }

    /// The number of tokens, of `k` numbers each.
    fn tokens(&self, k: u32, scaled: bool) -> Result<u32, Error> {
        let (len, k) = (self.values.len(), k as usize);
        if len % k != 0 || u32::try_from(len / k).is_err() {
            return Err(Error::argument(
                "the length of the input",
                len,
                format!("a multiple of {k}, the numbers of a token"),
            ));
        }
        let tokens = (len / k) as u32;
        match (self.scales, scaled) {
            (None, false) => {}
            (Some(scales), true) => crate::group::exactly(
                "the input's scales",
                scales.len(),
                product::scale_count(tokens, k as u32),
            )?,
            (None, true) => {
                return Err(Error::argument(
                    "the input's scales",
                    "missing",
                    "one per 128 numbers of a token, as the weights have scales",
                ));
            }
            (Some(_), false) => {
                return Err(Error::argument(
                    "the input's scales",
                    "given",
                    "none, as the weights have no scales",
                ));
            }
        }
        Ok(tokens)
    }
}

impl<'a, T: Element> From<Slice<'a, T>> for Input<'a, T> {
    fn from(values: Slice<'a, T>) -> Self {
        Self { values, scales: None }
    }
}

/// The format of 16-bit numbers.
fn half<T: Element>(field: &str, kind: Kind) -> Result<Format, Error> {
    match (kind, T::KIND) {
        (Kind::Float(format @ (Format::Bf16 | Format::F16)), of) if kind == of => Ok(format),
        (found, Kind::Float(Format::Bf16 | Format::F16)) => {
            Err(Error::argument(field, found.name(), T::KIND.name()))
        }
        (found, _) => Err(Error::argument(field, found.name(), "bf16 or f16")),
    }
}
