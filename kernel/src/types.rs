//! Element types of a GEMM: what is multiplied, and what is stored.

use core::fmt;

use collective::{Code, Format, Plan, WeightsSpec, sparse};

use crate::named::Named;

/// Element types of a product's matrices, which blocks of its operands have scales, which operand lies in memory in few bits, and which
/// is sparse.
///
/// As text it is the formats of A, of B and of D, as far as they do not follow from the one before, the blocks, and the sparse operand:
///
/// ```
/// use collective::{Code, Format, Plan, WeightsSpec, sparse};
/// use kernel::Types;
///
/// let types = Types::of(Format::E4m3);
/// assert_eq!((types.d, types.to_string()), (Format::Bf16, "e4m3".to_owned()));
/// assert_eq!(types.with_b(Format::E5m2).to_string(), "e4m3-e5m2");
/// assert_eq!(types.stored(Format::F32).to_string(), "e4m3-e4m3-f32");
/// assert_eq!(types.scaled([1, 128]).to_string(), "e4m3-1x128-128x128");
/// let weights = WeightsSpec { code: Code::S4, group: 128, zeros: false };
/// assert_eq!(Types::of(Format::Bf16).weights([None, Some(weights)]).to_string(), "bf16-s4g128");
/// assert_eq!(Types::named("e4m3-e5m2-1x128-1x128"), Some(types.with_b(Format::E5m2).scaled([1, 1])));
/// assert_eq!(types.sparse([true, false]).to_string(), "e4m3-sparse-a");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Types {
    /// Format of A's elements.
    pub a: Format,
    /// Format of B's elements.
    pub b: Format,
    /// Format of D's elements, and of C's.
    pub d: Format,
    /// Number of rows of A, and of columns of B, that share a scale for each 128 elements of K: 1 or 128; 0
    /// without scales.
    pub scaled: [u32; 2],
    /// How A, or B, is stored in fewer bits than are multiplied; `None` if it is not.
    pub weights: [Option<WeightsSpec>; 2],
    /// Whether A, or B, is 2:4 sparse along K: [`Sparse`](collective::Sparse). No kernel multiplies two sparse operands.
    pub sparse: [bool; 2],
}

impl Types {
    /// A and B of one format, and D in the default format for it.
    pub const fn of(operands: Format) -> Self {
        let (scaled, weights, sparse) = ([0; 2], [None; 2], [false; 2]);
        Self { a: operands, b: operands, d: operands.output(), scaled, weights, sparse }
    }

    /// The types that a text describes; `None` if it describes none.
    pub fn named(text: &str) -> Option<Self> {
        let rows = |word: &str| match word {
            "1x128" => Some(1),
            "128x128" => Some(128),
            _ => None,
        };
        let words: Vec<&str> = text.split('-').collect();
        let side = |word: &str| <[bool; 2]>::named(word).filter(|sparse| *sparse != [false; 2]);
        let (words, sparse) = match words.as_slice() {
            [words @ .., "sparse", last] => (words, side(last)?),
            words => (words, [false; 2]),
        };
        let (formats, scaled) = match words {
            [formats @ .., a, b] if rows(a).is_some() => (formats, [rows(a)?, rows(b)?]),
            formats => (formats, [0; 2]),
        };
        // Weights are multiplied in the format of the other operand.
        let (formats, weights) = match *formats {
            [a, b, ref d @ ..] if words_weights(a).is_some() => {
                ([&[b, b], d].concat(), [words_weights(a), None])
            }
            [a, b, ref d @ ..] if words_weights(b).is_some() => {
                ([&[a, a], d].concat(), [None, words_weights(b)])
            }
            ref formats => (formats.to_vec(), [None; 2]),
        };
        let formats = formats.iter().map(|name| Format::named(name)).collect::<Option<Vec<_>>>()?;
        let types = match formats[..] {
            [a] => Self::of(a),
            [a, b] => Self::of(a).with_b(b),
            [a, b, d] => Self { b, d, ..Self::of(a) },
            _ => return None,
        };
        Some(types.scaled(scaled).weights(weights).sparse(sparse))
    }

    /// The types of a kernel with this plan.
    pub const fn of_plan(plan: &Plan) -> Self {
        let ([a, b], d) = (plan.call_operands(), plan.epilogue.output);
        let (scaled, weights) = ([a.scaled, b.scaled], [a.weights, b.weights]);
        Self { a: a.format, b: b.format, d, scaled, weights, sparse: [a.sparse, b.sparse] }
    }

    /// The same with another format of B.
    #[must_use]
    pub const fn with_b(self, b: Format) -> Self {
        Self { b, ..self }
    }

    /// The same with another format of D.
    #[must_use]
    pub const fn stored(self, d: Format) -> Self {
        Self { d, ..self }
    }

    /// The same with block scales: numbers of rows of A and of columns of B that share a scale.
    #[must_use]
    pub const fn scaled(self, scaled: [u32; 2]) -> Self {
        Self { scaled, ..self }
    }

    /// The same with A, or B, stored in few bits.
    #[must_use]
    pub const fn weights(self, weights: [Option<WeightsSpec>; 2]) -> Self {
        Self { weights, ..self }
    }

    /// The same with a sparse A, or B.
    #[must_use]
    pub const fn sparse(self, sparse: [bool; 2]) -> Self {
        Self { sparse, ..self }
    }

    /// The same types with dense A and B: neither quantised nor sparse.
    #[must_use]
    pub const fn dense(self) -> Self {
        Self { weights: [None; 2], sparse: [false; 2], ..self }
    }

    /// Whether an operand is sparse.
    pub const fn has_sparse(&self) -> bool {
        self.sparse[0] || self.sparse[1]
    }

    /// Number of elements that a row of A, and of B, has in memory, if the GEMM has `k` elements along K.
    pub(crate) fn kept(&self, k: u32) -> [u32; 2] {
        let of = |i: usize, format| if self.sparse[i] { sparse::kept(format, k) } else { k };
        [of(0, self.a), of(1, self.b)]
    }

    /// Whether an operand is stored as quantised weights.
    pub const fn has_weights(&self) -> bool {
        self.weights[0].is_some() || self.weights[1].is_some()
    }

    /// Whether an operand has block scales.
    pub const fn is_scaled(&self) -> bool {
        self.scaled[0] > 0 || self.scaled[1] > 0
    }

    /// Bytes per element of A, B and D, as they are multiplied and stored.
    pub const fn bytes(&self) -> [u32; 3] {
        [self.a.bytes(), self.b.bytes(), self.d.bytes()]
    }
}

impl From<Format> for Types {
    fn from(operands: Format) -> Self {
        Self::of(operands)
    }
}

impl fmt::Display for Types {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { a, b, d, scaled, weights: [of_a, of_b], sparse } = self;
        let name = |format: &Format, weights: &Option<WeightsSpec>| {
            weights.as_ref().map_or_else(|| format.name().to_owned(), weights_word)
        };
        f.write_str(&name(a, of_a))?;
        let other_d = *d != a.output();
        if b != a || other_d || self.has_weights() {
            write!(f, "-{}", name(b, of_b))?;
        }
        if other_d {
            write!(f, "-{}", d.name())?;
        }
        if self.is_scaled() {
            let [a, b] = scaled;
            write!(f, "-{a}x128-{b}x128")?;
        }
        if self.has_sparse() {
            write!(f, "-sparse-{}", sparse.word())?;
        }
        Ok(())
    }
}

/// The word for weights: code, `g` and group size, and `z` for zero points.
fn weights_word(WeightsSpec { code, group, zeros }: &WeightsSpec) -> String {
    format!("{code}g{group}{}", if *zeros { "z" } else { "" })
}

/// The weights that a word describes.
fn words_weights(word: &str) -> Option<WeightsSpec> {
    let (zeros, word) = word.strip_suffix('z').map_or((false, word), |word| (true, word));
    let (code, group) = word.rsplit_once('g')?;
    let number = group.parse().ok()?;
    let weights = WeightsSpec { code: Code::named(code)?, group: number, zeros };
    (number.to_string() == group).then_some(weights)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_as_they_are_written() {
        for a in Format::ALL {
            for b in Format::ALL {
                for d in Format::ALL {
                    for scaled in [[0, 0], [1, 128], [128, 1]] {
                        for sparse in [[false, false], [true, false], [false, true], [true, true]] {
                            let types = Types { b, d, ..Types::of(a) }.scaled(scaled).sparse(sparse);
                            assert_eq!(Types::named(&types.to_string()), Some(types), "{types}");
                        }
                    }
                }
            }
        }
        for (code, format) in Code::ALL.into_iter().zip([Format::Bf16, Format::F16].into_iter().cycle()) {
            for (group, zeros) in [(0, false), (128, true)] {
                let weights = Some(WeightsSpec { code, group, zeros });
                for types in [Types::of(format), Types::of(format).stored(Format::F32)] {
                    for types in [types.weights([weights, None]), types.weights([None, weights])] {
                        assert_eq!(Types::named(&types.to_string()), Some(types), "{types}");
                    }
                }
            }
        }
        for text in [
            "bf16-s4g",
            "bf16-s4g0128",
            "s4g128",
            "s4g128-s4g128",
            "bf16-x4g128",
            "",
            "bf17",
            "bf16-",
            "bf16-1x128",
            "1x128-1x128",
            "bf16-bf16-bf16-bf16",
            "e4m3-1x128-2x128",
            "bf16-sparse",
            "bf16-sparse-c",
            "sparse-a",
            "bf16-sparse-a-1x128-1x128",
        ] {
            assert_eq!(Types::named(text), None, "{text}");
        }
    }
}
