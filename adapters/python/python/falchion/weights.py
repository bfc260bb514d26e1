"""Few-bit weights as operands: from codes, from GPTQ's and AWQ's files, from fp8 with scales of blocks, from MXFP4, or rounded here.

Each function takes arrays of numpy or tensors of torch, and returns a `falchion.Operand` in the host's memory, which
`falchion.matmul` takes as `b`, of shape (K, N). `operand.to("cuda")` moves it to a card.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _native
from ._native import Operand

__all__ = ["awq", "fp8", "gptq", "mxfp4", "pack", "quantize"]


def _host(array: Any) -> np.ndarray:
    """An array in the host's memory; of a type of torch that numpy does not have, its bits."""
    if hasattr(array, "detach"):
        import torch

        array = array.detach().cpu()
        bits = {torch.bfloat16: torch.int16}.get(array.dtype, torch.uint8 if array.element_size() == 1 else array.dtype)
        array = array.view(bits).numpy()
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


def _bytes(array: Any) -> bytes:
    return np.ascontiguousarray(_host(array)).tobytes()


def _operand(n: int, k: int, dtype: str, parts: tuple[Any, ...]) -> Operand:
    code, group, units, *lines, order = parts
    scales, zeros = (of and np.frombuffer(of[1], np.uint8).reshape(-1, of[0]).copy() for of in lines)
    order = None if order is None else np.array(order, np.int64)
    return Operand(np.frombuffer(units, np.uint8).copy(), (k, n), dtype, is_b=True, code=code, group=group, scales=scales, zeros=zeros, order=order)


def _matrix(name: str, array: Any, what: str) -> tuple[int, int]:
    if array.ndim != 2:
        raise ValueError(f"{name} has shape {tuple(array.shape)}, {what} was needed")
    return tuple(array.shape)


def pack(codes: Any, scales: Any | None = None, zeros: Any | None = None, *, code: str = "s4", dtype: str | None = None) -> Operand:
    """Weights of codes (N, K), one per byte, with scales and zero points (K / group, N) in the type that is multiplied.

    `code` is s4, u4, s8, u8, e4m3, e5m2 or e2m1. The scales of e2m1 are uint8 exponents: 2 ** (e - 127). Without scales,
    and for e2m1, `dtype` names the type that is multiplied: "bfloat16" or "float16".
    """
    n, k = _matrix("codes", codes, "(N, K)")
    if not dtype and scales is not None:
        dtype = _dtype(scales)
    if not dtype:
        raise ValueError('dtype is not given, "bfloat16" or "float16" was needed without scales')
    for name, lines in (("scales", scales), ("zeros", zeros)):
        if lines is not None and _matrix(name, lines, "(K / group, N)")[1] != n:
            raise ValueError(f"{name} has shape {tuple(lines.shape)}, (K / group, {n}) was needed")
    given = (None if x is None else _bytes(x) for x in (scales, zeros))
    return _operand(n, k, dtype, _native.pack(code, dtype, [n, k], _bytes(codes), *given))


def gptq(qweight: Any, scales: Any, qzeros: Any, g_idx: Any | None = None, *, bits: int = 4, v2: bool = False) -> Operand:
    """Weights of a GPTQ file: qweight (K * bits / 32, N), scales (G, N), qzeros (G, N * bits / 32), of 4 or 8 bits.

    Files of the first version hold zero points less one; `v2` says that they hold them as they are. `g_idx` (K) is the group of
    each place along K: where groups are mixed (`desc_act`), `matmul` reads the columns of `a` in the order of groups.
    """
    lines, n = _matrix("qweight", qweight, "(K * bits / 32, N)")
    k, dtype = lines * 32 // bits, _dtype(scales)
    index = None if g_idx is None else _host(g_idx).astype(np.int32).tobytes()
    parts = _native.gptq((bits, 0 if v2 else 1), dtype, [n, k], len(scales), _bytes(qweight), _bytes(scales), _bytes(qzeros), index)
    return _operand(n, k, dtype, parts)


def awq(qweight: Any, scales: Any, qzeros: Any) -> Operand:
    """Weights of an AWQ file: qweight (K, N / 8), scales (G, N), qzeros (G, N / 8)."""
    k, n = _matrix("qweight", qweight, "(K, N / 8)")
    parts = _native.awq(_dtype(scales), [n * 8, k], len(scales), _bytes(qweight), _bytes(scales), _bytes(qzeros))
    return _operand(n * 8, k, _dtype(scales), parts)


def mxfp4(blocks: Any, scales: Any, *, dtype: str = "bfloat16") -> Operand:
    """Weights in MXFP4: blocks (N, K / 2) or (N, K / 32, 16) of two codes per byte, the first in the low half, and scales (N, K / 32).
    They are multiplied in bfloat16."""
    if blocks.ndim == 3 and blocks.shape[2] == 16:
        blocks = blocks.reshape(blocks.shape[0], -1)
    n, pairs = _matrix("blocks", blocks, "(N, K / 2) or (N, K / 32, 16)")
    return _operand(n, 2 * pairs, dtype, _native.mxfp4(dtype, [n, 2 * pairs], _bytes(blocks), _bytes(scales)))


def fp8(weight: Any, scales: Any, *, dtype: str = "bfloat16") -> Operand:
    """Weights of DeepSeek's and Qwen's files: `weight` (N, K) of float8_e4m3fn, and `weight_scale_inv` (N / 128, K / 128) of float32, rounded
    up. Inputs stay in 16 bits; with inputs in 8 bits, pass `scale_a` and `scale_b` to `matmul`."""
    n, k = _matrix("weight", weight, "(N, K)")
    return _operand(n, k, dtype, _native.fp8(dtype, [n, k], _bytes(weight), _host(scales).astype(np.float32).ravel().tolist()))


def quantize(weight: Any, *, code: str = "s4", group: int = 128) -> Operand:
    """Rounds a weight (N, K) of float16 or bfloat16 to s4 or s8, with a scale per group of K."""
    if code not in ("s4", "s8"):
        raise ValueError(f'code is "{code}", "s4" or "s8" was needed')
    if group not in (32, 64, 128):
        raise ValueError(f"group is {group}, 32, 64 or 128 was needed")
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
