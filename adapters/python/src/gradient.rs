//! The gradient of attention.

use falchion::attention::backward::{AttentionBackward, BackwardCall};
use falchion::attention::{AttentionCall, AttentionProblem, AttentionRequest, Lengths, Mask};
use falchion::kernel::Family;
use falchion_core::{Choices, Picked, masked};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::array::{Access, Fill, Found, Place, Rule, invalid, shape_words};
use crate::attention::all;
use crate::error::{about, of_refusal};
use crate::heads::{aligned, format, heads_of, readable, sums};
use crate::place::{Chosen, KEPT, machine};
use crate::sequences::{Given, Sequences, most};
use crate::whole::{Whole, window_of};

/// By place, problem, and whether adds have a fixed order.
static CHOSEN: Choices<(Place, String), Chosen<AttentionBackward>> = Choices::new(KEPT);

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
    window: Option<Bound<'py, PyAny>>,
    scale: Option<f32>,
    deterministic: bool,
    cu_seqlens_q: Option<Bound<'py, PyAny>>,
    cu_seqlens_k: Option<Bound<'py, PyAny>>,
    max_seqlen_q: Option<Whole>,
    max_seqlen_k: Option<Whole>,
) -> PyResult<Bound<'py, PyTuple>> {
    let arrays = [("q", &q), ("k", &k), ("v", &v), ("o", &o), ("d_o", &d_o)];
    let [q, k, v, o, d_o] = every(arrays.map(|(name, object)| readable(name, object)))?;
    let (format, elements) = format(&q, None)?;
    let given = Given {
        cu_seqlens: [cu_seqlens_q, cu_seqlens_k],
        max_seqlen: most([max_seqlen_q, max_seqlen_k])?,
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
        if array.shape() != needed {
            let (found, needed) = (array.shape_words(), shape_words(needed));
            return invalid(format!("{name} has shape {found}, {needed} was needed"));
        }
    }
    let place = q.place();
    let rule =
        Rule::new(elements, Access::Copied).at(place, "q").without_gradient(Some("falchion.torch.attention"));
    let admit = |name: &str, found: Found<'py>| found.admit(name, &rule);
    let [q, k, v] = [admit("q", q)?, admit("k", k)?, admit("v", v)?];
    let [o, d_o] = [admit("o", o)?, admit("d_o", d_o)?];
    let sums = sums(&log_sum_exp, &of_queries[4 - rank..3], &q, Access::Copied)?;
    let Sequences { batch, queries, keys, packed, .. } = sequences;
    let extents = all([batch, heads, shared, queries, keys, d, dv].map(u32::try_from));
    let Ok([batch, heads, shared, queries, keys, d, dv]) = extents else {
        return invalid(format!("q has shape {}, extents below 2^31 were needed", q.shape_words()));
    };
    let (mask, numbers) =
        masked(causal, window_of(window.as_ref())?).map_err(|refusal| of_refusal(&refusal))?;
    let problem = AttentionProblem::new(batch, heads, [queries, keys], d);
    let problem =
        AttentionProblem { heads: [heads, shared], scale: scale.unwrap_or(problem.scale), ..problem };
    let request = AttentionRequest {
        format,
        output: format,
        head: [d, dv],
        mask,
        numbers,
        lengths: if packed.is_some() { Lengths::Packed } else { Lengths::Equal },
        fixed: deterministic,
        ..AttentionRequest::new(problem, d)
    };
    let chosen = CHOSEN.get((place, AttentionBackward::problem(&request)), |(place, _)| {
        let machine = machine(*place)?;
        let made = py.detach(|| Picked::new(&request, None, &machine, place.card()));
        made.map(|backward| Chosen::new(backward, false)).map_err(|refusal| of_refusal(&refusal))
    });
    let chosen = chosen.map_err(|error| about(py, "q, k, v", error))?;
    // On a card nobody knows whether each row is of a sequence.
    let fill = if packed.is_some() && place != Place::Host { Fill::Zeros } else { Fill::Nothing };
    let results = [("d_q", &q), ("d_k", &k), ("d_v", &v)]
        .map(|(name, like)| like.alike(name, &like.shape(), format, fill));
    let [d_q, d_k, d_v] = every(results)?;
    let all = [("q", q), ("k", k), ("v", v), ("o", o), ("d_o", d_o)];
    let [q, k, v, o, d_o] = every(all.map(|(name, array)| aligned(name, array)))?;
    let [Some(to_q), Some(to_k), Some(to_v)] = [&d_q, &d_k, &d_v].map(heads_of) else {
        return Err(PyRuntimeError::new_err("a new array has no contiguous rows"));
    };
    let forward = AttentionCall {
        log_sum_exp: sums.address(),
        packed: packed.unwrap_or_default(),
        counts: if mask == Mask::Window { numbers.to_vec() } else { Vec::new() },
        ..AttentionCall::new(problem, [q.1, k.1, v.1], o.1)
    };
    let mut call = BackwardCall::of(forward, d_o.1, [to_q, to_k, to_v]);
    // SAFETY: the arrays are alive, and their extents and distances were read from them.
    unsafe { chosen.run(&q.0, &mut call) }.map_err(|error| about(py, "q, k, v", error))?;
    PyTuple::new(py, [d_q.object(), d_k.object(), d_v.object()])
}

/// The results, if none failed.
fn every<T, const N: usize>(results: [PyResult<T>; N]) -> PyResult<[T; N]> {
    let whole = results.into_iter().collect::<PyResult<Vec<T>>>()?;
    whole.try_into().map_err(|_| PyRuntimeError::new_err("a result is missing"))
}
