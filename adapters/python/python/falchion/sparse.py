"""2:4 sparse weights as operands: of four neighbours along K, two are not zero."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _native
from ._native import Operand
from .weights import _host, _lines, _matrix

__all__ = ["compress"]


def compress(weight: Any, *, prune: bool = False) -> Operand:
    """The operand `b` of a weight (N, K), whose shape is (K, N). `prune` first sets the smaller half of each four to zero.

    Types: float16, bfloat16, int8, uint8, float8_e4m3fn, float8_e5m2. Raises `ValueError` where more than half is not zero.
    """
    bits, dtype = _host("weight", weight, "float16", "bfloat16", "int8", "uint8", "float8_e4m3fn", "float8_e5m2")
    n, k = _matrix("weight", bits, "(N, K)")
    words = np.ascontiguousarray(bits).view({1: np.uint8, 2: np.uint16}[bits.itemsize])
    values, metadata = _native.compress(dtype, [n, k], words.astype(np.uint32).tobytes(), prune)
    kept = np.frombuffer(values, np.uint32).astype(words.dtype).reshape(n, -1)
    return Operand(_lines(kept), (k, n), dtype, is_b=True, metadata=np.frombuffer(metadata, np.uint32).copy())
