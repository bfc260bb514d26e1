//! Attention: from its arguments to a kernel and its call.

use core::ffi::c_void;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use falchion::attention::{AttentionCall, AttentionProblem, AttentionRequest, HeadsRef, Mask};
use falchion::collective::Format;
use falchion_core::{Attend, Run};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyEllipsis, PyTuple};

use crate::array::{Array, Library, Place, Torch, invalid, shape_words};
use crate::call::{KEPT, machine, of_engine, of_refusal};

/// What a choice depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    place: Place,
    formats: [Format; 2],
    head: [u32; 2],
    extents: [u32; 5],
    mask: Mask,
    aligned: bool,
    spec: Option<String>,
}

static CHOSEN: LazyLock<Mutex<HashMap<Key, Arc<Attend>>>> = LazyLock::new(Mutex::default);

/// `softmax(scale * q @ k.T) @ v` per head, without the scores in memory. Returns the result, or with `log_sum_exp` also
/// the logarithms of the sums of exponentials of each query's scores.
///
/// `q` is (B, H, L, D), `k` (B, G, S, D) and `v` (B, G, S, E), or all without B. H is a multiple of G: consecutive heads of q
/// share one of k and v. Elements are float16 or bfloat16, D and E are 64, 96, 128, 192 or 256. Heads may be in front of
/// the length or, as a transposed view, after it: what has contiguous elements of a head, and strides that are multiples
/// of 16 bytes, is read as it lies. Arrays of numpy and tensors on the CPU are computed in the emulator, CUDA tensors on
/// their card.
///
/// `causal`: a query sees the keys up to its own, where the last query stands at the last key. A query that sees no key
/// has zeros in the result. `scale` is 1 / sqrt(D) by default. `out` (B, H, L, E) may also be float32. `log_sum_exp` is true, or
/// a packed array (B, H, L) of float32 that is written; the second result. `types` ("bf16", "f16") says what unsigned
/// integers are. `spec` names the kernel.
///
/// `attention_backward` computes gradients; `falchion.torch.attention` has them. Raises `ValueError` with the argument, its value and what was needed.
#[expect(clippy::too_many_arguments, reason = "keywords of Python")]
#[pyfunction]
#[pyo3(signature = (q, k, v, *, causal=false, scale=None, out=None, log_sum_exp=None, types=None, spec=None))]
pub(crate) fn attention<'py>(
    py: Python<'py>,
    q: Bound<'py, PyAny>,
    k: Bound<'py, PyAny>,
    v: Bound<'py, PyAny>,
    causal: bool,
    scale: Option<f32>,
    out: Option<Bound<'py, PyAny>>,
    log_sum_exp: Option<Bound<'py, PyAny>>,
    types: Option<&str>,
    spec: Option<String>,
) -> PyResult<Bound<'py, PyAny>> {
    let named = types.map(|name| {
        let known = [Format::Bf16, Format::F16].into_iter().find(|format| format.name() == name);
        known.ok_or_else(|| PyValueError::new_err(format!("types is \"{name}\", bf16 or f16 was needed")))
    });
    let named = named.transpose()?;
    let [q, k, v] = [("q", &q), ("k", &k), ("v", &v)].map(|(name, object)| readable(name, object));
    let [q, k, v] = [q?, k?, v?];
    let format = format(&q, named)?;
    for (name, array) in [("k", &k), ("v", &v)] {
        if array.place != q.place || array.rank() != q.rank() || array.bytes != 2 || array.format != q.format
        {
            return invalid(format!(
                "{name} has {} dimensions of {} in {}, those of q were needed: {} of {} in {}",
                array.rank(),
                words(array),
                array.place.words(),
                q.rank(),
                words(&q),
                q.place.words()
            ));
        }
    }
    let [[length, _], [keys, _]] = [q.last(1), k.last(1)];
    let [[heads, _], [shared, _], [batch, _], [d, _], [dv, _]] =
        [q.last(2), k.last(2), q.last(3), q.last(0), v.last(0)];
    let of = |extents: &[i64]| shape_words(&extents[4 - q.rank()..]);
    for (name, array, needed) in [("k", &k, [batch, shared, keys, d]), ("v", &v, [batch, shared, keys, dv])] {
        if array.shape() != needed[4 - q.rank()..] {
            return invalid(format!("{name} has shape {}, {} was needed", array.shape_words(), of(&needed)));
        }
    }
    let extents = [batch, heads, shared, length, keys, d, dv].map(u32::try_from);
    let Ok([batch, heads, shared, length, keys, d, dv]) = all(extents) else {
        return invalid(format!("q has shape {}, extents below 2^31 were needed", q.shape_words()));
    };
    let [q, k, v] = [("q", q), ("k", k), ("v", v)].map(|(name, array)| aligned(py, name, array));
    let [q, k, v] = [q?, k?, v?];
    // The results.
    let shape = [batch, heads, length, dv].map(i64::from);
    let shape = &shape[4 - q.0.rank()..];
    let o = match &out {
        Some(out) => Array::of("out", out)?,
        None => Array::of("out", &q.0.room(shape)?)?,
    };
    let output = match o.format {
        Some(Format::F32) => Format::F32,
        found if found == q.0.format => format,
        _ => return invalid(format!("out has elements of {}, those of q or float32 were needed", words(&o))),
    };
    if o.shape() != shape || o.place != q.0.place {
        let (found, needed) = (o.shape_words(), shape_words(shape));
        let (there, place) = (o.place.words(), q.0.place.words());
        return invalid(format!("out has shape {found} in {there}, {needed} in {place} was needed"));
    }
    writable("out", &o)?;
    let Some(of_o) = heads_of(&o) else {
        let found = o.shape_words();
        return invalid(format!(
            "out of shape {found} has no contiguous heads, contiguous elements of a head were needed"
        ));
    };
    let sums = match &log_sum_exp {
        None => None,
        Some(asked) if asked.is_instance_of::<PyBool>() => {
            let shape = &shape[..shape.len() - 1];
            asked.is_truthy()?.then(|| q.0.empty(shape, Format::F32, false)).transpose()?
        }
        Some(given) => Some(given.clone()),
    };
    let sums = sums.map(|sums| Array::of("log_sum_exp", &sums)).transpose()?;
    if let Some(sums) = &sums {
        let needed = &shape[..shape.len() - 1];
        let packed = (0..sums.rank()).try_fold(1, |stride, i| {
            let [extent, found] = sums.last(i);
            (extent <= 1 || found == stride).then_some(stride * extent.max(1))
        });
        if sums.shape() != needed
            || sums.format != Some(Format::F32)
            || packed.is_none()
            || sums.place != q.0.place
        {
            return invalid(format!(
                "log_sum_exp has shape {} of {} in {}, a packed array of shape {} of float32 in {} was needed",
                sums.shape_words(),
                words(sums),
                sums.place.words(),
                shape_words(needed),
                q.0.place.words()
            ));
        }
        writable("log_sum_exp", sums)?;
    }
    // The kernel.
    let mask = if causal { Mask::Causal } else { Mask::Full };
    let problem = AttentionProblem::new(batch, heads, [length, keys], d);
    let problem =
        AttentionProblem { heads: [heads, shared], scale: scale.unwrap_or(problem.scale), ..problem };
    // One choice serves many lengths: those of a cache of keys grow with each token.
    let rounded = falchion_core::rounded(problem);
    let request =
        AttentionRequest { format, output, head: [d, dv], mask, ..AttentionRequest::new(rounded, d) };
    let aligned = on_16(&of_o, &o);
    let key = Key {
        place: q.0.place,
        formats: [format, output],
        head: [d, dv],
        extents: [batch, heads, shared, rounded.queries, rounded.keys],
        mask,
        aligned,
        spec,
    };
    let chosen = choose(py, key, &request)?;
    let mut call = AttentionCall::new(problem, [q.1, k.1, v.1], of_o);
    call.log_sum_exp = sums.as_ref().map_or(0, |sums| sums.address);
    match q.0.place {
        Place::Host => {
            // SAFETY: the arrays are alive, and their extents and distances were read from them.
            let outcome = py.detach(|| unsafe { chosen.emulate(&call, Run::default()) });
            outcome.map_err(|error| of_engine(&error))?;
        }
        Place::Cuda(ordinal) => {
            let Some(torch) = Torch::imported(py) else {
                return Err(PyRuntimeError::new_err(
                    "torch is not imported, and it names the current stream",
                ));
            };
            if chosen.card() != Some(ordinal) {
                py.detach(|| chosen.load(ordinal)).map_err(|error| of_engine(&error))?;
            }
            let stream = core::ptr::with_exposed_provenance_mut::<c_void>(torch.stream(py, ordinal)?);
            // SAFETY: torch's stream is alive, and belongs to the card's primary context; the tensors' memory is
            // freed in the order of that stream.
            unsafe { chosen.launch(ordinal, stream, &call) }.map_err(|error| of_engine(&error))?;
        }
    }
    let o = out.unwrap_or(o.object);
    match sums {
        None => Ok(o),
        Some(sums) => Ok(PyTuple::new(py, [o, sums.object])?.into_any()),
    }
}

fn choose(py: Python<'_>, key: Key, request: &AttentionRequest) -> PyResult<Arc<Attend>> {
    let lock = || CHOSEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = lock().get(&key) {
        return Ok(Arc::clone(known));
    }
    let machine = machine(key.place)?;
    let made = py.detach(|| Attend::new(request, key.spec.as_deref(), key.aligned, &machine));
    let made = Arc::new(made.map_err(|refusal| of_refusal(&refusal))?);
    let mut all = lock();
    if all.len() >= KEPT {
        all.clear();
    }
    all.insert(key, Arc::clone(&made));
    Ok(made)
}

/// The results, if none failed.
pub(crate) fn all<T: Copy + Default, E, const N: usize>(results: [Result<T, E>; N]) -> Result<[T; N], E> {
    let mut whole = [T::default(); N];
    for (place, result) in whole.iter_mut().zip(results) {
        *place = result?;
    }
    Ok(whole)
}

/// The name of the type of an array's elements.
pub(crate) fn words(array: &Array<'_>) -> &'static str {
    array.format.map_or("integers", crate::array::type_name)
}

/// The format that is multiplied.
pub(crate) fn format(q: &Array<'_>, named: Option<Format>) -> PyResult<Format> {
    match (q.format, named) {
        (Some(format @ (Format::Bf16 | Format::F16)), None) => Ok(format),
        (Some(format), Some(named)) if format == named => Ok(named),
        (None, Some(named)) if q.bytes == 2 => Ok(named),
        (None, None) if q.bytes == 2 => {
            invalid("q has elements that are no numbers of a kernel: types= was needed, for example \"bf16\"")
        }
        (_, named) => {
            let needed = named.map_or("float16 or bfloat16", crate::array::type_name);
            invalid(format!("q has elements of {}, {needed} was needed", words(q)))
        }
    }
}

/// The array of an argument, with what can be said of it alone.
pub(crate) fn readable<'py>(name: &str, object: &Bound<'py, PyAny>) -> PyResult<Array<'py>> {
    let array = Array::of(name, object)?;
    if !matches!(array.rank(), 3 | 4) {
        return invalid(format!(
            "{name} has shape {}, (batch, heads, length, d) or (heads, length, d) was needed",
            array.shape_words()
        ));
    }
    if array.recorded()? {
        return invalid(format!(
            "{name} requires a gradient, which this function does not have: falchion.torch.attention or torch.no_grad() was needed"
        ));
    }
    Ok(array)
}

fn writable(name: &str, array: &Array<'_>) -> PyResult<()> {
    if array.library == Library::Numpy && !array.object.getattr("flags")?.getattr("writeable")?.is_truthy()? {
        return invalid(format!("{name} is read-only, a writable array was needed"));
    }
    Ok(())
}

/// Where the rows of an array are; `None` if the elements of a head are not contiguous, or a stride is negative.
pub(crate) fn heads_of(array: &Array<'_>) -> Option<HeadsRef> {
    let [d, step] = array.last(0);
    if d > 1 && step != 1 {
        return None;
    }
    let stride = |i: usize| {
        let [extent, stride] = array.last(i);
        // After the only one nothing follows: any legal distance.
        if extent > 1 { u64::try_from(stride).ok() } else { Some(d.unsigned_abs().next_multiple_of(8)) }
    };
    Some(HeadsRef { address: array.address, row: stride(1)?, head: stride(2)?, batch: stride(3)? })
}

/// Whether an array begins at a multiple of 16 bytes, and so do its rows.
fn on_16(of: &HeadsRef, array: &Array<'_>) -> bool {
    let bytes = u64::from(array.bytes);
    [of.address, of.row * bytes, of.head * bytes, of.batch * bytes].iter().all(|at| at.is_multiple_of(16))
}

/// The array as kernels read it: as it lies, or a copy.
pub(crate) fn aligned<'py>(
    py: Python<'py>,
    name: &str,
    array: Array<'py>,
) -> PyResult<(Array<'py>, HeadsRef)> {
    // Rows that overlap are not distinct for tensor copies; a copy's are.
    let fits = |array: &Array<'py>| {
        heads_of(array).filter(|of| on_16(of, array) && of.row >= array.last(0)[0].unsigned_abs())
    };
    if let Some(of) = fits(&array) {
        return Ok((array, of));
    }
    let room = array.room(&array.shape())?;
    room.set_item(PyEllipsis::get(py), &array.object)?;
    let copy = Array::of(name, &room)?;
    match fits(&copy) {
        Some(of) => Ok((copy, of)),
        None => {
            let found = copy.last(0)[0];
            invalid(format!("{name} has heads of {found} elements, 64, 96, 128, 192 or 256 were needed"))
        }
    }
}
