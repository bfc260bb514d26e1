"""Kernels of Triton are checked without a GPU: right ones have no findings, and wrong ones have findings with lines of Python."""

import importlib.util
import inspect
import os

import numpy as np
import pytest

if importlib.util.find_spec("triton") is None and os.environ.get("FALCHION_TRITON") != "needed":
    pytest.skip("no Triton", allow_module_level=True)

import falchion.triton
import kernels


def numbers(*shape, dtype=np.float16, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def f64(array):
    return array.astype(np.float64)


def add():
    x, y, out = numbers(1000, dtype=np.float32), numbers(1000, dtype=np.float32, seed=1), np.zeros(1000, np.float32)
    return (kernels.add[(4,)], x, y, out, 1000), dict(BLOCK=256, want={"out": x + y}, unchanged=["x", "y"], unwritten=["out"])


def softmax():
    x, out = numbers(5, 200, dtype=np.float32), np.zeros((5, 200), np.float32)
    weights = np.exp(f64(x) - f64(x).max(1, keepdims=True))
    want = (weights / weights.sum(1, keepdims=True)).astype(np.float32)
    return (kernels.softmax[(5,)], x, out, 200, 200), dict(BLOCK=256, want={"out": want}, rtol=1e-5, atol=1e-7, unwritten=["out"])


def matmul():
    a, b, d = numbers(100, 96), numbers(96, 72, seed=1), np.zeros((100, 72), np.float32)
    want = f64(a) @ f64(b)
    grid = lambda meta: (triton_cdiv(meta["m"], meta["BM"]), triton_cdiv(meta["n"], meta["BN"]))
    return (kernels.matmul[grid], a, b, d, 100, 72, 96), dict(BM=64, BN=64, BK=32, num_stages=3, want={"d": want}, rtol=1e-4, atol=1e-4)


def triton_cdiv(extent, by):
    return -(-extent // by)


def matmul_tensor():
    a, b, d = numbers(128, 192), numbers(128, 192, seed=1), np.zeros((128, 128), np.float16)
    want = f64(a) @ f64(b).T
    of = falchion.triton.Descriptor
    call = kernels.matmul_tensor[(2, 2)], of(a, [64, 64]), of(b, [64, 64]), of(d, [64, 64]), 192
    return call, dict(BM=64, BN=64, BK=64, want={"d": want}, rtol=2e-3, atol=2e-2, unchanged=["a", "b"])


def attention():
    q, k, v = (numbers(2, 128, 64, seed=seed) for seed in range(3))
    scores = np.exp(np.einsum("hqd,hkd->hqk", f64(q), f64(k)) / 8)
    want = np.einsum("hqk,hkd->hqd", scores / scores.sum(2, keepdims=True), f64(v))
    call = kernels.attention[(2, 2)], q, k, v, np.zeros_like(q), 128, 0.125
    return call, dict(D=64, BQ=64, BK=64, want={"out": want}, rtol=1e-2, atol=2e-3, unwritten=["out"])


def ticket():
    x = numbers(1000, dtype=np.float32)
    memory = np.zeros(4, np.float32), np.zeros(1, np.int32), np.zeros(1, np.float32)
    want = np.array([f64(x).sum()])
    call = kernels.ticket[(4,)], x, *memory, 1000, 4
    return call, dict(BLOCK=256, PARTS=4, want={"out": want}, rtol=1e-5, atol=1e-4, scratch=["parts", "count"])


def split():
    a, b, d = numbers(64, 128), numbers(128, 128, seed=1), np.zeros((64, 128), np.float32)
    call = kernels.split[(2, 4)], a, b, d, 128, 128
    return call, dict(BM=64, BN=64, BK=32, want={"d": f64(a) @ f64(b)}, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("case", [add, softmax, matmul, matmul_tensor, attention, ticket, split], ids=lambda case: case.__name__)
def test_kernels_that_are_right_have_no_findings(case):
    args, keywords = case()
    report = falchion.triton.check(*args, **keywords, schedules=6)
    assert not report.errors, report
    assert report.schedules == 10


def line(kernel, text):
    """The line of a kernel's source with a text."""
    lines, first = inspect.getsourcelines(kernel.fn)
    return first + next(at for at, one in enumerate(lines) if text in one)


@pytest.mark.parametrize(
    ("kernel", "grid", "rule", "text"),
    [
        (kernels.neighbours, (4,), "global-race", "at + 1, value"),
        (kernels.beyond, (4,), "global-out-of-bounds", "tl.load(x + at) + n"),
    ],
)
def test_mistakes_have_lines_of_python(kernel, grid, rule, text):
    x, out = numbers(1000, dtype=np.float32), np.zeros(1000, np.float32)
    report = falchion.triton.check(kernel[grid], x, out, 1000, BLOCK=256, schedules=2)
    found = report.errors[0]
    assert found["rule"] == rule, report
    lines = [found["spot"]["origin"], *(related["origin"] for related in found["related"])]
    assert any(file.endswith("kernels.py") and number == line(kernel, text) for file, number in lines), report
    with pytest.raises(falchion.Fault, match=rule):
        report.expect()


def test_wrong_results_are_named():
    args, keywords = add()
    keywords["want"]["out"][17] += 1
    (found,) = falchion.triton.check(*args, **keywords, schedules=0).errors
    assert found["rule"] == "wrong-result" and found["message"].startswith("element [17] of buffer `out` is"), found


@pytest.mark.parametrize(
    ("words", "change"),
    [
        ("want: no argument 'output' is an array", dict(want={"output": np.zeros(3)})),
        ("want of out has shape (3,)", dict(want={"out": np.zeros(3)})),
        ("scratch: no argument 'parts'", dict(scratch=["parts"])),
    ],
)
def test_what_does_not_fit_is_named(words, change):
    args, keywords = add()
    with pytest.raises(ValueError) as error:
        falchion.triton.check(*args, **{**keywords, **change})
    assert str(error.value).startswith(words)


def test_a_grid_is_needed():
    with pytest.raises(ValueError, match="a kernel of triton.jit with its grid"):
        falchion.triton.check(kernels.add, 1)
