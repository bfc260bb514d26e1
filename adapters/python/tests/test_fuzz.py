"""Random calls over all types of numpy, and of torch where it is installed, of which a third do not fit: every result is right, or the
call raises `ValueError` with an argument's name (`TypeError` for what is no array), and nothing else. Every array is beside a page that
cannot be accessed: behind its end in one run, and before its start in another.

The seed is new in every run, and printed. By hand: `FALCHION_CALLS=20000 FALCHION_SEED=1 pytest adapters/python/tests/test_fuzz.py`.
"""

import os
import re
import secrets
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from calls import KINDS, pick
from closed import beside
from damage import DAMAGES, listed, unused

try:
    import torch
    from tensors import DAMAGES_OF_TENSORS, as_array, as_tensor
except ImportError:
    torch = None

CALLS = int(os.environ.get("FALCHION_CALLS", "500"))
SEED = int(os.environ.get("FALCHION_SEED", secrets.randbelow(2**32)))
# What an error of the call as a whole begins with.
OTHERS = {"types", "spec", "epilogue", "beta", "nothing"}


def words(value):
    try:
        return type(value).__module__, str(value.dtype), tuple(value.shape)
    except (AttributeError, RuntimeError):
        return str(value)


def one(rng, side, trace):
    """One random call. Returns what is wrong, or `None`."""
    case = pick(rng, KINDS)(rng)
    trace.append(type(case).__name__)
    names = [name for name, value in case.given.items() if isinstance(value, np.ndarray)]
    tensors = torch is not None and rng.integers(2) == 0
    # torch has no strides below zero.
    tensors = tensors and all(min(case.given[name].strides, default=0) >= 0 for name in names)
    case.given |= {name: beside(case.given[name], side) for name in names}
    if tensors:
        case.given |= {name: as_tensor(case.given[name]) for name in names}
    damaged = rng.integers(3) == 0
    extra = set()
    no_array = False
    if damaged:
        name = pick(rng, names)
        if rng.integers(6) == 0 and type(case).__name__ != "Weights":
            extra = {unused(rng, case.given)} - {None}
            trace.append(extra)
        else:
            damage = pick(rng, DAMAGES_OF_TENSORS if tensors else DAMAGES)
            value = damage(rng, case.given[name])
            trace.append((name, damage.__name__))
            no_array = damage is listed
            case.given[name] = beside(value, side) if type(value) is np.ndarray and damage.__name__ != "repeated" else value
    positional, keywords = case.arguments()
    trace.append({name: words(value) for name, value in case.given.items()})
    try:
        found = case.function(*positional, **keywords)
    except (ValueError, TypeError) as error:
        said = str(error)
        if not damaged:
            return f"{error!r}"
        if isinstance(error, TypeError) and not no_array and not (extra and "keyword" in said):
            return f"{error!r}, ValueError was expected"
        first = re.match(r"(argument ')?(\w+)", said)
        if not first or first[2] not in {*case.given, *OTHERS, *("ab" if type(case).__name__ == "Weights" else "")} and not (extra and "keyword" in said):
            return f"{error!r} names no argument"
        return None
    if damaged and not extra and "types" in case.given and "uint" in str(case.given[name].dtype):
        # Bits of whatever `types` says, which are no numbers to compare.
        return None
    if no_array:
        return "what is no array was accepted"
    if extra - {"spec", "scale", "beta", "groups", "scale_a", "scale_b"} and type(case).__name__ == "Matmul":
        return f"{extra} was accepted"
    if tensors:
        case.given = {name: as_array(value) for name, value in case.given.items()}
        found = tuple(as_array(of) for of in found) if isinstance(found, tuple) else as_array(found)
    return case.wrong(case.given, found)


@pytest.mark.parametrize("side", ["end", "start"])
def test_random_calls(side):
    print(f"FALCHION_SEED={SEED}")
    for call in range(CALLS // 2):
        trace = []
        try:
            found = one(np.random.default_rng([SEED, call, side == "end"]), side, trace)
        except Exception as error:
            error.add_note(f"FALCHION_SEED={SEED}, call {call}: {trace}")
            raise
        assert found is None, f"FALCHION_SEED={SEED}, call {call}: {trace}: {found}"


OVERRUN = """
import os
import falchion, numpy as np
from closed import beside

def call(side, argument):
    arrays = {"a": np.ones((4, 8), np.float16), "b": np.ones((1, 1), np.float16), "out": np.ones((4, 8), np.float16)}
    # One column of eight, so that a row more is an element more: the first behind the end, or the last before the start.
    arrays = {name: beside(array, side)[:, :1] for name, array in arrays.items()}
    if argument:
        given = arrays[argument]
        first = -given.strides[0] if side == "start" else 0
        more = given.__array_interface__ | {"shape": (5, 1), "data": (given.ctypes.data + first, False)}
        arrays |= {"a": np.ones((5, 1), np.float16), "out": np.ones((5, 1), np.float16)}
        arrays[argument] = np.asarray(type("More", (), {"__array_interface__": more})())
    falchion.matmul(**arrays)

for case in [("end", None), ("start", None), ("end", "a"), ("start", "a"), ("end", "out"), ("start", "out")]:
    child = os.fork()
    if child == 0:
        call(*case)
        os._exit(0)
    print(*case, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def test_one_element_too_many_is_seen():
    """Calls that are right, and calls of which an argument says that it has one element more than there is memory for."""
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join([str(Path(__file__).parent), *sys.path]))
    ended = subprocess.run([sys.executable, "-c", OVERRUN], capture_output=True, text=True, env=environment)
    wanted = [f"{side} {argument} {-11 if argument else 0}" for argument in (None, "a", "out") for side in ("end", "start")]
    assert ended.stdout.splitlines() == wanted, ended.stderr
