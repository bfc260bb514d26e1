//! What surrounds attention: two of its results as one, and new keys and values in pages of a cache.

use falchion::attention::HeadsRef;
use falchion::collective::Format;
use falchion::collective::process::Once;
use falchion::rows::{AppendedPages, MergedAttention, RowCall, RowProblem, Rows};
use falchion_core::{APPEND_PAGES, MERGE_ATTENTION, MergedHeads, NewKeys, Picks};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::array::{Access, Array, Elements, Fill, Found, Place, Rule, extent, invalid};
use crate::error::{about, of_refusal};
use crate::heads::{HALVES, aligned, heads_of, needed, one_of, readable, sums};
use crate::named::{Named, Names};
use crate::place::{Chosen, KEPT};

/// The names of the arguments.
static NAMES: [Once<Names>; 2] = [Once::new(), Once::new()];

static CHOSEN: Picks<Rows, Chosen<Rows>> = Picks::new(KEPT);

/// What has a gradient in place of these functions.
const RECORDED: Option<&str> = Some("tensor.detach()");

/// Merges two results of attention over different keys by their log-sum-exp, as of a prefix that sequences share and of the rest. Returns the
/// result and its log-sum-exp: `(exp(lse_a) * o_a + exp(lse_b) * o_b) / (exp(lse_a) + exp(lse_b))` and the logarithm of that sum, as `attention` of
/// all keys returns them.
///
/// `o_a` and `o_b` are (B, H, L, E) or (H, L, E), of float16, bfloat16 or float32; E is a multiple of 8, or 4 of float32. Heads may be in front of the length
/// or, as a transposed view, after it. `lse_a` and `lse_b` are (B, H, L), packed arrays of float32. A row whose number is minus infinity has no keys: it becomes the
/// other one, bit for bit, whatever its elements are. If both have none, the row becomes zeros and minus infinity.
///
/// `out` and `log_sum_exp` are written, and may be `o_a` and `lse_a`, or `o_b` and `lse_b`, themselves. `types` ("bf16", "f16") says what unsigned
/// integers are. There is no gradient. Raises `ValueError` with the argument, its value and what was needed.
#[pyfunction]
#[pyo3(signature = (*given, **keywords), text_signature = "(o_a, lse_a, o_b, lse_b, *, out=None, log_sum_exp=None, types=None)")]
pub(crate) fn merge_attention<'py>(
    py: Python<'py>,
    given: &Bound<'py, PyTuple>,
    keywords: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyTuple>> {
    let named = Named::of(NAMES[0].get_or_init(|| Names::of(&MERGE_ATTENTION)), (given, keywords), false)?;
    let mut merged = MergedHeads::default();
    named.say(MERGE_ATTENTION.given, &mut merged)?;
    let types = named.get("types").map(|_| merged.format);
    let [a, b] = [readable("o_a", named.needed("o_a")?)?, readable("o_b", named.needed("o_b")?)?];
    let formats = [HALVES[0], HALVES[1], Format::F32];
    let (format, elements) = one_of(("o_a", &a), types, (&formats, "float16, bfloat16 or float32"))?;
    needed("o_b", &b, &a.shape())?;
    if a.last(0)[0] == 0 {
        let shape = a.shape_words();
        return invalid(format!("o_a has shape {shape}, heads of at least one element were needed"));
    }
    let rule = |access| Rule::new(elements, access).at(a.place(), "o_a").without_gradient(RECORDED);
    let [copied, written] = [rule(Access::Copied), rule(Access::Written)];
    let out = named.get("out").map(|out| {
        let found = Found::of("out", out)?;
        needed("out", &found, &a.shape())?;
        found.admit("out", &written)
    });
    let (a, b) = (a.admit("o_a", &copied)?, b.admit("o_b", &copied)?);
    let o = out.unwrap_or_else(|| a.alike("out", &a.shape(), format, Fill::Nothing))?;
    let (shape, like) = (a.shape(), ("o_a", &a));
    let of_sums = &shape[..shape.len() - 1];
    let of = |name: &'static str, access| sums((name, named.needed(name)?), of_sums, like, access);
    let [lse_a, lse_b] = [of("lse_a", Access::Copied)?, of("lse_b", Access::Copied)?];
    let all = match named.get("log_sum_exp") {
        Some(given) => sums(("log_sum_exp", given), of_sums, like, Access::Written)?,
        None => a.alike("log_sum_exp", of_sums, Format::F32, Fill::Nothing)?,
    };
    let extents = [3, 2, 1, 0].map(|i| extent("o_a", &a, a.last(i)[0]));
    let [batch, heads, rows, d] = extents;
    let shape = [batch?, heads?, rows?, d?];
    let place = written_heads("out", &o)?;
    let [a, b] = [aligned("o_a", a)?, aligned("o_b", b)?];
    let sums = [&lse_a, &lse_b].map(Array::address);
    let call = MergedAttention { shape, sums, log_sum_exp: all.address(), ..MergedAttention::default() };
    let merged = MergedHeads { format, call, ..merged }.at([a.1, b.1, place]);
    run(py, &a.0, (merged.request(), merged.call()), "o_a, lse_a, o_b, lse_b")?;
    let given = |name, array: &Array<'py>| named.get(name).unwrap_or_else(|| array.object()).clone();
    PyTuple::new(py, [given("out", &o), given("log_sum_exp", &all)])
}

/// Writes new keys and values to pages of a cache: row `i` of `k` and `v` becomes key `slots[i] % page` of page `slots[i] // page`, where a page has
/// `page` keys. A slot of -1 leaves a row out; no two rows have another slot in common. All other keys stay as they are.
///
/// `k` is (tokens, G, D) and `v` (tokens, G, E), with any strides; the caches are (pages, G, page, D) and (pages, G, page, E), as `attention` takes
/// them with `block_table`, or views of that shape, and are never copied: heads begin at multiples of 16 bytes. Elements are float16 or bfloat16. D and E are
/// multiples of 8. `v` and `v_cache` are None for latent attention, whose v is a part of k. `slots` (tokens,) is int32 or int64; `falchion.cache.slots` makes it of a
/// table of pages and the numbers of keys. `types` ("bf16", "f16") says what unsigned integers are.
///
/// A slot that is not in the cache is refused in the host's memory, and ends the kernel with an error on a card, where nothing is read back. Raises
/// `ValueError` with the argument, its value and what was needed.
#[pyfunction]
#[pyo3(signature = (*given, **keywords), text_signature = "(k, v, k_cache, v_cache, slots, *, types=None)")]
pub(crate) fn append_pages<'py>(
    py: Python<'py>,
    given: &Bound<'py, PyTuple>,
    keywords: Option<&Bound<'py, PyDict>>,
) -> PyResult<()> {
    let named = Named::of(NAMES[1].get_or_init(|| Names::of(&APPEND_PAGES)), (given, keywords), false)?;
    let mut new = NewKeys::default();
    named.say(APPEND_PAGES.given, &mut new)?;
    let types = named.get("types").map(|_| new.format);
    let found = |name: &'static str, rank: usize, words: &str| {
        let array = Found::of(name, named.needed(name)?)?;
        if array.rank() == rank { Ok(array) } else { invalid(shaped(name, &array, words)) }
    };
    let k = found("k", 3, "(tokens, heads, d)")?;
    let (format, elements) = one_of(("k", &k), types, (&HALVES, "float16 or bfloat16"))?;
    let cache = found("k_cache", 4, "(pages, heads, keys of a page, d)")?;
    let [tokens, heads, d] = [2, 1, 0].map(|i| k.last(i)[0]);
    let [pages, keys] = [3, 1].map(|i| cache.last(i)[0]);
    needed("k_cache", &cache, &[pages, heads, keys, d])?;
    let place = k.place();
    let slots = slots(named.needed("slots")?, tokens, place)?;
    let rule = |access| Rule::new(elements, access).at(place, "k").without_gradient(RECORDED);
    let (copied, written) = (rule(Access::Copied), rule(Access::Written));
    let of_k = place_of("k", (k, &copied), ("k_cache", cache), &written)?;
    let without = [named.needed("v")?, named.needed("v_cache")?].map(|of| of.is_none());
    let of_v = if without == [true; 2] {
        None
    } else {
        let v = found("v", 3, "(tokens, heads, d), or None as v_cache,")?;
        let dv = v.last(0)[0];
        needed("v", &v, &[tokens, heads, dv])?;
        let cache = found("v_cache", 4, "(pages, heads, keys of a page, d), or None as v,")?;
        needed("v_cache", &cache, &[pages, heads, keys, dv])?;
        Some((dv, place_of("v", (v, &copied), ("v_cache", cache), &written)?))
    };
    let dv = of_v.as_ref().map_or(0, |(dv, _)| *dv);
    let [tokens, heads, d, dv] = [tokens, heads, d, dv].map(|of| extent("k", &of_k.0, of));
    let [pages, keys] = [pages, keys].map(|of| extent("k_cache", &of_k.0, of));
    let call = AppendedPages {
        rows: tokens?,
        heads: heads?,
        columns: [d?, 0],
        pages: [pages?, keys?],
        slots: slots.address(),
        ..AppendedPages::default()
    };
    let (slot_bits, dv) = (8 * slots.bytes(), Some(dv?));
    let [v, v_cache] = of_v.as_ref().map_or_else(Default::default, |(_, (_, of))| *of);
    let new = NewKeys { format, slot_bits, dv, call, ..new }.at([of_k.1[0], v, of_k.1[1], v_cache]);
    let call = new.call(&[]).map_err(|refusal| of_refusal(&refusal))?;
    run(py, &of_k.0, (new.request(), call), "k, v, k_cache, v_cache, slots")
}

/// Runs a call in the place of an array. `names` are the arguments of which an error of the kernel is one.
fn run(
    py: Python<'_>,
    like: &Array<'_>,
    (request, mut call): (RowProblem, RowCall),
    names: &str,
) -> PyResult<()> {
    let card = like.place().card();
    let chosen = py.detach(|| CHOSEN.get(&request, None, card, |picked| Chosen::new(picked, true)));
    let chosen = chosen.map_err(|refusal| about(py, names, of_refusal(&refusal)))?;
    // SAFETY: the arrays are alive, and their extents and distances were read from them.
    unsafe { chosen.run(like, &mut call) }.map_err(|error| about(py, names, error))
}

fn shaped(name: &str, array: &Found<'_>, words: &str) -> String {
    format!("{name} has shape {}, {words} was needed", array.shape_words())
}

/// Where the heads of an array that is written are.
fn written_heads(name: &str, array: &Array<'_>) -> PyResult<HeadsRef> {
    match heads_of(array) {
        Some(of) => Ok(of),
        None => {
            let shape = array.shape_words();
            invalid(format!(
                "{name} of shape {shape} has no contiguous heads, contiguous elements of a head were needed"
            ))
        }
    }
}

/// New rows, which may be copied, and the places of them and of their cache, which may not.
fn place_of<'py>(
    name: &str,
    (rows, copied): (Found<'py>, &Rule<'_>),
    (cache_name, cache): (&str, Found<'py>),
    written: &Rule<'_>,
) -> PyResult<(Array<'py>, [HeadsRef; 2])> {
    let cache = written_heads(cache_name, &cache.admit(cache_name, written)?)?;
    let (rows, HeadsRef { address, row, head, batch }) = aligned(name, rows.admit(name, copied)?)?;
    // Heads are inside of rows here, where other tensors have rows inside of heads.
    Ok((rows, [HeadsRef { address, row: head, head: row, batch }, cache]))
}

/// A slot per row.
fn slots<'py>(object: &Bound<'py, PyAny>, tokens: i64, place: Place) -> PyResult<Array<'py>> {
    let slots = Found::of("slots", object)?;
    needed("slots", &slots, &[tokens])?;
    let slots = slots.admit("slots", &Rule::new(Elements::Whole, Access::Copied).at(place, "k"))?;
    if slots.is_packed() { Ok(slots) } else { slots.copied("slots", false) }
}
