//! The gradient of attention.

use falchion::attention::backward::{AttentionBackward, BackwardCall};
use falchion::attention::{HeadsRef, Lengths};
use falchion::collective::process::Once;
use falchion_core::{AskedHeads, GRADIENT, Heads, Picks};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::array::{Access, Array, Fill, Place, Rule};
use crate::error::{about, of_refusal};
use crate::heads::{WHO, aligned, elements, heads_of, needed, readable, refused, say_elements, sums};
use crate::named::{Named, Names};
use crate::place::{Chosen, KEPT};
use crate::sequences::Sequences;
use crate::tuned::{self, Choice, How};
use crate::vectors;
use crate::whole::Whole;

/// The names of the arguments.
static NAMES: Once<Names> = Once::new();

static CHOSEN: Picks<AttentionBackward, Chosen<AttentionBackward>> = Picks::new(KEPT);

/// What was asked of the gradient, with the arrays that it reads and writes.
struct Prepared<'py> {
    asked: AskedHeads,
    q: Array<'py>,
    d_o: HeadsRef,
    to: [HeadsRef; 3],
    results: [Bound<'py, PyAny>; 3],
    /// Copies of operands, and of tables.
    _kept: (Vec<Bound<'py, PyAny>>, Sequences<'py>),
}

/// The gradients of `q`, `k` and `v` of `attention(q, k, v)`, from its results `o` and `log_sum_exp` and the gradient `d_o`.
///
/// D and E are multiples of 16 from 32 to 256, E at most D. Shapes, strides, types, masks and sequences of different lengths are
/// those of `attention`; `d_o` has the shape of `o`. The gradient of `k` and `v` is the sum over the heads of `q` that share one.
/// `softcap`, `alibi_slopes`, `score`, `sees` and `arrays` are those of `attention`, whose sinks are in the log-sum-exp. `deterministic`: the gradient of `q` has the same bits in every run.
#[pyfunction]
#[pyo3(signature = (*given, **keywords), text_signature = "(q, k, v, o, d_o, log_sum_exp, *, causal=False, window=None, scale=None, deterministic=False, cu_seqlens_q=None, cu_seqlens_k=None, max_seqlen_q=None, max_seqlen_k=None, softcap=0.0, alibi_slopes=None, score=None, sees=None, arrays=None)")]
pub(crate) fn attention_backward<'py>(
    py: Python<'py>,
    given: &Bound<'py, PyTuple>,
    keywords: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyTuple>> {
    let Prepared { asked, q, d_o, to, results, _kept } = prepare(py, given, keywords)?;
    let (card, AskedHeads { request, call }) = (q.place().card(), asked);
    let chosen = py.detach(|| CHOSEN.get(&request, None, card, |backward| Chosen::new(backward, false)));
    let chosen = chosen.map_err(|refusal| about(py, WHO, of_refusal(&refusal)))?;
    let mut call = BackwardCall::of(call, d_o, to);
    // SAFETY: the arrays are alive, and their extents and distances were read from them.
    unsafe { chosen.run(&q, &mut call) }.map_err(|error| about(py, WHO, error))?;
    PyTuple::new(py, results)
}

/// The kernel that `attention_backward` takes for these arguments, and those that the model ranks after it: as `plan_attention`.
#[pyfunction]
#[pyo3(signature = (*given, card=None, most=Whole::Small(1), **keywords), text_signature = "(q, k, v, o, d_o, log_sum_exp, *, card=None, most=1, **keywords)")]
pub(crate) fn plan_attention_backward(
    py: Python<'_>,
    given: &Bound<'_, PyTuple>,
    card: Option<&str>,
    most: Whole,
    keywords: Option<&Bound<'_, PyDict>>,
) -> PyResult<Vec<Choice>> {
    let Prepared { asked, q, .. } = prepare(py, given, keywords)?;
    let how = How { spec: None, card, place: q.place() };
    tuned::plan::<AttentionBackward>(py, &asked.request, how, &most)
}

/// Measures up to `budget` kernels for the arguments of a call of `attention_backward` on a card of this machine, and returns the fastest: as
/// `tune_attention`.
#[pyfunction]
#[pyo3(signature = (*given, card=None, budget=Whole::Small(24), **keywords), text_signature = "(q, k, v, o, d_o, log_sum_exp, *, card=None, budget=24, **keywords)")]
pub(crate) fn tune_attention_backward(
    py: Python<'_>,
    given: &Bound<'_, PyTuple>,
    card: Option<&str>,
    budget: Whole,
    keywords: Option<&Bound<'_, PyDict>>,
) -> PyResult<Choice> {
    let Prepared { asked, q, .. } = prepare(py, given, keywords)?;
    let how = How { spec: None, card, place: q.place() };
    tuned::tune::<AttentionBackward>(py, &asked.request, how, &budget)
}

/// Checks the arguments, and makes the results.
fn prepare<'py>(
    py: Python<'py>,
    given: &Bound<'py, PyTuple>,
    keywords: Option<&Bound<'py, PyDict>>,
) -> PyResult<Prepared<'py>> {
    let named = Named::of(NAMES.get_or_init(|| Names::of(&GRADIENT)), (given, keywords), false)?;
    let mut heads = Heads::default();
    named.say(GRADIENT.described, &mut heads)?;
    let arrays = ["q", "k", "v", "o", "d_o"].map(|name| readable(name, named.needed(name)?));
    let [q, k, v, o, d_o] = every(arrays)?;
    let elements = elements(&q, None, &mut heads, false)?;
    let format = heads.request.format;
    let sequences = Sequences::of(&named, [&q, &k], &mut heads)?;
    let (d, dv) = (q.last(0)[0], v.last(0)[0]);
    let (mut of_o, mut of_k) = (q.shape(), sequences.keys_of(d));
    of_o[q.rank() - 1] = dv;
    for (name, array, shape) in [("k", &k, &of_k), ("o", &o, &of_o), ("d_o", &d_o, &of_o)] {
        needed(name, array, shape)?;
    }
    *of_k.last_mut().unwrap_or(&mut 0) = dv;
    needed("v", &v, &of_k)?;
    let place = q.place();
    let rule =
        Rule::new(elements, Access::Copied).at(place, "q").without_gradient(Some("falchion.torch.attention"));
    let arrays = [("q", q), ("k", k), ("v", v), ("o", o), ("d_o", d_o)];
    let [q, k, v, o, d_o] = every(arrays.map(|(name, found)| found.admit(name, &rule)))?;
    let sums = ("log_sum_exp", named.needed("log_sum_exp")?);
    let sums = self::sums(sums, &of_o[..of_o.len() - 1], ("q", &q), Access::Copied)?;
    say_elements(&q, [d, dv], &mut heads)?;
    // On a card nobody knows whether each row is of a sequence.
    let differ = heads.request.lengths == Lengths::Packed;
    let fill = if differ && place != Place::Host { Fill::Zeros } else { Fill::Nothing };
    let results = [("d_q", &q), ("d_k", &k), ("d_v", &v)]
        .map(|(name, like)| like.alike(name, &like.shape(), format, fill));
    let [d_q, d_k, d_v] = every(results)?;
    let all = [("q", q), ("k", k), ("v", v), ("o", o), ("d_o", d_o)];
    let [q, k, v, o, d_o] = every(all.map(|(name, array)| aligned(name, array)))?;
    let [Some(to_q), Some(to_k), Some(to_v)] = [&d_q, &d_k, &d_v].map(heads_of) else {
        return Err(PyRuntimeError::new_err("a new array has no contiguous rows"));
    };
    let numbers = vectors::say(&named, place, &mut heads)?;
    heads.call.log_sum_exp = sums.address();
    let asked = heads.at([q.1, k.1, v.1, o.1]).asked().map_err(|refusal| refused(py, &GRADIENT, &refusal))?;
    let kept = [&k.0, &v.0, &o.0, &d_o.0, &sums].into_iter().chain(&numbers);
    let kept = kept.map(|array| array.object().clone()).collect();
    let results = [d_q, d_k, d_v].map(|array| array.object().clone());
    Ok(Prepared { asked, q: q.0, d_o: d_o.1, to: [to_q, to_k, to_v], results, _kept: (kept, sequences) })
}

/// The results, if none failed.
fn every<T, const N: usize>(results: [PyResult<T>; N]) -> PyResult<[T; N]> {
    let whole = results.into_iter().collect::<PyResult<Vec<T>>>()?;
    whole.try_into().map_err(|_| PyRuntimeError::new_err("a result is missing"))
}
