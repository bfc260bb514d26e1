"""Kernels of QuACK (CuTe DSL), compiled for Hopper without a GPU: `python of_quack.py FOLDER [NAME]...`.

Needs gcc, and `pip install quack-kernels ml_dtypes`.
"""

import cute_calls  # first: it sets what the DSL reads when it is imported
import describe
import numpy as np
from cutlass import Float16, Float32, Int32
from describe import buffer, f64, numbers, result

from quack.cross_entropy import CrossEntropy
from quack.gemm import SplitKMode, gemm
from quack.rmsnorm import _compile_rmsnorm_bwd, _compile_rmsnorm_fwd
from quack.softmax import Softmax, SoftmaxBackward
from quack.topk import TopK

recorder, tensor = cute_calls.recorder, cute_calls.tensor


def rms_norm(rows=5, columns=256):
    recorder.begin()
    x, weight = numbers(rows, columns), numbers(columns, dtype=np.float32, seed=1)
    root = np.sqrt((f64(x) ** 2).mean(1) + 1e-6)
    function = _compile_rmsnorm_fwd(Float16, Float16, None, Float32, None, None, columns, True, False, False, False)
    out, by = tensor("out", x), tensor("by", np.zeros(rows, np.float32))
    function(tensor("x", x), tensor("weight", weight), None, None, out, None, by, None, 1e-6)
    buffers = [buffer("x", x, unchanged=True), buffer("weight", weight, unchanged=True)]
    buffers += [result("out", f64(x) / root[:, None] * f64(weight), np.float16, 2e-3, 1e-3), result("by", 1 / root, np.float32, 1e-4)]
    return recorder.launch(buffers)


def rms_norm_cluster():
    """Rows so long that clusters of CTAs share one."""
    return rms_norm(rows=2, columns=32768)


def rms_norm_backward():
    recorder.begin()
    x, d_out, weight = numbers(7, 256), numbers(7, 256, seed=1), numbers(256, dtype=np.float32, seed=2)
    by = (1 / np.sqrt((f64(x) ** 2).mean(1) + 1e-6)).astype(np.float32)
    normal, scaled = f64(x) * f64(by)[:, None], f64(d_out) * f64(weight)
    d_x = (scaled - normal * (scaled * normal).mean(1, keepdims=True)) * f64(by)[:, None]
    function = _compile_rmsnorm_bwd(256, Float16, Float16, Float16, Float32, False, None, None, True)
    arrays = {"x": x, "weight": weight, "d_out": d_out, "by": by, "d_x": x, "parts": np.zeros((2, 256), np.float32)}
    of = {name: tensor(name, array) for name, array in arrays.items()}
    function(of["x"], of["weight"], of["d_out"], None, of["by"], None, of["d_x"], of["parts"], None, None, 2)
    buffers = [buffer(name, arrays[name], unchanged=True) for name in ("x", "weight", "d_out", "by")]
    # Two CTAs take every second tile of rows: their parts depend on the tile, their sum does not.
    buffers += [result("d_x", d_x, np.float16, 2e-3, 2e-3), buffer("parts", arrays["parts"], held=False)]
    return recorder.launch(buffers)


def softmax(rows=6, columns=200):
    recorder.begin()
    x = numbers(rows, columns)
    weights = np.exp(f64(x) - f64(x).max(1, keepdims=True))
    Softmax.compile(Float16, Float16, columns)(tensor("x", x), tensor("out", x))
    want = weights / weights.sum(1, keepdims=True)
    return recorder.launch([buffer("x", x, unchanged=True), result("out", want, np.float16, 2e-3, 1e-6)])


def softmax_cluster():
    """Rows so long that clusters of CTAs share one."""
    return softmax(rows=1, columns=65536)


def softmax_backward():
    recorder.begin()
    d_y, y = numbers(6, 200), np.abs(numbers(6, 200, seed=1)) / np.float16(200)
    want = f64(y) * (f64(d_y) - (f64(d_y) * f64(y)).sum(1, keepdims=True))
    SoftmaxBackward.compile(Float16, Float16, Float16, 200)(tensor("d_y", d_y), tensor("y", y), tensor("d_x", y))
    return recorder.launch([buffer("d_y", d_y, unchanged=True), buffer("y", y, unchanged=True), result("d_x", want, np.float16, 2e-3, 1e-5)])


def cross_entropy():
    recorder.begin()
    x, target = numbers(5, 264), np.array([0, 263, 17, 100, 8], np.int32)
    weights = np.exp(f64(x) - f64(x).max(1, keepdims=True))
    sums = np.log(weights.sum(1)) + f64(x).max(1)
    wanted = {"loss": sums - f64(x)[np.arange(5), target], "sums": sums}
    function = CrossEntropy.compile(Float16, Int32, None, 264, True, True, None, 1)
    of = {name: tensor(name, np.zeros(5, np.float32)) for name in wanted}
    function(tensor("x", x), tensor("target", target), None, of["loss"], of["sums"], tensor("d_x", x), None, -100)
    buffers = [buffer("x", x, unchanged=True), buffer("target", target, unchanged=True)]
    buffers += [result(name, want, np.float32, 1e-4, 1e-4) for name, want in wanted.items()]
    gradient = weights / weights.sum(1, keepdims=True) - np.eye(264)[target]
    return recorder.launch([*buffers, result("d_x", gradient, np.float16, 2e-3, 1e-5)])


def top_k():
    recorder.begin()
    x = np.random.default_rng(0).permuted(np.tile(np.arange(128, dtype=np.float16), (5, 1)), axis=1)
    order = np.argsort(-f64(x), 1)[:, :8].astype(np.int32)
    values, places = np.zeros((5, 8), np.float16), np.zeros((5, 8), np.int32)
    TopK.compile(Float16, 128, 8, False)(tensor("x", x), tensor("values", values), tensor("places", places))
    buffers = [buffer("x", x, unchanged=True), result("values", np.take_along_axis(x, order, 1), np.float16)]
    return recorder.launch([*buffers, result("places", order, np.int32)])


def product(m, n, k, tile, cluster=(1, 1), **keywords):
    recorder.begin()
    a, b = numbers(m, k), numbers(n, k, seed=1)
    gemm(tensor("a", a), tensor("b", b), tensor("d", np.zeros((m, n), np.float16)), None, None, *tile, *cluster, **keywords)
    buffers = [buffer("a", a, unchanged=True), buffer("b", b, unchanged=True)]
    return recorder.launch([*buffers, result("d", f64(a) @ f64(b).T, np.float16, 2e-3, 3e-2)])


def split(mode):
    """K is split: CTAs add up their parts of a tile in memory, in the order of K or as they come."""
    recorder.begin()
    a, b = numbers(1, 136, 264), numbers(1, 136, 264, seed=1)
    d = tensor("d", np.zeros((1, 136, 136), np.float16))
    gemm(tensor("a", a), tensor("b", b), d, None, None, 64, 64, 1, 1, split_k=2, split_k_mode=mode)
    buffers = [buffer("a", a, unchanged=True), buffer("b", b, unchanged=True)]
    buffers.append(result("d", np.einsum("lmk,lnk->lmn", f64(a), f64(b)), np.float16, 2e-3, 3e-2))
    # Flags are zeros at first, and so are the parts if the first one is added too.
    return recorder.launch([*buffers, *recorder.memory(lambda array: array.nbytes < 1024 or mode == SplitKMode.PARALLEL)])


CASES = {
    "quack-rms-norm": ("RMS norm", rms_norm),
    "quack-rms-norm-cluster": ("RMS norm of long rows, clusters", rms_norm_cluster),
    "quack-rms-norm-backward": ("RMS norm, backward", rms_norm_backward),
    "quack-softmax": ("softmax", softmax),
    "quack-softmax-cluster": ("softmax of long rows, clusters", softmax_cluster),
    "quack-softmax-backward": ("softmax, backward", softmax_backward),
    "quack-cross-entropy": ("cross entropy and its gradient", cross_entropy),
    "quack-top-k": ("the 8 largest of each row", top_k),
    "quack-gemm-pingpong": ("GEMM, pingpong, persistent", lambda: product(136, 136, 520, (64, 128), pingpong=True)),
    "quack-gemm-cooperative": ("GEMM, cooperative, clusters", lambda: product(264, 72, 520, (128, 64), (2, 1))),
    "quack-gemm-split": ("GEMM, K split, in order", lambda: split(SplitKMode.SERIAL)),
    "quack-gemm-split-parallel": ("GEMM, K split, in any order", lambda: split(SplitKMode.PARALLEL)),
}

if __name__ == "__main__":
    describe.main("quack-kernels", CASES)
