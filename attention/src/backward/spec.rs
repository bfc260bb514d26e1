//! A kernel of the backward pass as plain data and as text: [`BackwardSpec`].

use core::fmt;
use core::str::FromStr;

use collective::Format;

use super::plan::BackwardError;
use crate::problem::AttentionProblem;
use crate::spec::{Lengths, Mask};

/// A kernel of the backward pass as plain data. Its text ([`Display`](fmt::Display), [`FromStr`]) names what differs
/// from the [default](Self::DEFAULT).
///
/// ```
/// use attention::backward::BackwardSpec;
///
/// let spec: BackwardSpec = "d=64 tile=128x128 mask=causal".parse()?;
/// assert_eq!((spec.head, spec.tile), ([64, 64], [128, 128]));
/// assert_eq!(spec.to_string(), "d=64 tile=128x128 mask=causal");
/// # Ok::<(), attention::backward::BackwardError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BackwardSpec {
    /// Format of all tensors but the log-sum-exp.
    pub format: Format,
    /// Elements of a head of Q and K, and of V and O.
    pub head: [u32; 2],
    /// Queries per tile, and keys per block (64 per consumer warpgroup).
    pub tile: [u32; 2],
    /// Which keys a query sees.
    pub mask: Mask,
    /// Whether sequences have lengths of their own.
    pub lengths: Lengths,
    /// Whether dQ has the same bits in every run.
    pub deterministic: bool,
    /// MiB of Q, dO and sums of dQ that CTAs which run at the same time should share in L2. Blocks of keys are ordered by it.
    pub l2: u32,
}

impl BackwardSpec {
    /// bf16, heads of 128 elements, 64 queries by 128 keys, every query sees every key.
    pub const DEFAULT: Self = Self {
        format: Format::Bf16,
        head: [128, 128],
        tile: [64, 128],
        mask: Mask::Full,
        lengths: Lengths::Equal,
        deterministic: false,
        l2: 16,
    };

    /// Floating-point operations that a problem counts as: five products of `2 * queries * keys * d`, three with Q and K's
    /// heads, two with V's. A causal mask counts as half.
    pub fn operations(&self, problem: &AttentionProblem) -> f64 {
        let AttentionProblem { batch, heads: [heads, _], queries, keys, .. } = *problem;
        let part = if self.mask == Mask::Causal { 0.5 } else { 1.0 };
        let scores = f64::from(batch) * f64::from(heads) * f64::from(queries) * f64::from(keys);
        let [d, dv] = self.head.map(f64::from);
        part * 2.0 * scores * (3.0 * d + 2.0 * dv)
    }
}

impl Default for BackwardSpec {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl fmt::Display for BackwardSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { format, head, tile: [queries, keys], mask, lengths, deterministic, l2 } = *self;
        let [d, dv] = head;
        let heads = if d == dv { d.to_string() } else { format!("{d}x{dv}") };
        let words = [
            (format != Self::DEFAULT.format, format!("format={format}")),
            (head != Self::DEFAULT.head, format!("d={heads}")),
            (self.tile != Self::DEFAULT.tile, format!("tile={queries}x{keys}")),
            (mask != Self::DEFAULT.mask, format!("mask={}", mask.name())),
            (lengths != Self::DEFAULT.lengths, "lengths=packed".to_owned()),
            (deterministic, "deterministic=on".to_owned()),
            (l2 != Self::DEFAULT.l2, format!("l2={l2}")),
        ];
        let words: Vec<_> = words.into_iter().filter_map(|(differs, word)| differs.then_some(word)).collect();
        f.write_str(&words.join(" "))
    }
}

impl FromStr for BackwardSpec {
    type Err = BackwardError;

    /// Reads `key=value` words, between blanks or commas. The spec is checked by [`BackwardPlan::new`](super::BackwardPlan::new).
    fn from_str(text: &str) -> Result<Self, BackwardError> {
        let mut spec = Self::DEFAULT;
        let twice = |[key, value, needed]: [String; 3]| BackwardError::Word { key, value, needed };
        for (key, value) in crate::spec::words(text).map_err(twice)? {
            let refused = |needed: &str| BackwardError::Word {
                key: key.to_owned(),
                value: value.to_owned(),
                needed: needed.to_owned(),
            };
            match key {
                "format" => {
                    spec.format = Format::named(value).ok_or_else(|| refused("the name of a format"))?;
                }
                "d" => {
                    let pair = value.split_once('x').unwrap_or((value, value));
                    let (Ok(d), Ok(dv)) = (pair.0.parse(), pair.1.parse()) else {
                        return Err(refused("elements of a head, for example 128 or 192x128"));
                    };
                    spec.head = [d, dv];
                }
                "tile" => {
                    let pair = value.split_once('x').map(|(queries, keys)| (queries.parse(), keys.parse()));
                    let Some((Ok(queries), Ok(keys))) = pair else {
                        return Err(refused("queries x keys, for example 64x128"));
                    };
                    spec.tile = [queries, keys];
                }
                "mask" => {
                    let named = Mask::ALL.into_iter().find(|mask| mask.name() == value);
                    spec.mask = named.ok_or_else(|| refused("full, causal, window or chunked"))?;
                }
                "lengths" => {
                    spec.lengths = match value {
                        "equal" => Lengths::Equal,
                        "packed" => Lengths::Packed,
                        _ => return Err(refused("equal or packed")),
                    };
                }
                "deterministic" => {
                    spec.deterministic = match value {
                        "on" => true,
                        "off" => false,
                        _ => return Err(refused("on or off")),
                    };
                }
                "l2" => spec.l2 = value.parse().map_err(|_| refused("a number of MiB"))?,
                _ => {
                    return Err(refused("one of the keys format, d, tile, mask, lengths, deterministic, l2"));
                }
            }
        }
        Ok(spec)
    }
}
