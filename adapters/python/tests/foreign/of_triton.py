"""Kernels in Triton, compiled for Hopper without a GPU: `python of_triton.py FOLDER [NAME]...`.

Needs `pip install triton numpy ml_dtypes`.
"""

import sys

import ml_dtypes
import numpy as np

import describe
from describe import f64, numbers

sys.path.append(str(describe.Path(__file__).resolve().parents[1]))
falchion_triton = describe.falchion_triton()

import kernels
import triton_products as products
import triton_rows as rows

of = falchion_triton.Descriptor
F8 = ml_dtypes.float8_e4m3fn
CASES = {}


def case(says):
    """The function makes a call's arguments."""

    def add(function):
        def launch():
            call, keywords = function()
            made = falchion_triton.compile(*call, **keywords)
            return {"text": made.ptx, **made.launch}

        CASES[f"triton-{function.__name__.replace('_', '-')}"] = says, launch
        return function

    return add


def norm(values):
    return (values - values.mean(1, keepdims=True)) / np.sqrt(values.var(1, keepdims=True) + 1e-5)


def attended(q, k, v, scale, causal=False):
    """Attention of heads, in f64."""
    scores = np.einsum("hqd,hkd->hqk", f64(q), f64(k)) * scale
    if causal:
        scores = np.where(np.tri(q.shape[1], k.shape[1], dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(2, keepdims=True))
    return np.einsum("hqk,hkd->hqd", weights / weights.sum(2, keepdims=True), f64(v))


def mapped(kernel, m, n, k, grid, *, block=(64, 64, 64), sizes=True, **options):
    """A product of f16, by tensor maps that the host makes."""
    a, b, d = numbers(m, k), numbers(n, k, seed=1), np.empty((m, n), np.float16)
    bm, bn, bk = block
    call = kernel[grid], of(a, [bm, bk]), of(b, [bn, bk]), of(d, [bm, bn]), *((m, n, k) if sizes else (k,))
    expected = dict(want={"d": f64(a) @ f64(b).T}, rtol=2e-3, atol=2e-2, unchanged=["a", "b"], unwritten=["d"])
    return call, dict(BM=bm, BN=bn, BK=bk, **expected, **options)


@case("product, odd sizes, cp.async")
def product():
    a, b, d = numbers(100, 96), numbers(96, 72, seed=1), np.empty((100, 72), np.float32)
    call = kernels.matmul[(2, 2)], a, b, d, 100, 72, 96
    return call, dict(BM=64, BN=64, BK=32, num_stages=3, want={"d": f64(a) @ f64(b)}, rtol=1e-4, atol=1e-4, unchanged=["a", "b"], unwritten=["d"])


@case("product, 8 warps")
def product_wide():
    a, b, d = numbers(128, 128), numbers(128, 128, seed=1), np.empty((128, 128), np.float32)
    call = kernels.matmul[(1, 1)], a, b, d, 128, 128, 128
    expected = dict(want={"d": f64(a) @ f64(b)}, rtol=1e-4, atol=1e-4, unchanged=["a", "b"], unwritten=["d"])
    return call, dict(BM=128, BN=128, BK=32, num_stages=3, num_warps=8, **expected)


@case("product of e4m3")
def product_fp8():
    a, b, d = numbers(72, 128, dtype=F8), numbers(128, 64, dtype=F8, seed=1), np.empty((72, 64), np.float32)
    call = kernels.matmul[(2, 1)], a, b, d, 72, 64, 128
    return call, dict(BM=64, BN=64, BK=64, want={"d": f64(a) @ f64(b)}, rtol=1e-3, atol=2e-2, unchanged=["a", "b"], unwritten=["d"])


@case("product of f32 as tf32")
def product_tf32():
    a, b = (numbers(*shape, dtype=np.float32, seed=seed) for seed, shape in enumerate([(64, 96), (96, 64)]))
    call = kernels.matmul[(1, 1)], a, b, np.empty((64, 64), np.float32), 64, 64, 96
    return call, dict(BM=64, BN=64, BK=32, want={"d": f64(a) @ f64(b)}, rtol=1e-3, atol=5e-2, unchanged=["a", "b"], unwritten=["d"])


@case("product, tensor maps of the host")
def product_tensor():
    return mapped(kernels.matmul_tensor, 100, 104, 136, (2, 2), sizes=False)


@case("product, tensor maps made by the kernel")
def product_made():
    a, b, d = numbers(100, 136), numbers(104, 136, seed=1), np.empty((100, 104), np.float16)
    call = products.made[(2, 2)], a, b, d, 100, 104, 136
    expected = dict(want={"d": f64(a) @ f64(b).T}, rtol=2e-3, atol=2e-2, unchanged=["a", "b"], unwritten=["d"])
    return call, dict(BM=64, BN=64, BK=64, **expected)


@case("warp-specialised product")
def product_specialised():
    return mapped(products.specialised, 100, 104, 264, (2, 2), sizes=False, num_stages=3)


@case("persistent product")
def product_persistent():
    return mapped(products.persistent, 200, 136, 136, (3,), num_stages=3)


@case("persistent warp-specialised product")
def product_persistent_specialised():
    return mapped(products.persistent_specialised, 200, 136, 136, (3,), num_stages=3)


@case("product of clusters of two CTAs")
def product_cluster():
    return mapped(kernels.matmul_tensor, 128, 128, 192, (1, 1), block=(128, 128, 64), sizes=False, num_ctas=2)


@case("products of groups of rows")
def product_grouped():
    firsts = np.array([0, 37, 37, 110], np.int32)
    a, b = numbers(110, 64), numbers(3, 64, 72, seed=1)
    want = np.concatenate([f64(a[first:last]) @ f64(b[group]) for group, (first, last) in enumerate(zip(firsts, firsts[1:]))])
    call = products.grouped[(2, 3)], a, b, np.empty((110, 72), np.float32), firsts, 72, 64
    return call, dict(BM=64, BN=64, BK=32, want={"d": want}, rtol=1e-4, atol=1e-4, unchanged=["a", "b", "firsts"], unwritten=["d"])


@case("product, K split, sums by atomics")
def product_split():
    a, b, d = numbers(64, 128), numbers(128, 128, seed=1), np.zeros((64, 128), np.float32)
    return (kernels.split[(2, 4)], a, b, d, 128, 128), dict(BM=64, BN=64, BK=32, want={"d": f64(a) @ f64(b)}, rtol=1e-4, atol=1e-4, unchanged=["a", "b"])


@case("stream-K product, parts and flags")
def product_streamed():
    a, b, d = numbers(64, 160), numbers(160, 192, seed=1), np.empty((64, 192), np.float32)
    parts, flags = np.empty((4, 64, 64), np.float32), np.zeros(4, np.int32)
    call = products.streamed[(4,)], a, b, d, parts, flags, 192, 160, 4
    expected = dict(want={"d": f64(a) @ f64(b)}, rtol=1e-4, atol=1e-4, unchanged=["a", "b"], unwritten=["d", "parts"], scratch=["parts", "flags"])
    return call, dict(BM=64, BN=64, BK=32, **expected)


@case("attention, forward")
def attention():
    q, k, v = (numbers(2, 128, 64, seed=seed) for seed in range(3))
    call = kernels.attention[(2, 2)], q, k, v, np.empty_like(q), 128, 0.125
    expected = dict(want={"out": attended(q, k, v, 0.125)}, rtol=1e-2, atol=2e-3, unchanged=["q", "k", "v"], unwritten=["out"])
    return call, dict(D=64, BQ=64, BK=64, **expected)


def attention_by_maps(specialised, rows_, **options):
    q, k, v = (numbers(2, 256, 64, seed=seed) for seed in range(3))
    flat = [array.reshape(512, 64) for array in (q, k, v, np.empty_like(q))]
    maps = [of(array, [height, 64]) for array, height in zip(flat, (rows_, 64, 64, rows_))]
    call = products.attention_tensor[(256 // rows_, 2)], *maps, 256, 0.125 / float(np.log(2))
    want = attended(q, k, v, 0.125, causal=True).reshape(512, 64)
    expected = dict(want={"out": want}, rtol=1e-2, atol=2e-3, unchanged=["q", "k", "v"], unwritten=["out"])
    return call, dict(D=64, BQ=rows_, BK=64, SPECIALISED=specialised, **expected, **options)


@case("causal attention, tensor maps")
def attention_causal():
    return attention_by_maps(False, 64, num_stages=2)


@case("causal attention, warp-specialised")
def attention_specialised():
    return attention_by_maps(True, 64, num_stages=2)


@case("layer norm")
def layer_norm():
    x, weight, bias = (numbers(*shape, dtype=np.float32, seed=seed) for seed, shape in enumerate([(5, 200), (200,), (200,)]))
    mean, scale = np.empty(5, np.float32), np.empty(5, np.float32)
    call = rows.layer_norm[(5,)], x, weight, bias, np.empty_like(x), mean, scale, 200, 1e-5
    want = {"out": norm(f64(x)) * weight + bias, "mean": f64(x).mean(1), "scale": 1 / np.sqrt(f64(x).var(1) + 1e-5)}
    return call, dict(BLOCK=256, want=want, rtol=1e-4, atol=1e-5, unchanged=["x", "weight", "bias"], unwritten=list(want))


@case("layer norm backward, sums under a lock")
def layer_norm_backward():
    x, d_out = numbers(6, 100, dtype=np.float32), numbers(6, 100, dtype=np.float32, seed=1)
    mean, scale = x.mean(1), 1 / x.std(1)
    sums, counts, locks = np.empty((2, 100), np.float32), np.zeros(2, np.int32), np.zeros(2, np.int32)
    parts = f64(d_out) * (f64(x) - f64(mean)[:, None]) * f64(scale)[:, None]
    call = rows.layer_norm_backward[(6,)], d_out, x, mean, scale, sums, counts, locks, 6, 100
    want = {"sums": np.stack([parts[group::2].sum(0) for group in range(2)]), "counts": np.ones(2, np.int32)}
    return call, dict(GROUPS=2, BLOCK=128, want=want, rtol=1e-4, atol=1e-4, unchanged=["d_out", "x", "mean", "scale"], unwritten=["sums"])


@case("RMS norm")
def rms_norm():
    x, weight = numbers(3, 300), numbers(300, seed=1)
    want = f64(x) / np.sqrt((f64(x) ** 2).mean(1, keepdims=True) + 1e-5) * f64(weight)
    call = rows.rms_norm[(3,)], x, weight, np.empty_like(x), 300, 1e-5
    return call, dict(BLOCK=128, want={"out": want}, rtol=2e-3, atol=1e-3, unchanged=["x", "weight"], unwritten=["out"])


@case("softmax")
def softmax():
    x = numbers(5, 200, dtype=np.float32)
    weights = np.exp(f64(x) - f64(x).max(1, keepdims=True))
    call = kernels.softmax[(5,)], x, np.empty_like(x), 200, 200
    return call, dict(BLOCK=256, want={"out": weights / weights.sum(1, keepdims=True)}, rtol=1e-5, atol=1e-7, unchanged=["x"], unwritten=["out"])


@case("cross entropy and its gradient")
def cross_entropy():
    logits, labels = numbers(4, 300, dtype=np.float32), np.array([0, 17, 299, 128], np.int32)
    weights = np.exp(f64(logits) - f64(logits).max(1, keepdims=True))
    weights /= weights.sum(1, keepdims=True)
    want = {"loss": -np.log(weights[np.arange(4), labels]), "gradient": weights - np.eye(300)[labels]}
    call = rows.cross_entropy[(4,)], logits, labels, np.empty(4, np.float32), np.empty_like(logits), 300
    return call, dict(BLOCK=128, want=want, rtol=1e-4, atol=1e-5, unchanged=["logits", "labels"], unwritten=list(want))


@case("histogram")
def histogram():
    x = np.random.default_rng(0).integers(0, 64, 1000, dtype=np.int32)
    call = rows.histogram[(2,)], x, np.zeros(64, np.int32), 1000
    return call, dict(BINS=64, BLOCK=512, want={"counts": np.bincount(x, minlength=64).astype(np.int32)}, unchanged=["x"])


@case("running sums and a recurrence")
def scan():
    factors, x = np.abs(numbers(3, 200, dtype=np.float32)) / 2, numbers(3, 200, dtype=np.float32, seed=1)
    states, state = np.empty((3, 200)), np.zeros(3)
    for at in range(200):
        state = states[:, at] = f64(factors)[:, at] * state + f64(x)[:, at]
    want = {"sums": f64(x).cumsum(1), "out": states}
    call = rows.scan[(3,)], factors, x, np.empty_like(x), np.empty_like(x), 200
    return call, dict(BLOCK=256, want=want, rtol=1e-4, atol=1e-4, unchanged=["factors", "x"], unwritten=list(want))


@case("running sum over programs")
def looked_back():
    x = np.random.default_rng(0).integers(-100, 100, 1000, dtype=np.int32)
    call = rows.looked_back[(4,)], x, np.empty(4, np.int32), np.zeros(4, np.int32), np.empty_like(x), 1000
    want = {"out": x.cumsum(dtype=np.int32), "states": np.ones(4, np.int32)}
    return call, dict(BLOCK=256, want=want, unchanged=["x"], unwritten=["parts", "out"], scratch=["parts"])


@case("sort of rows")
def sort():
    x = numbers(3, 100, dtype=np.float32)
    return (rows.sort[(3,)], x, np.empty_like(x), 100), dict(BLOCK=128, want={"out": np.sort(x, 1)}, unchanged=["x"], unwritten=["out"])


@case("transpose")
def transpose():
    x = numbers(100, 72)
    call = rows.transpose[(2, 2)], x, np.empty((72, 100), np.float16), 100, 72
    return call, dict(BR=64, BC=64, want={"out": x.T.copy()}, unchanged=["x"], unwritten=["out"])


@case("sum over programs by a ticket")
def ticket():
    x = numbers(1000, dtype=np.float32)
    memory = np.empty(4, np.float32), np.zeros(1, np.int32), np.empty(1, np.float32)
    expected = dict(want={"out": np.array([f64(x).sum()])}, rtol=1e-5, atol=1e-4, unchanged=["x"], unwritten=["parts", "out"], scratch=["parts"])
    return (kernels.ticket[(4,)], x, *memory, 1000, 4), dict(BLOCK=256, PARTS=4, **expected)


if __name__ == "__main__":
    describe.main("triton", CASES)
