//! A kernel of the backward pass as plain data and as text: [`BackwardSpec`].

use core::fmt;
use core::str::FromStr;
use std::sync::Arc;

use collective::Format;

use crate::error::AttentionError;
use crate::formula::{MaskFormula, ScoreFormula};
use crate::masks::of_spec;
use crate::problem::AttentionProblem;
use crate::scores::AnyScores;
use crate::spec::{AttentionSpec, Lengths, Mask, SCORE, SEES};
use kernel::words::{self, As, At, Both, SpecKey};

/// A kernel of the backward pass as plain data. Its text ([`Display`](fmt::Display), [`FromStr`]) names what differs
/// from the [default](Self::DEFAULT).
///
/// ```
/// use attention::backward::BackwardSpec;
///
/// let spec: BackwardSpec = "d=64 tile=128x128 mask=causal".parse()?;
/// assert_eq!((spec.head, spec.tile), ([64, 64], [128, 128]));
/// assert_eq!(spec.to_string(), "d=64 tile=128x128 mask=causal");
/// # Ok::<(), attention::AttentionError>(())
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
    /// Whether scores are capped: [`SoftCap`](crate::SoftCap).
    pub soft_cap: bool,
    /// Whether scores fall with the distance: [`Alibi`](crate::Alibi). A cap comes first.
    pub alibi: bool,
    /// Scores as text, in place of a cap and of slopes.
    pub score: Option<ScoreFormula>,
    /// Which keys a query sees as text, in place of a mask.
    pub sees: Option<MaskFormula>,
    /// Whether sequences have lengths of their own.
    pub lengths: Lengths,
    /// Whether dQ has the same bits in every run.
    pub deterministic: bool,
    /// About how many blocks of keys are ordered together, those that most queries see first: all blocks of as many heads. As many as run at the
    /// same time leave the queries of few heads in L2, and with twice as many CTAs end at more equal times. With 0, those of one head.
    pub mixed: u32,
    /// CTAs of a cluster that share the queries which see a block of keys. They add up their dK and dV through distributed shared memory. For few
    /// blocks, and many heads of queries for each of keys.
    pub split: u32,
    /// CTAs that share the tiles of one head of queries which see a block of keys, where each head of queries is computed apart from those with the
    /// same keys: they add up dK and dV in device memory, the last one stores them. For heads that share keys, if whole blocks would fill the card
    /// badly. With 0, a CTA, or a cluster, has the tiles of all these heads.
    pub apart: u32,
    /// With `apart`, heads of keys of all sequences whose blocks come first, each with the tiles of all heads of queries in one CTA. Those that are
    /// computed apart fill the card until the end.
    pub whole: u32,
}

impl BackwardSpec {
    /// bf16, heads of 128 elements, 64 queries by 128 keys, every query sees every key.
    pub const DEFAULT: Self = Self {
        format: Format::Bf16,
        head: [128, 128],
        tile: [64, 128],
        mask: Mask::Full,
        soft_cap: false,
        alibi: false,
        score: None,
        sees: None,
        lengths: Lengths::Equal,
        deterministic: false,
        mixed: 132,
        split: 1,
        apart: 0,
        whole: 0,
    };

    /// Its mask and scores, as words of the forward pass.
    pub(super) fn of_forward(&self) -> AttentionSpec {
        let Self { mask, soft_cap, alibi, score, sees, .. } = *self;
        AttentionSpec { mask, soft_cap, alibi, score, sees, ..AttentionSpec::DEFAULT }
    }

    /// The masks and scores.
    pub(super) fn scores(&self) -> Arc<dyn AnyScores> {
        of_spec(&self.of_forward())
    }

    /// Floating-point operations that a problem counts as: five products of `2 * queries * keys * d`, three with Q and K's
    /// heads, two with V's. A causal mask counts as half.
    pub fn operations(&self, problem: &AttentionProblem) -> f64 {
        let [d, dv] = self.head;
        problem.operations(self.mask, 2 * (3 * d + 2 * dv))
    }
}

impl Default for BackwardSpec {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Every key, in the order in which a spec is printed.
static KEYS: [SpecKey<BackwardSpec>; 14] = [
    SpecKey::at("format", "bf16 or f16", &At(|of| &mut of.format)),
    SpecKey::by(
        "d",
        "elements of a head, for example 128 or 192x128",
        &As(|of| Both(of.head), |of, heads| of.head = heads.0),
    ),
    SpecKey::at("tile", "queries x keys, for example 64x128", &At(|of| &mut of.tile)),
    SpecKey::at("mask", "full, causal, window or chunked", &At(|of| &mut of.mask)),
    SpecKey::at("softcap", "on or off", &At(|of| &mut of.soft_cap)),
    SpecKey::at("alibi", "on or off", &At(|of| &mut of.alibi)),
    SpecKey::at("score", SCORE, &At(|of| &mut of.score)),
    SpecKey::at("sees", SEES, &At(|of| &mut of.sees)),
    SpecKey::at("lengths", "equal or packed", &At(|of| &mut of.lengths)),
    SpecKey::at("deterministic", "on or off", &At(|of| &mut of.deterministic)),
    SpecKey::at("mixed", "a number of blocks of keys", &At(|of| &mut of.mixed)),
    SpecKey::at("split", "1, 2, 4 or 8", &At(|of| &mut of.split)),
    SpecKey::at("apart", "0, or a number of CTAs", &At(|of| &mut of.apart)),
    SpecKey::at("whole", "a number of heads of keys", &At(|of| &mut of.whole)),
];

impl fmt::Display for BackwardSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        words::write(&KEYS, self, Self::DEFAULT, f)
    }
}

impl FromStr for BackwardSpec {
    type Err = AttentionError;

    /// Reads `key=value` words, between blanks or commas. The spec is checked by [`BackwardPlan::new`](super::BackwardPlan::new).
    fn from_str(text: &str) -> Result<Self, AttentionError> {
        Ok(words::read(&KEYS, Self::DEFAULT, text)?)
    }
}
