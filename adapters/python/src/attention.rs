//! Attention: from its arguments to a kernel and its call.

use falchion::attention::{Attention, AttentionSpec, HeadsRef, Lengths};
use falchion::collective::Format;
use falchion::collective::process::Once;
use falchion_core::{ATTENTION, AskedHeads, Heads, Picks};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyTuple};

use crate::array::{Access, Array, Elements, Fill, Found, Place, Rule, invalid};
use crate::error::{about, of_refusal};
use crate::heads::{
    WHO, aligned, elements, elements_of_keys, heads_of, needed, readable, refused, say_elements, sums,
};
use crate::named::{Named, Names};
use crate::place::{Chosen, KEPT};
use crate::sequences::Sequences;
use crate::tuned::{self, Choice, How};
use crate::vectors;
use crate::whole::Whole;

/// The names of the arguments.
static NAMES: Once<Names> = Once::new();

static CHOSEN: Picks<Attention, Chosen<Attention>> = Picks::new(KEPT);

/// What was asked of attention, with the arrays that it reads and writes.
struct Prepared<'py> {
    asked: AskedHeads,
    spec: Option<String>,
    q: Array<'py>,
    o: Bound<'py, PyAny>,
    sums: Option<Bound<'py, PyAny>>,
    /// Copies of operands, and of tables.
    _kept: (Vec<Bound<'py, PyAny>>, Sequences<'py>),
}

/// `softmax(scale * q @ k.T) @ v` per head, without the scores in memory. Returns the result, or with `log_sum_exp` also
/// the logarithms of the sums of exponentials of each query's scores.
///
/// `q` is (B, H, L, D), `k` (B, G, S, D) and `v` (B, G, S, E), or all without B. H is a multiple of G: consecutive heads of q
/// share one of k and v. Elements are float16 or bfloat16, D and E are multiples of 16 from 32 to 256, E at most D; or both are 512. Heads may be in front of
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
/// each sequence in the order of its keys, and `cache_seqlens` (B,) its number of keys, both int32. A page has 16 to 256 keys. `q` without B is
/// one sequence.
/// Tables of int64 are converted to int32 in the host's memory, and refused on a card.
///
/// Scores: `softcap` from 1e-6 to 4096 makes them `softcap * tanh(score / softcap)`; with `alibi_slopes` (H,) or (B, H) they fall with the distance of query
/// and key, by the slope of the head per key; `sinks` (H,) has a score of each head that takes part in the sum of weights and has no value. A cap comes first. All
/// are float32.
///
/// Formulas: `score` says what becomes of a score `x` of query `q` and key `k` of head `h` and sequence `b`, `sees` whether the query sees the key, in place of a
/// mask, a cap and slopes: `score="x+bias[h,q,k]"`, `sees="q>=k"`, `arrays={"bias": bias}`. Arrays have any strides, at most 4 dimensions, and the type that
/// the formula says: `bias[h,q,k]:bf16`, by default float32. The language: `attention::formula` of the library.
///
/// 8 bits: `k` and `v` may be float8_e4m3fn, or `q`, `k` and `v`, whose result is bfloat16, or what `out` is. `q_descale`, `k_descale` and `v_descale`
/// are what their elements are multiplied by: float32, of one number, or of one for each head of k (G,). Those of q and k are above zero.
///
/// Latent attention (DeepSeek's absorbed form): heads of q and k have 576 elements, and v is None, or the view `k[..., :512]`. k is read once.
/// Give the model's `scale`.
///
/// `attention_backward` computes gradients; `falchion.torch.attention` has them. Raises `ValueError` with the argument, its value and what was needed.
#[pyfunction]
#[pyo3(signature = (*given, **keywords), text_signature = "(q, k, v=None, *, causal=False, window=None, scale=None, out=None, log_sum_exp=None, cu_seqlens_q=None, cu_seqlens_k=None, max_seqlen_q=None, max_seqlen_k=None, block_table=None, cache_seqlens=None, softcap=0.0, alibi_slopes=None, score=None, sees=None, arrays=None, sinks=None, q_descale=None, k_descale=None, v_descale=None, types=None, spec=None)")]
pub(crate) fn attention<'py>(
    py: Python<'py>,
    given: &Bound<'py, PyTuple>,
    keywords: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let Prepared { asked, spec, q, o, sums, _kept } = prepare(py, given, keywords)?;
    let (card, AskedHeads { request, mut call }) = (q.place().card(), asked);
    let chosen =
        py.detach(|| CHOSEN.get(&request, spec.as_deref(), card, |attend| Chosen::new(attend, true)));
    let chosen = chosen.map_err(|refusal| about(py, WHO, of_refusal(&refusal)))?;
    // SAFETY: the arrays are alive, and their extents and distances were read from them.
    unsafe { chosen.run(&q, &mut call) }.map_err(|error| about(py, WHO, error))?;
    match sums {
        None => Ok(o),
        Some(sums) => Ok(PyTuple::new(py, [o, sums])?.into_any()),
    }
}

/// The kernel that `attention` takes for these arguments, and those that the model ranks after it: at most `most`. Nothing runs.
///
/// `card` is the card to choose for, by name ("h200") or one of this machine ("cuda:0"); by default the one where `q` is, and an H200 for the host's
/// memory. Of arrays of numpy only shapes, strides and types count then.
#[pyfunction]
#[pyo3(signature = (*given, card=None, most=Whole::Small(1), **keywords), text_signature = "(q, k, v=None, *, card=None, most=1, **keywords)")]
pub(crate) fn plan_attention(
    py: Python<'_>,
    given: &Bound<'_, PyTuple>,
    card: Option<&str>,
    most: Whole,
    keywords: Option<&Bound<'_, PyDict>>,
) -> PyResult<Vec<Choice>> {
    let Prepared { asked, spec, q, .. } = prepare(py, given, keywords)?;
    tuned::plan::<Attention>(py, &asked.request, How { spec, card, place: q.place() }, &most)
}

/// Measures up to `budget` kernels for the arguments of a call of `attention` on a card of this machine, and returns the fastest. Its
/// `microseconds` are measured.
///
/// The times are kept on disk (`FALCHION_CACHE`, or the user's folder for caches). `attention` of the same shapes, types, mask and lengths on
/// this card takes that kernel from then on, in this process and in later ones. What was measured before is not measured again. `card` is by
/// default the one where `q` is; of arrays of numpy only shapes, strides and types count. The arguments are neither read nor written.
#[pyfunction]
#[pyo3(signature = (*given, card=None, budget=Whole::Small(24), **keywords), text_signature = "(q, k, v=None, *, card=None, budget=24, **keywords)")]
pub(crate) fn tune_attention(
    py: Python<'_>,
    given: &Bound<'_, PyTuple>,
    card: Option<&str>,
    budget: Whole,
    keywords: Option<&Bound<'_, PyDict>>,
) -> PyResult<Choice> {
    let Prepared { asked, spec, q, .. } = prepare(py, given, keywords)?;
    tuned::tune::<Attention>(py, &asked.request, How { spec, card, place: q.place() }, &budget)
}

/// Checks the arguments, and makes the results.
fn prepare<'py>(
    py: Python<'py>,
    given: &Bound<'py, PyTuple>,
    keywords: Option<&Bound<'py, PyDict>>,
) -> PyResult<Prepared<'py>> {
    let named = Named::of(NAMES.get_or_init(|| Names::of(&ATTENTION)), (given, keywords), false)?;
    let mut heads = Heads::default();
    named.say(ATTENTION.described, &mut heads)?;
    let types = named.get("types").map(|_| heads.request.format);
    if heads.request.output != heads.request.format {
        return invalid("types says what out is, bf16 or f16 was needed: out= says it");
    }
    let [q, k] = [readable("q", named.needed("q")?)?, readable("k", named.needed("k")?)?];
    let v = named.get("v").map(|v| readable("v", v)).transpose()?;
    let elements = elements(&q, types, &mut heads, true)?;
    let (format, of_keys) = (heads.request.format, elements_of_keys(&k, elements, &mut heads));
    let sequences = Sequences::of(&named, [&q, &k], &mut heads)?;
    let place = q.place();
    let rank = sequences.keys_of(0).len();
    for (name, array) in [("k", Some(&k)), ("v", v.as_ref())] {
        if let Some(array) = array.filter(|array| array.rank() != rank) {
            return invalid(format!(
                "{name} has shape {}, {rank} dimensions were needed, as q says",
                array.shape_words()
            ));
        }
    }
    let rule = |elements, access| {
        Rule::new(elements, access).at(place, "q").without_gradient(Some("falchion.torch.attention"))
    };
    let admit = |name: &str, found: Found<'py>, of| found.admit(name, &rule(of, Access::Copied));
    let [q, k] = [admit("q", q, elements)?, admit("k", k, of_keys)?];
    let v = v.map(|v| admit("v", v, of_keys)).transpose()?;
    let [d, rows, of_q] = [0, 1, 2].map(|i| q.last(i)[0]);
    let latent = AttentionSpec::LATENT.map(i64::from);
    let dv = v.as_ref().map_or(latent[1], |v| v.last(0)[0]);
    if v.is_none() && d != latent[0] {
        return invalid(format!(
            "v is None and heads have {d} elements, a v was needed, or heads of {} elements",
            latent[0]
        ));
    }
    for (name, array, d) in [("k", Some(&k), d), ("v", v.as_ref(), dv)] {
        array.map_or(Ok(()), |array| needed(name, array, &sequences.keys_of(d)))?;
    }
    say_elements(&q, [d, dv], &mut heads)?;
    let [q, k] = [aligned("q", q)?, aligned("k", k)?];
    let v = v.map(|v| aligned("v", v)).transpose()?;
    // The results.
    let shape = &[q.0.last(3)[0], of_q, rows, dv][4 - q.0.rank()..];
    // On a card nobody knows whether each row is of a sequence.
    let differ = heads.request.lengths == Lengths::Packed;
    let fill = |fill| if differ && place != Place::Host { fill } else { Fill::Nothing };
    let out = named.get("out");
    let o = match out {
        Some(out) => {
            let found = Found::of("out", out)?;
            needed("out", &found, shape)?;
            let own = found.format().filter(|&of| of == Format::F32 || format.bits() == 8 && of.bits() == 16);
            let of_out = own
                .map_or(if format.bits() == 8 { Elements::Of(Format::Bf16) } else { elements }, Elements::Of);
            heads.request.output = own.unwrap_or(heads.request.output);
            found.admit("out", &rule(of_out, Access::Written))?
        }
        None => q.0.alike("out", shape, heads.request.output, fill(Fill::Zeros))?,
    };
    let Some(of_o) = heads_of(&o) else {
        let found = o.shape_words();
        return invalid(format!(
            "out of shape {found} has no contiguous heads, contiguous elements of a head were needed"
        ));
    };
    let of_sums = &shape[..shape.len() - 1];
    let sums = match named.get("log_sum_exp") {
        None => None,
        Some(asked) if asked.is_instance_of::<PyBool>() => {
            let made = || q.0.alike("log_sum_exp", of_sums, Format::F32, fill(Fill::Least));
            asked.is_truthy()?.then(made).transpose()?
        }
        Some(given) => Some(sums(("log_sum_exp", given), of_sums, ("q", &q.0), Access::Written)?),
    };
    // The first elements of k's heads are v: the same place, and the same strides of what there is more than one of.
    let is_view = |of: &Array<'_>, k: &Array<'_>| {
        let same = (1..4).all(|i| k.last(i)[0] < 2 || k.last(i)[1] == of.last(i)[1]);
        of.address() == k.address() && same
    };
    let of_v = v.as_ref().filter(|(of, _)| !([d, dv] == latent && is_view(of, &k.0)));
    let numbers = vectors::say(&named, place, &mut heads)?;
    heads.request.workspace = true;
    heads.call.log_sum_exp = sums.as_ref().map_or(0, Array::address);
    // The kernel.
    let heads = heads.at([q.1, k.1, of_v.map_or(HeadsRef::default(), |(_, of)| *of), of_o]);
    let asked = heads.asked().map_err(|refusal| refused(py, &ATTENTION, &refusal))?;
    let o = out.unwrap_or_else(|| o.object()).clone();
    let kept = [Some(&k.0), v.as_ref().map(|(v, _)| v)].into_iter().flatten().chain(&numbers);
    let kept = kept.map(|array| array.object().clone()).collect();
    let sums = sums.map(|sums| sums.object().clone());
    Ok(Prepared { asked, spec: named.text("spec")?, q: q.0, o, sums, _kept: (kept, sequences) })
}
