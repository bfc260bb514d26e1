//! Attention as a family of kernels: what is asked, the space of specs, and a prediction.

#[cfg(test)]
mod tests;

use core::str::FromStr;

use collective::Format;
use collective::heads::{HeadsRef, Packed, Pages};
use kernel::operands::Contents;
use kernel::words::Worded;
use kernel::{Blocks, Expected, Family, Inputs, LaunchError, Machine, Predicted, alike, cheapest};

use crate::call::AttentionCall;
use crate::error::AttentionError;
use crate::factors::Factors;
use crate::kernel::Attention;
use crate::masks::of_spec;
use crate::plan::LatentPlan;
use crate::problem::AttentionProblem;
use crate::shortlist::Shortlist;
use crate::spec::{AttentionSpec, Lengths, Mask, Order, OutputStore, Parts};

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
    /// Which keys a query sees.
    pub mask: Mask,
    /// The two numbers of a window, left and right; or the number of a chunk, and any other.
    pub numbers: [i32; 2],
    /// The lengths of sequences. If they differ, they fall evenly from the problem's to its `batch`-th part, and there are as
    /// many keys as queries: what is measured must be a problem of its own.
    pub lengths: Lengths,
    /// Keys of a page, if K and V are in pages of a cache.
    pub pages: Option<u32>,
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
}

impl AttentionRequest {
    /// Sequences of a problem that is a text.
    const MOST_SEQUENCES: u32 = 1 << 20;
    /// Lengths that a prediction tells apart.
    const MOST_KINDS: u32 = 1 << 12;

    /// bf16 with heads of `d` elements, where every query sees every key.
    pub const fn new(problem: AttentionProblem, d: u32) -> Self {
        Self::of(&AttentionSpec { head: [d, d], ..AttentionSpec::DEFAULT }, problem)
    }

    /// What a spec says of it.
    const fn of(spec: &AttentionSpec, problem: AttentionProblem) -> Self {
        let AttentionSpec { format, cache, output, head, mask, lengths, pages, .. } = *spec;
        Self {
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
        }
    }

    /// Whether V is the first columns of K: no tensor of its own.
    pub fn is_latent(&self) -> bool {
        self.spec().is_latent()
    }

    /// The request's words of a spec.
    fn spec(&self) -> AttentionSpec {
        let Self { format, cache, output, head, mask, lengths, pages, aligned, .. } = *self;
        let store = if output == format && aligned { OutputStore::Tma } else { OutputStore::Direct };
        AttentionSpec { format, cache, output, head, mask, lengths, pages, store, ..AttentionSpec::DEFAULT }
    }

    /// Checks the numbers, before anything is ranked or allocated for them.
    ///
    /// # Errors
    /// The first number that is out of its range, or the heads of queries that are no multiple of those of keys.
    pub fn check(&self) -> Result<(), LaunchError> {
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
    fn length(&self, i: u32) -> [u32; 2] {
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

    /// The whole-number arguments of the mask.
    pub fn counts(&self) -> &[i32] {
        &self.numbers[..Self::names(self.mask).len()]
    }

    /// Names of the mask's arguments, as words.
    const fn names(mask: Mask) -> &'static [&'static str] {
        match mask {
            Mask::Full | Mask::Causal => &[],
            Mask::Window => &["left", "right"],
            Mask::Chunked => &["chunk"],
        }
    }

    /// Whether a kernel may compute it.
    fn admits(&self, spec: &AttentionSpec) -> bool {
        (self.workspace || spec.parts == Parts::One && spec.order == Order::Dealt)
            && (!self.fixed || self.fixed_specs().any(|of| of == *spec))
    }

    /// Rows of a tile per query, if the heads of Q that share one of K are rows of it; in latent attention, of several tiles if they are
    /// too many for one.
    fn share(&self) -> u32 {
        let [heads, shared] = self.problem.heads;
        let share = if shared > 0 && heads.is_multiple_of(shared) { heads / shared } else { 1 };
        match share {
            ..=64 => share.next_power_of_two(),
            _ if self.spec().is_latent() => 1 << share.trailing_zeros().min(6),
            _ => 1,
        }
    }

    /// Tiles of a kernel.
    fn tiles(&self, spec: &AttentionSpec) -> u32 {
        let [heads, shared] = self.problem.heads;
        let heads = heads / spec.rows_of_query(heads.checked_div(shared).unwrap_or(1)).max(1);
        let per_tile = (spec.tile[0] / spec.pack).max(1);
        let tiles =
            self.kinds().map(|([queries, _], count)| queries.div_ceil(per_tile).saturating_mul(count));
        tiles.fold(0, u32::saturating_add).saturating_mul(heads).max(1)
    }

    /// How CTAs get their tiles. They draw those of lengths that differ, and may draw those of which later ones are longer.
    fn orders(&self, spec: &AttentionSpec, machine: &Machine) -> &'static [Order] {
        let differ = self.lengths == Lengths::Packed;
        if !self.workspace
            || !differ && self.mask != Mask::Causal
            || self.tiles(spec) <= machine.multiprocessors
        {
            return &[Order::Dealt];
        }
        if differ { &[Order::Drawn] } else { &[Order::Dealt, Order::Drawn] }
    }

    /// Numbers of parts that fill a card once or twice, if a kernel's tiles do not.
    fn parts(&self, spec: &AttentionSpec, machine: &Machine) -> Vec<Parts> {
        let (block, tiles) = (spec.tile[1], self.tiles(spec));
        let blocks = self.problem.keys.div_ceil(block);
        let mut all: Vec<u32> = [1, 2, 4].map(|twice| machine.multiprocessors * twice / 2 / tiles).to_vec();
        all.extend([2, 4]);
        all.retain(|&parts| parts > 1 && parts <= blocks.min(1024));
        all.sort_unstable();
        all.dedup();
        let few = self.workspace && tiles < 4 * machine.multiprocessors;
        if few { all.into_iter().map(Parts::Count).collect() } else { Vec::new() }
    }

    /// Whether a kernel is one of its space, as far as lengths decide it.
    pub(crate) fn has(&self, spec: &AttentionSpec, machine: &Machine) -> bool {
        let divides = match spec.parts {
            Parts::Count(_) => self.parts(spec, machine).contains(&spec.parts),
            Parts::One | Parts::Keys(_) => true,
        };
        divides
            && (self.fixed || spec.parts != Parts::One || self.orders(spec, machine).contains(&spec.order))
    }

    /// The part of products that a window or chunks leave, of those that are counted without a mask.
    pub(crate) fn seen(&self, [queries, keys]: [u32; 2]) -> f64 {
        let [left, right] = self.numbers.map(i128::from);
        let all = f64::from(queries) * f64::from(keys);
        let (first, keys) = (i128::from(keys) - i128::from(queries), i128::from(keys));
        let seen = match self.mask {
            Mask::Full | Mask::Causal => return 1.0,
            // Keys before the end of each query's window without those before its beginning.
            Mask::Window => {
                let before = |shift: i128| within(keys + shift, keys) - within(first + shift, keys);
                before(right + 1) - before(-left)
            }
            Mask::Chunked => of_chunks(keys, left.max(1)) - of_chunks(first.max(0), left.max(1)),
        };
        seen as f64 / all.max(1.0)
    }

    /// Operations of all sequences, of which one counts as `of` says without windows and chunks.
    pub(crate) fn operations(&self, of: impl Fn(&AttentionProblem) -> f64) -> f64 {
        let part = |([queries, keys], count): ([u32; 2], u32)| {
            let problem = AttentionProblem { batch: 1, queries, keys, ..self.problem };
            of(&problem) * self.seen([queries, keys]) * f64::from(count)
        };
        self.kinds().map(part).sum()
    }

    /// Kernels that compute a row the same way in every batch, the first of which that is legal is taken. They do not depend on
    /// lengths, or on the number of sequences.
    fn fixed_specs(&self) -> impl Iterator<Item = AttentionSpec> + use<> {
        let (spec, pack) = (self.spec(), self.share());
        [128, 64, 32, 16].into_iter().map(move |block| AttentionSpec {
            tile: [64, block],
            pack,
            parts: Parts::Keys(1024),
            ..spec
        })
    }
}

/// The sum of the numbers below `end`, each of which counts as 0 at least and as `most` at most.
fn within(end: i128, most: i128) -> i128 {
    let inside = end.clamp(0, most + 1);
    inside * (inside - 1) / 2 + (end - inside).max(0) * most
}

/// Keys that the first `queries` queries see, of which each sees those of its own chunk up to its own.
fn of_chunks(queries: i128, chunk: i128) -> i128 {
    let (whole, rest) = (queries / chunk, queries % chunk);
    whole * (chunk * (chunk + 1) / 2) + rest * (rest + 1) / 2
}

/// The words of a spec that decide what a call's memory is, with their values; and whether the text of a spec says them.
pub(crate) fn memory(spec: &AttentionSpec) -> Vec<(&'static str, String, bool)> {
    let AttentionSpec { format, cache, output, head: [d, dv], lengths, pages, .. } = *spec;
    let packed = lengths == Lengths::Packed;
    let of_pages = pages.map_or_else(|| "none".to_owned(), |page| page.to_string());
    vec![
        ("format", format.name().to_owned(), true),
        ("cache", cache.unwrap_or(format).name().to_owned(), cache.is_some()),
        ("output", output.name().to_owned(), true),
        ("d", format!("{d}x{dv}"), true),
        ("lengths", if packed { "packed" } else { "equal" }.to_owned(), packed),
        ("pages", of_pages, pages.is_some()),
    ]
}

/// Those that the text of a spec says.
pub(crate) fn said(words: Vec<(&'static str, String, bool)>) -> Vec<(&'static str, String)> {
    words.into_iter().filter(|(.., said)| *said).map(|(key, value, _)| (key, value)).collect()
}

/// Refuses a kernel whose words are others than those of a problem.
pub(crate) fn differ(
    own: Vec<(&'static str, String, bool)>,
    asked: Vec<(&'static str, String, bool)>,
) -> Result<(), String> {
    alike(own.into_iter().zip(asked).map(|((key, own, _), (_, asked, _))| (key, own, asked)))
}

impl FromStr for AttentionRequest {
    type Err = String;

    /// Reads extents, words of a spec, the numbers of a mask, `fixed=on` and `aligned=off`: `4x16x4096 d=64 mask=window left=1023 right=0`. Extents are sequences, heads, queries and keys; without the last one
    /// there are as many keys as queries. Heads of K and V follow those of Q where they are fewer: `4x16/4x4096x4096`.
    fn from_str(text: &str) -> Result<Self, String> {
        Self::read(text, Attention::NAME, &Self::WORDS)
    }
}

impl AttentionRequest {
    /// The words of a problem.
    const WORDS: [&str; 12] = [
        "format", "cache", "output", "d", "mask", "left", "right", "chunk", "lengths", "pages", "fixed",
        "aligned",
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
        for (name, value) in crate::words::words(words).map_err(|error| error.to_string())? {
            let word = if value.is_empty() { name.to_owned() } else { format!("{name}={value}") };
            if !known.contains(&name) {
                let known = known.join(", ");
                return Err(format!("`{word}` is no word of a problem of {family}: these are {known}"));
            }
            let refused = |needed| format!("`{word}`: {needed} was needed");
            match name {
                "left" | "right" | "chunk" => {
                    let number = value.parse::<i32>().ok().filter(|value| (0..=1 << 30).contains(value));
                    own.push((name, number.ok_or_else(|| refused("a number from 0 to 2^30"))?));
                }
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
        Ok(Self { numbers, fixed, aligned, workspace: true, ..Self::of(&spec, problem) })
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
        let spec = AttentionSpec { store: AttentionSpec::DEFAULT.store, ..request.spec() };
        let mut words = vec![format!("{batch}x{heads}/{shared}x{queries}x{keys}"), spec.to_string()];
        let names = AttentionRequest::names(request.mask).iter();
        words.extend(names.zip(request.counts()).map(|(name, count)| format!("{name}={count}")));
        words.extend(request.fixed.then(|| "fixed=on".to_owned()));
        words.extend((!request.aligned).then(|| "aligned=off".to_owned()));
        words.retain(|word| !word.is_empty());
        words.join(" ")
    }
}

impl Family for Attention {
    const NAME: &'static str = "attention";
    const VERSIONED: bool = true;
    type Request<'r> = AttentionRequest;
    type Problem = String;
    type Spec = AttentionSpec;
    type Call = AttentionCall;

    fn of_spec(spec: &AttentionSpec) -> Result<Self, String> {
        Self::new(*spec).map_err(|error| error.to_string())
    }

    fn spec(&self) -> Option<AttentionSpec> {
        // A mask of one's own has no spec.
        let spec = self.plan.spec;
        (of_spec(&spec).name() == self.scores.name()).then_some(spec)
    }

    fn call(request: &AttentionRequest) -> AttentionCall {
        let AttentionRequest { head: [d, dv], problem, .. } = *request;
        let AttentionProblem { batch, heads: [heads, shared], queries, keys, .. } = problem;
        let at = |heads, length, d| HeadsRef::heads_first(0, [heads, length, d]);
        // As many keys as queries.
        let all = || (0..batch).fold(0, |all: u32, i| all.saturating_add(request.length(i)[0]));
        let [of_queries, of_keys] = match (request.lengths, request.pages) {
            (Lengths::Packed, _) => [all(); 2],
            (Lengths::Equal, Some(page)) => [queries, page],
            (Lengths::Equal, None) => [queries, keys],
        };
        let [q, k, o] = [at(heads, of_queries, d), at(shared, of_keys, d), at(heads, of_queries, dv)];
        let mut call = if request.spec().is_latent() {
            AttentionCall::latent(problem, [q, k], o)
        } else {
            AttentionCall::new(problem, [q, k, at(shared, of_keys, dv)], o)
        };
        // Any address that is not 0 says that it is stored.
        call.log_sum_exp = u64::from(request.log_sum_exp) << 8;
        call.counts = request.counts().to_vec();
        if request.lengths == Lengths::Packed {
            call.packed = Packed { begins: [1 << 8; 2], rows: [of_queries, of_keys] };
        }
        if request.spec().is_scaled() {
            let of_q = if request.cache.is_some() { 0 } else { 1 << 8 };
            call.factors = Factors::of_heads([of_q, 1 << 8, 1 << 8]);
        }
        if let Some(page) = request.pages {
            let each = keys.div_ceil(page);
            let count = batch.saturating_mul(each);
            call.pages = Pages { lengths: 1 << 8, table: 1 << 8, each, count };
        }
        call
    }

    fn words(request: &AttentionRequest, contents: Contents) -> Vec<u32> {
        let lengths = request.lengths();
        if contents != Contents::Table {
            return Vec::new();
        }
        match request.lengths {
            Lengths::Packed => {
                let sums = lengths.iter().scan(0, |sum, of| {
                    *sum += of[1];
                    Some(*sum)
                });
                core::iter::once(0).chain(sums).collect()
            }
            Lengths::Equal => lengths.iter().map(|of| of[1]).collect(),
        }
    }

    fn serves(&self, request: &AttentionRequest) -> Result<(), String> {
        request.check().map_err(|error| error.to_string())?;
        // The mask decides no memory: a kernel with another one is wrong, and found to be.
        differ(memory(&self.plan().spec), memory(&request.spec()))
    }

    fn measured(
        request: &AttentionRequest,
        _machine: &Machine,
        times: &[(AttentionSpec, f64)],
    ) -> Option<Predicted<Self>> {
        let mut able = times.iter().filter(|(spec, _)| request.admits(spec));
        able.find_map(|&(spec, microseconds)| Some(Predicted::new(Self::new(spec).ok()?, microseconds)))
    }

    fn ranked(
        request: &AttentionRequest,
        machine: &Machine,
        most: usize,
    ) -> Result<Vec<Predicted<Self>>, String> {
        request.check().map_err(|error| error.to_string())?;
        let spec = request.spec();
        // Blocks of more keys that are converted were slower at every problem that was measured.
        let most_keys = if request.cache.is_some() { 128 } else { 192 };
        // The plan refuses what does not fit; the spec's own tile says why, if nothing does.
        let tiles = [128, 192, 64].into_iter().flat_map(|rows| {
            let all = [128, 192, 176, 160, 144, 112, 96, 80, 64, 48].into_iter();
            all.filter(move |&keys| keys <= most_keys).map(move |keys| [rows, keys])
        });
        let tiles = tiles.chain(spec.is_latent().then_some(LatentPlan::TILE));
        let time = |kernel: &Self| kernel.predict(request, machine);
        if request.fixed {
            if !request.workspace {
                return Err("fixed=on divides keys, a workspace was needed".to_owned());
            }
            let legal = request.fixed_specs().filter(|spec| Self::new(*spec).is_ok()).take(1);
            return cheapest(legal, most, time);
        }
        let share = request.share();
        let packs = [1, share].into_iter().take(if share > 1 { 2 } else { 1 });
        let switches = [(false, false), (true, false), (false, true), (true, true)];
        let whole = tiles.clone().flat_map(|tile| {
            packs.clone().flat_map(move |pack| {
                let of = AttentionSpec { tile, pack, ..spec };
                let orders = request.orders(&of, machine);
                let with =
                    move |order| switches.map(|(overlap, lazy)| AttentionSpec { order, overlap, lazy, ..of });
                orders.iter().copied().flat_map(with)
            })
        });
        let lazy = [false, true].into_iter().take(if spec.is_latent() { 2 } else { 1 });
        let divided = tiles.flat_map(|tile| {
            let spec = AttentionSpec { tile, pack: share, ..spec };
            let lazy = lazy.clone();
            let of = move |parts| lazy.clone().map(move |lazy| AttentionSpec { parts, lazy, ..spec });
            request.parts(&spec, machine).into_iter().flat_map(of)
        });
        cheapest(whole.chain(divided), most, time)
    }

    /// By a [`Shortlist`], which is kept: the space is ranked once for requests that are alike.
    fn first(request: &AttentionRequest, machine: &Machine) -> Result<Predicted<Self>, String> {
        request.check().map_err(|error| error.to_string())?;
        Shortlist::kept(request, machine)?.best(request, machine)
    }

    fn said(request: &AttentionRequest) -> Vec<(&'static str, String)> {
        let spec = request.spec();
        let mut said = said(memory(&spec));
        said.push(("mask", spec.mask.name().to_owned()));
        said.extend((spec.store == OutputStore::Direct).then(|| ("store", "direct".to_owned())));
        said
    }

    fn operations(request: &AttentionRequest) -> f64 {
        request.operations(|problem| request.spec().operations(problem))
    }

    fn expect(
        &self,
        request: &AttentionRequest,
        call: &AttentionCall,
        inputs: &Inputs<'_>,
    ) -> Result<Vec<Expected>, String> {
        Ok(self.expected(request.mask, call, inputs))
    }

    fn numbers(&self) -> Vec<[String; 3]> {
        self.told()
    }

    fn blocks(&self, request: &AttentionRequest) -> Option<Blocks> {
        self.drawn(request)
    }
}
