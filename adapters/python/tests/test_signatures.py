"""The functions have the signatures of the stubs, and refuse as Python's own functions what does not fit them."""

import ast
import inspect
from pathlib import Path

import falchion
import numpy as np
import pytest
from falchion import _native

Q = np.ones((1, 2, 8, 64), np.float16)
A = np.ones((8, 8), np.float16)


def stubs():
    """The functions of the stubs, with their arguments: names, how they are given, and defaults."""
    tree = ast.parse((Path(falchion.__file__).parent / "_native.pyi").read_text())
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            of = node.args
            before = [None] * (len(of.args) - len(of.defaults)) + of.defaults
            all = [(a.arg, "positional", d) for a, d in zip(of.args, before)]
            all += [(of.vararg.arg, "rest", None)] if of.vararg else []
            all += [(a.arg, "keyword", d) for a, d in zip(of.kwonlyargs, of.kw_defaults)]
            all += [(of.kwarg.arg, "keywords", None)] if of.kwarg else []
            yield node.name, [(name, how, d and ast.literal_eval(d)) for name, how, d in all]


KINDS = {
    inspect.Parameter.POSITIONAL_OR_KEYWORD: "positional",
    inspect.Parameter.VAR_POSITIONAL: "rest",
    inspect.Parameter.KEYWORD_ONLY: "keyword",
    inspect.Parameter.VAR_KEYWORD: "keywords",
}


@pytest.mark.parametrize(("name", "wanted"), list(stubs()), ids=[name for name, _ in stubs()])
def test_signatures_are_those_of_the_stubs(name, wanted):
    found = inspect.signature(getattr(_native, name)).parameters.values()
    empty = inspect.Parameter.empty
    assert [(of.name, KINDS[of.kind], None if of.default is empty else of.default) for of in found] == wanted


@pytest.mark.parametrize(
    ("words", "call"),
    [
        ("attention() missing 2 required positional arguments: 'q' and 'k'", lambda: falchion.attention()),
        ("attention() missing 1 required positional argument: 'k'", lambda: falchion.attention(Q)),
        ("attention() takes from 2 to 3 positional arguments but 4 were given", lambda: falchion.attention(Q, Q, Q, True)),
        ("matmul() takes 2 positional arguments but 3 were given", lambda: falchion.matmul(A, A, A)),
        ("attention() got multiple values for argument 'q'", lambda: falchion.attention(Q, Q, q=Q)),
        ("attention() got an unexpected keyword argument 'deterministic'", lambda: falchion.attention(Q, Q, Q, deterministic=True)),
        ("attention_backward() got an unexpected keyword argument 'spec'", lambda: falchion.attention_backward(Q, Q, Q, Q, Q, Q, spec="")),
        ("attention_backward() missing 2 required positional arguments: 'd_o' and 'log_sum_exp'", lambda: falchion.attention_backward(Q, Q, Q, Q)),
        ("merge_attention() missing 3 required positional arguments: 'lse_a', 'o_b' and 'lse_b'", lambda: falchion.merge_attention(Q)),
        ("append_pages() takes 5 positional arguments but 6 were given", lambda: falchion.append_pages(Q, Q, Q, Q, Q, Q)),
        ("argument 'scale': must be real number, not str", lambda: falchion.attention(Q, Q, Q, scale="1")),
        ("argument 'causal': ", lambda: falchion.attention(Q, Q, Q, causal=2)),
        ("argument 'alpha': must be real number, not str", lambda: falchion.matmul(A, A, alpha="1")),
        ("argument 'spec': ", lambda: falchion.matmul(A, A, spec=1)),
        ("argument 'epilogue': ", lambda: falchion.matmul(A, A, epilogue=1)),
    ],
)
def test_what_does_not_fit_is_a_type_error(words, call):
    with pytest.raises(TypeError) as error:
        call()
    assert str(error.value).startswith(words)


def test_none_says_nothing():
    plain = falchion.attention(Q, Q, Q)
    assert (falchion.attention(Q, Q, v=Q, window=None, scale=None, out=None, log_sum_exp=None, types=None, spec=None) == plain).all()
    assert (falchion.matmul(A, b=A, out=None, alpha=None, epilogue=None, types=None) == 8).all()
    assert (falchion.attention(Q, Q, Q, causal=np.bool_(True)) == falchion.attention(Q, Q, Q, causal=True)).all()
