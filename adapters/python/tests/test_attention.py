"""Attention: random shapes, strides and masks, compared with double precision; and what is refused."""

import falchion
import numpy as np
import pytest
from reference import ml_dtypes


def expected(q, k, v, causal, scale):
    """The result and the log-sum-exp in double precision."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    share = q.shape[-3] // k.shape[-3]
    k, v = (np.repeat(x, share, axis=-3) for x in (k, v))
    scores = q @ k.swapaxes(-1, -2) * scale
    if causal:
        rows, keys = scores.shape[-2:]
        scores = np.where(np.arange(keys) <= np.arange(rows)[:, None] + keys - rows, scores, -np.inf)
    with np.errstate(all="ignore"):
        most = scores.max(-1, initial=-np.inf, keepdims=True)
        weights = np.exp(scores - np.where(np.isfinite(most), most, 0))
        sums = weights.sum(-1, keepdims=True)
        o = np.where(sums > 0, weights / sums, 0) @ v
        return o, np.where(sums > 0, np.log(sums) + most, -np.inf)[..., 0]


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
    d, dv = [(64, 64), (64, 64), (128, 128), (96, 96), (192, 128)][rng.integers(5)]
    lead = [(), (1,), (2,)][rng.integers(3)]
    ways = [int(rng.integers(6)) for _ in range(4)]
    causal, scale = bool(rng.integers(2)), [None, 0.2][rng.integers(2)]
    q = tensor(rng, (*lead, heads, length, d), dtype, ways[0])
    k = tensor(rng, (*lead, shared, keys, d), dtype, ways[1])
    v = tensor(rng, (*lead, shared, keys, dv), dtype, ways[2])
    keywords = {"causal": causal, "scale": scale}
    out_dtype = dtype
    if rng.integers(2):
        out_dtype = np.float32 if rng.integers(2) else dtype
        # `out` is written as it lies: at any address, with any strides between heads.
        keywords["out"] = tensor(rng, (*lead, heads, length, dv), out_dtype, ways[3] % 4)
        keywords["out"][...] = np.nan
    trace.append((dtype, lead, heads, shared, length, keys, d, dv, ways, keywords.keys()))
    o, sums = falchion.attention(q, k, v, log_sum_exp=True, **keywords)
    wanted, of_sums = expected(q, k, v, causal, d**-0.5 if scale is None else scale)
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


@pytest.mark.parametrize("seed", range(12))
def test_random_calls(seed):
    rng = np.random.default_rng(seed)
    for _ in range(3):
        trace = []
        wrong = one(rng, trace)
        assert wrong is None, (wrong, trace)


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


Q = np.ones((2, 3, 64), np.float16)


@pytest.mark.parametrize(
    ("words", "call"),
    [
        ("q has shape (3, 64)", lambda: falchion.attention(Q[0], Q, Q)),
        ("q has elements of float32, float16 or bfloat16 was needed", lambda: falchion.attention(*[Q.astype("f4")] * 3)),
        ("types= was needed", lambda: falchion.attention(*[Q.view("u2")] * 3)),
        ('types is "f32"', lambda: falchion.attention(*[Q.view("u2")] * 3, types="f32")),
        ("k has shape (2, 3, 128), (2, 3, 64) was needed", lambda: falchion.attention(Q, np.ones((2, 3, 128), "f2"), Q)),
        ("v has shape (2, 4, 64), (2, 3, 64) was needed", lambda: falchion.attention(Q, Q, np.ones((2, 4, 64), "f2"))),
        ("v has 3 dimensions of float32", lambda: falchion.attention(Q, Q, Q.astype("f4"))),
        ("2 heads of queries and 3 of keys", lambda: falchion.attention(Q, *[np.ones((3, 3, 64), "f2")] * 2)),
        ("d, the elements of a head of Q and K, is 40", lambda: falchion.attention(*[np.ones((2, 3, 40), "f2")] * 3)),
        ("q has heads of 4 elements", lambda: falchion.attention(*[np.ones((2, 3, 4), "f2")] * 3)),
        ("the scale is -1", lambda: falchion.attention(Q, Q, Q, scale=-1)),
        ("out has shape (2, 3, 32) in the host's memory, (2, 3, 64)", lambda: falchion.attention(Q, Q, Q, out=np.ones((2, 3, 32), "f2"))),
        ("out has elements of int32", lambda: falchion.attention(Q, Q, Q, out=np.ones((2, 3, 64), "i4"))),
        ("log_sum_exp has shape (3,)", lambda: falchion.attention(Q, Q, Q, log_sum_exp=np.ones(3, "f4"))),
        ("spec: mask is `causal`, `full` was needed", lambda: falchion.attention(Q, Q, Q, spec="mask=causal")),
        ("spec: `tile=1`", lambda: falchion.attention(Q, Q, Q, spec="tile=1")),
    ],
)
def test_refusals(words, call):
    with pytest.raises(ValueError) as error:
        call()
    assert words in str(error.value)
