//! What surrounds attention: two of its results as one, and new keys and values in pages of a cache.

use std::sync::{Mutex, PoisonError};

#[cfg(feature = "cuda")]
use candle_core::CudaStorage;
use candle_core::{CpuStorage, DType, Error, InplaceOp3, Layout, Result, Shape, Tensor, bail};
use falchion::attention::HeadsRef;
use falchion::collective::Format;
use falchion::rows::{AppendedPages, MergedAttention, RowCall, RowProblem, Rows};
use falchion_core::{MergedHeads, NewKeys, Picks};

use crate::attention::{heads_of, number, readable};
use crate::operation::{Of, Operation};
use crate::plain::{KEPT, Kept, Owned, Part, Stored, address};

/// Merges two results of attention over different keys, each with its log-sum-exp, as of a prefix that sequences share and of the rest: what attention
/// of all keys returns. Results have shape `(batch, heads, length, d)`, in `bf16`, `f16` or `f32`, and log-sum-exps `(batch, heads, length)`, in `f32`;
/// [`attention_with_sums`](crate::attention_with_sums) returns both. A row whose log-sum-exp is minus infinity has no keys: it becomes the other one, bit for bit.
/// `d` is a multiple of 8. It has no gradient. On a CPU the kernel runs in falchion's emulator.
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use falchion_candle::{Attention, attention_with_sums, merge_attention};
///
/// let random = |keys| Tensor::randn(0f32, 1., (1, 2, keys, 64), &Device::Cpu)?.to_dtype(DType::F16);
/// let (q, prefix, own) = (random(3)?, random(40)?, random(9)?);
/// let [before, after] =
///     [&prefix, &own].map(|keys| attention_with_sums(&q, [keys, keys], None, Attention::default()));
/// let (o, sums) = merge_attention(before?, after?)?;
/// assert_eq!((o.dims(), sums.dims()), (&[1, 2, 3, 64][..], &[1, 2, 3][..]));
/// # Ok::<(), candle_core::Error>(())
/// ```
///
/// # Errors
/// A shape or a type that does not fit; an error of candle or of the driver.
pub fn merge_attention(a: (Tensor, Tensor), b: (Tensor, Tensor)) -> Result<(Tensor, Tensor)> {
    let [sums_a, sums_b] = [&a.1, &b.1].map(Tensor::contiguous);
    let merge = Of(Merge { sums: [sums_a?, sums_b?], merged: Mutex::default() });
    let o = readable(&a.0)?.apply_op2_no_bwd(&readable(&b.0)?, &merge)?;
    let merged = merge.0.merged.into_inner().unwrap_or_else(PoisonError::into_inner);
    merged.map_or_else(|| bail!("a merge has no log-sum-exp"), |merged| Ok((o, merged)))
}

/// Writes new keys, and values, to pages of a cache: row `i` of each tensor of `new`, `(tokens, groups, d)`, becomes key `slots[i] % page` of page
/// `slots[i] / page` of the tensor of `caches` in its place, `(pages, groups, page, d)`, as [`attention_paged`](crate::attention_paged) takes it, or a view of that shape. All
/// other keys stay as they are. Tensors are `bf16` or `f16`, and `d` is a multiple of 8; those of keys and of values may differ, and in latent attention there are keys alone. `slots`
/// `(tokens)` is `i32` or `i64`, where -1 leaves a row out, or `u32`, where `u32::MAX` does; no two rows have another slot in common.
///
/// Caches are written where they are: whoever holds a view of one sees the keys. On a CPU the kernel runs in falchion's emulator.
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use falchion_candle::append_pages;
///
/// let cache = Tensor::zeros((3, 2, 16, 64), DType::BF16, &Device::Cpu)?;
/// let new = Tensor::ones((2, 2, 64), DType::BF16, &Device::Cpu)?;
/// append_pages([&new], [&cache], &Tensor::new(&[17i64, -1], &Device::Cpu)?)?;
/// let key = cache.get(1)?.narrow(1, 1, 1)?.to_dtype(DType::F32)?;
/// assert_eq!(key.sum_all()?.to_scalar::<f32>()?, 128.0);
/// # Ok::<(), candle_core::Error>(())
/// ```
///
/// # Errors
/// A shape or a type that does not fit; on a CPU also a slot that is not in the cache, or that two rows have; an error of candle or of the driver.
pub fn append_pages<const N: usize>(new: [&Tensor; N], caches: [&Tensor; N], slots: &Tensor) -> Result<()> {
    let slots = slots.contiguous()?;
    for (rows, cache) in new.into_iter().zip(caches) {
        Append::fits([rows, cache, &slots])?;
    }
    for (rows, cache) in new.into_iter().zip(caches) {
        cache.inplace_op3(&readable(rows)?, &slots, &Append)?;
    }
    Ok(())
}

/// A merge as an operation.
struct Merge {
    sums: [Tensor; 2],
    /// The merged log-sum-exp.
    merged: Mutex<Option<Tensor>>,
}

impl Operation<2> for Merge {
    const NAME: &'static str = "falchion-merge-attention";

    fn run(&self, tensors: [Part<'_>; 2]) -> Result<(Owned, Shape)> {
        let [(place, of_a), (other, of_b)] = tensors;
        let format = if place.dtype() == DType::F32 { Format::F32 } else { place.format("a")? };
        let &[batch, heads, rows, d] = of_a.dims() else {
            bail!("a has shape {:?}, (batch, heads, length, d) was needed", of_a.dims());
        };
        if of_b.dims() != of_a.dims() || other.dtype() != place.dtype() {
            let (shape, of_type) = (of_b.dims(), other.dtype());
            bail!(
                "b has shape {shape:?} of {of_type:?}, {:?} of {:?} was needed",
                of_a.dims(),
                place.dtype()
            );
        }
        for (name, sums) in ["a's log-sum-exp", "b's log-sum-exp"].into_iter().zip(&self.sums) {
            if sums.dims() != [batch, heads, rows] || sums.dtype() != DType::F32 {
                let (shape, of_type) = (sums.dims(), sums.dtype());
                bail!(
                    "{name} has shape {shape:?} of {of_type:?}, [{batch}, {heads}, {rows}] of F32 was needed"
                );
            }
        }
        let mut o = place.room(place.dtype(), batch * heads * rows * d)?;
        let mut merged = place.room(DType::F32, batch * heads * rows)?;
        let [lse_a, lse_b] = [&self.sums[0], &self.sums[1]].map(|of| address("a log-sum-exp", of, place));
        let call = MergedAttention {
            shape: [number(batch)?, number(heads)?, number(rows)?, number(d)?],
            sums: [lse_a?, lse_b?],
            log_sum_exp: merged.address(),
            ..MergedAttention::default()
        };
        let to = heads_of(&Layout::contiguous(of_a.shape().clone()), o.address());
        let from = tensors.map(|(of, layout)| heads_of(layout, of.address(layout)));
        let asked = MergedHeads { format, call, ..MergedHeads::default() }.at([from[0], from[1], to]);
        run(place, (asked.request(), asked.call()))?;
        let merged = merged.tensor(&[batch, heads, rows]);
        *self.merged.lock().unwrap_or_else(PoisonError::into_inner) = Some(merged);
        Ok((o, of_a.shape().clone()))
    }
}

/// An append of one tensor, in place.
struct Append;

impl Append {
    /// Checks shapes and types.
    fn fits([rows, cache, slots]: [&Tensor; 3]) -> Result<()> {
        let (&[tokens, heads, d], &[_, groups, _, of_cache]) = (rows.dims(), cache.dims()) else {
            bail!(
                "new rows have shape {:?} and their cache {:?}, (tokens, groups, d) and (pages, groups, keys of a page, d) were needed",
                rows.dims(),
                cache.dims()
            );
        };
        if [heads, d] != [groups, of_cache] || rows.dtype() != cache.dtype() {
            bail!(
                "new rows have shape {:?} of {:?} and their cache {:?} of {:?}: the same groups, d and type were needed",
                rows.dims(),
                rows.dtype(),
                cache.dims(),
                cache.dtype()
            );
        }
        if slots.dims() != [tokens] || !matches!(slots.dtype(), DType::I32 | DType::I64 | DType::U32) {
            let (shape, of_type) = (slots.dims(), slots.dtype());
            bail!("slots has shape {shape:?} of {of_type:?}, [{tokens}] of I32, I64 or U32 was needed");
        }
        if rows.dtype() != DType::BF16 && rows.dtype() != DType::F16 {
            bail!("new rows are {:?}, bf16 or f16 was needed", rows.dtype());
        }
        let layout = cache.layout();
        if layout.stride()[3] != 1 && of_cache > 1 {
            let strides = layout.stride();
            bail!("a cache has strides {strides:?}, contiguous elements of a head were needed");
        }
        Ok(())
    }

    /// Runs it on a cache, which is written, new rows, and slots, whose shapes and types [fit](Self::fits).
    fn append([cache, rows, slots]: [Part<'_>; 3]) -> Result<()> {
        let (place, of_cache) = cache;
        let (&[pages, heads, keys, d], &[tokens, ..]) = (of_cache.dims(), rows.1.dims()) else {
            bail!("a cache of shape {:?}, four dimensions were needed", of_cache.dims());
        };
        let to = heads_of(of_cache, place.address(of_cache));
        let stride = |i: usize| rows.1.stride()[i] as u64;
        // Of the only one the stride may be anything.
        let head = if heads > 1 { stride(1) } else { (d as u64).next_multiple_of(8) };
        let row = if tokens > 1 { stride(0) } else { head };
        let from = HeadsRef { address: rows.0.address(rows.1), row, head, batch: row };
        let call = AppendedPages {
            rows: number(tokens)?,
            heads: number(heads)?,
            columns: [number(d)?, 0],
            pages: [number(pages)?, number(keys)?],
            slots: slots.0.address(slots.1),
            ..AppendedPages::default()
        };
        let slot_bits = if slots.0.dtype() == DType::I64 { 64 } else { 32 };
        let new =
            NewKeys { format: place.format("a cache")?, dv: Some(0), slot_bits, call, ..NewKeys::default() };
        let none = HeadsRef::default();
        let new = new.at([from, none, to, none]);
        run(place, (new.request(), new.call(&[]).map_err(Error::wrap)?))
    }
}

impl InplaceOp3 for Append {
    fn name(&self) -> &'static str {
        "falchion-append-pages"
    }

    fn cpu_fwd(
        &self,
        cache: &mut CpuStorage,
        of_cache: &Layout,
        rows: &CpuStorage,
        of_rows: &Layout,
        slots: &CpuStorage,
        of_slots: &Layout,
    ) -> Result<()> {
        let (rows, slots) = ((Stored::Host(rows), of_rows), (Stored::Host(slots), of_slots));
        Self::append([(Stored::Host(cache), of_cache), rows, slots])
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(
        &self,
        cache: &mut CudaStorage,
        of_cache: &Layout,
        rows: &CudaStorage,
        of_rows: &Layout,
        slots: &CudaStorage,
        of_slots: &Layout,
    ) -> Result<()> {
        let (rows, slots) = ((Stored::Card(rows), of_rows), (Stored::Card(slots), of_slots));
        Self::append([(Stored::Card(cache), of_cache), rows, slots])
    }
}

/// Runs a call in a place.
fn run(place: Stored<'_>, (request, call): (RowProblem, RowCall)) -> Result<()> {
    static ALL: Picks<Rows, Kept<Rows>> = Picks::new(KEPT);
    let kernel = ALL.get(&request, None, place.card(), Kept::new).map_err(Error::wrap)?;
    #[allow(unsafe_code, reason = "the kernel reads and writes the tensors' memory")]
    // SAFETY: candle's layouts stay inside of their storage; what is written is new, or a cache that is held alone.
    unsafe {
        kernel.run(place, call)
    }
}
