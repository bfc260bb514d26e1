"""What is refused is a ValueError that names the argument, its value and what was needed."""

import falchion
import numpy as np
import pytest

A = np.ones((3, 4), np.float16)
B = np.ones((4, 5), np.float16)
D = np.ones((3, 5), np.float16)


@pytest.mark.parametrize(
    ("words", "call"),
    [
        ("a has shape (3, 4) and b (5, 4), (M, K) and (K, N) were needed", lambda: falchion.matmul(A, B.T)),
        ("a has shape (4,)", lambda: falchion.matmul(A[0], B)),
        ("a has elements of complex128", lambda: falchion.matmul(A.astype(complex), B)),
        ("a has elements of uint16, float32, float16", lambda: falchion.matmul(A.view(np.uint16), B.view(np.uint16))),
        ("a has elements of int64", lambda: falchion.matmul(A.astype(int), B.astype(int))),
        ("group is 100, 32, 64 or 128 was needed", lambda: falchion.weights.quantize(A, group=100)),
        ("weight has elements of float32, float16 or bfloat16 was needed", lambda: falchion.weights.quantize(A.astype("f4"))),
        ("kernel is of type str", lambda: falchion.explore("64x64x64")),
        ('types is "bf15", one to three of f32, bf16', lambda: falchion.matmul(A, B, types="bf15")),
        ("a has elements of float16, float32 was needed", lambda: falchion.matmul(A, B, types="f32")),
        ("a, b, types: gemm single 3x5x4 f16-bf16 kn epilogue=linear: Hopper has no instruction that multiplies these operands", lambda: falchion.matmul(A, B.view(np.uint16), types="f16-bf16")),
        ("out has shape (5, 3), (3, 5) was needed", lambda: falchion.matmul(A, B, out=np.ones((5, 3), np.float16))),
        ("out of shape (3, 5) has no contiguous rows", lambda: falchion.matmul(A, B, out=np.ones((5, 3), np.float16).T)),
        ("epilogue: `k` is no index", lambda: falchion.matmul(A, B, epilogue="acc + bias[k]", bias=A)),
        ("bias is not given, an array of float16 of shape (5,)", lambda: falchion.matmul(A, B, epilogue="acc + bias[n]")),
        ("bias has shape (4,), (5,) was needed", lambda: falchion.matmul(A, B, epilogue="acc + bias[n]", bias=A[0])),
        ("bias is the number 2", lambda: falchion.matmul(A, B, epilogue="acc + bias[n]", bias=2)),
        ("bais is no argument of the epilogue: its arguments are bias", lambda: falchion.matmul(A, B, epilogue="acc + bias[n]", bais=A)),
        ("bias is given, and no epilogue uses it", lambda: falchion.matmul(A, B, bias=A)),
        ("c is given and beta is not", lambda: falchion.matmul(A, B, c=D)),
        ("beta: not given", lambda: falchion.matmul(A, B, c=D, epilogue="acc + beta*c")),
        ("alpha is no argument of the epilogue", lambda: falchion.matmul(A, B, alpha=2, epilogue="acc")),
        ('types is "f16", and a prepared operand says', lambda: falchion.matmul(np.ones((3, 64), "f2"), falchion.weights.quantize(np.ones((8, 64), "f2")), types="f16")),
        ("beta is 2, and c is not given", lambda: falchion.matmul(A, B, beta=2)),
        ("c has shape (3, 4)", lambda: falchion.matmul(A, B, beta=2, c=A)),
        ("groups has shape (3, 5)", lambda: falchion.matmul(A, B[None], groups=np.ones((3, 5), np.int32))),
        ("groups has elements of float32, int32 was needed", lambda: falchion.matmul(A, B[None], groups=np.array([0, 3], "f4"))),
        ("groups is [0, 3, 2], numbers from 0 to the 3 rows of a", lambda: falchion.matmul(A, np.stack([B, B]), groups=np.array([0, 3, 2]))),
        ("groups is [0, 4], numbers from 0 to the 3 rows of a", lambda: falchion.matmul(A, B[None], groups=np.array([0, 4]))),
        ("(M, K) and (K, N) were needed; a view of b with its last two dimensions swapped has that", lambda: falchion.matmul(A, B.T.copy())),
        ("b (2, 1, 4, 5) of 1 matrices, (M, K) and (1, K, N) were needed", lambda: falchion.matmul(A, np.stack([B[None]] * 2), groups=np.array([0, 3]))),
        ("scale_a has shape (2,)", lambda: falchion.matmul(A, B, scale_a=np.ones(2, "f4"), scale_b=np.ones(5, "f4"))),
        ("a, b: gemm single 3x5x4 s32 kk epilogue=linear: Hopper has no instruction that multiplies", lambda: falchion.matmul(A.astype("i4"), B.astype("i4"))),
        ("bias has elements of int16, float16 was needed", lambda: falchion.matmul(A, B, epilogue="acc + bias[n]", bias=np.ones(5, "i2"))),
        ("bias has elements of uint16, float16 was needed", lambda: falchion.matmul(A, B, epilogue="acc + bias[n]", bias=np.ones(5, "u2"))),
        ("out has elements of int16, float16 was needed", lambda: falchion.matmul(A, B, out=np.ones((3, 5), "i2"))),
        ("out has elements of uint32, float16 was needed", lambda: falchion.matmul(A, B, out=np.ones((3, 5), "u4"))),
        ("c has elements of uint16, float16 was needed", lambda: falchion.matmul(A, B, beta=1, c=np.ones((3, 5), "u2"))),
        ("c has elements of uint8, float16 was needed", lambda: falchion.matmul(A, B, beta=1, c=np.ones((3, 5), "u1"))),
        ('b has elements of >f2, the machine\'s own order of bytes was needed: b.astype("float16") has it', lambda: falchion.matmul(A, B.astype(">f2"))),
        ("out has elements of >f2", lambda: falchion.matmul(A, B, out=D.astype(">f2"))),
        ("bias has elements of >f4", lambda: falchion.matmul(A, B, epilogue="acc + bias[n]", bias=np.ones(5, ">f4"))),
        ("scale_a has elements of >f4", lambda: falchion.matmul(A, B, scale_a=np.ones(3, ">f4"), scale_b=np.ones(5, "f4"))),
        ("groups has elements of >i4", lambda: falchion.matmul(A, B[None], groups=np.array([0, 3], ">i4"))),
        ("scales has elements of >f2", lambda: falchion.weights.pack(np.zeros((8, 64), "u1"), np.ones((1, 8), ">f2"))),
        ("a is a masked array", lambda: falchion.matmul(np.ma.masked_array(A), B)),
        ("out has strides with which elements share memory", lambda: falchion.matmul(A, B, out=np.lib.stride_tricks.as_strided(D, D.shape, (0, 2)))),
        ("out does not begin at a multiple of the 2 bytes", lambda: falchion.matmul(A, B, out=np.zeros(31, "u1")[1:].view("f2").reshape(3, 5))),
        ("b has 10 bytes of values, ", lambda: falchion.matmul(np.ones((3, 64), "f2"), falchion.Operand(np.zeros(10, "u1"), (64, 8), "float16", is_b=True, code="s4"))),
        ("b has scales of shape (1, 2), 2 lines of 16 bytes", lambda: falchion.matmul(np.ones((3, 64), "f2"), falchion.Operand(np.zeros(4096, "u1"), (64, 8), "float16", is_b=True, code="s4", group=32, scales=np.ones((1, 2), "u2")))),
        ("gemm single 64x64x64 e4m3 kn epilogue=linear: B is MN-major with elements of 8 bits", lambda: falchion.plan(64, 64, 64, types="e4m3")),
        ("m is -1, a whole number from 0 to 2147483647 was needed", lambda: falchion.plan(-1, 64, 64)),
        ("n is 1180591620717411303424, a whole", lambda: falchion.plan(64, 2**70, 64)),
        ("batch is 0, a whole number from 1", lambda: falchion.plan(64, 64, 64, batch=0)),
        ("schedules is 0, a whole number from 1", lambda: falchion.check(A, B, schedules=0)),
        ("spec: a spec has no key `tail`", lambda: falchion.matmul(A, B, spec="tail=1")),
        ("spec: dtype is `bf16`, `f16` was needed", lambda: falchion.matmul(A, B, spec="dtype=bf16")),
    ],
)
def test_refusals(words, call):
    with pytest.raises(ValueError) as error:
        call()
    assert words in str(error.value)


@pytest.mark.parametrize("value", [[1.0], "text", object(), 1j])
def test_what_is_no_array_is_a_type_error(value):
    for name, call in (
        ("a", lambda: falchion.matmul(value, B)),
        ("out", lambda: falchion.matmul(A, B, out=value)),
        ("groups", lambda: falchion.matmul(A, B[None], groups=value)),
        ("q", lambda: falchion.attention(value, A, A)),
        ("weight", lambda: falchion.weights.quantize(value)),
    ):
        with pytest.raises(TypeError, match=f"{name} is of type {type(value).__name__}, an array of numpy"):
            call()


def test_rows_of_no_group_are_zeros_or_stay():
    x, w, ends = np.ones((16, 8), np.float16), np.ones((2, 8, 4), np.float16), np.array([2, 8, 12])
    inside = (np.arange(16) >= 2) & (np.arange(16) < 12)
    for _ in range(3):
        # Memory that was used before, as numpy lends it again.
        np.full((16, 4), np.nan, np.float16)
        assert (falchion.matmul(x, w, groups=ends) == np.where(inside, 8, 0)[:, None]).all()
    assert (falchion.matmul(x, w, groups=ends, out=np.full((16, 4), 7, np.float16)) == np.where(inside, 8, 7)[:, None]).all()


def test_numbers_scale_an_epilogue():
    assert (falchion.matmul(A, B, scale_a=2.0, scale_b=0.5, epilogue="acc + 1") == 5).all()
    assert (falchion.matmul(A, B, scale_b=2.0) == 8).all()


def test_types_have_the_names_of_other_libraries():
    y = falchion.matmul(A.view(np.uint16), B.view(np.uint16), types="float16-float16-float32")
    assert y.dtype == np.float32 and (y == 4).all()
    assert falchion.plan(64, 64, 64, types="bfloat16")[0].spec == falchion.plan(64, 64, 64, types="bf16")[0].spec


def test_out_has_memory_of_its_own():
    memory = np.ones((64, 192), np.float16)
    a, b = memory[:, :64], np.ones((64, 64), np.float16)
    for out, words in [(memory[:, 32:96], "a"), (memory[:, :64], "a"), (b, "b")]:
        with pytest.raises(ValueError, match=f"out at 0x[0-9a-f]+ is written and shares memory with {words} at 0x"):
            falchion.matmul(a, b, out=out)
    c = memory[:, 128:]
    with pytest.raises(ValueError, match="out .* with c at 0x.*: memory of its own was needed, or exactly the same"):
        falchion.matmul(a, b, beta=1, c=c, out=memory[:, 120:184])
    # Columns beside those of a, and c itself.
    assert (falchion.matmul(a, b, out=memory[:, 64:128]) == 64).all()
    assert (falchion.matmul(a, b, beta=2, c=c, out=c) == 66).all()


def test_factors_are_doubles():
    rng = np.random.default_rng(5)
    a, b, c = (rng.integers(-3, 4, shape).astype(np.float64) for shape in [(30, 24), (24, 20), (30, 20)])
    exact = a @ b
    for found, wanted in [
        (falchion.matmul(a, b, alpha=0.1, beta=-1 / 3, c=c), 0.1 * exact - c / 3),
        (falchion.matmul(a, b, scale_a=0.1), 0.1 * exact),
        (falchion.matmul(a, b, epilogue="alpha*acc + beta*c", alpha=0.1, beta=-1 / 3, c=c), 0.1 * exact - c / 3),
        (falchion.matmul(a, b, epilogue="factor*acc + low", factor=0.1, low=1e-3), 0.1 * exact + 1e-3),
    ]:
        assert np.abs(found - wanted).max() < 1e-14
    with pytest.raises(ValueError, match="alpha: it is 10+, and it is taken in f32"):
        falchion.matmul(A, B, alpha=1e300)


def test_no_rows_give_no_rows():
    for shape in [(0, 4), (0, 16)]:
        assert falchion.matmul(np.ones(shape), np.ones((shape[1], 5))).shape == (0, 5)


def test_read_only_results_are_refused():
    out = np.ones((3, 5), np.float16)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="out is read-only"):
        falchion.matmul(A, B, out=out)
