"""`falchion.flash_attn` and `falchion.torch.scaled_dot_product_attention`: signatures, results and gradients in `f64`, and what is refused.
Skipped without torch."""

import inspect
import itertools
import re

import pytest

torch = pytest.importorskip("torch")

import falchion.flash_attn as fa
import falchion.torch as ft

# What is after the tensors in functions with gradients.
TRAINED = [("dropout_p", 0.0), ("softmax_scale", None), ("causal", False), ("window_size", (-1, -1)), ("softcap", 0.0)]
TRAINED += [("alibi_slopes", None), ("deterministic", False), ("return_attn_probs", False)]
NEEDED = inspect.Parameter.empty
SEQUENCES = [(name, NEEDED) for name in ("cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k")]
# The parameters and defaults of flash-attn 2.8.
SIGNATURES = {
    "flash_attn_func": [("q", NEEDED), ("k", NEEDED), ("v", NEEDED), *TRAINED],
    "flash_attn_qkvpacked_func": [("qkv", NEEDED), *TRAINED],
    "flash_attn_kvpacked_func": [("q", NEEDED), ("kv", NEEDED), *TRAINED],
    "flash_attn_varlen_func": [("q", NEEDED), ("k", NEEDED), ("v", NEEDED), *SEQUENCES, *TRAINED, ("block_table", None)],
    "flash_attn_varlen_qkvpacked_func": [("qkv", NEEDED), ("cu_seqlens", NEEDED), ("max_seqlen", NEEDED), *TRAINED],
    "flash_attn_varlen_kvpacked_func": [("q", NEEDED), ("kv", NEEDED), *SEQUENCES, *TRAINED],
    "flash_attn_with_kvcache": [
        ("q", NEEDED),
        ("k_cache", NEEDED),
        ("v_cache", NEEDED),
        ("k", None),
        ("v", None),
        ("rotary_cos", None),
        ("rotary_sin", None),
        ("cache_seqlens", None),
        ("cache_batch_idx", None),
        ("cache_leftpad", None),
        ("block_table", None),
        ("softmax_scale", None),
        ("causal", False),
        ("window_size", (-1, -1)),
        ("softcap", 0.0),
        ("rotary_interleaved", True),
        ("alibi_slopes", None),
        ("num_splits", 0),
        ("return_softmax_lse", False),
    ],
}


def ints(*numbers):
    return torch.tensor(numbers, dtype=torch.int32)


def halves(*shape, dtype=torch.float16):
    return torch.randn(*shape).to(dtype)


def close(found, wanted, tolerance=3e-3):
    assert found.shape == wanted.shape
    error = (found.double() - wanted.double()).abs().max() / wanted.double().abs().max().clamp(min=1e-3)
    assert error <= tolerance, error


def plain(q, k, v, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None):
    """In f64, of tensors (batch, rows, heads, elements): the result and the log-sum-exp."""
    rows, keys, share = q.shape[1], k.shape[1], q.shape[2] // k.shape[2]
    q, k, v = q.double().transpose(1, 2), *(x.double().transpose(1, 2).repeat_interleave(share, 1) for x in (k, v))
    scores = q @ k.mT * (q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale)
    scores = softcap * torch.tanh(scores / softcap) if softcap > 0 else scores
    # The last query stands at the last key.
    behind = torch.arange(rows)[:, None] + keys - rows - torch.arange(keys)
    if alibi_slopes is not None:
        scores = scores - alibi_slopes.double()[..., None, None] * behind.abs()
    left, right = (window_size[0], 0 if causal else window_size[1])
    seen = torch.ones(rows, keys, dtype=torch.bool)
    seen &= (behind <= left) | torch.tensor(left < 0)
    seen &= (behind >= -right) | torch.tensor(right < 0)
    scores = scores.masked_fill(~seen, -torch.inf)
    weights = torch.softmax(scores, -1).masked_fill(~seen.any(-1)[:, None], 0)
    return (weights @ v).transpose(1, 2), torch.logsumexp(scores, -1)


def compare(found, wanted):
    """A result and its log-sum-exp, without one, or one with empty probabilities."""
    o, sums = wanted
    found = found if isinstance(found, tuple) else (found,)
    assert found[0].is_contiguous()
    close(found[0], o)
    for of_sums in found[1:2]:
        assert of_sums.dtype == torch.float32 and of_sums.shape == sums.shape and (of_sums.isneginf() == sums.isneginf()).all()
        assert (of_sums.double() - sums).nan_to_num().abs().max() < 2e-3
    for probabilities in found[2:]:
        assert probabilities.shape == (0,) and probabilities.dtype == found[0].dtype


# Words of the scores, with which everything is called.
SCORES = [
    {},
    {"causal": True, "softmax_scale": 0.2},
    {"window_size": (9, 4)},
    {"window_size": (9, -1), "causal": True},
    {"window_size": (-1, 3)},
    {"window_size": (5, 7), "causal": True},
    {"softcap": 2.0, "causal": True},
    {"softcap": -1.0},
    {"alibi_slopes": (4,)},
    {"alibi_slopes": (2, 4), "causal": True, "softcap": 1.5},
]


def said(scores):
    """With slopes of their shape."""
    torch.manual_seed(7)
    slopes = {"alibi_slopes": torch.rand(scores["alibi_slopes"])} if "alibi_slopes" in scores else {}
    return scores | slopes


def check_gradients(call, wanted, inputs):
    """That the gradients of some tensors are those in f64."""
    own = [x.clone().requires_grad_() for x in inputs]
    wide = [x.double().requires_grad_() for x in inputs]
    o, expected = call(*own), wanted(*wide)
    torch.manual_seed(3)
    d_o = torch.randn(o.shape).half()
    o.backward(d_o)
    expected.backward(d_o.double())
    for found, of in zip(own, wide):
        close(found.grad, of.grad, 8e-3)


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures(name):
    found = inspect.signature(getattr(fa, name)).parameters.values()
    assert [(of.name, of.default) for of in found] == SIGNATURES[name]
    assert all(of.kind == inspect.Parameter.POSITIONAL_OR_KEYWORD for of in found)


def test_all_names_are_there():
    assert sorted(fa.__all__) == sorted(SIGNATURES)


@pytest.mark.parametrize("scores", SCORES, ids=str)
@pytest.mark.parametrize(("rows", "keys"), [(33, 33), (21, 47), (29, 11)])
def test_equal_lengths(scores, rows, keys):
    words = said(scores)
    inputs = [halves(2, rows, 4, 64), halves(2, keys, 2, 64), halves(2, keys, 2, 64)]
    wanted = plain(*inputs, **words)
    compare(fa.flash_attn_func(*inputs, **words), wanted)
    compare(fa.flash_attn_func(*inputs, **words, return_attn_probs=True), wanted)
    q, kv = inputs[0], torch.stack(inputs[1:], 2)
    compare(fa.flash_attn_kvpacked_func(q, kv, **words, return_attn_probs=True), wanted)
    if rows == keys:
        qkv = halves(2, rows, 3, 4, 64)
        compare(fa.flash_attn_qkvpacked_func(qkv, **words, return_attn_probs=True), plain(*qkv.unbind(2), **words))
    check_gradients(lambda *x: fa.flash_attn_func(*x, **words), lambda *x: plain(*x, **words)[0], inputs)
    check_gradients(lambda *x: fa.flash_attn_kvpacked_func(*x, **words), lambda q, kv: plain(q, *kv.unbind(2), **words)[0], [q, kv])
    if rows == keys:
        check_gradients(lambda x: fa.flash_attn_qkvpacked_func(x, **words), lambda x: plain(*x.unbind(2), **words)[0], [qkv])


def by_sequence(q, k, v, begins_q, begins_k, alibi_slopes=None, **words):
    """`plain` of each sequence."""
    parts = []
    for i, ((a, b), (c, d)) in enumerate(zip(itertools.pairwise(begins_q.tolist()), itertools.pairwise(begins_k.tolist()))):
        of = alibi_slopes if alibi_slopes is None or alibi_slopes.dim() == 1 else alibi_slopes[i]
        parts.append([x[0] for x in plain(q[None, a:b], k[None, c:d], v[None, c:d], alibi_slopes=of, **words)])
    o, sums = zip(*parts)
    return torch.cat(o), torch.cat(sums, 1)


@pytest.mark.parametrize("scores", SCORES, ids=str)
def test_different_lengths(scores):
    words = said(scores)
    begins, begins_k = ints(0, 25, 56), ints(0, 40, 61)
    lengths = (begins, begins_k, 31, 40)
    inputs = [halves(56, 4, 64), halves(61, 2, 64), halves(61, 2, 64)]
    wanted = by_sequence(*inputs, begins, begins_k, **words)
    compare(fa.flash_attn_varlen_func(*inputs, *lengths, **words), wanted)
    compare(fa.flash_attn_varlen_func(*inputs, *lengths, **words, return_attn_probs=True), wanted)
    q, kv, qkv = inputs[0], torch.stack(inputs[1:], 1), halves(56, 3, 4, 64)
    compare(fa.flash_attn_varlen_kvpacked_func(q, kv, *lengths, **words, return_attn_probs=True), wanted)
    of_qkv = by_sequence(*qkv.unbind(1), begins, begins, **words)
    compare(fa.flash_attn_varlen_qkvpacked_func(qkv, begins, 31, **words, return_attn_probs=True), of_qkv)
    of = lambda *x: by_sequence(*x, begins, begins_k, **words)[0]
    check_gradients(lambda *x: fa.flash_attn_varlen_func(*x, *lengths, **words), of, inputs)
    check_gradients(lambda *x: fa.flash_attn_varlen_kvpacked_func(*x, *lengths, **words), lambda q, kv: of(q, *kv.unbind(1)), [q, kv])
    of = lambda x: by_sequence(*x.unbind(1), begins, begins, **words)[0]
    check_gradients(lambda x: fa.flash_attn_varlen_qkvpacked_func(x, begins, 31, **words), of, [qkv])


@pytest.mark.parametrize("page", [16, 48, 512])
@pytest.mark.parametrize("scores", SCORES[1::4], ids=str)
def test_different_lengths_in_pages(scores, page):
    words = said(scores)
    begins, begins_k = ints(0, 5, 14), ints(0, 40, 53)
    cache, table = [halves(7, page, 2, 64) for _ in range(2)], ints(5, 0, 2, 3, -1, -1).view(2, 3)
    q = halves(14, 4, 64)
    rows = [torch.cat([x[table[i]].flatten(0, 1)[:n] for i, n in enumerate((40, 13))]) for x in cache]
    wanted = by_sequence(q, *rows, begins, begins_k, **words)
    compare(fa.flash_attn_varlen_func(q, *cache, begins, begins_k, 9, 40, **words, return_attn_probs=True, block_table=table), wanted)


@pytest.mark.parametrize("d", [64, 128])
def test_gradients_in_order(d):
    inputs = [halves(1, 40, h, d, dtype=torch.bfloat16).requires_grad_() for h in (4, 2, 2)]
    found = []
    for deterministic in (False, True, True):
        fa.flash_attn_func(*inputs, causal=True, deterministic=deterministic).float().sin().sum().backward()
        found.append([x.grad for x in inputs])
        for x in inputs:
            x.grad = None
    for first, second, third in zip(*found):
        assert torch.equal(second, third)
        close(first, second, 1e-2)


def test_gradients_in_order_are_asked_for(monkeypatch):
    """The choice reaches the kernel, also in a compiled program."""
    seen = []
    own = ft._native.attention_backward
    monkeypatch.setattr(ft._native, "attention_backward", lambda *x, **words: seen.append(words["deterministic"]) or own(*x, **words))
    q = halves(1, 20, 2, 64).requires_grad_()
    for deterministic in (False, True):
        run = lambda q: fa.flash_attn_func(q, q, q, deterministic=deterministic).float().sum()
        run(q).backward()
        torch.compile(run, fullgraph=True, backend="aot_eager")(q).backward()
    assert seen == [False, False, True, True]


def written(cache, new, lengths, table):
    """A cache after new keys, key by key, and the keys of each sequence."""
    cache, page = cache.clone(), cache.shape[1]
    each = []
    for i, length in enumerate(lengths):
        for j, row in enumerate(new[i]):
            at = length + j
            cache[table[i][at // page], at % page] = row
        each.append(cache[table[i]].flatten(0, 1)[: length + new.shape[1]])
    return cache, each


def cached(form, keys):
    """A cache in a form: K and V, the pages of each of two sequences, and the arguments that say so."""
    if form == "pages":
        table = ints(5, 0, 2, 3, 6, 1).view(2, 3)
        return [halves(7, keys, 2, 64) for _ in range(2)], table.tolist(), {"block_table": table}
    cache = [halves(3, keys, 2, 64) for _ in range(2)]
    return cache, *(([[2], [0]], {"cache_batch_idx": ints(2, 0)}) if form == "chosen" else ([[0], [1]], {}))


# Pages of falchion's, larger ones, and rows that are not divided into pages.
CACHES = [("pages", 16), ("pages", 48), ("pages", 320), ("rows", 64), ("rows", 61), ("chosen", 80)]


@pytest.mark.parametrize("scores", [SCORES[i] for i in (1, 2, 3, 8, 9)], ids=str)
@pytest.mark.parametrize(("form", "keys"), CACHES)
def test_caches(form, keys, scores):
    words = said(scores)
    cache, table, where = cached(form, keys)
    slopes = words.pop("alibi_slopes", None)
    # One query and several, without new keys and with them; one length for all, also as a number, and one of each.
    for (rows, new), given in itertools.product([(1, 0), (1, 1), (7, 7), (3, 5)], [31, ints(31, 17), torch.tensor([0, 40])]):
        lengths = [given] * 2 if isinstance(given, int) else given.tolist()
        q, k, v = halves(2, rows, 4, 64), halves(2, new, 2, 64), halves(2, new, 2, 64)
        (k_cache, keys_of), (v_cache, values_of) = (written(x, y, lengths, table) for x, y in zip(cache, (k, v)))
        own = [x.clone() for x in cache]
        added = {"k": k, "v": v} if new else {}
        of_slopes = {} if slopes is None else {"alibi_slopes": slopes}
        found = fa.flash_attn_with_kvcache(q, *own, cache_seqlens=given, **where, **added, **words, **of_slopes, return_softmax_lse=True)
        assert torch.equal(own[0], k_cache) and torch.equal(own[1], v_cache)
        for i in range(2):
            of = None if slopes is None else slopes.expand(2, 4)[i]
            wanted = plain(q[i : i + 1], keys_of[i][None], values_of[i][None], alibi_slopes=of, **words)
            compare(tuple(x[i : i + 1] for x in found), wanted)


@pytest.mark.parametrize(("form", "keys"), [("pages", 16), ("rows", 61)])
def test_whole_caches(form, keys):
    cache, table, where = cached(form, keys)
    q = halves(2, 3, 4, 64)
    found = fa.flash_attn_with_kvcache(q, *cache, causal=True, num_splits=1, rotary_interleaved=False, **where)
    rows = [torch.stack([x[of].flatten(0, 1) for of in table]) for x in cache]
    compare(found, plain(q, *rows, causal=True))


@pytest.mark.parametrize(("form", "keys"), [("pages", 16), ("pages", 48), ("rows", 61)])
def test_caches_are_compiled(form, keys):
    """What reads no number of a tensor on the host has no break."""
    cache, _, where = cached(form, keys)
    q, k, lengths = halves(2, 1, 4, 64), halves(2, 1, 2, 64), ints(31, 17)
    run = lambda q, k, keys, values, lengths: fa.flash_attn_with_kvcache(q, keys, values, k, k, cache_seqlens=lengths, causal=True, **where)
    own, others = ([x.clone() for x in cache] for _ in range(2))
    wanted = run(q, k, *own, lengths)
    found = torch.compile(run, fullgraph=True, backend="aot_eager")(q, k, *others, lengths)
    close(found, wanted, 1e-3)
    assert all(torch.equal(*both) for both in zip(own, others))


def test_functions_are_compiled():
    q = halves(2, 20, 2, 64).requires_grad_()
    begins = ints(0, 15, 40)
    for run in (
        lambda q: fa.flash_attn_func(q, q, q, causal=True) + 1,
        lambda q: fa.flash_attn_varlen_func(*[q.flatten(0, 1)] * 3, begins, begins, 25, 25, window_size=(5, 0)) + 1,
        lambda q: ft.scaled_dot_product_attention(*[q.transpose(1, 2)] * 3, is_causal=True) + 1,
    ):
        found = []
        for of in (run, torch.compile(run, fullgraph=True, backend="aot_eager")):
            q.grad = None
            o = of(q)
            o.float().sin().sum().backward()
            found.append((o, q.grad))
        for one, other in zip(*found):
            close(one, other, 1e-3)


Q, K = torch.ones(2, 5, 4, 64).half(), torch.ones(2, 32, 2, 64).half()
BEGINS, TABLE, LENGTHS = ints(0, 2, 5), ints(0, 1).view(2, 1), ints(3, 30)
cache = lambda *x, **words: fa.flash_attn_with_kvcache(Q, K.clone(), K.clone(), *x, **words)
varlen = lambda q, k, *x, **words: fa.flash_attn_varlen_func(q, k, k, *(x or (BEGINS, BEGINS, 3, 3)), **words)


def dropout(call):
    return "dropout_p is 0.5, 0 was needed", lambda: call(dropout_p=0.5)


@pytest.mark.parametrize(
    ("words", "call"),
    [
        dropout(lambda **x: fa.flash_attn_func(Q, K, K, **x)),
        dropout(lambda **x: fa.flash_attn_qkvpacked_func(torch.stack([Q] * 3, 2), **x)),
        dropout(lambda **x: fa.flash_attn_kvpacked_func(Q, torch.stack([K] * 2, 2), **x)),
        dropout(lambda **x: varlen(Q[0], K[0, :5], **x)),
        dropout(lambda **x: ft.scaled_dot_product_attention(Q, Q, Q, **x)),
        ("q has shape (5, 4, 64), (batch, rows, heads, elements) was needed", lambda: fa.flash_attn_func(Q[0], K, K)),
        ("k has shape (1, 32, 2, 64), (2, keys, heads, 64) was needed", lambda: fa.flash_attn_func(Q, K[:1], K)),
        ("v has shape (2, 5, 4, 64), (2, 32, 2, elements) was needed", lambda: fa.flash_attn_func(Q, K, Q)),
        ("kv has shape (2, 32, 2, 64), (2, keys, 2, heads, 64)", lambda: fa.flash_attn_kvpacked_func(Q, K)),
        ("qkv has shape (2, 5, 4, 64), (batch, rows, 3, heads, elements)", lambda: fa.flash_attn_qkvpacked_func(Q)),
        ("4 heads of queries and 3 of keys", lambda: fa.flash_attn_func(Q, *[torch.ones(2, 5, 3, 64).half()] * 2)),
        ("is 40, a multiple of 16 from 32", lambda: fa.flash_attn_func(*[Q[..., :40]] * 3)),
        ("q has elements of float32", lambda: fa.flash_attn_func(*[Q.float()] * 3)),
        ("window_size is (3,), (left, right) was needed", lambda: fa.flash_attn_func(Q, K, K, window_size=(3,))),
        ("alibi_slopes has shape (2,), (4,) or (2, 4) was needed", lambda: fa.flash_attn_func(Q, K, K, alibi_slopes=torch.ones(2))),
        ("q has shape (2, 5, 4, 64), (rows, heads, elements) was needed", lambda: varlen(Q, K)),
        ("cu_seqlens_k has shape (2,), (3,) was needed", lambda: varlen(Q[0], K[0, :5], BEGINS, ints(0, 5), 3, 5)),
        ("max_seqlen_q is 2, and a sequence has 3", lambda: varlen(Q[0], K[0, :5], BEGINS, BEGINS, 2, 3)),
        ("k has shape (5, 2, 64), (pages, keys, heads, 64) was needed", lambda: varlen(Q[0], K[0, :5], block_table=TABLE)),
        ("block_table has shape (1, 2), (2, pages) was needed", lambda: varlen(Q[0], K, block_table=TABLE.T)),
        ("k has pages of 5 keys, a multiple of 16 was needed", lambda: varlen(Q[0], K[:, :5], block_table=TABLE)),
        ("block_table is given and a tensor requires a gradient", lambda: varlen(Q[0].clone().requires_grad_(), K, block_table=TABLE)),
        ("rotary_cos is a tensor of shape (9, 16), None was needed: rotate q and k", lambda: cache(rotary_cos=torch.ones(9, 16))),
        ("rotary_sin is a tensor of shape (9, 16), None was needed: rotate q and k", lambda: cache(rotary_sin=torch.ones(9, 16))),
        ("cache_leftpad is a tensor of shape (2,), None was needed", lambda: cache(cache_leftpad=LENGTHS)),
        ("num_splits is 4, 0 or 1 was needed", lambda: cache(num_splits=4)),
        ("cache_batch_idx is a tensor of shape (2,), None was needed, as block_table", lambda: cache(block_table=TABLE, cache_batch_idx=LENGTHS)),
        ("cache_batch_idx has 3, 0 to 1 was needed", lambda: cache(cache_batch_idx=LENGTHS)),
        ("cache_batch_idx has shape (1,), (2,) was needed", lambda: cache(cache_batch_idx=LENGTHS[:1])),
        ("k_cache has 1 sequences, 2 were needed", lambda: fa.flash_attn_with_kvcache(Q, K[:1], K[:1])),
        ("k_cache has 31 keys where cache_batch_idx points, a multiple of 16", lambda: fa.flash_attn_with_kvcache(Q, *[K[:, 1:]] * 2, cache_batch_idx=ints(0, 0))),
        ("k_cache has 31 keys where block_table points", lambda: fa.flash_attn_with_kvcache(Q, *[K[:, 1:]] * 2, block_table=TABLE)),
        ("k_cache of shape (2, 31, 2, 64) has strides (4096, 128, 64, 1), one of 3968", lambda: fa.flash_attn_with_kvcache(Q, *[K[:, 1:]] * 2, cache_seqlens=LENGTHS)),
        ("k_cache has shape (2, 32, 64), (batch, keys, heads, 64)", lambda: fa.flash_attn_with_kvcache(Q, K[:, :, 0], K)),
        ("cache_seqlens has 40, 0 to 32 was needed", lambda: cache(cache_seqlens=40)),
        ("cache_seqlens has -3, 0 to 32 was needed", lambda: cache(cache_seqlens=-LENGTHS)),
        ("cache_seqlens has 30, 0 to 27 was needed, as k has 5 and the cache 32 keys", lambda: cache(Q[:, :, :2], Q[:, :, :2], cache_seqlens=LENGTHS)),
        ("cache_seqlens has shape (1,), (2,) was needed", lambda: cache(cache_seqlens=LENGTHS[:1])),
        ("cache_seqlens is None, a number or a tensor was needed", lambda: cache(Q[:, :0, :2], Q[:, :0, :2])),
        ("v is None, a tensor was needed", lambda: cache(Q[:, :1, :2], cache_seqlens=3)),
        ("k is None, a tensor was needed", lambda: cache(v=Q[:, :1, :2], cache_seqlens=3)),
        ("k has shape (2, 1, 4, 64), (2, keys, 2, 64) was needed", lambda: cache(Q[:, :1], Q[:, :1], cache_seqlens=3)),
        ("v has shape (2, 2, 2, 64), (2, 1, 2, 64) was needed", lambda: cache(Q[:, :1, :2], Q[:, :2, :2], cache_seqlens=3)),
        ("k has elements of torch.float32, torch.float16 was needed", lambda: cache(*[Q[:, :1, :2].float()] * 2, cache_seqlens=3)),
        ("block_table has page -1 where a key of k belongs, 0 to 1 was needed", lambda: cache(*[Q[:, :1, :2]] * 2, cache_seqlens=3, block_table=-TABLE)),
        ("q requires a gradient", lambda: fa.flash_attn_with_kvcache(Q.clone().requires_grad_(), K, K)),
        ("query has shape (5, 64), (batch, heads, rows, elements)", lambda: ft.scaled_dot_product_attention(*[Q[0, :, 0]] * 3)),
        ("key has 2 heads, 5 were needed as query has, or enable_gqa=True", lambda: ft.scaled_dot_product_attention(Q, Q[:, :2], Q)),
        ("value has 2 heads, 5 were needed", lambda: ft.scaled_dot_product_attention(Q, Q, Q[:, :2])),
        ("key has shape (1, 5, 4, 64), (2, heads, rows, elements) was needed", lambda: ft.scaled_dot_product_attention(Q, Q[:1], Q)),
        ("5 heads of queries and 2 of keys", lambda: ft.scaled_dot_product_attention(Q, Q[:, :2], Q[:, :2], enable_gqa=True)),
    ],
)
def test_refusals(words, call):
    with pytest.raises(ValueError, match=re.escape(words)):
        call()


def test_a_refused_call_writes_nothing():
    keys, values = (halves(2, 32, 2, 64) for _ in range(2))
    before = keys.clone(), values.clone()
    new = halves(2, 1, 2, 64)
    for wrong in ({"v": new.float()}, {"cache_seqlens": ints(3, 32)}, {"v": None}, {"cache_leftpad": LENGTHS}, {"window_size": (1,)}, {"num_splits": 2}):
        with pytest.raises(ValueError):
            fa.flash_attn_with_kvcache(Q, keys, values, **({"k": new, "v": new, "cache_seqlens": LENGTHS} | wrong))
        assert torch.equal(keys, before[0]) and torch.equal(values, before[1]), wrong


def test_what_is_no_tensor():
    with pytest.raises(TypeError, match="k is a ndarray, a tensor of torch was needed"):
        fa.flash_attn_func(Q, K.numpy(), K)
    # The scale is a keyword, as in torch.
    with pytest.raises(TypeError):
        ft.scaled_dot_product_attention(Q, Q, Q, None, 0.0, False, 0.1)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(("rows", "keys"), [(33, 33), (21, 47), (29, 11), (1, 9), (5, 1)])
@pytest.mark.parametrize("shape", ["batch", "heads", "grouped"])
def test_torchs_own_function(shape, rows, keys, is_causal):
    torch.manual_seed(rows)
    lead, heads, shared = {"batch": ((2,), 3, 3), "heads": ((), 3, 3), "grouped": ((2,), 4, 2)}[shape]
    inputs = [halves(*lead, h, n, 64) for h, n in ((heads, rows), (shared, keys), (shared, keys))]
    words = {"is_causal": is_causal, "enable_gqa": shape == "grouped"}
    for more in ({}, {"scale": 0.2}):
        wanted = torch.nn.functional.scaled_dot_product_attention(*(x.double() for x in inputs), **words, **more)
        close(ft.scaled_dot_product_attention(*inputs, **words, **more), wanted)
    of = torch.nn.functional.scaled_dot_product_attention
    check_gradients(lambda *x: ft.scaled_dot_product_attention(*x, **words), lambda *x: of(*x, **words), inputs)


def test_results_have_heads_where_queries_have_them():
    """Views of (B, L, H, D), with gradients or without, as the fake operation says."""
    q = halves(2, 9, 4, 64)
    whole = halves(2, 9, 3, 4, 64)
    for heads in (q.transpose(1, 2), whole[:, :, 0].transpose(1, 2), q.transpose(1, 2).contiguous(), q[0].transpose(0, 1)):
        follow = heads.stride(-2) > heads.stride(-3)
        for of in (heads, heads.clone(memory_format=torch.preserve_format).requires_grad_()):
            o = ft.attention(of, of, of)
            assert (o.transpose(-2, -3) if follow else o).is_contiguous()
        torch.library.opcheck(torch.ops.falchion.attention, (heads, heads, heads, True, None, None, False, 0.0, *[None] * 13, [], []))
