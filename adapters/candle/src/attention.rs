//! Attention of candle's tensors, with its gradient: equal sequences, sequences of different lengths, and pages of a cache.

use std::cell::Cell;
use std::sync::{Arc, Mutex, PoisonError};

use candle_core::{D, DType, Error, Layout, Result, Shape, Tensor, bail};
use falchion::attention::backward::{AttentionBackward, BackwardCall};
use falchion::attention::{
    ArrayRef, AttentionCall, AttentionProblem, AttentionRequest, HeadNumbers, HeadsRef, Lengths, Pages,
};
use falchion::collective::Format;
use falchion_core::{AskedHeads, Heads, Picks, Shared};

use crate::operation::{Of, Operation};
use crate::plain::{KEPT, Kept, Owned, Part, Stored, address};

/// What [`attention`] computes in addition to `softmax(scale * q * kᵀ) * v`.
#[derive(Clone, Debug, Default)]
pub struct Attention {
    /// A query sees the keys up to its own, where the last query stands at the last key.
    pub causal: bool,
    /// A query sees at most this number of keys before its own, and after it. A negative number is no limit.
    pub window: Option<[i32; 2]>,
    /// The factor of the scores; `None` is `1 / sqrt(d)`.
    pub scale: Option<f32>,
    /// Scores are `cap * tanh(score / cap)`.
    pub soft_cap: Option<f32>,
    /// What scores fall by per key of distance, `f32` of shape `(heads)` or `(sequences, heads)`. A cap comes first. It has no gradient.
    pub alibi_slopes: Option<Tensor>,
    /// A score of each head that takes part in the sum of weights and has no value, `f32` of shape `(heads)`. It has no gradient.
    pub sinks: Option<Tensor>,
    /// What becomes of scores, as text, in place of a cap and slopes: `x-slope[h]*abs(q-k)`. The language is that of `falchion::attention::formula`.
    pub score: Option<String>,
    /// Which keys a query sees, as text, in place of `causal` and `window`: `q>=k&q-k<128`.
    pub sees: Option<String>,
    /// The arrays of both texts by their names, with any strides, of the types that the texts say; `s32` arrays are tensors of `i32`. They have no gradient.
    pub arrays: Vec<(String, Tensor)>,
}

impl Attention {
    /// Refuses numbers that require a gradient and a cap that none has, and makes the others contiguous.
    fn ready(self) -> Result<Self> {
        let asked = AttentionRequest::new(AttentionProblem::new(1, 1, [1; 2], 64), 64);
        AttentionRequest { soft_cap: self.soft_cap, ..asked }.check().map_err(Error::wrap)?;
        let ready = |name: &str, of: Option<Tensor>| match of {
            Some(of) if of.track_op() => bail!("{name} requires a gradient, which it has none here"),
            of => of.map(|of| of.contiguous()).transpose(),
        };
        if let Some((name, _)) = self.arrays.iter().find(|(_, of)| of.track_op()) {
            bail!("the array {name} requires a gradient, which it has none here");
        }
        let (alibi_slopes, sinks) = (ready("alibi_slopes", self.alibi_slopes)?, ready("sinks", self.sinks)?);
        Ok(Self { alibi_slopes, sinks, ..self })
    }

    /// Says the slopes and the sinks, where the extents are known.
    fn say(&self, heads: &mut Heads, place: Stored<'_>) -> Result<()> {
        let AttentionProblem { batch, heads: [of_queries, _], .. } = heads.request.problem;
        let [batch, of_queries] = [batch, of_queries].map(|extent| extent as usize);
        let at = |name: &str, of: &Tensor, fits: bool, needed: String| {
            if of.dtype() != DType::F32 || !fits {
                bail!("{name} has shape {:?} of {:?}, f32 of {needed} was needed", of.dims(), of.dtype());
            }
            address(name, of, place)
        };
        if let Some(of) = &self.alibi_slopes {
            let per_sequence = of.rank() == 2;
            let fits = of.dims() == [of_queries] || of.dims() == [batch, of_queries];
            let needed = format!("({of_queries}) or ({batch}, {of_queries})");
            let addresses = vec![at("alibi_slopes", of, fits, needed)?];
            heads.request.alibi = true;
            heads.call.head_numbers = HeadNumbers { addresses, per_sequence };
        }
        if let Some(of) = &self.sinks {
            heads.request.sinks = true;
            heads.call.sinks = at("sinks", of, of.dims() == [of_queries], format!("({of_queries})"))?;
        }
        self.formulas(heads, place)
    }

    /// Says the formulas and their arrays.
    fn formulas(&self, heads: &mut Heads, place: Stored<'_>) -> Result<()> {
        let Self { score, sees, .. } = self;
        heads.request.score = score.as_ref().map(|text| text.parse().map_err(Error::wrap)).transpose()?;
        heads.request.sees = sees.as_ref().map(|text| text.parse().map_err(Error::wrap)).transpose()?;
        let needed = heads.request.arrays();
        for (name, of) in &self.arrays {
            let Some((_, format, dimensions)) = needed.iter().find(|(known, ..)| known == name) else {
                bail!("arrays has {name}, which neither score nor sees reads: arrays of their names were needed");
            };
            let dtype = match format {
                Format::F32 => DType::F32,
                Format::Bf16 => DType::BF16,
                Format::F16 => DType::F16,
                Format::E4m3 => DType::F8E4M3,
                Format::S32 => DType::I32,
                Format::U8 => DType::U8,
                _ => bail!("the array {name} is of {format}, which candle has no tensors of"),
            };
            if of.dtype() != dtype || of.rank() != *dimensions {
                let (dims, found) = (of.dims(), of.dtype());
                bail!("the array {name} has shape {dims:?} of {found:?}, {dimensions} dimensions of {dtype:?} were needed");
            }
            let shape = of.dims().iter().map(|&extent| number(extent)).collect::<Result<Vec<_>>>()?;
            let strides = of.layout().stride().iter().map(|&stride| stride as u64).collect();
            let array = ArrayRef { address: address(name, of, place)?, shape, strides };
            heads.arrays.push((name.clone(), array));
        }
        Ok(())
    }
}

/// `softmax(scale * q * kᵀ) * v` per head, without the scores in memory. `q` has shape `(batch, heads, length, d)`, `k` and `v`
/// `(batch, groups, keys, d)`, where `heads` is a multiple of `groups`: consecutive heads of `q` share one of `k` and `v`.
///
/// Tensors are `bf16` or `f16`, with heads of 32 to 256 elements, a multiple of 16, or without a gradient of 512. Views of a cache, and heads that follow the
/// length, are read as they lie if each head is contiguous. On a CPU the kernel runs in
/// falchion's emulator; `f32`, on a CPU alone, is computed by candle's own operations.
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use falchion_candle::{Attention, attention};
///
/// let q = Tensor::randn(0f32, 1., (1, 4, 5, 64), &Device::Cpu)?.to_dtype(DType::F16)?;
/// let cache = Tensor::randn(0f32, 1., (1, 2, 32, 64), &Device::Cpu)?.to_dtype(DType::F16)?;
/// let seen = cache.narrow(2, 0, 9)?;
/// let y = attention(&q, &seen, &seen, Attention { causal: true, ..Attention::default() })?;
/// assert_eq!(y.dims(), [1, 4, 5, 64]);
/// # Ok::<(), candle_core::Error>(())
/// ```
///
/// # Errors
/// A shape or a type that does not fit; an error of candle or of the driver.
pub fn attention(q: &Tensor, k: &Tensor, v: &Tensor, what: Attention) -> Result<Tensor> {
    let what = what.ready()?;
    if q.dtype() == DType::F32 && q.device().is_cpu() {
        return plain(q, k, v, &what);
    }
    let recorded = [q, k, v].iter().any(|x| x.track_op());
    let op = Op { what, sequences: Sequences::Equal, sums: recorded.then(Mutex::default) };
    let [q, k, v] = [q, k, v].map(readable);
    q?.apply_op3(&k?, &v?, Of(op))
}

/// Where sequences of different lengths begin.
#[derive(Clone, Debug)]
pub struct Lines {
    /// `sequences + 1` numbers (`u32`): the sums of the lengths before. The first is 0, the last is the number of all rows.
    pub begins: Tensor,
    /// The longest. A longer sequence has wrong results.
    pub longest: usize,
}

/// [`attention`] of sequences of different lengths, which follow each other without gaps. `q` has shape `(all queries, heads, d)`, `k` and
/// `v` `(all keys, groups, d)`. It has a gradient for Q, K and V, as [`attention`] has.
///
/// # Errors
/// As [`attention`].
pub fn attention_varlen(
    (q, queries): (&Tensor, &Lines),
    [k, v]: [&Tensor; 2],
    keys: &Lines,
    what: Attention,
) -> Result<Tensor> {
    let what = what.ready()?;
    let [queries, keys] = [queries, keys].map(|lines| {
        table("begins", &lines.begins, 1).map(|begins| Lines { begins, longest: lines.longest })
    });
    let recorded = [q, k, v].iter().any(|x| x.track_op());
    let op =
        Op { what, sequences: Sequences::Packed([queries?, keys?]), sums: recorded.then(Mutex::default) };
    // Rows before heads: a view with the heads first.
    let [q, k, v] = [q, k, v].map(|x| readable(&x.transpose(0, 1)?.unsqueeze(0)?));
    q?.apply_op3(&k?, &v?, Of(op))?.squeeze(0)?.transpose(0, 1)
}

/// [`attention`] with keys in pages of a cache. `q` has shape `(batch, heads, length, d)`, `k` and `v` `(pages, groups, keys of a page,
/// d)`, of 16 to 256 keys. `table`, `(batch, pages of a sequence)`, has the pages of each sequence in the order of its keys, and
/// `lengths`, `(batch)`, its number of keys, both `u32`. Entries after a sequence's last page may be anything. It has no gradient.
///
/// # Errors
/// As [`attention`]; on a CPU also a page that is not in the cache.
pub fn attention_paged(
    q: &Tensor,
    [k, v]: [&Tensor; 2],
    (table, lengths): (&Tensor, &Tensor),
    what: Attention,
) -> Result<Tensor> {
    let (table, lengths) = (self::table("table", table, 2)?, self::table("lengths", lengths, 1)?);
    let what = what.ready()?;
    let op = Op { what, sequences: Sequences::Paged { table, lengths }, sums: None };
    let [q, k, v] = [q, k, v].map(readable);
    q?.apply_op3_no_bwd(&k?, &v?, &Of(op))
}

/// [`attention`], with the log-sum-exp: the logarithms of the sums of exponentials of each query's scores, `(batch, heads, length)` in `f32`, by which
/// [`merge_attention`](crate::merge_attention) merges results over different keys. `pages` are the table and the lengths of [`attention_paged`]. It has no gradient.
///
/// # Errors
/// As [`attention_paged`].
pub fn attention_with_sums(
    q: &Tensor,
    [k, v]: [&Tensor; 2],
    pages: Option<(&Tensor, &Tensor)>,
    what: Attention,
) -> Result<(Tensor, Tensor)> {
    let what = what.ready()?;
    let sequences = match pages {
        None => Sequences::Equal,
        Some((table, lengths)) => Sequences::Paged {
            table: self::table("table", table, 2)?,
            lengths: self::table("lengths", lengths, 1)?,
        },
    };
    let op = Of(Op { what, sequences, sums: Some(Mutex::default()) });
    let [q, k, v] = [q, k, v].map(readable);
    let o = q?.apply_op3_no_bwd(&k?, &v?, &op)?;
    let sums = op.0.sums.and_then(|sums| sums.into_inner().unwrap_or_else(PoisonError::into_inner));
    sums.map_or_else(|| bail!("attention has no log-sum-exp"), |sums| Ok((o, sums)))
}

/// A packed table of `u32`.
fn table(name: &str, table: &Tensor, rank: usize) -> Result<Tensor> {
    if table.dtype() != DType::U32 || table.rank() != rank {
        bail!(
            "{name} has shape {:?} of {:?}, u32 in {rank} dimensions was needed",
            table.dims(),
            table.dtype()
        );
    }
    table.contiguous()
}

/// The tensor as a kernel reads it: as it lies, or a copy.
pub(crate) fn readable(tensor: &Tensor) -> Result<Tensor> {
    let layout = tensor.layout();
    let Some((&step, strides)) = layout.stride().split_last() else { return tensor.contiguous() };
    // Addresses and strides are multiples of 16 bytes.
    let multiples = strides.iter().chain([&layout.start_offset()]).all(|at| at % 8 == 0);
    let alone = |(&extent, &stride): (&usize, &usize)| extent < 2 || stride > 0;
    if step == 1 && multiples && tensor.dims().iter().zip(layout.stride()).all(alone) {
        return Ok(tensor.clone());
    }
    // `contiguous` keeps a packed tensor at an odd place of its storage.
    if tensor.is_contiguous() { tensor.copy() } else { tensor.contiguous() }
}

/// By candle's operations.
fn plain(q: &Tensor, k: &Tensor, v: &Tensor, what: &Attention) -> Result<Tensor> {
    let Attention { causal, window, scale, soft_cap, alibi_slopes, sinks, score, sees, .. } = what;
    if score.is_some() || sees.is_some() {
        bail!("score and sees with tensors of f32 on a CPU, bf16 or f16 were needed");
    }
    let (_, heads, length, d) = q.dims4()?;
    let (batch, groups, keys, _) = k.dims4()?;
    let shared = |x: &Tensor| -> Result<Tensor> {
        let (last, share) = (x.dim(3)?, heads / groups.max(1));
        let x = x.unsqueeze(2)?.broadcast_as((batch, groups, share, keys, last))?;
        x.reshape((batch, heads, keys, last))?.contiguous()
    };
    let scale = scale.map_or_else(|| (d as f64).sqrt().recip(), f64::from);
    let mut scores = (q.contiguous()?.matmul(&shared(k)?.t()?.contiguous()?)? * scale)?;
    if let Some(cap) = soft_cap.map(f64::from) {
        scores = ((scores / cap)?.tanh()? * cap)?;
    }
    if let Some(slopes) = alibi_slopes {
        let away = |at: usize| ((at % keys + length) as f32 - (at / keys + keys) as f32).abs();
        let away: Vec<f32> = (0..length * keys).map(away).collect();
        let away = Tensor::from_vec(away, (length, keys), q.device())?;
        let slopes = slopes.reshape((slopes.elem_count() / heads.max(1), heads, 1, 1))?;
        scores = scores.broadcast_sub(&slopes.broadcast_mul(&away)?)?;
    }
    if *causal || window.is_some() {
        let [left, right] = window.unwrap_or([-1; 2]).map(i64::from);
        let right = if *causal { 0 } else { right };
        let cell = |at: usize| {
            let after = (at % keys + length) as i64 - (at / keys + keys) as i64;
            let seen = (left < 0 || -after <= left) && (right < 0 || after <= right);
            if seen { 0.0 } else { f32::NEG_INFINITY }
        };
        let mask: Vec<f32> = (0..length * keys).map(cell).collect();
        scores = scores.broadcast_add(&Tensor::from_vec(mask, (length, keys), q.device())?)?;
    }
    let weights = match sinks {
        None => candle_nn::ops::softmax(&scores, D::Minus1)?,
        Some(sinks) => {
            let sinks = sinks.reshape((1, heads, 1, 1))?.broadcast_as((batch, heads, length, 1))?;
            let all = Tensor::cat(&[&scores, &sinks.contiguous()?], D::Minus1)?;
            candle_nn::ops::softmax(&all, D::Minus1)?.narrow(D::Minus1, 0, keys)?.contiguous()?
        }
    };
    weights.matmul(&shared(v)?)
}

/// Where the sequences are.
#[derive(Clone)]
enum Sequences {
    Equal,
    Packed([Lines; 2]),
    Paged { table: Tensor, lengths: Tensor },
}

/// Attention as an operation.
struct Op {
    what: Attention,
    sequences: Sequences,
    /// The log-sum-exp, if there will be a gradient.
    sums: Option<Mutex<Option<Tensor>>>,
}

/// A request with its call, and the shape of the result.
struct Asked {
    request: AttentionRequest,
    call: AttentionCall,
    shape: [usize; 4],
}

pub(crate) fn number(extent: usize) -> Result<u32> {
    u32::try_from(extent).map_err(Error::wrap)
}

/// Where the heads of a layout are.
pub(crate) fn heads_of(layout: &Layout, address: u64) -> HeadsRef {
    let stride = |i: usize| {
        // After the only one nothing follows: any legal distance.
        let alone = layout.dims()[i] < 2;
        if alone { layout.dims()[3].next_multiple_of(8) as u64 } else { layout.stride()[i] as u64 }
    };
    HeadsRef { address, row: stride(2), head: stride(1), batch: stride(0) }
}

impl Op {
    /// The request for tensors with these layouts and addresses, and its call.
    fn asked(
        &self,
        (place, format): (Stored<'_>, Format),
        [q, k, v]: [&Layout; 3],
        [of_q, of_k, of_v, of_o]: [u64; 4],
    ) -> Result<Asked> {
        let dims = || format!("q has shape {:?}, k {:?} and v {:?}", q.dims(), k.dims(), v.dims());
        let (&[batch, heads, length, d], &[batches, groups, rows, d_k], &[batches_v, groups_v, rows_v, dv]) =
            (q.dims(), k.dims(), v.dims())
        else {
            bail!("{}: (batch, heads, length, d) of each was needed", dims());
        };
        if batches != batches_v || groups_v != groups || rows_v != rows || d_k != d {
            bail!("{}: the same d, and the same batch, heads and length of k and v, were needed", dims());
        }
        if matches!(self.sequences, Sequences::Equal) && batches != batch {
            bail!("{}: the same batch was needed", dims());
        }
        let problem = AttentionProblem { batch: number(batch)?, ..AttentionProblem::default() };
        let problem = AttentionProblem { heads: [number(heads)?, number(groups)?], ..problem };
        let request = AttentionRequest { format, output: format, ..AttentionRequest::new(problem, 0) };
        let request = AttentionRequest { head: [number(d)?, number(dv)?], workspace: true, ..request };
        let Attention { causal, window, scale, soft_cap, .. } = self.what;
        let request = AttentionRequest { soft_cap, ..request };
        let mut asked = Heads { causal, window, scale, ..Heads::new(request) };
        (asked.shared, asked.dv) = (Some(number(groups)?), Some(number(dv)?));
        self.tables(&mut asked, [q, k], place)?;
        self.what.say(&mut asked, place)?;
        let o = HeadsRef::heads_first(of_o, [number(heads)?, number(length)?, number(dv)?]);
        let asked = asked.at([heads_of(q, of_q), heads_of(k, of_k), heads_of(v, of_v), o]);
        if asked.request.is_latent() {
            bail!(
                "{}: heads of 576 with 512 of v are latent attention, which has no function here: use AttentionCall::latent",
                dims()
            );
        }
        let AskedHeads { request, call } = asked.asked().map_err(Error::wrap)?;
        Ok(Asked { request, call, shape: [batch, heads, length, dv] })
    }

    /// Says the lengths of sequences, and their tables.
    fn tables(&self, heads: &mut Heads, [q, k]: [&Layout; 2], place: Stored<'_>) -> Result<()> {
        let (rows, of_keys) = (q.dims()[2], k.dims()[2]);
        let (batch, longest) = match &self.sequences {
            Sequences::Equal => (q.dims()[0], [rows, of_keys]),
            Sequences::Packed(sides) => {
                let [of_queries, of_keys_too] = sides;
                let batch = of_queries.begins.elem_count().saturating_sub(1);
                if batch == 0 || of_keys_too.begins.elem_count() != batch + 1 {
                    bail!(
                        "queries.begins has shape {:?} and keys.begins {:?}, one number more than sequences in both was needed",
                        of_queries.begins.dims(),
                        of_keys_too.begins.dims()
                    );
                }
                heads.request.lengths = Lengths::Packed;
                for (i, Lines { begins, .. }) in sides.iter().enumerate() {
                    heads.call.packed.begins[i] = address("begins", begins, place)?;
                }
                heads.call.packed.rows = [number(rows)?, number(of_keys)?];
                (batch, [of_queries.longest, of_keys_too.longest])
            }
            Sequences::Paged { table, lengths } => {
                let (batch, each) = table.dims2()?;
                if batch != q.dims()[0] || lengths.dims() != [batch] {
                    bail!(
                        "table has shape {:?} and lengths {:?}, ({}, pages) and ({}) were needed",
                        table.dims(),
                        lengths.dims(),
                        q.dims()[0],
                        q.dims()[0]
                    );
                }
                heads.request.pages = Some(number(of_keys)?);
                heads.call.pages = Pages {
                    lengths: address("lengths", lengths, place)?,
                    table: address("table", table, place)?,
                    each: number(each)?,
                    count: number(k.dims()[0])?,
                };
                if place.card().is_none() {
                    let (lengths, table) =
                        (lengths.to_vec1::<u32>()?, table.flatten_all()?.to_vec1::<u32>()?);
                    heads.call.pages.check(number(of_keys)?, &lengths, &table).map_err(Error::msg)?;
                }
                (batch, [rows, each * of_keys])
            }
        };
        let problem = &mut heads.request.problem;
        (problem.batch, problem.queries, problem.keys) =
            (number(batch)?, number(longest[0])?, number(longest[1])?);
        Ok(())
    }
}

impl Operation<3> for Op {
    const NAME: &'static str = "falchion-attention";

    fn run(&self, tensors: [Part<'_>; 3]) -> Result<(Owned, Shape)> {
        let (place, _) = tensors[0];
        let format = place.format("q")?;
        if tensors.iter().any(|(of, _)| of.dtype() != place.dtype()) {
            bail!("q, k and v are of other types, bf16 or f16, of all three, was needed");
        }
        let layouts = tensors.map(|(_, layout)| layout);
        let [q, k, v] = tensors.map(|(of, layout)| of.address(layout));
        let Asked { request, mut call, shape } = self.asked((place, format), layouts, [q, k, v, 0])?;
        let kernel = kernel(&request, place)?;
        let mut o = place.room(place.dtype(), shape.iter().product())?;
        call.o.address = o.address();
        let mut sums =
            self.sums.as_ref().map(|_| place.room(DType::F32, shape[..3].iter().product())).transpose()?;
        call.log_sum_exp = sums.as_mut().map_or(0, Owned::address);
        #[allow(unsafe_code, reason = "the kernel reads and writes the tensors' memory")]
        // SAFETY: candle's layouts stay inside of their storage, and the results have the elements of their shapes.
        unsafe { kernel.run(place, call) }?;
        if let (Some(to), Some(sums)) = (&self.sums, sums) {
            *to.lock().unwrap_or_else(PoisonError::into_inner) = Some(sums.tensor(&shape[..3]));
        }
        Ok((o, shape.as_slice().into()))
    }

    fn gradients(&self, [q, k, v]: [&Tensor; 3], o: &Tensor, grad: &Tensor) -> Result<[Option<Tensor>; 3]> {
        let sums =
            self.sums.as_ref().and_then(|sums| sums.lock().unwrap_or_else(PoisonError::into_inner).clone());
        let Some(sums) = sums else { bail!("attention without a gradient was differentiated") };
        let (o, grad) = (o.contiguous()?, readable(grad)?);
        // The log-sum-exp has the sinks.
        let what = Attention { sinks: None, ..self.what.clone() };
        let gradient = Gradient { what, sequences: self.sequences.clone(), o, grad, sums };
        let all = q.apply_op3_no_bwd(k, v, &Of(gradient))?;
        let mut begin = 0;
        let [of_q, of_k, of_v] = [q, k, v].map(|x| {
            let part = all.narrow(0, begin, x.elem_count());
            begin += x.elem_count();
            part?.reshape(x.shape())
        });
        Ok([Some(of_q?), Some(of_k?), Some(of_v?)])
    }
}

thread_local! {
    /// Kernels to measure for what is called now; `None` if nothing is measured.
    static BUDGET: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Runs what calls attention, or takes its gradients, on a card: for each call up to `budget` kernels are measured, and the fastest runs. The
/// times are kept on disk (in the folder that `FALCHION_CACHE` names, or the user's for caches); calls of the same shapes, types, masks and lengths on
/// this card take that kernel from then on, in this process and in later ones. What was measured before is not measured again. It takes
/// seconds, and memory for another copy of the tensors. Of attention of sequences of different lengths, and of pages, it is the same.
///
/// ```no_run
/// use candle_core::{DType, Device, Tensor, Var};
/// use falchion_candle::{Attention, attention, tuned};
///
/// let device = Device::new_cuda(0)?;
/// let of = |heads| Tensor::randn(0f32, 1., (4, heads, 4096, 128), &device)?.to_dtype(DType::BF16);
/// let (q, k) = (Var::from_tensor(&of(32)?)?, of(8)?);
/// let y = tuned(24, || attention(&q, &k, &k, Attention { causal: true, ..Attention::default() }))?;
/// let gradients = tuned(8, || y.backward())?;
/// # Ok::<(), candle_core::Error>(())
/// ```
///
/// # Errors
/// Those of what runs; tensors that are not on a card.
pub fn tuned<T>(budget: u32, run: impl FnOnce() -> Result<T>) -> Result<T> {
    /// What was asked before, to be asked again whatever happens.
    struct Before(Option<u32>);
    impl Drop for Before {
        fn drop(&mut self) {
            BUDGET.set(self.0);
        }
    }
    let _before = Before(BUDGET.replace(Some(budget)));
    run()
}

/// The kernel for a request in a place, of those that were picked.
fn picked<K: Shared>(
    all: &Picks<K, Kept<K>>,
    request: &K::Request<'_>,
    place: Stored<'_>,
) -> Result<Arc<Kept<K>>> {
    let found = match (BUDGET.get(), place.card()) {
        (None, card) => all.get(request, None, card, Kept::new),
        (Some(budget), Some(card)) => all.tuned(request, card, budget, Kept::new),
        (Some(_), None) => bail!("q is in the host's memory, one on a card was needed to measure kernels"),
    };
    found.map_err(Error::wrap)
}

/// The kernel for a request in a place.
fn kernel(
    request: &AttentionRequest,
    place: Stored<'_>,
) -> Result<Arc<Kept<falchion::attention::Attention>>> {
    static ALL: Picks<falchion::attention::Attention, Kept<falchion::attention::Attention>> =
        Picks::new(KEPT);
    picked(&ALL, request, place)
}

/// The gradients of Q, K and V, one after the other.
struct Gradient {
    what: Attention,
    sequences: Sequences,
    o: Tensor,
    grad: Tensor,
    sums: Tensor,
}

impl Operation<3> for Gradient {
    const NAME: &'static str = "falchion-attention-gradient";

    fn run(&self, tensors: [Part<'_>; 3]) -> Result<(Owned, Shape)> {
        let (place, _) = tensors[0];
        let layouts = tensors.map(|(_, layout)| layout);
        let op = Op { what: self.what.clone(), sequences: self.sequences.clone(), sums: None };
        let [q, k, v] = tensors.map(|(of, layout)| of.address(layout));
        let of_o = address("o", &self.o, place)?;
        let Asked { request, call, .. } = op.asked((place, place.format("q")?), layouts, [q, k, v, of_o])?;
        let kernel = backward(&request, place)?;
        let [of_q, of_k, of_v] = layouts.map(|layout| layout.shape().elem_count());
        let mut all = place.room(place.dtype(), of_q + of_k + of_v)?;
        let first = all.address();
        let packed = |before: usize, layout: &Layout| {
            let address = first + (before * place.dtype().size_in_bytes()) as u64;
            heads_of(&Layout::contiguous(layout.shape().clone()), address)
        };
        let d_o = heads_of(self.grad.layout(), address("the gradient of o", &self.grad, place)?);
        let log_sum_exp = address("the log-sum-exp", &self.sums, place)?;
        let forward = AttentionCall { o: heads_of(self.o.layout(), of_o), log_sum_exp, ..call };
        let gradients = [packed(0, layouts[0]), packed(of_q, layouts[1]), packed(of_q + of_k, layouts[2])];
        let call = BackwardCall::of(forward, d_o, gradients);
        #[allow(unsafe_code, reason = "the kernel reads and writes the tensors' memory")]
        // SAFETY: candle's layouts stay inside of their storage, and the results have the elements of their shapes.
        unsafe { kernel.run(place, call) }?;
        Ok((all, (of_q + of_k + of_v).into()))
    }
}

/// The kernel for the gradient of a request in a place.
fn backward(request: &AttentionRequest, place: Stored<'_>) -> Result<Arc<Kept<AttentionBackward>>> {
    static ALL: Picks<AttentionBackward, Kept<AttentionBackward>> = Picks::new(KEPT);
    picked(&ALL, request, place)
}

#[cfg(test)]
mod tests;
