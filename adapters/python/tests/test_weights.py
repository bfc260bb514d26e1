"""Few-bit and sparse weights, compared with the numbers that they stand for."""

import falchion
import numpy as np
import pytest
from falchion import sparse, weights
from reference import ml_dtypes, wrong

RNG = np.random.default_rng(3)


def inputs(m, k, dtype="float16"):
    return RNG.standard_normal((m, k)).astype(dtype)


def check(x, operand, wide, **keywords):
    """`wide` is the weight (N, K) in double precision."""
    y = falchion.matmul(x, operand, **keywords)
    x = x.astype(float)
    # A scaled weight is rounded to the type that is multiplied: twice, with a scale that is rounded too.
    k, unit = x.shape[1], 2.0**-8 if y.dtype != np.float16 else 2.0**-11
    magnitude = np.abs(x) @ np.abs(wide.T) * (1 + 2 * unit / (1.2 * (k + 8) * 2.0**-23))
    found = wrong(y, x @ wide.T, magnitude, k, "float16", str(y.dtype))
    assert found is None, found


@pytest.mark.parametrize(("n", "k", "group"), [(96, 256, 128), (72, 96, 32), (40, 136, 64)])
@pytest.mark.parametrize("code", ["s4", "s8"])
def test_rounded(n, k, group, code):
    weight = RNG.standard_normal((n, k)).astype(np.float16)
    operand = weights.quantize(weight, code=code, group=group)
    assert operand.shape == (k, n)
    largest = 7 if code == "s4" else 127
    padded = np.zeros((n, -(-k // group) * group))
    padded[:, :k] = weight
    blocks = padded.reshape(n, -1, group)
    scales = (np.abs(blocks).max(2).astype(np.float32) / largest).astype(np.float16).astype(float)[..., None]
    wide = (np.rint(blocks / scales).clip(-largest - 1, largest) * scales).reshape(n, -1)[:, :k]
    assert np.abs(wide - weight).max() <= 0.51 * scales.max()
    check(inputs(33, k), operand, wide)
    bias = RNG.standard_normal(n).astype(np.float32)
    y = falchion.matmul(inputs(5, k) * 0, operand, epilogue="acc + bias[n]", bias=bias)
    assert np.allclose(y, bias[None], atol=2e-3)


def packed(fields, bits):
    """Words of 32 bits of fields in the last dimension, the first in the lowest bits."""
    of_word = 32 // bits
    fields = fields.astype(np.uint32).reshape(*fields.shape[:-1], -1, of_word)
    return (fields << np.arange(0, 32, bits, dtype=np.uint32)).sum(-1, dtype=np.uint32).view(np.int32)


@pytest.mark.parametrize("bits", [4, 8])
def test_gptq(bits):
    n, k, group = 64, 256, 128
    codes, zeros = RNG.integers(0, 2**bits, (n, k)), RNG.integers(1, 2**bits, (k // group, n))
    scales = RNG.uniform(0.01, 0.02, (k // group, n)).astype(np.float16)
    wide = (codes - np.repeat(zeros, group, 0).T) * np.repeat(scales.astype(float), group, 0).T
    operand = weights.gptq(packed(codes, bits).T.copy(), scales, packed(zeros - 1, bits), bits=bits)
    check(inputs(20, k), operand, wide)


@pytest.mark.parametrize("size", [32, 256])
def test_gptq_with_mixed_groups(size):
    n, k = 40, 256
    codes, zeros = RNG.integers(0, 16, (n, k)), RNG.integers(1, 16, (k // size, n))
    scales = RNG.uniform(0.01, 0.02, (k // size, n)).astype(np.float16)
    index = RNG.permutation(k) // size
    wide = (codes - zeros[index].T) * scales[index].astype(float).T
    operand = weights.gptq(packed(codes, 4).T.copy(), scales, packed(zeros, 4), index, v2=True)
    check(inputs(20, k), operand, wide)
    with pytest.raises(ValueError, match="g_idx has 255 numbers, 256 were needed"):
        weights.gptq(packed(codes, 4).T.copy(), scales, packed(zeros, 4), index[1:])


def test_awq():
    n, k, group = 64, 128, 64
    codes, zeros = RNG.integers(0, 16, (n, k)), RNG.integers(0, 16, (k // group, n))
    scales = RNG.uniform(0.01, 0.02, (k // group, n)).astype(np.float16)
    wide = (codes - np.repeat(zeros, group, 0).T) * np.repeat(scales.astype(float), group, 0).T
    places = [0, 2, 4, 6, 1, 3, 5, 7]  # column of each field
    mixed = lambda lines: lines.reshape(len(lines), -1, 8)[..., places].reshape(len(lines), -1)
    operand = weights.awq(packed(mixed(codes.T.copy()), 4), scales, packed(mixed(zeros), 4))
    check(inputs(20, k), operand, wide)


@pytest.mark.skipif(ml_dtypes is None, reason="ml_dtypes has bfloat16")
def test_mxfp4():
    n, k = 48, 128
    codes, exponents = RNG.integers(0, 16, (n, k)), RNG.integers(120, 130, (n, k // 32)).astype(np.uint8)
    table = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    wide = np.where(codes < 8, 1, -1) * table[codes & 7] * np.repeat(2.0 ** (exponents.astype(int) - 127), 32, 1)
    blocks = (codes[:, ::2] | codes[:, 1::2] << 4).astype(np.uint8)
    check(inputs(9, k, ml_dtypes.bfloat16), weights.mxfp4(blocks, exponents), wide)


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_sparse(dtype):
    n, k = 72, 160
    weight = (RNG.standard_normal((n, k)) * 8).astype(dtype)
    weight.reshape(n, -1, 4)[..., [0, 3]] = 0
    x = (RNG.standard_normal((30, k)) * 8).astype(dtype)
    operand = sparse.compress(weight)
    if dtype == "int8":
        assert (falchion.matmul(x, operand) == x.astype(int) @ weight.T.astype(int)).all()
    else:
        check(x, operand, weight.astype(float), epilogue="alpha*acc", alpha=1.0)
    with pytest.raises(ValueError, match="weight: "):
        sparse.compress(np.ones((n, k), dtype))


def test_refusals():
    operand = weights.pack(np.zeros((8, 64), np.uint8), dtype="float16")
    for words, call in [
        ("b was prepared as the other operand|a was prepared", lambda: falchion.matmul(operand, inputs(64, 8))),
        ("a has shape .3, 32. and b .64, 8.", lambda: falchion.matmul(inputs(3, 32), operand)),
        ("dtype is not given", lambda: weights.pack(np.zeros((8, 64), np.uint8))),
        ("scales has shape .1, 9., .K / group, 8. was needed", lambda: weights.pack(np.zeros((8, 64), np.uint8), np.ones((1, 9), "f2"))),
        ('code is "x4"', lambda: weights.pack(np.zeros((8, 64), np.uint8), code="x4", dtype="float16")),
    ]:
        with pytest.raises(ValueError, match=words):
            call()


@pytest.mark.parametrize("code", ["s4", "mxfp4"])
def test_experts_have_few_bits(code):
    n, k, offsets = 72, 128, np.array([0, 17, 17, 40], np.int32)
    dtype = np.float16 if code == "s4" or ml_dtypes is None else ml_dtypes.bfloat16
    if code == "s4":
        operands = [weights.quantize(RNG.standard_normal((n, k)).astype(np.float16)) for _ in range(3)]
    else:
        scales = [RNG.integers(120, 130, (n, k // 32)).astype(np.uint8) for _ in range(3)]
        operands = [weights.mxfp4(RNG.integers(0, 256, (n, k // 2)).astype(np.uint8), of, dtype="bfloat16" if dtype != np.float16 else "float16") for of in scales]
    stack = falchion.Operand.stacked(operands)
    assert stack.count == 3 and "3 of 128 x 72" in repr(stack)
    x = inputs(40, k, dtype)
    y = falchion.matmul(x, stack, groups=offsets)
    for i, operand in enumerate(operands):
        own = x[offsets[i] : offsets[i + 1]]
        if len(own):
            expected = falchion.matmul(own, operand).astype(float)
            assert np.abs(y[offsets[i] : offsets[i + 1]].astype(float) - expected).max() <= 0.01 * np.abs(expected).max()
    with pytest.raises(ValueError, match="Operand.stacked and groups, were needed"):
        falchion.matmul(x, stack)
    with pytest.raises(ValueError, match=r"b .* of 3 matrices, \(M, K\) and \(2, K, N\) were needed"):
        falchion.matmul(x, stack, groups=offsets[:3])
    with pytest.raises(ValueError, match="operand 1 has another shape"):
        falchion.Operand.stacked([operands[0], weights.quantize(np.ones((8, 64), np.float16))])


@pytest.mark.skipif(ml_dtypes is None, reason="ml_dtypes has float8")
@pytest.mark.parametrize("shared", [False, True])
def test_experts_have_scales_of_blocks(shared):
    n, k, offsets = 144, 256, np.array([0, 9, 30], np.int32)
    x = RNG.standard_normal((30, k)).astype(ml_dtypes.float8_e4m3fn)
    w = RNG.standard_normal((2, n, k)).astype(ml_dtypes.float8_e4m3fn)
    of_x = RNG.uniform(0.5, 2, (30, 2)).astype(np.float32)
    of_w = RNG.uniform(0.5, 2, (2, 2, 2)).astype(np.float32)  # (experts, N / 128, K / 128), as files have them
    y = falchion.matmul(x, w.swapaxes(1, 2), scale_a=of_x, scale_b=of_w[0].T if shared else of_w.swapaxes(1, 2), groups=offsets)
    wide = x.astype(float) * np.repeat(of_x, 128, 1)
    for i in range(2):
        scales = np.repeat(np.repeat(of_w[0 if shared else i], 128, 0)[:n], 128, 1)
        expected = wide[offsets[i] : offsets[i + 1]] @ (w[i].astype(float) * scales).T
        assert np.abs(y[offsets[i] : offsets[i + 1]].astype(float) - expected).max() < 0.01 * np.abs(expected).max()


@pytest.mark.skipif(ml_dtypes is None, reason="ml_dtypes has float8")
def test_fp8_files_are_weights_of_inputs_in_16_bits():
    n, k = 144, 200
    codes = RNG.standard_normal((n, k)).astype(ml_dtypes.float8_e4m3fn)
    scales = (RNG.integers(64, 128, (2, 2)) / 1024).astype(np.float32)
    wide = codes.astype(float) * np.repeat(np.repeat(scales, 128, 0)[:n], 128, 1)[:, :k]
    for dtype in ("bfloat16", "float16"):
        x = inputs(9, k, getattr(ml_dtypes, dtype, np.float16))
        found = falchion.matmul(x, weights.fp8(codes, scales, dtype=dtype))
        expected = x.astype(float) @ wide.T
        assert np.abs(found.astype(float) - expected).max() < 0.01 * np.abs(expected).max()
    with pytest.raises(ValueError, match="scales has shape .1, 2., .2, 2. was needed"):
        weights.fp8(codes, scales[:1])


@pytest.mark.skipif(ml_dtypes is None, reason="ml_dtypes has bfloat16")
def test_inputs_of_layers_have_any_leading_dimensions():
    blocks, scales = RNG.integers(0, 256, (40, 2, 16)).astype(np.uint8), RNG.integers(120, 130, (40, 2)).astype(np.uint8)
    for operand in (weights.mxfp4(blocks, scales), weights.mxfp4(blocks.reshape(40, 32), scales)):
        x = inputs(6, 64, ml_dtypes.bfloat16)
        y = falchion.matmul(x, operand)
        for shape in ((2, 3, 64), (1, 6, 1, 64), (6, 64)):
            found = falchion.matmul(x.reshape(shape), operand)
            assert found.shape == (*shape[:-1], 40)
            np.testing.assert_array_equal(found.reshape(6, 40).view(np.uint16), y.view(np.uint16))
        assert falchion.matmul(x[0], operand).shape == (40,)


@pytest.mark.parametrize("shape", [(0, 64), (64, 0), (0, 0)])
def test_weights_without_elements_are_refused(shape):
    """With the argument's name, before anything divides by an extent."""
    halves, bytes_ = np.zeros(shape, np.float16), np.zeros(shape, np.uint8)
    calls = [
        ("weight", lambda: weights.quantize(halves)),
        ("weight", lambda: sparse.compress(halves)),
        ("weight", lambda: weights.fp8(bytes_, np.zeros((1, 1), np.float32))),
        ("blocks", lambda: weights.mxfp4(bytes_, bytes_)),
        ("blocks", lambda: weights.mxfp4(np.zeros((*shape, 16), np.uint8), bytes_)),
    ]
    for name, call in calls:
        with pytest.raises(ValueError, match=f"^{name} has shape"):
            call()
