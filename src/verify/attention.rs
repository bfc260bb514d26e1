//! Checks attention kernels: random inputs, an f64 reference, a bound per element, and memory around O that must
//! not change.
//!
//! ```
//! use falchion::attention::{Attention, AttentionProblem};
//! use falchion::prelude::Emulator;
//! use falchion::verify::attention::Case;
//!
//! let kernel = Attention::new("d=64 tile=64x64 mask=causal".parse()?)?;
//! let checked = Case::new(AttentionProblem::new(1, 2, [70, 100], 64)).check(&mut Emulator::new(), &kernel)?;
//! assert!(checked.o.ratio <= 1.0 && checked.rows == 140);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod backward;
mod tensor;
#[cfg(test)]
mod tests;

use std::time::Duration;

use attention::{
    Attention, AttentionCall, AttentionProblem, AttentionSpec, Factors, Lengths, Packed, Pages, Parts, Scope,
};
use collective::Bounded;
use kernel::{Buffer, Engine, EngineError, Kernel};
use reference::attention::sequences::Sequence;
use reference::attention::{Row, Score};
use reference::{Format, Wanted};

use tensor::{Pool, Tensor};

/// How the heads of a tensor lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// `(batch, heads, length, d)`.
    HeadsFirst,
    /// `(batch, length, heads, d)`.
    LengthFirst,
    /// `(batch, heads, length, d)`, with gaps after rows, heads and sequences.
    Gaps,
}

/// What Q and K contain. V has uniform numbers from -2 to 2.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Values {
    /// Numbers around zero. The standard deviation of scores is about this.
    Normal(f64),
    /// Few elements are not zero. Scores are about as large as this, of both signs.
    Large(f64),
}

/// A call with random inputs.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// The extents. Those of [`lengths`](Self::lengths) replace its number of sequences, and their lengths.
    pub problem: AttentionProblem,
    /// Queries and keys of each sequence, if lengths differ. The keys and values of a sequence without queries are NaN:
    /// no other sequence may be affected.
    pub lengths: Option<Vec<[u32; 2]>>,
    /// Pages of the cache that nobody uses, if the kernel has pages. All that is in the cache and no sequence's is NaN.
    pub spare: u32,
    /// How all tensors lie in memory.
    pub layout: Layout,
    /// What Q and K contain.
    pub values: Values,
    /// The whole-number arguments of the kernel's scores.
    pub counts: Vec<i32>,
    /// The real arguments of the kernel's scores.
    pub reals: Vec<f32>,
    /// Whether each head of K and V has its own factor, if the kernel has a cache of its own format.
    pub per_head: bool,
    /// Seed of the inputs, and of the choice of rows.
    pub seed: u64,
    /// Number of queries that are compared, chosen at random; all, if there are fewer. For all others it is only
    /// checked that they were written.
    pub rows: usize,
}

/// The largest error, and the largest fraction of its bound.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Largest {
    /// The largest error.
    pub error: f64,
    /// Its bound.
    pub bound: f64,
    /// The largest error as a fraction of its bound.
    pub ratio: f64,
}

/// What was found right.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Checked {
    /// Errors of O.
    pub o: Largest,
    /// Errors of the log-sum-exp.
    pub log_sum_exp: Largest,
    /// Number of queries that were compared.
    pub rows: usize,
    /// The engine's time; `None` if there was nothing to compute.
    pub time: Option<Duration>,
}

/// What is wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttentionFault {
    /// The engine could not run the call.
    #[error("{0}")]
    Engine(#[from] EngineError),
    /// A result is wrong.
    #[error(
        "{what} of sequence {}, head {}, query {} is {got}, {} +- {} was expected ({keys} keys)",
        place[0], place[1], place[2], wanted.value, wanted.bound()
    )]
    Value {
        /// Which result.
        what: String,
        /// The sequence, the head and the query.
        place: [u32; 3],
        /// Number of keys that the query sees.
        keys: usize,
        /// The result.
        got: f64,
        /// The expected result.
        wanted: Wanted,
    },
    /// Memory was written that is not O's, or an element was not written.
    #[error("{0}")]
    Memory(&'static str),
}

/// A case in the memory of an engine.
pub struct Uploaded<'a> {
    case: &'a Case,
    kernel: &'a Attention,
    /// Q, K, V and O.
    tensors: [Tensor; 4],
    buffers: Vec<Buffer>,
    sinks: Vec<f32>,
    /// The factors of Q, K and V.
    factors: [Vec<f32>; 3],
    sequences: Vec<Sequence>,
    /// The pages of each sequence.
    pages: Vec<Vec<u32>>,
    /// The call.
    pub call: AttentionCall,
}

impl core::fmt::Debug for Uploaded<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Uploaded").field("case", self.case).field("call", &self.call).finish_non_exhaustive()
    }
}

fn named(format: collective::Format) -> Format {
    Format::ALL.into_iter().find(|of| of.name() == format.name()).unwrap_or(Format::F32)
}

impl Largest {
    fn add(&mut self, wanted: &Wanted, got: f64) {
        let (error, ratio) = (wanted.distance(got), wanted.ratio(got));
        if error > self.error {
            (self.error, self.bound) = (error, wanted.bound());
        }
        self.ratio = self.ratio.max(ratio);
    }
}

impl Case {
    /// The problem of all sequences, and each of them, if they have lengths of their own.
    fn sequences(&self, spec: &AttentionSpec) -> (AttentionProblem, Vec<Sequence>) {
        let AttentionProblem { batch, queries, keys, .. } = self.problem;
        let mut all = self.lengths.clone().unwrap_or_else(|| vec![[queries, keys]; batch as usize]);
        if spec.lengths == Lengths::Equal {
            if spec.pages.is_none() {
                return (self.problem, Vec::new());
            }
            all.iter_mut().for_each(|rows| rows[0] = queries);
        }
        let mut sums = [0; 2];
        let sequence = |&rows: &[u32; 2]| {
            let before = sums;
            sums = [0, 1].map(|i| sums[i] + rows[i]);
            Sequence { before, rows }
        };
        let sequences = all.iter().map(sequence).collect();
        let [queries, keys] = [0, 1].map(|i| all.iter().map(|rows| rows[i]).max().unwrap_or(0));
        (AttentionProblem { batch: all.len() as u32, queries, keys, ..self.problem }, sequences)
    }

    /// The pages of each sequence, in a cache of some more, in any order; and the number of all.
    fn pages(&self, page: Option<u32>, sequences: &[Sequence]) -> (Vec<Vec<u32>>, u32) {
        let Some(page) = page else { return (Vec::new(), 0) };
        let needed = sequences.iter().map(|of| of.rows[1].div_ceil(page));
        let count = needed.clone().sum::<u32>() + self.spare;
        let mut all: Vec<u32> = (0..count).collect();
        fastrand::Rng::with_seed(self.seed ^ 0x9876).shuffle(&mut all);
        let mut all = all.into_iter();
        (needed.map(|needed| all.by_ref().take(needed as usize).collect()).collect(), count)
    }

    /// A case of packed tensors with scores of about 1, in which every row is compared.
    pub const fn new(problem: AttentionProblem) -> Self {
        let (layout, values) = (Layout::HeadsFirst, Values::Normal(1.0));
        Self {
            problem,
            lengths: None,
            spare: 3,
            layout,
            values,
            counts: Vec::new(),
            reals: Vec::new(),
            per_head: true,
            seed: 1,
            rows: usize::MAX,
        }
    }

    /// Runs the case on an engine, and compares its results.
    ///
    /// # Errors
    /// The first wrong result, or why the engine could not run it.
    pub fn check(&self, engine: &mut dyn Engine, kernel: &Attention) -> Result<Checked, AttentionFault> {
        let uploaded = self.upload(engine, kernel)?;
        // Twice: the second launch finds the workspace as the first one has left it.
        let time = kernel.run(engine, &uploaded.call).and_then(|time| match uploaded.call.workspace {
            Some(_) => {
                uploaded.clear(engine)?;
                kernel.run(engine, &uploaded.call)
            }
            None => Ok(time),
        });
        let checked = time.map_err(AttentionFault::from).and_then(|time| {
            let checked = uploaded.compare(engine)?;
            Ok(Checked { time, ..checked })
        });
        uploaded.free(engine)?;
        checked
    }

    /// Puts random inputs, and an output of NaN, into an engine's memory.
    ///
    /// # Errors
    /// The engine has not enough memory.
    pub fn upload<'a>(
        &'a self,
        engine: &mut dyn Engine,
        kernel: &'a Attention,
    ) -> Result<Uploaded<'a>, EngineError> {
        let spec = kernel.plan().spec;
        let (problem, sequences) = self.sequences(&spec);
        let (pages, in_cache) = self.pages(spec.pages, &sequences);
        // Packed sequences are one of all rows.
        let (batch, [queries, keys]) = match spec.lengths {
            Lengths::Equal => (problem.batch, [problem.queries, problem.keys]),
            Lengths::Packed => {
                (1, sequences.last().map_or([0; 2], |last| [0, 1].map(|i| last.before[i] + last.rows[i])))
            }
        };
        let [heads, shared] = problem.heads;
        let output = named(spec.output);
        let of_keys = match spec.pages {
            Some(page) => [in_cache, shared, page],
            None => [batch, shared, keys],
        };
        let formats = [spec.format, spec.cache.unwrap_or(spec.format)].map(named);
        // The values of latent attention are keys.
        let of_values = if spec.is_latent() { [0; 3] } else { of_keys };
        let [q, mut k, mut v] =
            self.operands([batch, heads, queries], [of_keys, of_values], formats, spec.head);
        let keys_of = Keys { spec: &spec, pages: &pages, extents: of_keys };
        // The keys of a sequence without queries, and what is no sequence's.
        let mut read = vec![false; k.rows()];
        for (b, of) in sequences.iter().enumerate().filter(|(_, of)| of.rows[0] > 0) {
            for (head, key) in (0..shared).flat_map(|head| (0..of.rows[1]).map(move |key| (head, key))) {
                read[keys_of.row((b, of.before[1]), head, key)] = true;
            }
        }
        if !sequences.is_empty() {
            for row in (0..k.rows()).filter(|&row| !read[row]) {
                k.poison(row);
                if !spec.is_latent() {
                    v.poison(row);
                }
            }
        }
        let o = Tensor::new(output, self.layout, [batch, heads, queries, spec.head[1]], || {
            output.round(f64::NAN)
        });
        // Some far above, and some far below the scores.
        let mut random = fastrand::Rng::with_seed(self.seed ^ 0x4321);
        let sinks: Vec<f32> = (0..heads.max(1)).map(|_| (random.f32() - 0.5) * 40.0).collect();
        let table = |i: usize| -> Vec<u8> {
            let begins = sequences.iter().map(|of| of.before[i]).chain([[queries, keys][i]]);
            begins.flat_map(u32::to_le_bytes).collect()
        };
        let count = if self.per_head { shared } else { 1 };
        let mut factors = || (0..count).map(|_| 0.3 + random.f32()).collect::<Vec<_>>();
        let factors = match spec.cache {
            Some(_) => Some([vec![1.0], factors(), factors()]),
            None if spec.format.bits() == 8 => Some([factors(), factors(), factors()]),
            None => None,
        };
        let scaled = factors.is_some();
        let factors = factors.unwrap_or_else(|| [(); 3].map(|()| vec![1.0]));
        let of_factors = |i: usize| factors[i].iter().flat_map(|of| of.to_le_bytes()).collect::<Vec<_>>();
        // What follows a sequence's last page is no page.
        let each = pages.iter().map(Vec::len).max().unwrap_or(0) as u32 + 2;
        let padded =
            |own: &Vec<u32>| own.clone().into_iter().chain(core::iter::repeat(u32::MAX)).take(each as usize);
        let entries: Vec<u32> = pages.iter().flat_map(padded).collect();
        let key_lengths: Vec<u32> = sequences.iter().map(|of| of.rows[1]).collect();
        let words = |numbers: &[u32]| numbers.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>();
        let mut buffers = vec![
            engine.upload(&q.bytes)?,
            engine.upload(&k.bytes)?,
            engine.upload(&v.bytes)?,
            engine.upload(&o.bytes)?,
            engine.upload(&[0xff; 4].repeat(o.rows() + 8))?,
            engine.upload(&sinks.iter().flat_map(|sink| sink.to_le_bytes()).collect::<Vec<_>>())?,
            engine.upload(&table(0))?,
            engine.upload(&table(1))?,
            engine.upload(&words(&key_lengths))?,
            engine.upload(&words(&entries))?,
            engine.upload(&of_factors(0))?,
            engine.upload(&of_factors(1))?,
            engine.upload(&of_factors(2))?,
        ];
        let tensors = [q, k, v, o];
        let [q, k, v, o] = core::array::from_fn(|i| tensors[i].placed(buffers[i].address));
        let mut call = AttentionCall {
            log_sum_exp: buffers[4].address,
            sinks: if spec.sinks { buffers[5].address } else { 0 },
            counts: self.counts.clone(),
            reals: self.reals.clone(),
            ..if spec.is_latent() {
                AttentionCall::latent(problem, [q, k], o)
            } else {
                AttentionCall::new(problem, [q, k, v], o)
            }
        };
        if spec.lengths == Lengths::Packed {
            call.packed = Packed { begins: [buffers[6].address, buffers[7].address], rows: [queries, keys] };
        }
        if spec.pages.is_some() {
            let [lengths, table] = [buffers[8].address, buffers[9].address];
            call.pages = Pages { lengths, table, each, count: in_cache };
        }
        if scaled {
            let of_q = if spec.cache.is_some() { 0 } else { buffers[10].address };
            let addresses = [of_q, buffers[11].address, buffers[12].address];
            call.factors = Factors { addresses, per_head: self.per_head };
        }
        call.workspace = engine.workspace(kernel.workspace(&call))?;
        buffers.extend(call.workspace);
        Ok(Uploaded { case: self, kernel, tensors, buffers, sinks, factors, sequences, pages, call })
    }

    /// Q, K and V, for the extents of each: sequences or pages, heads, and rows.
    fn operands(
        &self,
        of_queries: [u32; 3],
        [of_keys, of_values]: [[u32; 3]; 2],
        [format, cache]: [Format; 2],
        [d, dv]: [u32; 2],
    ) -> [Tensor; 3] {
        let mut random = fastrand::Rng::with_seed(self.seed);
        let mut operand = |extents, query: bool| {
            let format = if query { format } else { cache };
            let mut index = 0;
            match self.values {
                Values::Normal(scale) => {
                    // Three uniform numbers: about normal, with a variance of 1.
                    let mut normal = || (0..3).map(|_| random.f64() * 2.0 - 1.0).sum::<f64>() * scale.sqrt();
                    let pool = Pool::new(|| format.round(normal()));
                    Tensor::new(format, self.layout, extents, pool.elements(d, &mut random))
                }
                Values::Large(scale) => Tensor::new(format, self.layout, extents, || {
                    let column = index % d;
                    index += 1;
                    let one = column == 3 || query && column == 9;
                    let size = scale.sqrt() * f64::from(d).powf(0.25) * (0.5 + random.f64());
                    format.round(if !one {
                        0.0
                    } else if random.bool() {
                        size
                    } else {
                        -size
                    })
                }),
            }
        };
        let with = |[batch, heads, rows]: [u32; 3], d| [batch, heads, rows, d];
        let q = operand(with(of_queries, d), true);
        let k = operand(with(of_keys, d), false);
        [q, k, self.uniform(0x1234, cache, with(of_values, dv))]
    }

    /// Uniform numbers from -2 to 2.
    fn uniform(&self, seed: u64, format: Format, extents: [u32; 4]) -> Tensor {
        let mut random = fastrand::Rng::with_seed(self.seed ^ seed);
        let pool = Pool::new(|| format.round(random.f64() * 4.0 - 2.0));
        Tensor::new(format, self.layout, extents, pool.elements(extents[3], &mut random))
    }
}

/// Where the rows of K and V are.
struct Keys<'a> {
    spec: &'a AttentionSpec,
    pages: &'a [Vec<u32>],
    extents: [u32; 3],
}

impl Keys<'_> {
    /// The row of a head of a sequence's key in `(batch, heads, rows)`. With the sequence come the keys before it.
    fn row(&self, (sequence, before): (usize, u32), head: u32, key: u32) -> usize {
        let [_, heads, rows] = self.extents.map(|extent| extent as usize);
        let (head, key) = (head as usize, key as usize);
        let (first, row) = match (self.spec.pages, self.spec.lengths) {
            (Some(_), _) => (self.pages[sequence][key / rows] as usize, key % rows),
            (None, Lengths::Equal) => (sequence, key),
            (None, Lengths::Packed) => (0, before as usize + key),
        };
        (first * heads + head) * rows + row
    }
}

impl Uploaded<'_> {
    /// Makes O and the log-sum-exp NaN again.
    fn clear(&self, engine: &mut dyn Engine) -> Result<(), EngineError> {
        let [_, _, _, o] = &self.tensors;
        engine.write(self.buffers[3], &o.bytes)?;
        engine.write(self.buffers[4], &[0xff; 4].repeat(o.rows() + 8))
    }

    /// Compares what a launch of the call has written.
    ///
    /// # Errors
    /// The first wrong result, or a failure of the engine.
    pub fn compare(&self, engine: &mut dyn Engine) -> Result<Checked, AttentionFault> {
        let [_, _, _, o] = &self.tensors;
        let (after, lse) = (engine.read(self.buffers[3])?, engine.read(self.buffers[4])?);
        let count = o.rows();
        if !o.is_same_around(&after) {
            return Err(AttentionFault::Memory("memory around O was written"));
        }
        if o.keeps_an_element(&after) {
            return Err(AttentionFault::Memory("an element of O was not written"));
        }
        if lse[count * 4..].iter().any(|&byte| byte != 0xff) {
            return Err(AttentionFault::Memory("memory after the log-sum-exp was written"));
        }
        if lse[..count * 4].chunks_exact(4).any(|bits| bits == [0xff; 4]) {
            return Err(AttentionFault::Memory("a log-sum-exp was not written"));
        }
        let mut checked = Checked { rows: count.min(self.case.rows), ..Checked::default() };
        let mut random = fastrand::Rng::with_seed(self.case.seed);
        for i in 0..checked.rows {
            let index = if checked.rows == count { i } else { random.usize(0..count) };
            self.compare_row(index, [&after, &lse], &mut checked)?;
        }
        Ok(checked)
    }

    fn compare_row(
        &self,
        index: usize,
        [after, lse]: [&[u8]; 2],
        checked: &mut Checked,
    ) -> Result<(), AttentionFault> {
        let [q, k, v, o] = &self.tensors;
        let AttentionProblem { heads: [heads, shared], scale, .. } = self.case.problem;
        let spec = self.kernel.plan().spec;
        let all_queries = q.extents[2];
        let [first, h, row] = [
            index as u32 / all_queries / heads,
            index as u32 / all_queries % heads,
            index as u32 % all_queries,
        ];
        let b = match spec.lengths {
            Lengths::Equal => first as usize,
            Lengths::Packed => self.sequences.partition_point(|of| of.before[0] + of.rows[0] <= row),
        };
        let equal = Sequence { before: [0; 2], rows: [all_queries, k.extents[2]] };
        let Sequence { before, rows: [queries, keys] } = self.sequences.get(b).copied().unwrap_or(equal);
        let r = if spec.lengths == Lengths::Packed { row - before[0] } else { row };
        let counts: Vec<i64> = self.case.counts.iter().map(|&count| count.into()).collect();
        let reals: Vec<_> = self.case.reals.iter().map(|&real| Bounded::exact(real.into())).collect();
        let of = Scope {
            queries: i64::from(queries),
            keys: i64::from(keys),
            head: h.into(),
            batch: b as i64,
            counts: &counts,
            reals: &reals,
        };
        let [pages, shared_heads, rows, _] = k.extents;
        let keys_of = Keys { spec: &spec, pages: &self.pages, extents: [pages, shared_heads, rows] };
        let query = q.values(index);
        let (mut row, mut seen) = (Row::new(q.format, spec.tile[1]), Vec::new());
        if spec.parts != Parts::One {
            row.merge();
        }
        if spec.sinks {
            row.sink(self.sinks[h as usize].into());
        }
        let [factor_q, factor_k, factor_v] = self
            .factors
            .each_ref()
            .map(|all| all.get((h / (heads / shared)) as usize).or(all.first()).copied().unwrap_or(1.0));
        let score = if q.format == Format::E4m3 { Score::of_bytes } else { Score::of };
        for key in (0..keys).filter(|&key| self.kernel.sees(&of, r.into(), key.into())) {
            let at = keys_of.row((b, before[1]), h / (heads / shared), key);
            let Score { value, error } = score(&query, &k.values(at), scale).times([factor_q, factor_k]);
            let place = [r, key].map(i64::from);
            let Bounded { value, error } = self.kernel.score(&of, place, Bounded::new(value, error));
            row.key(Score { value, error });
            seen.push(at);
        }
        row.factor(factor_v);
        let fault = |what: String, got: f64, wanted: Wanted| AttentionFault::Value {
            what,
            place: [b as u32, h, r],
            keys: row.keys(),
            got,
            wanted,
        };
        let bits = lse[index * 4..][..4].iter().rev().fold(0, |bits, &byte| bits << 8 | u32::from(byte));
        let (wanted, got) = (row.log_sum_exp(), f64::from(f32::from_bits(bits)));
        if !wanted.admits(bits.into()) {
            return Err(fault("the log-sum-exp".to_owned(), got, wanted));
        }
        checked.log_sum_exp.add(&wanted, got);
        let dv = o.extents[3] as usize;
        let of_key = |key: usize| match spec.is_latent() {
            true => k.values(seen[key])[..dv].to_vec(),
            false => v.values(seen[key]),
        };
        let wanted = row.outputs(o.format, dv, &of_key);
        for (column, (bits, wanted)) in o.row(after, index).zip(wanted).enumerate() {
            let got = o.format.decode(bits);
            if !wanted.admits(bits) {
                return Err(fault(format!("element {column} of O"), got, wanted));
            }
            checked.o.add(&wanted, got);
        }
        Ok(())
    }

    /// Frees the memory.
    ///
    /// # Errors
    /// The engine's.
    pub fn free(self, engine: &mut dyn Engine) -> Result<(), EngineError> {
        self.buffers.into_iter().try_for_each(|buffer| engine.free(buffer))
    }
}
