"""Two results of attention as one, and new keys and values in pages of a cache: compared with numpy; and what is refused."""

import falchion
import numpy as np
import pytest
from reference import ml_dtypes
from test_attention import tensor

HALVES = [np.float16, ml_dtypes.bfloat16] if ml_dtypes else [np.float16]


def merged(a, lse_a, b, lse_b):
    """What has to come out, in double precision; what has no keys is not read."""
    with np.errstate(invalid="ignore", divide="ignore"):
        most = np.maximum(lse_a, lse_b).astype(float)
        weights = [np.where(np.isneginf(lse), 0, np.exp(lse - most)) for lse in (lse_a, lse_b)]
        total = weights[0] + weights[1]
        parts = [np.where(w[..., None] == 0, 0, x.astype(float) * w[..., None]) for w, x in zip(weights, (a, b))]
        return np.where(total[..., None] > 0, (parts[0] + parts[1]) / total[..., None], 0), np.where(total > 0, most + np.log(total), -np.inf)


@pytest.mark.parametrize("seed", range(8))
def test_results_of_attention_are_merged(seed):
    rng = np.random.default_rng(seed)
    dtype = [*HALVES, np.float32][seed % (len(HALVES) + 1)]
    lead = [(), (1,), (2,)][rng.integers(3)]
    shape = (*lead, int(rng.integers(1, 5)), int(rng.integers(1, 60)), 8 * int(rng.integers(1, 40)))
    ways = rng.integers(5, size=3)
    a, b = (tensor(rng, shape, dtype, way) for way in ways[:2])
    lse_a, lse_b = (rng.normal(0, 4, shape[:-1]).astype(np.float32) for _ in range(2))
    lse_a[rng.random(lse_a.shape) < 0.2] = -np.inf
    lse_b[rng.random(lse_b.shape) < 0.2] = -np.inf
    a[np.isneginf(lse_a)] = np.nan
    wanted, of_sums = merged(a, lse_a, b, lse_b)
    keywords = [{}, {"out": a, "log_sum_exp": lse_a}, {"out": b}, {"out": tensor(rng, shape, dtype, ways[2] % 3)}][seed % 4]
    if "out" in keywords and (ways[:2] > 2).any():
        # What is written is never copied.
        a, b = a.copy(), b.copy()
        keywords = {name: a if of is not lse_a else of for name, of in keywords.items()}
    alone = np.isneginf(lse_b) & ~np.isneginf(lse_a)
    first = a.copy()
    o, sums = falchion.merge_attention(a, lse_a, b, lse_b, **keywords)
    assert o.dtype == dtype and o.shape == shape and sums.dtype == np.float32
    assert o is keywords.get("out", o) and sums is keywords.get("log_sum_exp", sums)
    unit = {np.float32: 2.0**-20, np.float16: 2.0**-10}.get(dtype, 2.0**-7)
    assert np.abs(o.astype(float) - wanted).max() <= unit * max(1.0, np.abs(wanted).max())
    finite = np.isfinite(of_sums)
    assert (np.isfinite(sums) == finite).all() and np.abs(sums[finite] - of_sums[finite]).max(initial=0) < 1e-5
    assert (o[alone].view(np.uint8) == first[alone].view(np.uint8)).all()


@pytest.mark.parametrize("causal", [False, True])
def test_attention_of_two_parts_is_attention_of_all(causal):
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((2, heads, length, 64)).astype(np.float16) for heads, length in ((4, 30), (2, 130), (2, 130)))
    o, sums = falchion.attention(q, k, v, causal=causal, log_sum_exp=True)
    shared = falchion.attention(q, k[:, :, :100], v[:, :, :100], log_sum_exp=True)
    own = falchion.attention(q, k[:, :, 100:], v[:, :, 100:], causal=causal, log_sum_exp=True)
    both, of_both = falchion.merge_attention(*shared, *own, out=own[0], log_sum_exp=own[1])
    assert np.abs(both.astype(float) - o).max() < 2e-3 and np.abs(of_both - sums).max() < 1e-3


@pytest.mark.parametrize("seed", range(6))
def test_keys_are_appended(seed):
    rng = np.random.default_rng(seed)
    dtype, slots_dtype = HALVES[seed % len(HALVES)], [np.int32, np.int64][seed // 2 % 2]
    tokens, heads, pages, page = (int(rng.integers(1, most)) for most in (50, 4, 9, 20))
    d, dv = (8 * int(rng.integers(1, 30)) for _ in range(2))
    ways = rng.integers(5, size=4)
    k = tensor(rng, (tokens, heads, d), dtype, ways[0])
    v = None if seed == 5 else tensor(rng, (tokens, heads, dv), dtype, ways[1])
    k_cache = tensor(rng, (pages, heads, page, d), dtype, ways[2] % 3)
    v_cache = None if v is None else tensor(rng, (pages, heads, page, dv), dtype, ways[3] % 3)
    slots = np.full(tokens, -1, slots_dtype)
    used = min(tokens, pages * page) - int(rng.integers(0, 2))
    slots[rng.permutation(tokens)[:used]] = rng.permutation(pages * page)[:used]
    wanted = [of if of is None else of.copy() for of in (k_cache, v_cache)]
    for token, slot in enumerate(slots):
        for new, cache in ((k, wanted[0]), (v, wanted[1])):
            if slot >= 0 and new is not None:
                cache[slot // page, :, slot % page] = new[token]
    given = slots if seed % 2 else np.repeat(slots, 2)[::2]
    assert falchion.append_pages(k, v, k_cache, v_cache, given) is None
    for found, want in zip((k_cache, v_cache), wanted):
        assert found is want or (found.view(np.uint16) == want.view(np.uint16)).all()


def test_a_cache_grows_as_attention_reads_it():
    rng = np.random.default_rng(2)
    page, lengths = 16, np.array([5, 0, 16, 31], np.int32)
    block_table = rng.permutation(12).reshape(4, 3).astype(np.int32)
    keys, values = (rng.standard_normal((4, 40, 2, 64)).astype(np.float16) for _ in range(2))
    k_cache, v_cache = (np.zeros((12, 2, page, 64), np.float16) for _ in range(2))
    rows = [(s, i) for s in range(4) for i in range(lengths[s])]
    for new, seen in ((lengths, 0), (2, lengths), (np.array([1, 0, 3, 0]), lengths + 2)):
        counts = np.broadcast_to(new, 4)
        rows = [(s, int(np.broadcast_to(seen, 4)[s]) + i) for s in range(4) for i in range(counts[s])]
        k, v = (np.array([of[row] for row in rows]) for of in (keys, values))
        slots = falchion.cache.slots(block_table, np.broadcast_to(seen, 4), page, new)
        assert slots.shape == (len(rows),)
        falchion.append_pages(k, v, k_cache, v_cache, slots)
    lengths = lengths + 2 + np.array([1, 0, 3, 0], np.int32)
    q = rng.standard_normal((4, 4, 1, 64)).astype(np.float16)
    o = falchion.attention(q, k_cache, v_cache, block_table=block_table, cache_seqlens=lengths)
    for s, length in enumerate(lengths):
        k, v = (of[None, s, :length].swapaxes(1, 2) for of in (keys, values))
        wanted = falchion.attention(q[s : s + 1], k, v)
        assert np.abs(o[s : s + 1].astype(float) - wanted).max() < 2e-3


def test_slots_of_no_key_are_refused():
    table = np.arange(6, dtype=np.int32).reshape(2, 3)
    np.testing.assert_array_equal(falchion.cache.slots(table, np.array([3, 11]), 4, 1), [3, 23])
    np.testing.assert_array_equal(falchion.cache.slots(table, np.array([-1, 7]), 4, 2), [-1, -1, 19, 20])
    assert falchion.cache.slots(table, np.array([3, 11]), 4, 0).shape == (0,)
    for words, call in [
        ("key 12 of sequence 1 is on page 3 of the sequence, at most 2 was needed", lambda: falchion.cache.slots(table, np.array([3, 11]), 4, 2)),
        ("block_table has shape (2, 3) and cache_seqlens (3,)", lambda: falchion.cache.slots(table, np.zeros(3, int), 4)),
        ("page is 0, 1 or more was needed", lambda: falchion.cache.slots(table, np.zeros(2, int), 0)),
        ("new is -1, 0 or more was needed", lambda: falchion.cache.slots(table, np.zeros(2, int), 4, -1)),
        ("new has shape (3,), (2,) was needed", lambda: falchion.cache.slots(table, np.zeros(2, int), 4, np.ones(3, int))),
    ]:
        with pytest.raises(ValueError) as error:
            call()
        assert words in str(error.value)


O, LSE = np.ones((2, 5, 16), np.float16), np.zeros((2, 5), np.float32)
K, CACHE = np.ones((3, 2, 16), np.float16), np.zeros((4, 2, 8, 16), np.float16)
SLOTS = np.arange(3)


def room(shape, skip=1):
    return np.zeros(int(np.prod(shape)) + skip, np.float16)[skip:].reshape(shape)


@pytest.mark.parametrize(
    ("words", "function", "given", "keywords"),
    [
        ("o_a has elements of int64, float16, bfloat16 or float32 was needed", "merge", (O.astype(int), LSE, O, LSE), {}),
        ("o_b has elements of float32, float16 was needed", "merge", (O, LSE, O.astype(np.float32), LSE), {}),
        ("o_b has shape (2, 4, 16), (2, 5, 16) was needed", "merge", (O, LSE, O[:, :4], LSE), {}),
        ("lse_b has shape (2, 4) with gaps, a packed array of shape (2, 5) was needed", "merge", (O, LSE, O, LSE[:, :4]), {}),
        ("lse_a has elements of float16, float32 was needed", "merge", (O, LSE.astype(np.float16), O, LSE), {}),
        ("out has shape (5, 2, 16), (2, 5, 16) was needed", "merge", (O, LSE, O, LSE), {"out": O.reshape(5, 2, 16)}),
        ("o_a, lse_a, o_b, lse_b: O", "merge", (O, LSE, O, LSE), {"out": room(O.shape)}),
        ("a head of O_a has 12 elements, a multiple of 8 was needed", "merge", (O[..., :12], LSE, O[..., :12], LSE), {}),
        ("k has shape (2, 16), (tokens, heads, d) was needed", "append", (K[0], K, CACHE, CACHE, SLOTS), {}),
        ("k_cache has shape (4, 1, 8, 16), (4, 2, 8, 16) was needed", "append", (K, K, CACHE[:, :1], CACHE, SLOTS), {}),
        ("v has shape (2, 2, 16), (3, 2, 16) was needed", "append", (K, K[:2], CACHE, CACHE, SLOTS), {}),
        ("slots has shape (2,), (3,) was needed", "append", (K, K, CACHE, CACHE, SLOTS[:2]), {}),
        ("slots has elements of float64, int32 or int64 was needed", "append", (K, K, CACHE, CACHE, SLOTS * 1.0), {}),
        ("slot 32 of row 2 is not in the cache of 32 keys, -1 or a number below 32", "append", (K, None, CACHE, None, np.array([0, 1, 32])), {}),
        ("rows 0 and 2 both have slot 5, another one for each was needed", "append", (K, None, CACHE, None, np.array([5, 1, 5])), {}),
        ("which is written, too: memory of its own was needed", "append", (K, K, CACHE, CACHE, SLOTS), {}),
        ("k, v, k_cache, v_cache, slots: the cache of K", "append", (K, None, room(CACHE.shape), None, SLOTS), {}),
    ],
)
def test_what_is_refused_is_named(words, function, given, keywords):
    function = {"merge": falchion.merge_attention, "append": falchion.append_pages}[function]
    with pytest.raises(ValueError) as error:
        function(*given, **keywords)
    assert words in str(error.value), str(error.value)
    read_only = CACHE.copy()
    read_only.flags.writeable = False
    with pytest.raises(ValueError, match="k_cache is read-only"):
        falchion.append_pages(K, None, read_only, None, SLOTS)
    with pytest.raises(TypeError):
        falchion.append_pages(K, None, CACHE, SLOTS)


def test_integers_are_taken_as_types_says():
    a, lse = np.random.default_rng(1).standard_normal((2, 2, 5, 16)).astype(np.float16), np.float32([[0, 1, 2, 3, 4]] * 2)
    o, _ = falchion.merge_attention(a[0].view(np.uint16), lse, a[1].view(np.uint16), lse, types="f16")
    np.testing.assert_array_equal(o.view(np.float16), falchion.merge_attention(a[0], lse, a[1], lse)[0])
    cache = np.zeros((4, 2, 8, 16), np.uint16)
    falchion.append_pages(K.view(np.uint16), None, cache, None, SLOTS, types="bf16")
    assert (cache[0, :, :3].swapaxes(0, 1) == K.view(np.uint16)).all() and not cache[1:].any()


def test_tensors_of_torch_are_taken():
    torch = pytest.importorskip("torch")
    a, b = (torch.randn(2, 3, 9, 16, dtype=torch.bfloat16) for _ in range(2))
    lse = torch.randn(2, 2, 3, 9)
    o, sums = falchion.merge_attention(a, lse[0], b, lse[1])
    weights = lse.softmax(0)[..., None]
    assert (o - (weights[0] * a + weights[1] * b)).abs().max() < 0.02 and (sums - lse.logsumexp(0)).abs().max() < 1e-5
    k, cache = torch.randn(4, 2, 32, dtype=torch.float16), torch.zeros(3, 8, 2, 32, dtype=torch.float16)
    table = torch.tensor([[2, 0], [1, 0]], dtype=torch.int32)
    slots = falchion.cache.slots(table, torch.tensor([7, -1]), 8, 2)
    assert slots.tolist() == [23, 0, -1, -1]
    # Other libraries have the heads of a key in front of the next key.
    falchion.append_pages(k, k, cache.transpose(1, 2), (other := cache.clone()).transpose(1, 2), slots)
    assert (cache[2, 7] == k[0]).all() and (cache[0, 0] == k[1]).all() and (cache == other).all() and not cache[1].any()
    slots = falchion.cache.slots(table, torch.tensor([3, 1]), 8, torch.tensor([1, 3]))
    assert slots.tolist() == [19, 9, 10, 11]
    with pytest.raises(ValueError, match="o_a requires a gradient"):
        falchion.merge_attention(a.requires_grad_(), lse[0], b, lse[1])
