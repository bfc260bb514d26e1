"""What is refused is a ValueError that names the argument, its value and what was needed."""

import falchion
import numpy as np
import pytest

A = np.ones((3, 4), np.float16)
B = np.ones((4, 5), np.float16)


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
        ("a, b, types: 3 x 5 x 4 f16-bf16: Hopper has no instruction that multiplies these operands", lambda: falchion.matmul(A, B.view(np.uint16), types="f16-bf16")),
        ("out has shape (5, 3), (3, 5) was needed", lambda: falchion.matmul(A, B, out=np.ones((5, 3), np.float16))),
        ("out of shape (3, 5) has no contiguous rows", lambda: falchion.matmul(A, B, out=np.ones((5, 3), np.float16).T)),
        ("epilogue: `k` is no index", lambda: falchion.matmul(A, B, epilogue="acc + bias[k]", bias=A)),
        ("bias is not given, an array of float16 of shape (5,)", lambda: falchion.matmul(A, B, epilogue="acc + bias[n]")),
        ("bias has shape (4,), (5,) was needed", lambda: falchion.matmul(A, B, epilogue="acc + bias[n]", bias=A[0])),
        ("bias is the number 2", lambda: falchion.matmul(A, B, epilogue="acc + bias[n]", bias=2)),
        ("bais is no argument of the epilogue: its arguments are bias", lambda: falchion.matmul(A, B, epilogue="acc + bias[n]", bais=A)),
        ("bias is given, and no epilogue uses it", lambda: falchion.matmul(A, B, bias=A)),
        ("beta is 2, and c is not given", lambda: falchion.matmul(A, B, beta=2)),
        ("c has shape (3, 4)", lambda: falchion.matmul(A, B, beta=2, c=A)),
        ("groups has shape (3, 5)", lambda: falchion.matmul(A, B[None], groups=np.ones((3, 5), np.int32))),
        ("groups has elements of float32, int32 was needed", lambda: falchion.matmul(A, B[None], groups=np.array([0, 3], "f4"))),
        ("groups is [0, 3, 2], numbers from 0 to the 3 rows of a", lambda: falchion.matmul(A, np.stack([B, B]), groups=np.array([0, 3, 2]))),
        ("groups is [0, 4], numbers from 0 to the 3 rows of a", lambda: falchion.matmul(A, B[None], groups=np.array([0, 4]))),
        ("(M, K) and (K, N) were needed; a view of b with its last two dimensions swapped has that", lambda: falchion.matmul(A, B.T.copy())),
        ("scale_a has shape (2,)", lambda: falchion.matmul(A, B, scale_a=np.ones(2, "f4"), scale_b=np.ones(5, "f4"))),
        ("spec: a spec has no key `tail`", lambda: falchion.matmul(A, B, spec="tail=1")),
        ("spec: dtype is `bf16`, `f16` was needed", lambda: falchion.matmul(A, B, spec="dtype=bf16")),
    ],
)
def test_refusals(words, call):
    with pytest.raises(ValueError) as error:
        call()
    assert words in str(error.value)


def test_types_have_the_names_of_other_libraries():
    y = falchion.matmul(A.view(np.uint16), B.view(np.uint16), types="float16-float16-float32")
    assert y.dtype == np.float32 and (y == 4).all()
    assert falchion.plan(64, 64, 64, types="bfloat16")[0].spec == falchion.plan(64, 64, 64, types="bf16")[0].spec


def test_no_rows_give_no_rows():
    for shape in [(0, 4), (0, 16)]:
        assert falchion.matmul(np.ones(shape), np.ones((shape[1], 5))).shape == (0, 5)


def test_read_only_results_are_refused():
    out = np.ones((3, 5), np.float16)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="out is read-only"):
        falchion.matmul(A, B, out=out)
