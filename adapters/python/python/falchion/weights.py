"""Few-bit weights as operands: from codes, from GPTQ's and AWQ's files, from MXFP4, or rounded here.

Each function takes arrays of numpy or tensors of torch, and returns a `falchion.Operand` in the host's memory, which
`falchion.matmul` takes as `b`, of shape (K, N). `operand.to("cuda")` moves it to a card.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _native
from ._native import Operand

__all__ = ["awq", "gptq", "mxfp4", "pack", "quantize"]


def _host(array: Any) -> np.ndarray:
    """An array in the host's memory; of torch's bfloat16, its bits."""
    if hasattr(array, "detach"):
        import torch

        array = array.detach().cpu()
        array = (array.view(torch.int16) if array.dtype == torch.bfloat16 else array).numpy()
    return np.asarray(array)


def _dtype(array: Any) -> str:
    """The name of the type that is multiplied: that of the scales."""
    return str(array.dtype).removeprefix("torch.")


def _lines(array: np.ndarray) -> np.ndarray:
    """The same lines, each at a multiple of 16 bytes."""
    lines, length = array.shape
    room = np.zeros((lines, -(-length * array.itemsize // 16) * 16 // array.itemsize), array.dtype)
    room[:, :length] = array
    return room


def pack(codes: Any, scales: Any | None = None, zeros: Any | None = None, *, code: str = "s4", dtype: str | None = None) -> Operand:
    """Weights of codes (N, K), one per byte, with scales and zero points (K / group, N) in the type that is multiplied.

    `code` is s4, u4, s8, u8, e4m3, e5m2 or e2m1. The scales of e2m1 are uint8 exponents: 2 ** (e - 127). Without scales,
    and for e2m1, `dtype` names the type that is multiplied: "bfloat16" or "float16".
    """
    codes = np.ascontiguousarray(_host(codes)).view(np.uint8)
    if codes.ndim != 2:
        raise ValueError(f"codes has shape {codes.shape}, (N, K) was needed")
    n, k = codes.shape
    group = 0
    if scales is not None:
        dtype = dtype or _dtype(scales)
        scales = _host(scales)
        sizes = [size for size in (32, 64, 128) if scales.shape == (-(-k // size), n)]
        if not sizes:
            raise ValueError(f"scales has shape {scales.shape}, (K / group, N) of a group of 32, 64 or 128 was needed, for K {k} and N {n}")
        group = sizes[0]
        scales = _lines(scales)
    if zeros is not None:
        zeros = _host(zeros)
        if scales is None or zeros.shape != (-(-k // group), n):
            raise ValueError(f"zeros has shape {zeros.shape}, that of the scales was needed")
        zeros = _lines(zeros)
    if dtype is None:
        raise ValueError('dtype is not given, "bfloat16" or "float16" was needed without scales')
    units = np.frombuffer(_native.reorder(code, [n, k], codes.tobytes()), np.uint8).copy()
    return Operand(units, (k, n), dtype, is_b=True, code=code, group=group, scales=scales, zeros=zeros)


def _fields(words: np.ndarray, bits: int) -> np.ndarray:
    """The fields of 32-bit words, the lowest first, in a last dimension of their own."""
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    return (np.ascontiguousarray(words).view(np.uint32)[..., None] >> shifts) & np.uint32(2**bits - 1)


def gptq(qweight: Any, scales: Any, qzeros: Any, *, bits: int = 4, v2: bool = False) -> Operand:
    """Weights of a GPTQ file without reordered groups: qweight (K * bits / 32, N), scales (G, N), qzeros (G, N * bits / 32).

    Files of the first version hold zero points less one; `v2` says that they hold them as they are.
    """
    codes = _fields(_host(qweight), bits).swapaxes(1, 2).reshape(-1, qweight.shape[1]).T
    zeros = _fields(_host(qzeros), bits).reshape(qzeros.shape[0], -1) + (0 if v2 else 1)
    return pack(codes.astype(np.uint8), scales, _rounded(zeros, scales), code=f"u{bits}")


def awq(qweight: Any, scales: Any, qzeros: Any) -> Operand:
    """Weights of an AWQ file: qweight (K, N / 8), scales (G, N), qzeros (G, N / 8)."""
    order = [0, 4, 1, 5, 2, 6, 3, 7]  # field of each column
    codes = _fields(_host(qweight), 4)[..., order].reshape(qweight.shape[0], -1).T
    zeros = _fields(_host(qzeros), 4)[..., order].reshape(qzeros.shape[0], -1)
    return pack(codes.astype(np.uint8), scales, _rounded(zeros, scales), code="u4")


def mxfp4(blocks: Any, scales: Any, *, dtype: str = "bfloat16") -> Operand:
    """Weights in MXFP4: blocks (N, K / 2) of two codes per byte, the first in the low half, and scales (N, K / 32)."""
    pairs = _host(blocks).view(np.uint8)
    codes = np.stack([pairs & 15, pairs >> 4], -1).reshape(pairs.shape[0], -1)
    return pack(codes, np.ascontiguousarray(_host(scales).view(np.uint8).T), code="e2m1", dtype=dtype)


def _rounded(numbers: np.ndarray, like: Any) -> np.ndarray:
    """Small integers in the type of the scales."""
    if _dtype(like) == "bfloat16":
        # Integers up to 256 have no more than eight significant bits.
        bits = numbers.astype(np.float32).view(np.uint32) >> 16
        return bits.astype(np.uint16)
    return numbers.astype(np.float16)


def quantize(weight: Any, *, code: str = "s4", group: int = 128) -> Operand:
    """Rounds a weight (N, K) of float16 or bfloat16 to s4 or s8, with a scale per group of K."""
    if code not in ("s4", "s8"):
        raise ValueError(f'code is "{code}", "s4" or "s8" was needed')
    dtype, bits = _dtype(weight), _host(weight)
    wide = (bits.view(np.uint16).astype(np.uint32) << 16).view(np.float32) if dtype == "bfloat16" else bits.astype(np.float32)
    n, k = wide.shape
    groups = -(-k // group)
    padded = np.zeros((n, groups * group), np.float32)
    padded[:, :k] = wide
    largest = 7 if code == "s4" else 127
    scales = np.maximum(np.abs(padded.reshape(n, groups, group)).max(2), 1e-12) / largest
    if dtype == "bfloat16":
        stored = ((scales.view(np.uint32) + 0x8000) >> 16).astype(np.uint16)
        scales = (stored.astype(np.uint32) << 16).view(np.float32)
    else:
        stored = scales.astype(np.float16)
        scales = np.maximum(stored.astype(np.float32), 2.0**-24)
    rounded = np.clip(np.rint(padded.reshape(n, groups, group) / scales[..., None]), -largest - 1, largest)
    codes = rounded.reshape(n, -1)[:, :k].astype(np.int8)
    codes = codes.view(np.uint8) & (15 if code == "s4" else 255)
    return pack(codes, np.ascontiguousarray(stored.T), code=code, dtype=dtype)
