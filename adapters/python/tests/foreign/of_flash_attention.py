"""Kernels of FlashAttention-4 (CuTe DSL), compiled for Hopper without a GPU: `python of_flash_attention.py FOLDER [NAME]...`.

Needs gcc, and `pip install --pre flash-attn-4 ml_dtypes`.
"""

import cute_calls  # first: it sets what the DSL reads when it is imported
import describe
import numpy as np
from describe import buffer, f64, numbers, result

from flash_attn.cute.interface import _flash_attn_bwd, _flash_attn_fwd

recorder, tensor = cute_calls.recorder, cute_calls.tensor


def attended(q, k, v, allowed):
    """Attention of (batch, rows, heads, columns) in f64, and each row's logarithm of its sum. Several heads of Q have one of K and V."""
    group = q.shape[2] // k.shape[2]
    q, k, v = f64(q), f64(k).repeat(group, 2), f64(v).repeat(group, 2)
    scores = np.where(allowed, np.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(q.shape[3]), -np.inf)
    most = scores.max(3, keepdims=True)
    weights = np.exp(scores - most)
    total = weights.sum(3, keepdims=True)
    return np.einsum("bhqk,bkhd->bqhd", weights / total, v), (most + np.log(total))[..., 0]


def visible(queries, keys, causal=False, window=None):
    """Which keys each query sees: the last query has the last key."""
    distance = np.arange(keys)[None, :] - np.arange(queries)[:, None] - (keys - queries)
    seen = np.ones((queries, keys), bool)
    if causal:
        seen &= distance <= 0
    if window is not None:
        seen &= (distance >= -window[0]) & (distance <= window[1])
    return seen


def forward(queries=136, keys=330, heads=2, groups=2, columns=64, causal=False, window=None, **keywords):
    recorder.begin()
    q, k, v = (numbers(1, rows, of, columns, seed=seed) for seed, (rows, of) in enumerate([(queries, heads), (keys, groups), (keys, groups)]))
    out, sums = attended(q, k, v, visible(queries, keys, causal, window))
    given = {"out": tensor("out", q), "lse": tensor("lse", np.zeros((1, heads, queries), np.float32))}
    if window:
        keywords.update(window_size_left=window[0], window_size_right=window[1])
    _flash_attn_fwd(tensor("q", q), tensor("k", k), tensor("v", v), causal=causal, return_lse=True, **given, **keywords)
    buffers = [buffer(name, array, unchanged=True) for name, array in (("q", q), ("k", k), ("v", v))]
    return recorder.launch([*buffers, result("out", out, np.float16, 1e-2, 2e-3), result("lse", sums, np.float32, 1e-3, 1e-3)])


def backward(rows=136, heads=2, columns=64, causal=False):
    """Three kernels: sums of rows first, then the gradients with dQ in f32, then dQ as it is wanted."""
    recorder.begin()
    q, k, v, d_out = (numbers(1, rows, heads, columns, seed=seed) for seed in range(4))
    seen = visible(rows, rows, causal)
    out, sums = attended(q, k, v, seen)
    scale = 1 / np.sqrt(columns)
    weights = np.where(seen, np.exp(np.einsum("bqhd,bkhd->bhqk", f64(q), f64(k)) * scale - sums[..., None]), 0)
    dots = np.einsum("bqhd,bkhd->bhqk", f64(d_out), f64(v))
    inner = weights * (dots - (f64(d_out) * out).sum(3).transpose(0, 2, 1)[..., None]) * scale
    wanted = {"d_q": np.einsum("bhqk,bkhd->bqhd", inner, f64(k)), "d_k": np.einsum("bhqk,bqhd->bkhd", inner, f64(q))}
    wanted["d_v"] = np.einsum("bhqk,bqhd->bkhd", weights, f64(d_out))
    arrays = {"q": q, "k": k, "v": v, "out": out.astype(np.float16), "d_out": d_out, "lse": sums.astype(np.float32)}
    of = {name: tensor(name, array) for name, array in arrays.items()}
    results = {name: tensor(name, np.zeros(want.shape, np.float16)) for name, want in wanted.items()}
    gradients = {name.replace("_", ""): of for name, of in results.items()}
    _flash_attn_bwd(*(of[name] for name in ("q", "k", "v", "out", "d_out", "lse")), causal=causal, **gradients)
    buffers = [buffer(name, array, unchanged=True) for name, array in arrays.items()]
    buffers += [result(name, want, np.float16, 2e-2, 5e-3) for name, want in wanted.items()]
    return recorder.launch([*buffers, *recorder.memory()])


CASES = {
    "flash-attention": ("attention, forward", forward),
    "flash-attention-causal": ("causal attention", lambda: forward(queries=200, causal=True, columns=128)),
    "flash-attention-window": ("attention in a window", lambda: forward(window=(60, 20))),
    "flash-attention-groups": (
        "causal attention, heads share keys, packed",
        lambda: forward(queries=40, heads=4, groups=1, causal=True, pack_gqa=True),
    ),
    "flash-attention-backward": ("attention, backward: three kernels", backward),
    "flash-attention-backward-causal": ("causal attention, backward", lambda: backward(causal=True)),
}

if __name__ == "__main__":
    describe.main("flash-attn-4", CASES)
