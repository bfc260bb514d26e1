//! The gradient of attention.

use falchion::attention::backward::{BackwardCall, BackwardSpec};
use falchion::attention::{AttentionCall, AttentionProblem, Lengths, Mask};
use falchion_core::{Backward, Choices, masked};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::array::{Array, invalid, shape_words};
use crate::attention::all;
use crate::error::of_refusal;
use crate::heads::{aligned, format, heads_of, readable, sums, words};
use crate::place::{Chosen, KEPT};
use crate::sequences::{Given, Sequences};

static CHOSEN: Choices<BackwardSpec, Chosen<Backward>> = Choices::new(KEPT);

/// The gradients of `q`, `k` and `v` of `attention(q, k, v)`, from its results `o` and `log_sum_exp` and the gradient `d_o`.
///
/// D and E are 64, 96, 128, 192 or 256 and the same, or 192 and 128. Shapes, strides, types, masks and sequences of different lengths are
/// those of `attention`; `d_o` has the shape of `o`. The gradient of `k` and `v` is the sum over the heads of `q` that share one.
/// `deterministic`: the gradient of `q` has the same bits in every run.
#[expect(clippy::too_many_arguments, reason = "keywords of Python")]
#[pyfunction]
#[pyo3(signature = (q, k, v, o, d_o, log_sum_exp, *, causal=false, window=None, scale=None, deterministic=false, cu_seqlens_q=None, cu_seqlens_k=None, max_seqlen_q=None, max_seqlen_k=None))]
pub(crate) fn attention_backward<'py>(
    py: Python<'py>,
    q: Bound<'py, PyAny>,
    k: Bound<'py, PyAny>,
    v: Bound<'py, PyAny>,
    o: Bound<'py, PyAny>,
    d_o: Bound<'py, PyAny>,
    log_sum_exp: Bound<'py, PyAny>,
    causal: bool,
    window: Option<[i32; 2]>,
    scale: Option<f32>,
    deterministic: bool,
    cu_seqlens_q: Option<Bound<'py, PyAny>>,
    cu_seqlens_k: Option<Bound<'py, PyAny>>,
    max_seqlen_q: Option<u32>,
    max_seqlen_k: Option<u32>,
) -> PyResult<Bound<'py, PyTuple>> {
    let arrays = [("q", &q), ("k", &k), ("v", &v), ("o", &o), ("d_o", &d_o)];
    let [q, k, v, o, d_o] = arrays.map(|(name, object)| readable(name, object));
    let [q, k, v, o, d_o] = [q?, k?, v?, o?, d_o?];
    let format = format(&q, None)?;
    let given = Given {
        cu_seqlens: [cu_seqlens_q, cu_seqlens_k],
        max_seqlen: [max_seqlen_q, max_seqlen_k],
        ..Given::default()
    };
    let sequences = Sequences::of(&given, &q, &k)?;
    let [[all_of, _], [heads, _], [rows, _], [d, _]] = [3, 2, 1, 0].map(|i| q.last(i));
    let [[shared, _], [rows_k, _]] = [2, 1].map(|i| k.last(i));
    let [dv, _] = v.last(0);
    let rank = q.rank();
    let of_queries = [all_of, heads, rows, dv];
    let [of_k, of_v] = [d, dv].map(|d| [all_of, shared, rows_k, d]);
    for (name, array, needed) in
        [("k", &k, of_k), ("v", &v, of_v), ("o", &o, of_queries), ("d_o", &d_o, of_queries)]
    {
        let needed = &needed[4 - rank..];
        if array.rank() != rank
            || array.shape() != needed
            || array.format != q.format
            || array.place != q.place
        {
            return invalid(format!(
                "{name} has shape {} of {} in {}, {} of {} in {} was needed",
                array.shape_words(),
                words(array),
                array.place.words(),
                shape_words(needed),
                words(&q),
                q.place.words()
            ));
        }
    }
    let sums = sums(&log_sum_exp, &of_queries[4 - rank..3], &q)?;
    let Sequences { batch, queries, keys, packed, .. } = sequences;
    let extents = all([batch, heads, shared, queries, keys, d, dv].map(u32::try_from));
    let Ok([batch, heads, shared, queries, keys, d, dv]) = extents else {
        return invalid(format!("q has shape {}, extents below 2^31 were needed", q.shape_words()));
    };
    let (mask, numbers) = masked(causal, window).map_err(|refusal| of_refusal(&refusal))?;
    let lengths = if packed.is_some() { Lengths::Packed } else { Lengths::Equal };
    let spec = BackwardSpec { format, head: [d, dv], mask, lengths, deterministic, ..BackwardSpec::DEFAULT };
    let chosen = CHOSEN.get(spec, |&spec| {
        let made = py.detach(|| Backward::new(spec));
        made.map(|backward| Chosen::new(backward, false)).map_err(|refusal| of_refusal(&refusal))
    })?;
    let problem = AttentionProblem::new(batch, heads, [queries, keys], d);
    let problem =
        AttentionProblem { heads: [heads, shared], scale: scale.unwrap_or(problem.scale), ..problem };
    let results =
        [("q", &q), ("k", &k), ("v", &v)].map(|(name, like)| Array::of(name, &like.room(&like.shape())?));
    let [d_q, d_k, d_v] = results;
    let [d_q, d_k, d_v] = [d_q?, d_k?, d_v?];
    let [q, k, v, o, d_o] =
        [("q", q), ("k", k), ("v", v), ("o", o), ("d_o", d_o)].map(|(name, array)| aligned(py, name, array));
    let [q, k, v, o, d_o] = [q?, k?, v?, o?, d_o?];
    let [Some(to_q), Some(to_k), Some(to_v)] = [&d_q, &d_k, &d_v].map(heads_of) else {
        return Err(PyRuntimeError::new_err("a new array has no contiguous rows"));
    };
    let forward = AttentionCall {
        log_sum_exp: sums.address,
        packed: packed.unwrap_or_default(),
        counts: if mask == Mask::Window { numbers.to_vec() } else { Vec::new() },
        ..AttentionCall::new(problem, [q.1, k.1, v.1], o.1)
    };
    let mut call = BackwardCall::of(forward, d_o.1, [to_q, to_k, to_v]);
    // SAFETY: the arrays are alive, and their extents and distances were read from them.
    unsafe { chosen.run(&q.0, &mut call) }?;
    PyTuple::new(py, [d_q.object, d_k.object, d_v.object])
}
