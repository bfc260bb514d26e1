"""The package's annotations: a program that uses all of it passes mypy's strictest checks, and a wrong one does not. Skipped without mypy."""

import os
import subprocess
import sys
from pathlib import Path

import falchion
import pytest

pytest.importorskip("mypy")

RIGHT = """
import falchion
import numpy as np
from falchion import sparse, weights

weight = np.ones((64, 128), np.float16)
few: falchion.Operand = weights.quantize(weight, code="s4", group=32)
rows, columns = sparse.compress(weight, prune=True).shape
both = falchion.Operand.stacked([few, few.to("cpu")])
number: int = both.count + rows + columns
y = falchion.matmul(weight, few, epilogue="relu(acc)")
kernel: falchion.Kernel = falchion.check(weight, weight.T, schedules=2)
print(kernel.spec, kernel.microseconds * 2.0, falchion.plan(64, 64, 64)[0].tile[2] + number, y)
falchion.explore(kernel).save("page.html")
try:
    falchion.attention(y, y, y, causal=True)
except falchion.Fault as fault:
    print(fault, falchion.__version__.split("."))
"""

WRONG = """
import falchion
from falchion import sparse, weights

few: str = weights.quantize(1)
falchion.plan("64", 64, 64)
sparse.compress(1, pruned=True)
falchion.Operand.stacked(few)
falchion.explore(falchion.plan(64, 64, 64)).saved("page.html")
"""


def errors(program, folder):
    path = folder / "program.py"
    path.write_text(program)
    # The package where it is imported from.
    environment = dict(os.environ, MYPYPATH=str(Path(falchion.__file__).parents[1]))
    command = [sys.executable, "-m", "mypy", "--strict", "--ignore-missing-imports", "--cache-dir", folder / "cache", path]
    output = subprocess.run(command, env=environment, capture_output=True, text=True).stdout
    return [line for line in output.splitlines() if ": error:" in line]


def test_programs_are_checked(tmp_path):
    assert errors(RIGHT, tmp_path) == []
    lines = errors(WRONG, tmp_path)
    assert sorted({int(line.split(":")[1]) for line in lines}) == [5, 6, 7, 8, 9], lines
