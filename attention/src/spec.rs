//! A kernel as plain data and as text: [`AttentionSpec`].

use core::fmt;
use core::str::FromStr;

use collective::Format;

use crate::error::AttentionError;
use crate::formula::{MaskFormula, ScoreFormula};
use crate::head;
use crate::problem::AttentionProblem;
use kernel::words::{self, As, At, Auto, Both, OneOf, SpecKey, WordError};

/// How O gets from registers to global memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OutputStore {
    /// Through Q's shared memory, and from there by tensor copies. O's address, and its strides in bytes, must be
    /// multiples of 16.
    Tma,
    /// From registers, at any address.
    Direct,
}

/// The masks that a spec can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mask {
    /// Every query sees every key.
    Full,
    /// A query sees the keys up to its own. The last query stands at the last key.
    Causal,
    /// A query sees keys near its own: [`Window`](crate::Window).
    Window,
    /// A query sees the keys of its chunk up to its own: [`Chunked`](crate::Chunked).
    Chunked,
}

/// How long sequences are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lengths {
    /// All as long as each other.
    Equal,
    /// Each has its own number of queries and of keys. They follow each other without gaps, and device memory has
    /// where each begins: [`Packed`](crate::Packed).
    Packed,
}

/// Which CTA computes which tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// Tiles are dealt out in rounds.
    Dealt,
    /// Each CTA draws the number of its next tile from a counter in the workspace, so that none waits for one that has longer tiles.
    Drawn,
}

/// Whether the keys of a tile are divided into parts. Each has a CTA of its own; CTAs merge them at the end, in
/// their order: all of them in memory, or those of a cluster in their shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Parts {
    /// They are not.
    One,
    /// Into this number of parts, of about the same number of blocks of keys: as many as fill the card.
    Count(u32),
    /// Into parts of this number of keys, a multiple of a block: at the same keys in every batch and cache.
    Keys(u32),
    /// Into this number of parts, which a cluster of as many CTAs computes.
    Cluster(u32),
}

impl Parts {
    /// Most CTAs of a cluster.
    pub(crate) const MOST_OF_CLUSTER: u32 = 8;

    /// Whether parts are merged in memory: the caller lends it.
    pub const fn are_in_memory(self) -> bool {
        matches!(self, Self::Count(_) | Self::Keys(_))
    }

    /// CTAs of a cluster that have the parts of one tile.
    pub(crate) const fn of_cluster(self) -> u32 {
        if let Self::Cluster(count) = self { count } else { 1 }
    }

    /// Whether they are so many that lanes share the parts of a row when they are merged.
    pub(crate) const fn are_many(self) -> bool {
        matches!(self, Self::Count(17..))
    }
}

/// An attention kernel as plain data. Its text ([`Display`](fmt::Display), [`FromStr`]) names what differs from
/// the [default](Self::DEFAULT).
///
/// ```
/// use attention::AttentionSpec;
///
/// let spec: AttentionSpec = "d=64 tile=192x128 mask=causal".parse()?;
/// assert_eq!((spec.head, spec.tile), ([64, 64], [192, 128]));
/// assert_eq!(spec.to_string(), "d=64 tile=192x128 mask=causal");
/// # Ok::<(), attention::AttentionError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionSpec {
    /// Format of Q, and of K and V where they are multiplied.
    pub format: Format,
    /// Format of K and V in memory, if it is another one: `e4m3`. They are converted on the way to the products; their
    /// factors, and those of 8-bit Q, K and V, are [`Factors`](crate::Factors).
    pub cache: Option<Format>,
    /// Format of O.
    pub output: Format,
    /// Elements of a head of Q and K, and of V and O: multiples of 16 from 32 to 256, those of V at most those of Q and K; or 512. 576 and 512 are latent attention: V is the first 512 columns of K, and
    /// no tensor of its own.
    pub head: [u32; 2],
    /// Queries per tile (64 per consumer warpgroup), and keys per block.
    pub tile: [u32; 2],
    /// Number of blocks of K, and of V, in shared memory; `None` for as many as fit, at most four.
    pub stages: Option<u32>,
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
    /// Whether each head has a sink: a score without a value, which takes part in the sum of weights.
    pub sinks: bool,
    /// How long sequences are.
    pub lengths: Lengths,
    /// Number of keys in a page, if K and V lie in pages of a cache: [`Pages`](crate::Pages). 16 to 256, a divisor or a multiple of
    /// the number of keys per block.
    pub pages: Option<u32>,
    /// Rows of a tile per query: 1, or at least as many as heads of Q that share a head of K and V; in latent attention also a
    /// divisor of their number. A tile of 64 rows then has `64 / pack` queries. More than 1 pays if there are few queries.
    pub pack: u32,
    /// Whether the keys of a tile are divided into parts: for few queries and many keys. O may be in `f32`; how it is stored is
    /// not chosen.
    pub parts: Parts,
    /// CTAs that an SM has at the same time, 1 or 2, which divide its registers and its shared memory: for short tiles that are more
    /// than SMs.
    pub ctas: u32,
    /// Which CTA computes which tile.
    pub order: Order,
    /// Whether O is rescaled only when a larger score would make weights exceed 2^8.
    pub lazy: bool,
    /// How O is stored.
    pub store: OutputStore,
    /// Whether consumer warpgroups take turns: while one multiplies, the others compute weights.
    pub turns: bool,
    /// Whether the end of a tile overlaps with the first products of the next one, if there is shared memory for two
    /// tiles of queries.
    pub overlap: bool,
    /// Warps that load slabs of latent attention side by side, 1 to 4: of 4, each has every fourth slab. Others have one thread that loads.
    pub loaders: u32,
}

impl AttentionSpec {
    /// bf16, heads of 128 elements, 128 queries by 128 keys, every query sees every key.
    pub const DEFAULT: Self = Self {
        format: Format::Bf16,
        cache: None,
        output: Format::Bf16,
        head: [128, 128],
        tile: [128, 128],
        stages: None,
        mask: Mask::Full,
        soft_cap: false,
        alibi: false,
        score: None,
        sees: None,
        sinks: false,
        lengths: Lengths::Equal,
        pages: None,
        pack: 1,
        parts: Parts::One,
        ctas: 1,
        order: Order::Dealt,
        lazy: false,
        store: OutputStore::Tma,
        turns: true,
        overlap: false,
        loaders: 1,
    };

    /// The heads of latent attention: elements of Q and K, and of V, which is the first columns of K.
    pub const LATENT: [u32; 2] = [576, 512];

    /// Whether V is the first columns of K.
    pub const fn is_latent(&self) -> bool {
        self.head[0] == Self::LATENT[0] && self.head[1] == Self::LATENT[1]
    }

    /// Whether two consumers have the same queries, and half of O's columns each: heads of V of 512 elements.
    pub(crate) const fn is_halved(&self) -> bool {
        self.is_latent() || self.head[0] == head::LARGEST && self.head[1] == head::LARGEST
    }

    /// Heads of Q that are rows of a tile for the same query, of those that share a head of K.
    pub(crate) fn rows_of_query(&self, share: u32) -> u32 {
        match self.pack {
            1 => 1,
            pack if self.is_latent() => share.min(pack),
            _ => share,
        }
    }

    /// Whether Q, or K and V, have 8 bits, and factors.
    pub(crate) const fn is_scaled(&self) -> bool {
        self.cache.is_some() || self.format.bits() == 8
    }

    /// Floating-point operations that a problem counts as: two products of `2 * queries * keys * d`. A causal mask
    /// counts as half; other masks count as none, since their arguments are those of a call.
    pub fn operations(&self, problem: &AttentionProblem) -> f64 {
        let [d, dv] = self.head;
        problem.operations(self.mask, 2 * (d + dv))
    }
}

impl Default for AttentionSpec {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Mask {
    /// Its name in a spec's text.
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize].0
    }
}

impl OneOf for Mask {
    const NAMES: &'static [(&'static str, Self)] = &[
        ("full", Self::Full),
        ("causal", Self::Causal),
        ("window", Self::Window),
        ("chunked", Self::Chunked),
    ];
}

impl OneOf for Lengths {
    const NAMES: &'static [(&'static str, Self)] = &[("equal", Self::Equal), ("packed", Self::Packed)];
}

impl OneOf for Order {
    const NAMES: &'static [(&'static str, Self)] = &[("dealt", Self::Dealt), ("drawn", Self::Drawn)];
}

impl OneOf for OutputStore {
    const NAMES: &'static [(&'static str, Self)] = &[("tma", Self::Tma), ("direct", Self::Direct)];
}

/// The format of O, if a spec's text does not name it.
const fn output_of(format: Format) -> Format {
    if format.bits() == 8 { Format::Bf16 } else { format }
}

/// What a format must be.
const FORMAT: &str = "a format, as bf16, f16 or e4m3 (fp8 is e4m3 or e5m2)";

/// What scores and masks as text must be.
pub(crate) const SCORE: &str = "a formula of x, q, k, h and b, as x-slope[h]*abs(q-k),";
pub(crate) const SEES: &str = "a condition of q, k, h and b, as q>=k&q-k<128,";

/// Every key, in the order in which a spec is printed.
static KEYS: [SpecKey<AttentionSpec>; 25] = [
    SpecKey::by(
        "format",
        FORMAT,
        &As(|of| of.format, |of, format| (of.format, of.output) = (format, output_of(format))),
    ),
    SpecKey::at("cache", FORMAT, &At(|of| &mut of.cache)),
    SpecKey::at("output", FORMAT, &At(|of| &mut of.output)),
    SpecKey::by(
        "d",
        "64, or 192x128 for Q and K x V",
        &As(|of| Both(of.head), |of, heads| of.head = heads.0),
    ),
    SpecKey::at("tile", "queries x keys, for example 128x176", &At(|of| &mut of.tile)),
    SpecKey::by("stages", "a number, or auto", &As(|of| Auto(of.stages), |of, stages| of.stages = stages.0)),
    SpecKey::at("mask", "full, causal, window or chunked", &At(|of| &mut of.mask)),
    SpecKey::at("softcap", "on or off", &At(|of| &mut of.soft_cap)),
    SpecKey::at("alibi", "on or off", &At(|of| &mut of.alibi)),
    SpecKey::at("score", SCORE, &At(|of| &mut of.score)),
    SpecKey::at("sees", SEES, &At(|of| &mut of.sees)),
    SpecKey::at("sinks", "on or off", &At(|of| &mut of.sinks)),
    SpecKey::at("lengths", "equal or packed", &At(|of| &mut of.lengths)),
    SpecKey::at("pages", "a number of keys", &At(|of| &mut of.pages)),
    SpecKey::at("pack", "a number of heads", &At(|of| &mut of.pack)),
    SpecKey::by(
        "parts",
        "a number of parts",
        &As(
            |of| match of.parts {
                Parts::One => Some(1),
                Parts::Count(count) => Some(count),
                Parts::Keys(_) | Parts::Cluster(_) => None,
            },
            |of, count| {
                of.parts = count.filter(|count| *count != 1).map_or(Parts::One, Parts::Count);
            },
        ),
    ),
    SpecKey::by(
        "part",
        "a number of keys",
        &As(
            |of| match of.parts {
                Parts::Keys(keys) => Some(keys),
                Parts::One | Parts::Count(_) | Parts::Cluster(_) => None,
            },
            |of, keys| of.parts = keys.map_or(of.parts, Parts::Keys),
        ),
    ),
    SpecKey::by(
        "cluster",
        "a number of CTAs",
        &As(
            |of| match of.parts {
                Parts::Cluster(count) => Some(count),
                Parts::One | Parts::Count(_) | Parts::Keys(_) => None,
            },
            |of, count| of.parts = count.map_or(of.parts, Parts::Cluster),
        ),
    ),
    SpecKey::at("ctas", "1 or 2, CTAs per SM", &At(|of| &mut of.ctas)),
    SpecKey::at("order", "dealt or drawn", &At(|of| &mut of.order)),
    SpecKey::at("lazy", "on or off", &At(|of| &mut of.lazy)),
    SpecKey::at("store", "tma or direct", &At(|of| &mut of.store)),
    SpecKey::at("turns", "on or off", &At(|of| &mut of.turns)),
    SpecKey::at("overlap", "on or off", &At(|of| &mut of.overlap)),
    SpecKey::at("loaders", "1 to 4 warps", &At(|of| &mut of.loaders)),
];

impl fmt::Display for AttentionSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        words::write(&KEYS, self, Self::DEFAULT, f)
    }
}

impl FromStr for AttentionSpec {
    type Err = AttentionError;

    /// Reads `key=value` words, between blanks or commas. The spec is checked by [`AttentionPlan::new`](crate::AttentionPlan::new).
    fn from_str(text: &str) -> Result<Self, AttentionError> {
        words_of(text)?;
        Ok(words::read(&KEYS, Self::DEFAULT, text)?)
    }
}

/// The words of a text. Two that say how keys are divided are one too many.
pub(crate) fn words_of(text: &str) -> Result<Vec<(&str, &str)>, WordError> {
    let words = words::words(text)?;
    let mut divide = words.iter().filter(|(key, _)| matches!(*key, "part" | "parts" | "cluster"));
    match (divide.next(), divide.next()) {
        (Some((first, _)), Some((key, value))) => Err(WordError {
            key: (*key).to_owned(),
            value: (*value).to_owned(),
            needed: format!("`{first}` is given already, one of them"),
        }),
        _ => Ok(words),
    }
}
