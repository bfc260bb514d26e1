"""The calls of this package ask for what `falchion plan` is asked, for the lengths that came: the problem and the kernel of drawn calls. Nothing runs."""

import falchion
import numpy as np
import pytest
from test_tune import driver, run  # noqa: F401

COUNT = 2000


def empty(shape, dtype="float16"):
    """An array whose memory is never touched."""
    return np.empty(shape, dtype)


def drawn(rng, backward):
    """The arguments of a call of attention, and the problem that they are."""
    groups = int(rng.choice([1, 2, 4]))
    heads, batch = groups * int(rng.choice([1, 2, 3, 4, 8])), int(rng.integers(1, 9))
    keys = int(rng.integers(1, 2 ** rng.integers(2, 13)))
    queries = int(rng.choice([rng.integers(1, 5), rng.integers(1, 200), keys]))
    d, dv = [(64, 64), (96, 96), (128, 128), (192, 128), (256, 256), (80, 80), (112, 80)][rng.integers(7)]
    words, types = [f"d={d}" if d == dv else f"d={d}x{dv}"], {}
    kind = "float16"
    if rng.integers(2):
        kind, types = "uint16", {} if backward else {"types": "bf16"}
    if not types:
        kind, words = "float16", ["format=f16", *words]
    keywords = dict(types)
    if words[-1] == "d=128":
        words.pop()  # The spec's default.
    mask = rng.integers(4)
    if mask == 0:
        left = int(rng.integers(1, 300))
        keywords.update(window=(left, -1), causal=True)
        words.append("mask=window")
    elif mask > 1:
        keywords["causal"] = True
        words.append("mask=causal")
    many = rng.integers(4)
    shapes = [(batch, heads, queries, d), (batch, groups, keys, d), (batch, groups, keys, dv)]
    if many == 0 and queries == keys:
        # Sequences of different lengths, the longest of which has that many.
        begins = np.cumsum([0, *([queries] * batch)], dtype=np.int32)
        keywords.update(cu_seqlens_q=begins, max_seqlen_q=queries)
        words.append("lengths=packed")
        shapes = [(heads, batch * queries, d), (groups, batch * keys, d), (groups, batch * keys, dv)]
    elif many == 1 and not backward:
        page = int(rng.choice([16, 64, 128]))
        each = -(-keys // page)
        keywords.update(block_table=np.zeros((batch, each), np.int32), cache_seqlens=np.full(batch, keys, np.int32))
        words.append(f"pages={page}")
        keys = each * page
        shapes = [shapes[0], (each, groups, page, d), (each, groups, page, dv)]
    if mask == 0:
        words += [f"left={left}", "right=0"]
    problem = " ".join([f"{batch}x{heads}/{groups}x{queries}x{keys}", *words])
    q, k, v = (empty(shape, kind) for shape in shapes)
    if not backward:
        return (q, k, v), keywords, problem
    o = empty((*q.shape[:-1], dv), kind)
    if rng.integers(3) == 0:
        keywords["deterministic"] = True
        problem += " fixed=on"
    return (q, k, v, o, o, empty(o.shape[:-1], np.float32)), keywords, problem


@pytest.mark.parametrize("backward", [False, True])
def test_attention_asks_for_the_problem_that_came(backward):
    plan = falchion.plan_attention_backward if backward else falchion.plan_attention
    rng = np.random.default_rng(5)
    for _ in range(COUNT):
        arrays, keywords, problem = drawn(rng, backward)
        [choice] = plan(*arrays, **keywords)
        assert choice.problem == problem
        assert choice.microseconds > 0


def test_the_first_of_several_is_the_one_that_is_taken():
    q, k = empty((1, 8, 1, 128)), empty((1, 2, 1000, 128))
    [first] = falchion.plan_attention(q, k, k)
    several = falchion.plan_attention(q, k, k, most=4)
    assert [first.spec, 4] == [several[0].spec, len(several)]
    assert several[1].microseconds <= several[2].microseconds
    assert len({of.spec for of in several}) == 4
    [named] = falchion.plan_attention(q, k, k, spec=several[2].spec)
    assert named.spec == several[2].spec
    assert falchion.plan_attention(q, k, k, card="h100")[0].microseconds > first.microseconds


def test_matmul_takes_the_kernel_of_plan():
    rng = np.random.default_rng(6)
    for _ in range(100):
        m, n, k = (int(rng.integers(1, 2 ** rng.integers(2, 12))) for _ in range(3))
        batch, layout = int(rng.choice([1, 1, 3])), str(rng.choice(["kn", "kk", "mk"]))
        lead = (batch,) if batch > 1 else ()
        a = empty((*lead, k, m)).swapaxes(-1, -2) if layout[0] == "m" else empty((*lead, m, k))
        b = empty((*lead, n, k)).swapaxes(-1, -2) if layout[1] == "k" else empty((*lead, k, n))
        if any(extent < 2 for extent in (m, n, k)):
            continue  # Of a single row either direction is contiguous.
        found = falchion.plan_matmul(a, b).spec
        wanted = falchion.plan(m, n, k, types="f16", layout=layout, batch=batch)[0].spec
        assert found == wanted, (m, n, k, batch, layout)


TUNED = """
import numpy as np
q, k = np.empty((2, 8, {queries}, 128), np.float16), np.empty((2, 2, 300, 128), np.float16)
o, sums = np.empty(q.shape, np.float16), np.empty(q.shape[:-1], np.float32)
arrays = (q, k, k, o, o, sums) if {backward} else (q, k, k)
name = "attention_backward" if {backward} else "attention"
plan, tune = getattr(falchion, "plan_" + name), getattr(falchion, "tune_" + name)
before = plan(*arrays, causal=True, card="cuda:0")[0]
tuned = tune(*arrays, causal=True, card="cuda:0", budget=3)
after = plan(*arrays, causal=True, card="cuda:0")[0]
print(before.reason, tuned.reason, after.reason, after.microseconds == tuned.microseconds, sep="|")
"""


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("queries", [1, 300])
def test_what_is_measured_is_taken(driver, backward, queries):  # noqa: F811
    recorded = "the fastest of those that were measured on this card"
    program = TUNED.format(backward=backward, queries=queries)
    before, tuned, *after = run(driver, program).strip().split("|")
    assert before == "" and tuned.startswith("the fastest of ") and tuned.endswith(" kernels that were measured")
    # The stand-in's times are all the same, so another one may be the fastest.
    assert after == [recorded, "True"]
    # A later process measures nothing.
    before, tuned, *after = run(driver, program).strip().split("|")
    assert [before, tuned, *after] == [recorded, recorded, recorded, "True"]


def test_refusals():
    q = empty((1, 2, 8, 64))
    for words, call in [
        ("card is the host's memory, one of this machine was needed: cuda:0", lambda: falchion.tune_attention(q, q, q)),
        ('card is "h100", one of this machine was needed: cuda:0', lambda: falchion.tune_attention(q, q, q, card="h100")),
        ('card is "a100", cuda:0 or one of', lambda: falchion.plan_attention(q, q, q, card="a100")),
        ('spec is "tile=64x64", none was needed to tune', lambda: falchion.tune_attention(q, q, q, card="cuda:0", spec="tile=64x64")),
        ("most is 0", lambda: falchion.plan_attention(q, q, q, most=0)),
        ("budget is -1", lambda: falchion.tune_attention(q, q, q, card="cuda:0", budget=-1)),
    ]:
        with pytest.raises(ValueError) as error:
            call()
        assert str(error.value).startswith(words), error.value
