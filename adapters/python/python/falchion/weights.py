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


def _host(name: str, array: Any, *types: str) -> tuple[np.ndarray, str]:
    """An argument in the host's memory, whose elements have one of these types, and the name of its type; of a type of torch that
    numpy does not have, its bits."""
    array = _native.admitted(name, array, types)
    dtype = str(array.dtype).removeprefix("torch.")
    if hasattr(array, "detach"):
        import torch

        array = array.detach().cpu()
        bits = {torch.bfloat16: torch.int16}.get(array.dtype, torch.uint8 if array.element_size() == 1 else array.dtype)
        array = array.view(bits).numpy()
    return array, dtype


def _lines(array: np.ndarray) -> np.ndarray:
    """The same lines, each at a multiple of 16 bytes."""
    lines, length = array.shape
    room = np.zeros((lines, -(-length * array.itemsize // 16) * 16 // array.itemsize), array.dtype)
    room[:, :length] = array
    return room


def _bytes(array: np.ndarray) -> bytes:
    return np.ascontiguousarray(array).tobytes()


def _operand(n: int, k: int, dtype: str, parts: tuple[Any, ...]) -> Operand:
    code, group, units, *lines, order = parts
    scales, zeros = (of and np.frombuffer(of[1], np.uint8).reshape(-1, of[0]).copy() for of in lines)
    order = None if order is None else np.array(order, np.int64)
    return Operand(np.frombuffer(units, np.uint8).copy(), (k, n), dtype, is_b=True, code=code, group=group, scales=scales, zeros=zeros, order=order)


def _matrix(name: str, array: np.ndarray, what: str) -> tuple[int, int]:
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(f"{name} has shape {tuple(array.shape)}, {what} with elements was needed")
    return tuple(array.shape)


def _shaped(name: str, array: np.ndarray, needed: tuple[int, ...]) -> None:
    if array.shape != needed:
        raise ValueError(f"{name} has shape {array.shape}, {needed} was needed")


# What few-bit weights are multiplied in.
_HALVES = ("float16", "bfloat16")
# What files hold words of codes in.
_WORDS = ("int32", "uint32")


def pack(codes: Any, scales: Any | None = None, zeros: Any | None = None, *, code: str = "s4", dtype: str | None = None) -> Operand:
    """Weights of codes (N, K), one per byte, with scales and zero points (K / group, N) in the type that is multiplied.

    `code` is s4, u4, s8, u8, e4m3, e5m2 or e2m1. The scales of e2m1 are uint8 exponents: 2 ** (e - 127). Without scales,
    and for e2m1, `dtype` names the type that is multiplied: "bfloat16" or "float16". With unsigned integers as scales it says
    what their bits are.
    """
    codes, _ = _host("codes", codes, "uint8", "int8", "float8_e4m3fn", "float8_e5m2")
    n, k = _matrix("codes", codes, "(N, K)")
    given = []
    for name, lines in (("scales", scales), ("zeros", zeros)):
        if lines is None:
            given.append(None)
            continue
        powers = code == "e2m1" and name == "scales"
        lines, of = _host(name, lines, *(("uint8",) if powers else (*_HALVES, "uint16") if dtype else _HALVES))
        if _matrix(name, lines, "(K / group, N)")[1] != n:
            raise ValueError(f"{name} has shape {tuple(lines.shape)}, (K / group, {n}) was needed")
        if not powers and (dtype or of) != of != "uint16":
            raise ValueError(f"{name} has elements of {of}, {dtype} was needed, as dtype or scales say")
        dtype = dtype or (None if powers else of)
        given.append(_bytes(lines))
    if not dtype:
        raise ValueError('dtype is not given, "bfloat16" or "float16" was needed without scales')
    return _operand(n, k, dtype, _native.pack(code, dtype, [n, k], _bytes(codes), *given))


def gptq(qweight: Any, scales: Any, qzeros: Any, g_idx: Any | None = None, *, bits: int = 4, v2: bool = False) -> Operand:
    """Weights of a GPTQ file: qweight (K * bits / 32, N), scales (G, N), qzeros (G, N * bits / 32), of 4 or 8 bits.

    Files of the first version hold zero points less one; `v2` says that they hold them as they are. `g_idx` (K) is the group of
    each place along K: where groups are mixed (`desc_act`), `matmul` reads the columns of `a` in the order of groups.
    """
    if bits not in (4, 8):
        raise ValueError(f"bits is {bits}, 4 or 8 was needed")
    qweight, _ = _host("qweight", qweight, *_WORDS)
    scales, dtype = _host("scales", scales, *_HALVES)
    qzeros, _ = _host("qzeros", qzeros, *_WORDS)
    lines, n = _matrix("qweight", qweight, "(K * bits / 32, N)")
    k, groups = lines * 32 // bits, _matrix("scales", scales, "(G, N)")[0]
    _shaped("scales", scales, (groups, n))
    _shaped("qzeros", qzeros, (groups, n * bits // 32))
    index = None if g_idx is None else _host("g_idx", g_idx, "int32", "int64")[0].astype(np.int32).tobytes()
    parts = _native.gptq((bits, 0 if v2 else 1), dtype, [n, k], groups, _bytes(qweight), _bytes(scales), _bytes(qzeros), index)
    return _operand(n, k, dtype, parts)


def awq(qweight: Any, scales: Any, qzeros: Any) -> Operand:
    """Weights of an AWQ file: qweight (K, N / 8), scales (G, N), qzeros (G, N / 8)."""
    qweight, _ = _host("qweight", qweight, *_WORDS)
    scales, dtype = _host("scales", scales, *_HALVES)
    qzeros, _ = _host("qzeros", qzeros, *_WORDS)
    k, words = _matrix("qweight", qweight, "(K, N / 8)")
    groups = _matrix("scales", scales, "(G, N)")[0]
    _shaped("scales", scales, (groups, words * 8))
    _shaped("qzeros", qzeros, (groups, words))
    parts = _native.awq(dtype, [words * 8, k], groups, _bytes(qweight), _bytes(scales), _bytes(qzeros))
    return _operand(words * 8, k, dtype, parts)


def mxfp4(blocks: Any, scales: Any, *, dtype: str = "bfloat16") -> Operand:
    """Weights in MXFP4: blocks (N, K / 2) or (N, K / 32, 16) of two codes per byte, the first in the low half, and scales (N, K / 32).
    They are multiplied in bfloat16."""
    blocks, _ = _host("blocks", blocks, "uint8")
    scales, _ = _host("scales", scales, "uint8")
    if blocks.ndim == 3 and blocks.shape[2] == 16:
        blocks = blocks.reshape(blocks.shape[0], blocks.shape[1] * 16)
    n, pairs = _matrix("blocks", blocks, "(N, K / 2) or (N, K / 32, 16)")
    _shaped("scales", scales, (n, -(-pairs // 16)))
    return _operand(n, 2 * pairs, dtype, _native.mxfp4(dtype, [n, 2 * pairs], _bytes(blocks), _bytes(scales)))


def fp8(weight: Any, scales: Any, *, dtype: str = "bfloat16") -> Operand:
    """Weights of DeepSeek's and Qwen's files: `weight` (N, K) of float8_e4m3fn, and `weight_scale_inv` (N / 128, K / 128) of float32, rounded
    up. Inputs stay in 16 bits; with inputs in 8 bits, pass `scale_a` and `scale_b` to `matmul`."""
    weight, _ = _host("weight", weight, "float8_e4m3fn", "uint8")
    scales, _ = _host("scales", scales, "float32")
    n, k = _matrix("weight", weight, "(N, K)")
    _shaped("scales", scales, (-(-n // 128), -(-k // 128)))
    return _operand(n, k, dtype, _native.fp8(dtype, [n, k], _bytes(weight), scales.ravel().tolist()))


def quantize(weight: Any, *, code: str = "s4", group: int = 128) -> Operand:
    """Rounds a weight (N, K) of float16 or bfloat16 to s4 or s8, with a scale per group of K."""
    if code not in ("s4", "s8"):
        raise ValueError(f'code is "{code}", "s4" or "s8" was needed')
    if group not in (32, 64, 128):
        raise ValueError(f"group is {group}, 32, 64 or 128 was needed")
    bits, dtype = _host("weight", weight, *_HALVES)
    n, k = _matrix("weight", bits, "(N, K)")
    wide = (bits.view(np.uint16).astype(np.uint32) << 16).view(np.float32) if dtype == "bfloat16" else bits.astype(np.float32)
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
    return pack(codes, stored.T, code=code, dtype=dtype)
