//! Calls of attention that a check is given: tensors in any layout, what they contain, lengths of their own, and pages.

use falchion::attention::backward::{AttentionBackward, BackwardCall, BackwardSpec};
use falchion::attention::{
    Attention, AttentionCall, AttentionProblem, AttentionRequest, Factors, HeadsRef, HostArrays, Lengths,
    Mask, MaskFormula, Packed, Pages, Scope, ScoreFormula,
};
use falchion::collective::Bounded;
use falchion::kernel::{Engine, Family, Filled, Kernel};
use falchion::verify::Format;
use falchion::verify::family::{Agreed, Checks, FamilyError};
use reference::attention::sequences::SequenceRows;
use reference::attention::{Row, Score};

/// How the heads of a tensor lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// `(batch, heads, length, d)`.
    HeadsFirst,
    /// `(batch, length, heads, d)`.
    LengthFirst,
    /// `(batch, heads, length, d)`, with gaps after rows, heads and sequences.
    Gaps,
}

/// What Q and K contain. V has uniform numbers from -2 to 2.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Values {
    /// Numbers around zero. The standard deviation of scores is about this.
    Normal(f64),
    /// Few elements are not zero. Scores are about as large as this, of both signs.
    Large(f64),
}

/// A call with random inputs. All memory of Q, K and V that no query may read is NaN.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Case {
    /// The extents. Those of `lengths` replace its number of sequences, and their lengths.
    pub(crate) problem: AttentionProblem,
    /// Queries and keys of each sequence, if lengths differ.
    pub(crate) lengths: Option<Vec<[u32; 2]>>,
    /// Pages of the cache that nobody uses, if the kernel has pages.
    pub(crate) spare: u32,
    /// How all tensors lie in memory.
    pub(crate) layout: Layout,
    /// What Q and K contain.
    pub(crate) values: Values,
    /// The whole-number arguments of the kernel's scores.
    pub(crate) counts: Vec<i32>,
    /// The real arguments of the kernel's scores.
    pub(crate) reals: Vec<f32>,
    /// Whether each head of K and V has its own factor, if the kernel has factors.
    pub(crate) per_head: bool,
    /// Whether each sequence has its own numbers of heads, if the kernel's scores have such numbers.
    pub(crate) per_sequence: bool,
    /// Seed of the inputs.
    pub(crate) seed: u64,
}

/// What a kernel has of a case: what is asked, the sequences, and the pages of each.
struct Asked {
    /// Whether it is the forward pass.
    forward: bool,
    request: AttentionRequest,
    places: SequenceRows,
    pages: Vec<Vec<u32>>,
    call: AttentionCall,
}

/// The memory of a case, and what is asked of kernels.
pub(crate) struct Given<C> {
    pub(crate) checks: Checks<C>,
    pub(crate) request: AttentionRequest,
}

impl<C: Clone> Given<C> {
    /// The call with a workspace.
    pub(crate) fn lent(&self, engine: &mut dyn Engine, kernel: &impl Kernel<C>) -> C {
        let mut call = self.checks.call().clone();
        let workspace = engine.workspace(kernel.workspace(&call, 3)).expect("memory");
        kernel.lend_workspace(&mut call, workspace);
        call
    }
}

impl Case {
    /// Packed tensors with scores of about 1.
    pub(crate) fn new(problem: AttentionProblem) -> Self {
        let (layout, values) = (Layout::HeadsFirst, Values::Normal(1.0));
        let (counts, reals) = (Vec::new(), Vec::new());
        let (per_head, per_sequence) = (true, false);
        Self {
            problem,
            lengths: None,
            spare: 3,
            layout,
            values,
            counts,
            reals,
            per_head,
            per_sequence,
            seed: 1,
        }
    }

    /// Runs the case on an engine, and compares its results.
    pub(crate) fn check(&self, engine: &mut dyn Engine, kernel: &Attention) -> Result<Agreed, FamilyError> {
        let Given { checks, request } = self.given(engine, kernel)?;
        let agreed = checks.check(engine, kernel, &request);
        checks.free(engine)?;
        agreed
    }

    /// The memory of a call, in which nothing was computed.
    pub(crate) fn given(
        &self,
        engine: &mut dyn Engine,
        kernel: &Attention,
    ) -> Result<Given<AttentionCall>, FamilyError> {
        let asked = self.asked(true, &kernel.plan().spec.into(), kernel.plan().spec.pages);
        let mut call = asked.call.clone();
        call.head_numbers.per_sequence = self.per_sequence;
        let fill = |_: &mut AttentionCall, all: &mut [Filled]| self.fill(&asked, all);
        let sample = (self.seed, usize::MAX);
        let checks = Checks::given(engine, kernel, &asked.request, (call, &fill), sample)?;
        Ok(Given { checks, request: asked.request })
    }

    /// The same for the backward pass. O and the log-sum-exp are those of the reference.
    pub(crate) fn check_backward(
        &self,
        engine: &mut dyn Engine,
        kernel: &AttentionBackward,
    ) -> Result<Agreed, FamilyError> {
        let Given { checks, request } = self.given_backward(engine, kernel)?;
        let agreed = checks.check(engine, kernel, &request);
        checks.free(engine)?;
        agreed
    }

    /// The memory of a call of the backward pass.
    pub(crate) fn given_backward(
        &self,
        engine: &mut dyn Engine,
        kernel: &AttentionBackward,
    ) -> Result<Given<BackwardCall>, FamilyError> {
        let spec = kernel.plan().spec;
        let BackwardSpec { format, head, mask, lengths, soft_cap, alibi, score, sees, .. } = spec;
        let scores = (soft_cap, alibi, false);
        let words = Words { formats: [format; 3], head, mask, lengths, scores, texts: (score, sees) };
        let asked = self.asked(false, &words, None);
        let AttentionCall { q, k, v, o, .. } = asked.call;
        let mut forward = AttentionCall { log_sum_exp: 1 << 8, ..asked.call.clone() };
        forward.head_numbers.per_sequence = self.per_sequence;
        let call = BackwardCall::of(forward, o, [q, k, v]);
        let fill = |_: &mut BackwardCall, all: &mut [Filled]| {
            self.fill(&asked, all);
            self.forward(kernel, &asked, all);
        };
        let sample = (self.seed, usize::MAX);
        let checks = Checks::given(engine, kernel, &asked.request, (call, &fill), sample)?;
        Ok(Given { checks, request: asked.request })
    }

    /// What is asked of a kernel with these words in its spec, with pages of so many keys.
    fn asked(&self, forward: bool, words: &Words, page: Option<u32>) -> Asked {
        let Words { formats: [format, cache, output], head: [d, dv], mask, lengths, scores, texts } = *words;
        let ((capped, alibi, sinks), (score, sees)) = (scores, texts);
        let AttentionProblem { batch, heads: [heads, shared], queries, keys, .. } = self.problem;
        let packed = lengths == Lengths::Packed;
        let mut all = vec![[queries, keys]; batch as usize];
        if packed || page.is_some() {
            all = self.lengths.clone().unwrap_or(all);
        }
        if !packed {
            all.iter_mut().for_each(|rows| rows[0] = queries);
        }
        let most = |side: usize| all.iter().map(|rows| rows[side]).max().unwrap_or(0);
        let extents = if packed || page.is_some() { [most(0), most(1)] } else { [queries, keys] };
        let problem = AttentionProblem {
            batch: all.len() as u32,
            queries: extents[0],
            keys: extents[1],
            ..self.problem
        };
        let request = AttentionRequest {
            format,
            cache: (cache != format).then_some(cache),
            output,
            head: [d, dv],
            mask,
            lengths,
            pages: page,
            soft_cap: self.reals.first().copied().filter(|_| capped),
            alibi,
            score,
            sees,
            sinks,
            log_sum_exp: true,
            ..AttentionRequest::new(problem, d)
        };
        let places = SequenceRows::of(all, problem.heads, packed);
        let rows = if packed { [places.all(0), places.all(1)] } else { extents };
        let (pages, count) = self.pages(page, &places);
        let mut call = Attention::call(&request);
        let of_keys = page.unwrap_or(rows[1]);
        call.q = self.tensor([heads, rows[0], d]);
        call.o = self.tensor([heads, rows[0], dv]);
        call.k = self.tensor([shared, of_keys, d]);
        if !request.is_latent() {
            call.v = self.tensor([shared, of_keys, dv]);
        }
        call.packed = if packed { Packed { begins: [1 << 8; 2], rows } } else { Packed::default() };
        (call.counts, call.reals) = (self.counts.clone(), self.reals.clone());
        call.factors = Factors { per_head: self.per_head, ..call.factors };
        if page.is_some() {
            // What follows a sequence's last page is no page.
            let each = pages.iter().map(Vec::len).max().unwrap_or(0) as u32 + 2;
            call.pages = Pages { lengths: 1 << 8, table: 1 << 8, each, count };
        }
        Asked { forward, request, places, pages, call }
    }

    /// A tensor of these heads, rows and elements per row.
    fn tensor(&self, [heads, rows, d]: [u32; 3]) -> HeadsRef {
        match self.layout {
            Layout::HeadsFirst => HeadsRef::heads_first(0, [heads, rows, d]),
            Layout::LengthFirst => HeadsRef::length_first(0, [heads, rows, d]),
            Layout::Gaps => {
                let row = u64::from(d) + 8;
                let head = (u64::from(rows) + 1) * row + 16;
                HeadsRef { address: 0, row, head, batch: u64::from(heads) * head + 24 }
            }
        }
    }

    /// The pages of each sequence, in a cache of some more, in any order; and the number of all.
    fn pages(&self, page: Option<u32>, places: &SequenceRows) -> (Vec<Vec<u32>>, u32) {
        let Some(page) = page else { return (Vec::new(), 0) };
        let needed = places.sequences.iter().map(|of| of.rows[1].div_ceil(page));
        let count = needed.clone().sum::<u32>() + self.spare;
        let mut all: Vec<u32> = (0..count).collect();
        fastrand::Rng::with_seed(self.seed ^ 0x9876).shuffle(&mut all);
        let mut all = all.into_iter();
        (needed.map(|needed| all.by_ref().take(needed as usize).collect()).collect(), count)
    }

    /// What is in each piece of memory.
    fn fill(&self, asked: &Asked, all: &mut [Filled]) {
        let (seed, d) = (self.seed, asked.request.head[0] as usize);
        for of in all {
            let random = fastrand::Rng::with_seed;
            match of.piece.name {
                "Q" => self.tensor_of(of, asked, 0, &mut self.scores(&mut random(seed), d, true)),
                "K" => self.tensor_of(of, asked, 1, &mut self.scores(&mut random(seed + 1), d, false)),
                "V" => self.tensor_of(of, asked, 1, &mut uniform(random(seed ^ 0x1234), 4.0)),
                "dO" => self.tensor_of(of, asked, 0, &mut uniform(random(seed ^ 0x5678), 4.0)),
                // Some far above, and some far below the scores.
                "the sinks" => set(of, 0, of.count(), uniform(random(seed ^ 0x4321), 40.0)),
                "slopes" => set(of, 0, of.count(), uniform(random(seed ^ 0x2143), 1.0)),
                "the factors of Q" | "the factors of K" | "the factors of V" => {
                    let mut values = uniform(random(seed ^ 0x8765), 1.0);
                    set(of, 0, of.count(), || 0.8 + values());
                }
                "the beginnings of queries" => words(of, begins(&asked.places, 0)),
                "the beginnings of keys" => words(of, begins(&asked.places, 1)),
                "the numbers of keys" => words(of, asked.places.sequences.iter().map(|of| of.rows[1])),
                "the table of pages" => {
                    let each = asked.call.pages.each as usize;
                    let padded = |own: &Vec<u32>| {
                        own.clone().into_iter().chain(core::iter::repeat(u32::MAX)).take(each)
                    };
                    words(of, asked.pages.iter().flat_map(padded));
                }
                _ => {}
            }
        }
    }

    /// The rows of a tensor of queries (0) or keys (1) that someone reads; all else is NaN.
    fn tensor_of(&self, of: &mut Filled, asked: &Asked, side: usize, element: &mut dyn FnMut() -> f64) {
        let Asked { forward, request, places, pages, .. } = asked;
        let (length, bytes) = (of.piece.lines.0 as usize, of.piece.bytes);
        of.bytes[..bytes].fill(0xff);
        let differs = request.lengths == Lengths::Packed || request.pages.is_some();
        for (b, sequence) in places.sequences.iter().enumerate() {
            // The forward pass reads queries without keys, whose O is zero.
            let alone = !differs || side == 0 && *forward;
            if sequence.rows[1 - side] == 0 && !alone {
                continue;
            }
            for head in 0..places.heads[side] {
                for row in 0..sequence.rows[side] as usize {
                    let at = match request.pages.map(|page| page as usize).filter(|_| side == 1) {
                        Some(page) => {
                            (pages[b][row / page] as usize * places.heads[1] + head) * page + row % page
                        }
                        None => places.index(side, [b, head, row]),
                    };
                    set(of, at * length, length, &mut *element);
                }
            }
        }
    }

    /// Elements of Q or K, for rows of `d`.
    fn scores<'a>(
        &self,
        random: &'a mut fastrand::Rng,
        d: usize,
        query: bool,
    ) -> impl FnMut() -> f64 + use<'a> {
        let (values, mut index) = (self.values, 0);
        move || match values {
            // Three uniform numbers: about normal, with a variance of 1.
            Values::Normal(scale) => (0..3).map(|_| random.f64() * 2.0 - 1.0).sum::<f64>() * scale.sqrt(),
            Values::Large(scale) => {
                let column = index % d;
                index += 1;
                let size = scale.sqrt() * (d as f64).powf(0.25) * (0.5 + random.f64());
                match column == 3 || query && column == 9 {
                    false => 0.0,
                    true if random.bool() => size,
                    true => -size,
                }
            }
        }
    }

    /// O and the log-sum-exp of the reference, for the backward pass.
    fn forward(&self, kernel: &AttentionBackward, asked: &Asked, all: &mut [Filled]) {
        let (spec, places) = (kernel.plan().spec, &asked.places);
        let [d, dv] = spec.head.map(|d| d as usize);
        let format = Format::named(spec.format.name()).expect("the reference has every format");
        let counts: Vec<i64> = self.counts.iter().map(|&count| count.into()).collect();
        let reals: Vec<_> = self.reals.iter().map(|&real| Bounded::exact(real.into())).collect();
        let values = |name: &str, row: usize, width: usize| {
            let found = all.iter().find(|of| of.piece.name == name);
            found.map_or_else(Vec::new, |of| of.values(&of.bytes, row * width, width))
        };
        let count = places.extents(0).into_iter().map(|extent| extent as usize).product::<usize>();
        let names = of_arrays(spec.score, spec.sees);
        let element = |name: &'static str, numbers: &[i64]| {
            let at = names.iter().position(|of| *of == name).expect("an array");
            let found = all.iter().find(|of| of.piece.name == format!("the array {name}")).expect("memory");
            let at = asked.call.arrays[at].index(numbers);
            match found.piece.format() {
                Some(_) => found.values(&found.bytes, at, 1)[0],
                None => i32::from_le_bytes(found.bytes[4 * at..][..4].try_into().expect("bytes")).into(),
            }
        };
        let arrays = HostArrays(&element);
        let row = |index: usize| {
            let [b, h, r] = places.place(0, index);
            let [queries, keys] = places.sequences[b].rows.map(i64::from);
            let at = if self.per_sequence { b * places.heads[0] + h } else { h };
            let slope = if spec.alibi { values("slopes", at, 1) } else { Vec::new() };
            let reals: Vec<_> = reals.iter().copied().chain(slope.into_iter().map(Bounded::exact)).collect();
            let of = Scope { queries, keys, head: h as i64, batch: b as i64, counts: &counts, reals: &reals };
            let (query, mut row, mut seen) = (values("Q", index, d), Row::new(format, 64), Vec::new());
            for key in (0..keys).filter(|&key| kernel.sees(&of, arrays, r as i64, key)) {
                let at = places.index(1, [b, h / (places.heads[0] / places.heads[1]), key as usize]);
                let Score { value, error } = Score::of(&query, &values("K", at, d), self.problem.scale);
                let changed = kernel.score(&of, arrays, [r as i64, key], Bounded::new(value, error));
                row.key(Score { value: changed.value, error: changed.error });
                seen.push(at);
            }
            let o = row.outputs(format, dv, &|key| values("V", seen[key], dv));
            (o.into_iter().map(|wanted| wanted.value).collect::<Vec<_>>(), row.log_sum_exp().value)
        };
        let rows: Vec<_> = (0..count).map(row).collect();
        for of in all {
            let mut elements = rows.iter().flat_map(|(o, _)| o.iter().copied());
            let mut sums = rows.iter().map(|&(_, sum)| sum);
            match of.piece.name {
                "O" => set(of, 0, count * dv, || elements.next().unwrap_or(f64::NAN)),
                "the log-sum-exp" => set(of, 0, count, || sums.next().unwrap_or(f64::NAN)),
                _ => {}
            }
        }
    }
}

/// What of a spec decides what a call is.
struct Words {
    /// Formats of Q, of K and V, and of O.
    formats: [falchion::collective::Format; 3],
    head: [u32; 2],
    mask: Mask,
    lengths: Lengths,
    /// Whether scores are capped, fall with the distance, and have sinks.
    scores: (bool, bool, bool),
    /// Scores and mask as text.
    texts: (Option<ScoreFormula>, Option<MaskFormula>),
}

impl From<falchion::attention::AttentionSpec> for Words {
    fn from(spec: falchion::attention::AttentionSpec) -> Self {
        Self {
            formats: [spec.format, spec.cache.unwrap_or(spec.format), spec.output],
            head: spec.head,
            mask: spec.mask,
            lengths: spec.lengths,
            scores: (spec.soft_cap, spec.alibi, spec.sinks),
            texts: (spec.score, spec.sees),
        }
    }
}

/// The names of the arrays of formulas, in the order of a call.
fn of_arrays(score: Option<ScoreFormula>, sees: Option<MaskFormula>) -> Vec<&'static str> {
    let mut all: Vec<_> = score.into_iter().flat_map(|of| of.arrays().map(|(name, ..)| name)).collect();
    let of_mask = sees.into_iter().flat_map(|of| of.arrays().map(|(name, ..)| name));
    of_mask.for_each(|name| {
        if !all.contains(&name) {
            all.push(name);
        }
    });
    all
}

/// Uniform numbers around zero, in a range of this width.
fn uniform(mut random: fastrand::Rng, width: f64) -> impl FnMut() -> f64 {
    move || (random.f64() - 0.5) * width
}

/// Sets `count` elements from the `first` on, rounded to their format.
fn set(of: &mut Filled, first: usize, count: usize, mut element: impl FnMut() -> f64) {
    let format = of.piece.format().and_then(|format| Format::named(format.name())).expect("numbers");
    for span in of.spans(first, count) {
        for bytes in of.bytes[span].chunks_exact_mut(format.bytes() as usize) {
            let bits = format.round(element()).to_le_bytes();
            bytes.copy_from_slice(&bits[..bytes.len()]);
        }
    }
}

/// Sets all words of a table.
fn words(of: &mut Filled, words: impl IntoIterator<Item = u32>) {
    let bytes: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
    assert_eq!(bytes.len(), of.piece.bytes, "{}", of.piece.name);
    of.bytes[..bytes.len()].copy_from_slice(&bytes);
}

/// Where sequences begin.
fn begins(places: &SequenceRows, side: usize) -> impl Iterator<Item = u32> {
    places.sequences.iter().map(move |of| of.before[side]).chain([places.all(side)])
}
