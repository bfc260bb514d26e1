"""Attention: random shapes, strides and masks, compared with double precision; and what is refused."""

import falchion
import numpy as np
import pytest
from calls import attended as expected
from reference import ml_dtypes


def tensor(rng, shape, dtype, way):
    """A random tensor: packed, with heads after the length, with gaps, or at an odd address."""
    values = (rng.standard_normal(shape) * 0.7).astype(dtype)
    if way == 1:
        return np.ascontiguousarray(values.swapaxes(-2, -3)).swapaxes(-2, -3)
    if way == 2:
        room = np.zeros((*shape[:-1], shape[-1] + 8), dtype)
        room[..., : shape[-1]] = values
        return room[..., : shape[-1]]
    if way == 3:
        room = np.zeros(values.size + 1, dtype)
        room[1:] = values.ravel()
        return room[1:].reshape(shape)
    if way == 4:
        return np.ascontiguousarray(values.swapaxes(-1, -2)).swapaxes(-1, -2)
    return values


def one(rng, trace):
    """One random call. Returns what is wrong, or `None`."""
    dtype = np.float16 if not ml_dtypes or rng.integers(2) else ml_dtypes.bfloat16
    shared = int(rng.integers(1, 3))
    heads = shared * int(rng.integers(1, 3))
    length, keys = (int(rng.integers(1, 150)) for _ in range(2))
    d, dv = [(64, 64), (64, 64), (128, 128), (96, 96), (192, 128), (80, 80), (112, 80)][rng.integers(7)]
    lead = [(), (1,), (2,)][rng.integers(3)]
    ways = [int(rng.integers(6)) for _ in range(4)]
    causal, scale = bool(rng.integers(2)), [None, 0.2][rng.integers(2)]
    q = tensor(rng, (*lead, heads, length, d), dtype, ways[0])
    k = tensor(rng, (*lead, shared, keys, d), dtype, ways[1])
    v = tensor(rng, (*lead, shared, keys, dv), dtype, ways[2])
    window = [None, None, (int(rng.integers(0, 40)), -1), (-1, int(rng.integers(0, 9))), (7, 3)][rng.integers(5)]
    keywords = {"causal": causal, "scale": scale, "window": window}
    out_dtype = dtype
    if rng.integers(2):
        out_dtype = np.float32 if rng.integers(2) else dtype
        # `out` is written as it lies: at any address, with any strides between heads.
        keywords["out"] = tensor(rng, (*lead, heads, length, dv), out_dtype, ways[3] % 4)
        keywords["out"][...] = np.nan
    trace.append((dtype, lead, heads, shared, length, keys, d, dv, ways, causal, window, keywords.keys()))
    o, sums = falchion.attention(q, k, v, log_sum_exp=True, **keywords)
    wanted, of_sums = expected(q, k, v, causal, d**-0.5 if scale is None else scale, window or (-1, -1))
    if o.shape != wanted.shape or o.dtype != out_dtype or ("out" in keywords and o is not keywords["out"]):
        return f"shape {o.shape}, {o.dtype}"
    unit = 2.0**-8 if dtype != np.float16 else 2.0**-11
    error = np.abs(np.asarray(o, np.float64) - wanted).max()
    if not error <= 8 * unit * max(1.0, np.abs(wanted).max()):
        return f"O differs by {error}"
    finite = np.isfinite(of_sums)
    if (np.isfinite(sums) != finite).any() or not (np.abs(sums[finite] - of_sums[finite]) <= 1e-3).all():
        return "the log-sum-exp differs"
    return None


@pytest.mark.parametrize("seed", range(3))
def test_random_calls(seed):
    rng = np.random.default_rng(seed)
    for _ in range(3):
        trace = []
        wrong = one(rng, trace)
        assert wrong is None, (wrong, trace)


@pytest.mark.parametrize("shape", [(2, 5, 2, 1, 70), (1, 16, 3, 1, 33), (1, 4, 1, 2, 1)])
def test_latent_attention_reads_k_once(shape):
    batch, heads, length, shared, keys = shape
    rng = np.random.default_rng(keys)
    q = tensor(rng, (batch, heads * shared, length, 576), np.float16, 1)
    k = tensor(rng, (batch, shared, keys, 576), np.float16, 1)
    wanted, of_sums = expected(q, k, k[..., :512], True, 0.07)
    for v in (), (k[..., :512],):
        o, sums = falchion.attention(q, k, *v, causal=True, scale=0.07, log_sum_exp=True)
        assert o.shape == wanted.shape and np.abs(o.astype(float) - wanted).max() <= 2.0**-8 * max(1.0, np.abs(wanted).max())
        seen = np.isfinite(of_sums)
        assert np.abs(sums[seen] - of_sums[seen]).max() <= 1e-3 and (np.isfinite(sums) == seen).all()
    with pytest.raises(ValueError, match="v is a tensor of its own, the first 512 of the 576 elements"):
        falchion.attention(q, k, k[..., :512].copy())
    with pytest.raises(ValueError, match="v is None and heads have 64 elements"):
        falchion.attention(q[..., :64], k[..., :64])


def test_log_sum_exp_is_written_where_it_is_asked_for():
    q = np.random.default_rng(3).standard_normal((2, 70, 64)).astype(np.float16)
    sums = np.full((2, 70), np.nan, np.float32)
    o, same = falchion.attention(q, q, q, log_sum_exp=sums)
    assert same is sums and np.isfinite(sums).all()
    assert isinstance(falchion.attention(q, q, q, log_sum_exp=False), np.ndarray)
    plain = falchion.attention(q, q, q, spec="tile=64x64")
    assert np.abs(plain.astype(float) - o.astype(float)).max() < 1e-2


def test_integers_are_taken_as_types_says():
    q = np.random.default_rng(3).standard_normal((2, 70, 64)).astype(np.float16)
    o = falchion.attention(q.view(np.uint16), q.view(np.uint16), q.view(np.uint16), types="f16")
    assert o.dtype == np.uint16
    np.testing.assert_array_equal(o.view(np.float16), falchion.attention(q, q, q))


@pytest.mark.parametrize("seed", range(4))
def test_sequences_of_different_lengths(seed):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 90, (4, 2))
    begins = np.concatenate([np.zeros((1, 2), np.int32), lengths.cumsum(0).astype(np.int32)])
    begins_q, begins_k = (np.ascontiguousarray(begins[:, i]) for i in (0, 1))
    causal, window = bool(seed % 2), [None, (11, 2)][seed // 2]
    # (rows, heads, D), as other libraries have it, and a view with the heads in front.
    q, k, v = (rng.standard_normal((rows, heads, 64)).astype(np.float16) for rows, heads in ((begins[4, 0], 4), (begins[4, 1], 2), (begins[4, 1], 2)))
    q, k, v = (x.swapaxes(0, 1) for x in (q, k, v))
    o, sums = falchion.attention(q, k, v, causal=causal, window=window, cu_seqlens_q=begins_q, cu_seqlens_k=begins_k, log_sum_exp=True)
    for (first_q, first_k), (end_q, end_k) in zip(begins, begins[1:]):
        wanted, of_sums = expected(q[:, first_q:end_q], k[:, first_k:end_k], v[:, first_k:end_k], causal, 0.125, window or (-1, -1)) if end_k > first_k else (0, -np.inf)
        assert np.abs(o[:, first_q:end_q] - wanted).max(initial=0) < 5e-3
        np.testing.assert_allclose(sums[:, first_q:end_q], np.broadcast_to(of_sums, (4, end_q - first_q)), atol=1e-3)


@pytest.mark.parametrize("packed", [False, True])
def test_pages_of_a_cache(packed):
    rng = np.random.default_rng(5)
    pages, page, lengths = 40, 32, np.array([300, 45, 0], np.int32)
    table = np.full((3, 12), 2**31 - 1, np.int32)
    for row, length in zip(table, lengths):
        used = -(-int(length) // page)
        row[:used] = rng.permutation(pages)[:used]
    k, v = (rng.standard_normal((pages, page, 2, 64)).astype(np.float16).swapaxes(1, 2) for _ in range(2))
    queries = [1, 7, 2] if packed else [3, 3, 3]
    begins = np.cumsum([0, *queries]).astype(np.int32)
    q = rng.standard_normal((4, begins[-1], 64)).astype(np.float16)
    keywords = {"causal": True, "block_table": table, "cache_seqlens": lengths}
    if packed:
        o = falchion.attention(q, k, v, cu_seqlens_q=begins, **keywords)
    else:
        o = falchion.attention(np.ascontiguousarray(q.reshape(4, 3, 3, 64).swapaxes(0, 1)), k, v, **keywords).swapaxes(0, 1).reshape(4, 9, 64)
    for i, length in enumerate(lengths):
        own = [x[table[i, : -(-int(length) // page)]].swapaxes(0, 1).reshape(2, -1, 64)[:, :length] for x in (k, v)]
        wanted = expected(q[:, begins[i] : begins[i + 1]], *own, True, 0.125)[0] if length else 0
        assert np.abs(o[:, begins[i] : begins[i + 1]] - wanted).max() < 5e-3
    table[1, 1] = pages
    with pytest.raises(ValueError, match="page 1 of sequence 1 is page 40 of a cache of 40 pages"):
        falchion.attention(q, k, v, cu_seqlens_q=begins, **keywords) if packed else falchion.attention(q[None].repeat(3, 0), k, v, **keywords)


def test_few_queries_divide_the_keys():
    rng = np.random.default_rng(6)
    q, k = rng.standard_normal((1, 2, 1, 64)).astype(np.float16), rng.standard_normal((1, 1, 3000, 64)).astype(np.float16)
    o = falchion.attention(q, k, k)
    assert np.abs(o - expected(q, k, k, False, 0.125)[0]).max() < 5e-3


@pytest.mark.parametrize(("batch", "queries", "keys"), [(0, 5, 5), (1, 0, 5), (1, 5, 0), (2, 0, 0)])
def test_nothing_is_attended(batch, queries, keys):
    q, k = np.ones((batch, 6, queries, 128), np.float16), np.ones((batch, 6, keys, 128), np.float16)
    o, sums = falchion.attention(q, k, k, log_sum_exp=True)
    assert o.shape == q.shape and not o.any() and sums.shape == q.shape[:3] and (sums == -np.inf).all()
    of_q, of_k, of_v = falchion.attention_backward(q, k, k, o, o, sums)
    assert of_q.shape == q.shape and of_k.shape == of_v.shape == k.shape and not any(x.any() for x in (of_q, of_k, of_v))


Q = np.ones((2, 3, 64), np.float16)
INTS = np.array([0, 3], np.int32)


@pytest.mark.parametrize(
    ("words", "call"),
    [
        ("q has shape (3, 64)", lambda: falchion.attention(Q[0], Q, Q)),
        ("q has elements of float32, float16, bfloat16 or float8_e4m3fn was needed", lambda: falchion.attention(*[Q.astype("f4")] * 3)),
        ("q has elements of uint16, float16, bfloat16 or float8_e4m3fn was needed, or types= for unsigned integers", lambda: falchion.attention(*[Q.view("u2")] * 3)),
        ('types is "f32"', lambda: falchion.attention(*[Q.view("u2")] * 3, types="f32")),
        ("k has shape (2, 3, 128), (2, 3, 64) was needed", lambda: falchion.attention(Q, np.ones((2, 3, 128), "f2"), Q)),
        ("v has shape (2, 4, 64), (2, 3, 64) was needed", lambda: falchion.attention(Q, Q, np.ones((2, 4, 64), "f2"))),
        ("v has elements of float32, float16 was needed", lambda: falchion.attention(Q, Q, Q.astype("f4"))),
        ("2 heads of queries and 3 of keys", lambda: falchion.attention(Q, *[np.ones((3, 3, 64), "f2")] * 2)),
        ("d, the elements of a head of Q and K, is 40", lambda: falchion.attention(*[np.ones((2, 3, 40), "f2")] * 3)),
        ("d, the elements of a head of Q and K, is 4, a multiple of 16", lambda: falchion.attention(*[np.ones((2, 3, 4), "f2")] * 3)),
        ("q, k, v: the scale is -1", lambda: falchion.attention(Q, Q, Q, scale=-1)),
        ("out has shape (2, 3, 32), (2, 3, 64) was needed", lambda: falchion.attention(Q, Q, Q, out=np.ones((2, 3, 32), "f2"))),
        ("out has elements of int32", lambda: falchion.attention(Q, Q, Q, out=np.ones((2, 3, 64), "i4"))),
        ("log_sum_exp has shape (3,)", lambda: falchion.attention(Q, Q, Q, log_sum_exp=np.ones(3, "f4"))),
        ("spec: mask is `causal`, `full` was needed", lambda: falchion.attention(Q, Q, Q, spec="mask=causal")),
        ("window is (2147483647, 0), at most", lambda: falchion.attention(Q, Q, Q, window=(2**31 - 1, 0))),
        ("cu_seqlens_q is [0, 2], numbers from 0 to 3", lambda: falchion.attention(Q, Q, Q, cu_seqlens_q=np.array([0, 2], np.int32))),
        ("cu_seqlens_q has elements of float32, int32 was needed", lambda: falchion.attention(Q, Q, Q, cu_seqlens_q=np.ones(1, np.float32))),
        ("max_seqlen_q is 2, and a sequence has 3", lambda: falchion.attention(Q, Q, Q, cu_seqlens_q=INTS, max_seqlen_q=2)),
        ("q has shape (1, 2, 3, 64), cu_seqlens_q (2,)", lambda: falchion.attention(Q[None], Q[None], Q[None], cu_seqlens_q=INTS)),
        ("max_seqlen_q is given and cu_seqlens_q is not", lambda: falchion.attention(Q, Q, Q, max_seqlen_q=3)),
        ("block_table is given and cache_seqlens is not: both were needed", lambda: falchion.attention(Q, Q, Q, block_table=INTS[None])),
        ("k has shape (2, 3, 64), block_table (1, 2)", lambda: falchion.attention(Q, Q, Q, block_table=INTS[None], cache_seqlens=INTS)),
        ("which is (heads, rows, d); for (rows, heads, d) pass the view q.swapaxes(0, 1)", lambda: falchion.attention(*[np.ones((90, 4, 64), "f2")] * 3, cu_seqlens_q=np.array([0, 90]))),
        ("cu_seqlens_k and block_table are given", lambda: falchion.attention(Q, Q[None], Q[None], cu_seqlens_q=INTS, cu_seqlens_k=INTS, block_table=INTS[None], cache_seqlens=INTS)),
        ("max_seqlen_k is given, and cu_seqlens_q and block_table are not", lambda: falchion.attention(Q, Q, Q, max_seqlen_k=3)),
        ("max_seqlen_k is 5, and cache_seqlens has 9", lambda: falchion.attention(Q[None], *[np.ones((2, 2, 16, 64), "f2")] * 2, block_table=np.array([[0]]), cache_seqlens=np.array([9]), max_seqlen_k=5)),
        ("max_seqlen_q is -1, a whole number", lambda: falchion.attention(Q, Q, Q, cu_seqlens_q=INTS, max_seqlen_q=-1)),
        ("window is 1099511627776, a whole number", lambda: falchion.attention(Q, Q, Q, window=(2**40, 0))),
        ("log_sum_exp has elements of >f4", lambda: falchion.attention(Q, Q, Q, log_sum_exp=np.ones((2, 3), ">f4"))),
        ("out has elements of int16, float16 was needed", lambda: falchion.attention(Q, Q, Q, out=np.ones((2, 3, 64), "i2"))),
        ("spec: `tile=1`", lambda: falchion.attention(Q, Q, Q, spec="tile=1")),
    ],
)
def test_refusals(words, call):
    with pytest.raises(ValueError) as error:
        call()
    assert words in str(error.value)


def test_tables_of_64_bits_are_converted():
    rng = np.random.default_rng(11)
    q, k = (rng.standard_normal((2, rows, 64)).astype(np.float16) for rows in (9, 30))
    begins, of_keys = [0, 4, 9], [0, 11, 30]
    both = [falchion.attention(q, k, k, cu_seqlens_q=np.array(begins, of), cu_seqlens_k=np.array(of_keys, of)) for of in (np.int32, np.int64)]
    np.testing.assert_array_equal(*both)
    cache = rng.standard_normal((5, 2, 16, 64)).astype(np.float16)
    paged = [falchion.attention(q[None, :, :4], cache, cache, block_table=np.array([[3, 0, 4]], of), cache_seqlens=np.array([41], of)) for of in (np.int32, np.int64)]
    np.testing.assert_array_equal(*paged)
    for wrong, words in (
        (np.array([0, 2**40, 9]), "cu_seqlens_q has the number 1099511627776, numbers that int32 holds were needed"),
        (np.array([0, 4, 9], np.int16), "cu_seqlens_q has elements of int16, int32 was needed"),
        (np.array([0, 4, 9], np.float32), "cu_seqlens_q has elements of float32, int32 was needed"),
    ):
        with pytest.raises(ValueError, match=words):
            falchion.attention(q, k, k, cu_seqlens_q=wrong, cu_seqlens_k=np.array(of_keys))
    for table, lengths, words in (
        ([[3, -1, 4]], [41], "block_table has page -1 in sequence 0, which has 41 keys: 0 to 4 was needed"),
        ([[3, 0, 4]], [-2], "cache_seqlens has -2, 0 or more was needed"),
        ([[3, 0, 4]], [50], r"sequence 0 has 50 keys, which need 4 pages; .* as k of shape .5, 2, 16, 64. says, .pages, heads, keys of a page, d."),
    ):
        with pytest.raises(ValueError, match=words):
            falchion.attention(q[None, :, :4], cache, cache, block_table=np.array(table), cache_seqlens=np.array(lengths))
    unused = falchion.attention(q[None, :, :4], cache, cache, block_table=np.array([[3, -1, -1]]), cache_seqlens=np.array([16]))
    np.testing.assert_array_equal(unused, falchion.attention(q[None, :, :4], cache, cache, block_table=np.array([[3, 0, 0]]), cache_seqlens=np.array([16])))


def with_formulas(rng, q, k, v, changed, seen):
    """The result in double precision, of functions of scores (B, H, L, S) and the numbers of queries and keys."""
    share = q.shape[1] // k.shape[1]
    k, v = (np.repeat(np.asarray(x, np.float64), share, 1) for x in (k, v))
    rows, columns = np.arange(q.shape[2])[:, None], np.arange(k.shape[2])[None]
    scores = changed(np.asarray(q, np.float64) @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]), rows, columns)
    weights = np.where(seen(rows, columns), np.exp(scores), 0.0)
    sums = weights.sum(-1, keepdims=True)
    return np.where(sums == 0, 0.0, weights @ v / np.where(sums == 0, 1.0, sums))


def test_formulas_of_scores_and_masks_read_arrays():
    rng = np.random.default_rng(20)
    q = tensor(rng, (2, 4, 45, 64), np.float16, 0)
    k, v = (tensor(rng, (2, 2, 70, 64), np.float16, 1) for _ in range(2))
    slopes = np.array([0.5, -0.25, 0.0, 0.125], np.float32)
    # Every other column, from the last one to the first.
    table = rng.standard_normal((4, 162)).astype(np.float16)[:, ::-2]
    documents = np.repeat(np.arange(7, dtype=np.int32), 10)[None].repeat(2, 0)
    kept = (rng.integers(0, 3, (45, 70)) > 0).astype(np.uint8)
    everything = lambda rows, columns: (rows + columns) >= 0
    same = lambda scores, rows, columns: scores
    for keywords, changed, seen in [
        (
            {"score": "x - slope[h] * abs(q - k)", "arrays": {"slope": slopes}},
            lambda x, q, k: x - slopes[:, None, None] * abs(q - k),
            everything,
        ),
        (
            {"score": "softcap(x, 2) + bias[h, k - q + 45]:f16", "sees": "q >= k - 9", "arrays": {"bias": table}},
            lambda x, q, k: 2 * np.tanh(x / 2) + table[:, np.clip(k - q + 45, 0, 80)],
            lambda q, k: q >= k - 9,
        ),
        (
            {"sees": "document[b,q]:s32 == document[b,k]:s32", "arrays": {"document": documents}},
            same,
            lambda q, k: documents[0][q] == documents[0][k],
        ),
        ({"sees": "keep[q,k]:u8 != 0", "arrays": {"keep": kept}}, same, lambda q, k: kept[q, k] != 0),
        ({"sees": "k < 0"}, same, lambda q, k: q + k < 0),
    ]:
        o = falchion.attention(q, k, v, **keywords)
        wanted = with_formulas(rng, q, k, v, changed, seen)
        assert np.abs(np.asarray(o, np.float64) - wanted).max() < 4e-3, keywords


def test_formulas_that_are_refused():
    q = np.ones((1, 2, 9, 64), np.float16)
    bias = np.zeros((9, 9), np.float32)
    for words, keywords in [
        ("score: `y` is no name of scores", {"score": "x+y"}),
        ("sees: the text is a number, a truth", {"sees": "q-k"}),
        ("the array bias is a null pointer", {"score": "x+bias[q,k]"}),
        ('arrays["bias"] is given, and neither score nor sees reads it', {"score": "x", "arrays": {"bias": bias}}),
        ("arrays has no bias, which the formula reads: 2 dimensions of f32", {"score": "x+a[q,k]+bias[q,k]", "arrays": {"a": bias}}),
        ('arrays["bias"] has elements of float64, float32 was needed', {"score": "x+bias[q,k]", "arrays": {"bias": bias.astype(float)}}),
        ('arrays["bias"] has shape (9, 9), 1 dimensions', {"score": "x+bias[q]", "arrays": {"bias": bias}}),
        ("the array bias has 8 elements along dimension 0, 9 queries", {"score": "x+bias[q,k]", "arrays": {"bias": bias[1:]}}),
        ("arrays is a list, a dict of arrays", {"score": "x", "arrays": [bias]}),
        ("mask is causal, full with score or sees", {"sees": "q>=k", "causal": True}),
        ("softcap is on, off with score or sees", {"score": "x", "softcap": 2.0}),
    ]:
        with pytest.raises(ValueError) as refused:
            falchion.attention(q, q, q, **keywords)
        assert words in str(refused.value), str(refused.value)
