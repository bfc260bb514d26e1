//! What is asked of an attention kernel: [`AttentionRequest`], and its text.

use core::hash::{Hash, Hasher};
use core::str::FromStr;

use collective::{Format, FormulaError};
use kernel::words::Worded;
use kernel::{Family, LaunchError, Machine, Predicted, ShippedOf};

use crate::error::AttentionError;
use crate::formula::{MaskFormula, ScoreFormula};
use crate::kernel::Attention;
use crate::masks::{Chunked, Window, of_spec};
use crate::plan::formulas;
use crate::problem::{AttentionProblem, refused};
use crate::scores::Scores;
use crate::spec::{AttentionSpec, Lengths, Mask, OutputStore, words_of};

/// What is asked of an attention kernel: types, mask and extents, for tensors `(batch, heads, length, d)` that are packed.
///
/// ```
/// use attention::{Attention, AttentionProblem, AttentionRequest};
/// use kernel::{Family, Machine};
///
/// let request = AttentionRequest::new(AttentionProblem::new(4, 16, [4096; 2], 128), 128);
/// let ranked = Attention::ranked(&request, &Machine::h200(), 3)?;
/// println!("{}: {:.0} us", ranked[0].kernel.plan().spec, ranked[0].microseconds);
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionRequest {
    /// Format of Q, K and V.
    pub format: Format,
    /// Format of K and V in memory, if it is another one, with a factor for each head.
    pub cache: Option<Format>,
    /// Format of O.
    pub output: Format,
    /// Elements of a head of Q and K, and of V and O.
    pub head: [u32; 2],
    /// Which keys a query sees. With one query per sequence and a causal mask, the kernels that are chosen have none: one query sees all keys. Such a
    /// kernel is wrong for more queries.
    pub mask: Mask,
    /// The two numbers of a window, left and right; or the number of a chunk, and any other.
    pub numbers: [i32; 2],
    /// The lengths of sequences. If they differ, they fall evenly from the problem's to its `batch`-th part, and there are as
    /// many keys as queries: what is measured must be a problem of its own.
    pub lengths: Lengths,
    /// Keys of a page, if K and V are in pages of a cache.
    pub pages: Option<u32>,
    /// What scores are capped to, from 1e-6 to 4096: [`SoftCap`](crate::SoftCap).
    pub soft_cap: Option<f32>,
    /// Whether scores fall with the distance: [`Alibi`](crate::Alibi).
    pub alibi: bool,
    /// Scores as text, in place of a cap and of slopes: [`formula`](crate::formula).
    pub score: Option<ScoreFormula>,
    /// Which keys a query sees as text, in place of a mask.
    pub sees: Option<MaskFormula>,
    /// Whether each head has a sink.
    pub sinks: bool,
    /// Whether a sequence must have the same bits in every batch and with every cache; of gradients, the same bits in every run.
    pub fixed: bool,
    /// Whether O begins at a multiple of 16 bytes, as do its rows and heads. Others are stored from registers.
    pub aligned: bool,
    /// Whether the caller lends a workspace, so that keys may be divided.
    pub workspace: bool,
    /// The extents.
    pub problem: AttentionProblem,
    /// Whether the log-sum-exp of each query's scores is stored.
    pub log_sum_exp: bool,
    /// Whether what was measured of exactly this problem, and comes with the library, counts.
    pub recorded: bool,
}

/// What the choice of a kernel depends on: all of a request but the factor of the scores and what they are capped to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChoiceKey {
    spec: AttentionSpec,
    /// That of the request: the spec has that of its kernels.
    mask: Mask,
    numbers: [i32; 2],
    /// `fixed`, `workspace`, `log_sum_exp` and `recorded`.
    asked: [bool; 4],
    /// Sequences, heads of Q and of K, queries and keys.
    extents: [u32; 5],
}

/// By the extents: few of the keys that a process has are equal in these alone, and a choice that was made hashes it each time.
impl Hash for ChoiceKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.extents.hash(state);
    }
}

impl AttentionRequest {
    /// What a choice depends on, to keep choices by it.
    pub fn key(&self) -> ChoiceKey {
        let Self { mask, numbers, fixed, workspace, log_sum_exp, recorded, problem, .. } = *self;
        let AttentionProblem { batch, heads: [heads, shared], queries, keys, .. } = problem;
        let extents = [batch, heads, shared, queries, keys];
        ChoiceKey {
            spec: self.spec(),
            mask,
            numbers,
            asked: [fixed, workspace, log_sum_exp, recorded],
            extents,
        }
    }

    /// The fastest of the kernels that were measured for its problem, come with the library, and can compute it.
    pub(crate) fn shipped<K>(&self, of: &ShippedOf<K, ChoiceKey>, machine: &Machine) -> Option<Predicted<K>>
    where
        K: for<'r> Family<Request<'r> = Self>,
    {
        self.recorded.then(|| of.fastest(self, &self.problem_key(), machine)).flatten()
    }

    /// What a choice depends on for its problem: what was measured counts with and without a workspace and the log-sum-exp.
    pub(crate) fn problem_key(&self) -> ChoiceKey {
        Self { workspace: true, log_sum_exp: true, recorded: true, ..*self }.key()
    }

    /// Sequences of a problem that is a text.
    const MOST_SEQUENCES: u32 = 1 << 20;
    /// Lengths that a prediction tells apart.
    pub(crate) const MOST_KINDS: u32 = 1 << 12;

    /// bf16 with heads of `d` elements, where every query sees every key.
    pub const fn new(problem: AttentionProblem, d: u32) -> Self {
        Self::of(&AttentionSpec { head: [d, d], ..AttentionSpec::DEFAULT }, problem)
    }

    /// What a spec says of it.
    const fn of(spec: &AttentionSpec, problem: AttentionProblem) -> Self {
        let AttentionSpec { format, cache, output, head, mask, lengths, pages, alibi, sinks, .. } = *spec;
        let AttentionSpec { score, sees, .. } = *spec;
        Self {
            soft_cap: None,
            alibi,
            score,
            sees,
            sinks,
            format,
            cache,
            output,
            head,
            mask,
            numbers: [0; 2],
            lengths,
            pages,
            fixed: false,
            aligned: true,
            workspace: false,
            problem,
            log_sum_exp: false,
            recorded: true,
        }
    }

    /// Whether V is the first columns of K: no tensor of its own.
    pub fn is_latent(&self) -> bool {
        self.spec().is_latent()
    }

    /// The request's words of a spec.
    pub(crate) fn spec(&self) -> AttentionSpec {
        let Self { format, cache, output, head, lengths, pages, alibi, score, sees, sinks, aligned, .. } =
            *self;
        let (mask, soft_cap) = (self.mask_of_kernel(), self.soft_cap.is_some());
        let store = if output == format && aligned { OutputStore::Tma } else { OutputStore::Direct };
        let scores = AttentionSpec { mask, soft_cap, alibi, score, sees, sinks, ..AttentionSpec::DEFAULT };
        AttentionSpec { format, cache, output, head, lengths, pages, store, ..scores }
    }

    /// The mask of its kernels. One query stands at the last key, and sees all of them: with a causal mask, its kernels took 2 to 6 % longer. Where a
    /// sequence must have the same bits in every batch, others may have more queries.
    fn mask_of_kernel(&self) -> Mask {
        if self.mask == Mask::Causal && self.problem.queries <= 1 && !self.fixed {
            Mask::Full
        } else {
            self.mask
        }
    }

    /// Checks the numbers, before anything is ranked or allocated for them.
    ///
    /// # Errors
    /// The first number that is out of its range, or the heads of queries that are no multiple of those of keys.
    pub fn check(&self) -> Result<(), LaunchError> {
        match self.soft_cap {
            Some(cap) if !Self::SOFT_CAPS.contains(&cap) => {
                refused(format!("softcap is {cap}, {} was needed", Self::soft_caps()))
            }
            _ => formulas(&self.spec()).or_else(|error| refused(error.to_string())),
        }?;
        self.problem.check()
    }

    /// Queries and keys of each sequence: 8 bytes for each, so a request must be [checked](Self::check) before.
    pub fn lengths(&self) -> Vec<[u32; 2]> {
        let AttentionProblem { batch, queries, keys, .. } = self.problem;
        match self.lengths {
            Lengths::Equal => vec![[queries, keys]; batch as usize],
            Lengths::Packed => (0..batch).map(|i| self.length(i)).collect(),
        }
    }

    /// Queries and keys of a sequence, if lengths differ.
    pub(crate) fn length(&self, i: u32) -> [u32; 2] {
        let AttentionProblem { batch, queries, .. } = self.problem;
        let rows = u64::from(queries) * u64::from(batch - i);
        [u32::try_from(rows.div_ceil(batch.into())).unwrap_or(queries); 2]
    }

    /// Lengths, and numbers of sequences that have them. Of many lengths that differ, neighbours count as equal.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = ([u32; 2], u32)> + use<> {
        let (request, AttentionProblem { batch, queries, keys, .. }) = (*self, self.problem);
        let together = match self.lengths {
            Lengths::Equal => batch,
            Lengths::Packed => batch.div_ceil(Self::MOST_KINDS),
        };
        (0..batch).step_by(together.max(1) as usize).map(move |first| {
            let count = together.min(batch - first);
            let lengths = match request.lengths {
                Lengths::Equal => [queries, keys],
                Lengths::Packed => request.length(first + count / 2),
            };
            (lengths, count)
        })
    }

    /// The names of the arrays of its formulas, with their formats and dimensions, in the order of a call.
    pub fn arrays(&self) -> Vec<(&'static str, Format, usize)> {
        let arrays = of_spec(&self.spec()).arrays().into_iter();
        arrays.map(|array| (array.name, array.format, array.sizes.len())).collect()
    }

    /// The whole-number arguments of the mask.
    pub fn counts(&self) -> &[i32] {
        &self.numbers[..Self::names(self.mask).len()]
    }

    /// Caps of scores: of larger ones the kernel's `tanh`, which errs by 1e-7, says little, and smaller ones have no inverse.
    const SOFT_CAPS: core::ops::RangeInclusive<f32> = 1e-6..=4096.0;

    fn soft_caps() -> String {
        let (least, most) = (Self::SOFT_CAPS.start(), Self::SOFT_CAPS.end());
        format!("a number from {least} to {most}")
    }

    /// The real arguments of the scores.
    pub fn reals(&self) -> Vec<f32> {
        self.soft_cap.into_iter().collect()
    }

    /// Names of the mask's arguments, as words.
    const fn names(mask: Mask) -> &'static [&'static str] {
        match mask {
            Mask::Full | Mask::Causal => &[],
            Mask::Window => Window::COUNTS,
            Mask::Chunked => Chunked::COUNTS,
        }
    }
}

impl FromStr for AttentionRequest {
    type Err = String;

    /// Reads extents, words of a spec, the numbers of a mask and of a cap, `fixed=on` and `aligned=off`: `4x16x4096 d=64 mask=window left=1023 right=0 softcap=30`. Extents are sequences, heads, queries and keys; without the last one
    /// there are as many keys as queries. Heads of K and V follow those of Q where they are fewer: `4x16/4x4096x4096`.
    fn from_str(text: &str) -> Result<Self, String> {
        Self::read(text, Attention::NAME, &Self::WORDS)
    }
}

impl AttentionRequest {
    /// The words of a problem.
    const WORDS: [&str; 17] = [
        "format", "cache", "output", "d", "mask", "left", "right", "chunk", "softcap", "alibi", "score",
        "sees", "sinks", "lengths", "pages", "fixed", "aligned",
    ];

    /// Reads a problem of a family whose problems have these words.
    pub(crate) fn read(text: &str, family: &str, known: &[&str]) -> Result<Self, String> {
        let (extents, words) = text.trim().split_once([' ', ',']).unwrap_or((text.trim(), ""));
        let (batch, heads, [queries, keys]) = Self::extents(extents).ok_or_else(|| {
            format!(
                "`{extents}` was found, sequences x heads x queries x keys were needed, as 4x16/4x4096x4096"
            )
        })?;
        let (mut own, mut others, mut fixed, mut aligned) = (Vec::new(), String::new(), false, true);
        let (mut soft_cap, mut score, mut sees) = (None, None, None);
        for (name, value) in words_of(words).map_err(|error| error.to_string())? {
            let word = if value.is_empty() { name.to_owned() } else { format!("{name}={value}") };
            if !known.contains(&name) {
                let known = known.join(", ");
                return Err(format!("`{word}` is no word of a problem of {family}: these are {known}"));
            }
            let refused = |needed: &str| format!("`{word}`: {needed} was needed");
            match name {
                "left" | "right" | "chunk" => {
                    let number = value.parse::<i32>().ok().filter(|value| (0..=1 << 30).contains(value));
                    own.push((name, number.ok_or_else(|| refused("a number from 0 to 2^30"))?));
                }
                "softcap" => {
                    let cap = value.parse::<f32>().ok().filter(|cap| Self::SOFT_CAPS.contains(cap));
                    soft_cap = Some(cap.ok_or_else(|| refused(&Self::soft_caps()))?);
                }
                "score" => score = Some(value.parse().map_err(|error: FormulaError| error.to_string())?),
                "sees" => sees = Some(value.parse().map_err(|error: FormulaError| error.to_string())?),
                "fixed" => fixed = Worded::read(value).ok_or_else(|| refused("on or off"))?,
                "aligned" => aligned = Worded::read(value).ok_or_else(|| refused("on or off"))?,
                _ => others += &format!("{word} "),
            }
        }
        let spec: AttentionSpec = others.parse().map_err(|error: AttentionError| error.to_string())?;
        let AttentionSpec { head, mask, lengths, pages, .. } = spec;
        let mut numbers = [0; 2];
        let names = Self::names(mask);
        for (name, number) in names.iter().zip(&mut numbers) {
            let given = own.iter().find(|(of, _)| of == name);
            *number = given.ok_or_else(|| format!("mask={} needs `{name}=`", mask.name()))?.1;
        }
        if let Some((name, _)) = own.iter().find(|(name, _)| !names.contains(name)) {
            return Err(format!("mask={} has no `{name}`", mask.name()));
        }
        if mask == Mask::Chunked && numbers[0] == 0 {
            return Err("chunk is 0, at least 1 was needed".to_owned());
        }
        if lengths == Lengths::Packed && (queries != keys || pages.is_some()) {
            let of_pages = if pages.is_some() { " in pages" } else { "" };
            return Err(format!(
                "lengths=packed with {queries} queries and {keys} keys{of_pages}: a problem has as many keys as queries then, and no pages"
            ));
        }
        if !(1..=Self::MOST_SEQUENCES).contains(&batch) {
            return Err(format!("sequences are {batch}, 1 to {} was needed", Self::MOST_SEQUENCES));
        }
        if heads[1] == 0 || heads[0] == 0 || !heads[0].is_multiple_of(heads[1]) {
            let [of_queries, of_keys] = heads;
            return Err(format!("heads are {of_queries}/{of_keys}, a multiple of the latter was needed"));
        }
        let problem = AttentionProblem::new(batch, heads[0], [queries, keys], head[0]);
        let problem = AttentionProblem { heads, ..problem };
        problem.check().map_err(|error| error.to_string())?;
        if lengths == Lengths::Packed && u64::from(batch) * u64::from(queries) >= 1 << 31 {
            return Err(format!(
                "{batch} sequences have up to {queries} queries, fewer than 2^31 in all were needed"
            ));
        }
        let given = Self { numbers, soft_cap, score, sees, fixed, aligned, ..Self::of(&spec, problem) };
        Ok(Self { workspace: true, ..given })
    }

    /// Sequences, heads of Q and of K, queries and keys: those of K are those of Q, if they are not said.
    fn extents(text: &str) -> Option<(u32, [u32; 2], [u32; 2])> {
        let (batch, rest) = text.split_once('x')?;
        let (heads, rows) = rest.split_once('x')?;
        let both = |text: &str, between| {
            let (a, b) = text.split_once(between).unwrap_or((text, text));
            Some([a.parse().ok()?, b.parse().ok()?])
        };
        Some((batch.parse().ok()?, both(heads, '/')?, both(rows, 'x')?))
    }
}

/// The request of a problem's text. The log-sum-exp is stored.
impl TryFrom<String> for AttentionRequest {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Ok(Self { log_sum_exp: true, ..text.parse()? })
    }
}

/// Its problem, for example `4x16/16x4096x4096 d=128 mask=causal`: sequences, heads of Q and of K, queries and keys, and the types.
impl From<AttentionRequest> for String {
    fn from(request: AttentionRequest) -> Self {
        let AttentionProblem { batch, heads: [heads, shared], queries, keys, .. } = request.problem;
        // How O is stored follows from the other words.
        let AttentionSpec { store, soft_cap, .. } = AttentionSpec::DEFAULT;
        let spec = AttentionSpec { mask: request.mask, store, soft_cap, ..request.spec() };
        let mut words = vec![format!("{batch}x{heads}/{shared}x{queries}x{keys}"), spec.to_string()];
        let names = AttentionRequest::names(request.mask).iter();
        words.extend(names.zip(request.counts()).map(|(name, count)| format!("{name}={count}")));
        words.extend(request.soft_cap.map(|cap| format!("softcap={cap}")));
        words.extend(request.fixed.then(|| "fixed=on".to_owned()));
        words.extend((!request.aligned).then(|| "aligned=off".to_owned()));
        words.retain(|word| !word.is_empty());
        words.join(" ")
    }
}

#[cfg(test)]
mod tests;
