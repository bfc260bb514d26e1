//! Attention: from its arguments to a kernel and its call.

use falchion::attention::{Attention, AttentionProblem, AttentionRequest, AttentionSpec, HeadsRef, Lengths};
use falchion::collective::Format;
use falchion::kernel::Family;
use falchion_core::{Choices, Picked, call_of, masked};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyTuple};

use crate::array::{Access, Array, Elements, Fill, Found, Place, Rule, invalid, shape_words};
use crate::error::{about, of_refusal};
use crate::heads::{aligned, format, heads_of, on_16, readable, sums};
use crate::place::{Chosen, KEPT, machine};
use crate::sequences::{Given, Sequences, most};
use crate::whole::{Whole, window_of};

/// The arguments of which an error of the kernel is one.
const WHO: &str = "q, k, v";

/// By the place, the problem, whether the result is aligned, and the spec.
static CHOSEN: Choices<(Place, String, Option<String>), Chosen<Attention>> = Choices::new(KEPT);

/// `softmax(scale * q @ k.T) @ v` per head, without the scores in memory. Returns the result, or with `log_sum_exp` also
/// the logarithms of the sums of exponentials of each query's scores.
///
/// `q` is (B, H, L, D), `k` (B, G, S, D) and `v` (B, G, S, E), or all without B. H is a multiple of G: consecutive heads of q
/// share one of k and v. Elements are float16 or bfloat16, D and E are 64, 96, 128, 192 or 256. Heads may be in front of
/// the length or, as a transposed view, after it: what has contiguous elements of a head, and strides that are multiples
/// of 16 bytes, is read as it lies. Arrays of numpy and tensors on the CPU are computed in the emulator, CUDA tensors on
/// their card.
///
/// `causal`: a query sees the keys up to its own, where the last query stands at the last key. `window` = (left, right): it sees at
/// most that many keys before and after its own; -1 is no limit, and with `causal` right is 0. A query that sees no key
/// has zeros in the result. `scale` is 1 / sqrt(D) by default. `out` (B, H, L, E) may also be float32. `log_sum_exp` is true, or
/// a packed array (B, H, L) of float32 that is written; the second result. `types` ("bf16", "f16") says what unsigned
/// integers are. `spec` names the kernel.
///
/// Sequences of different lengths: `q` is (H, all queries, D), `k` and `v` (G, all keys, D), and `cu_seqlens_q` and `cu_seqlens_k` are
/// int32, where each sequence begins and the last ends; without the second it is the first. `max_seqlen_q` and `max_seqlen_k`, the
/// longest, are needed on a card, where rows of no sequence are zeros in a new result, with a log-sum-exp of minus infinity.
///
/// Keys in pages of a cache: `k` and `v` are (pages, G, keys of a page, D), `block_table` (B, pages of a sequence) has the pages of
/// each sequence in the order of its keys, and `cache_seqlens` (B,) its number of keys, both int32. A page has 16 to 256 keys.
/// Tables of int64 are converted to int32 in the host's memory, and refused on a card.
///
/// Latent attention (DeepSeek's absorbed form): heads of q and k have 576 elements, and v is None, or the view `k[..., :512]`. k is read once.
/// Give the model's `scale`.
///
/// `attention_backward` computes gradients; `falchion.torch.attention` has them. Raises `ValueError` with the argument, its value and what was needed.
#[expect(clippy::too_many_arguments, reason = "keywords of Python")]
#[pyfunction]
#[pyo3(signature = (q, k, v=None, *, causal=false, window=None, scale=None, out=None, log_sum_exp=None, cu_seqlens_q=None, cu_seqlens_k=None, max_seqlen_q=None, max_seqlen_k=None, block_table=None, cache_seqlens=None, types=None, spec=None))]
pub(crate) fn attention<'py>(
    py: Python<'py>,
    q: Bound<'py, PyAny>,
    k: Bound<'py, PyAny>,
    v: Option<Bound<'py, PyAny>>,
    causal: bool,
    window: Option<Bound<'py, PyAny>>,
    scale: Option<f32>,
    out: Option<Bound<'py, PyAny>>,
    log_sum_exp: Option<Bound<'py, PyAny>>,
    cu_seqlens_q: Option<Bound<'py, PyAny>>,
    cu_seqlens_k: Option<Bound<'py, PyAny>>,
    max_seqlen_q: Option<Whole>,
    max_seqlen_k: Option<Whole>,
    block_table: Option<Bound<'py, PyAny>>,
    cache_seqlens: Option<Bound<'py, PyAny>>,
    types: Option<&str>,
    spec: Option<String>,
) -> PyResult<Bound<'py, PyAny>> {
    let named = types.map(|name| {
        let known = [Format::Bf16, Format::F16].into_iter().find(|format| format.name() == name);
        known.ok_or_else(|| PyValueError::new_err(format!("types is \"{name}\", bf16 or f16 was needed")))
    });
    let named = named.transpose()?;
    let mask = masked(causal, window_of(window.as_ref())?).map_err(|refusal| of_refusal(&refusal))?;
    let [q, k] = [readable("q", &q)?, readable("k", &k)?];
    let v = v.map(|v| readable("v", &v)).transpose()?;
    let (format, elements) = format(&q, named)?;
    let given = Given {
        cu_seqlens: [cu_seqlens_q, cu_seqlens_k],
        max_seqlen: most([max_seqlen_q, max_seqlen_k])?,
        block_table,
        cache_seqlens,
    };
    let sequences = Sequences::of(&given, &q, &k)?;
    let place = q.place();
    for (name, array) in [("k", Some(&k)), ("v", v.as_ref())] {
        let (Some(array), rank) = (array, sequences.of_keys.len() + 1) else { continue };
        if array.rank() != rank {
            return invalid(format!(
                "{name} has shape {}, {rank} dimensions were needed, as q says",
                array.shape_words()
            ));
        }
    }
    let rule = |elements, access| {
        Rule::new(elements, access).at(place, "q").without_gradient(Some("falchion.torch.attention"))
    };
    let admit = |name: &str, found: Found<'py>| found.admit(name, &rule(elements, Access::Copied));
    let [q, k] = [admit("q", q)?, admit("k", k)?];
    let v = v.map(|v| admit("v", v)).transpose()?;
    let [[rows, _], [heads, _], [d, _]] = [q.last(1), q.last(2), q.last(0)];
    let latent = AttentionSpec::LATENT.map(i64::from);
    let dv = v.as_ref().map_or(latent[1], |v| v.last(0)[0]);
    if v.is_none() && d != latent[0] {
        return invalid(format!(
            "v is None and heads have {d} elements, a v was needed, or heads of {} elements",
            latent[0]
        ));
    }
    for (name, array, d) in [("k", Some(&k), d), ("v", v.as_ref(), dv)] {
        let Some(array) = array else { continue };
        if array.shape() != sequences.keys_of(d) {
            return invalid(format!(
                "{name} has shape {}, {} was needed",
                array.shape_words(),
                sequences.words(d)
            ));
        }
    }
    let Sequences { batch, queries, keys, packed, pages, .. } = sequences;
    let extents = [batch, heads, k.last(2)[0], queries, keys, d, dv].map(u32::try_from);
    let Ok([of_batch, of_heads, shared, queries, keys, of_d, of_dv]) = all(extents) else {
        return invalid(format!("q has shape {}, extents below 2^31 were needed", q.shape_words()));
    };
    let [q, k] = [aligned("q", q)?, aligned("k", k)?];
    let v = v.map(|v| aligned("v", v)).transpose()?;
    // The results.
    let shape = &[q.0.last(3)[0], heads, rows, dv][4 - q.0.rank()..];
    // On a card nobody knows whether each row is of a sequence.
    let fill = |fill| if packed.is_some() && place != Place::Host { fill } else { Fill::Nothing };
    let (o, output) = match &out {
        Some(out) => {
            let found = Found::of("out", out)?;
            if found.shape() != shape {
                let needed = shape_words(shape);
                return invalid(format!("out has shape {}, {needed} was needed", found.shape_words()));
            }
            let wide = found.format() == Some(Format::F32);
            let of_out = if wide { Elements::Of(Format::F32) } else { elements };
            let o = found.admit("out", &rule(of_out, Access::Written))?;
            (o, if wide { Format::F32 } else { format })
        }
        None => (q.0.alike("out", shape, format, fill(Fill::Zeros))?, format),
    };
    let Some(of_o) = heads_of(&o) else {
        let found = o.shape_words();
        return invalid(format!(
            "out of shape {found} has no contiguous heads, contiguous elements of a head were needed"
        ));
    };
    let of_sums = &shape[..shape.len() - 1];
    let sums = match &log_sum_exp {
        None => None,
        Some(asked) if asked.is_instance_of::<PyBool>() => {
            let made = || q.0.alike("log_sum_exp", of_sums, Format::F32, fill(Fill::Least));
            asked.is_truthy()?.then(made).transpose()?
        }
        Some(given) => Some(sums(given, of_sums, &q.0, Access::Written)?),
    };
    // The kernel.
    let problem = AttentionProblem::new(of_batch, of_heads, [queries, keys], of_d);
    let problem =
        AttentionProblem { heads: [of_heads, shared], scale: scale.unwrap_or(problem.scale), ..problem };
    let lengths = if packed.is_some() { Lengths::Packed } else { Lengths::Equal };
    let request = AttentionRequest {
        format,
        output,
        head: [of_d, of_dv],
        mask: mask.0,
        numbers: mask.1,
        lengths,
        pages: pages.map(|(page, _)| page),
        aligned: on_16(&of_o, &o),
        workspace: true,
        ..AttentionRequest::new(problem, of_d)
    };
    let chosen = CHOSEN.get((place, Attention::problem(&request), spec), |(place, .., spec)| {
        let machine = machine(*place)?;
        let made = py.detach(|| Picked::new(&request, spec.as_deref(), &machine, place.card()));
        made.map(|attend| Chosen::new(attend, true)).map_err(|refusal| of_refusal(&refusal))
    });
    let chosen = chosen.map_err(|error| about(py, WHO, error))?;
    // The first elements of k's heads are v: the same place, and the same strides of what there is more than one of.
    let is_view = |of: &Array<'_>, k: &Array<'_>| {
        let same = (1..4).all(|i| k.last(i)[0] < 2 || k.last(i)[1] == of.last(i)[1]);
        of.address() == k.address() && same
    };
    let of_v = v.as_ref().filter(|(of, _)| !(request.is_latent() && is_view(of, &k.0)));
    let read = [q.1, k.1, of_v.map_or(HeadsRef::default(), |(_, of)| *of)];
    let mut call = call_of(&request, problem, read, of_o).map_err(|refusal| of_refusal(&refusal))?;
    call.log_sum_exp = sums.as_ref().map_or(0, Array::address);
    call.packed = packed.unwrap_or_default();
    call.pages = pages.map(|(_, pages)| pages).unwrap_or_default();
    // SAFETY: the arrays are alive, and their extents and distances were read from them.
    unsafe { chosen.run(&q.0, &mut call) }.map_err(|error| about(py, WHO, error))?;
    let o = out.unwrap_or_else(|| o.object().clone());
    match sums {
        None => Ok(o),
        Some(sums) => Ok(PyTuple::new(py, [o, sums.object().clone()])?.into_any()),
    }
}

/// The results, if none failed.
pub(crate) fn all<T: Copy + Default, E, const N: usize>(results: [Result<T, E>; N]) -> Result<[T; N], E> {
    let mut whole = [T::default(); N];
    for (place, result) in whole.iter_mut().zip(results) {
        *place = result?;
    }
    Ok(whole)
}
