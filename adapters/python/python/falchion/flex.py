"""`flex_attention` by the name, parameters and masks of torch's, so that a program changes an import alone:

    from falchion.flex import create_block_mask, flex_attention

`score_mod(score, b, h, q_idx, kv_idx)` and the `mask_mod(b, h, q_idx, kv_idx)` of a `BlockMask` are called once per call of `flex_attention`, with
values that write down what is done with them: the text becomes `score` and `sees` of `falchion.torch.attention`, and tensors that the functions
read its `arrays`. Equal texts are one kernel, whatever tensors are read. Nothing is kept between calls but what is said of a `BlockMask` below.

What is translated: arithmetic, with Python's `//` and `%`, `**` with a constant, comparisons, `&`, `|`, `^`, `~` of truths, shifts by a constant
and `&` with 2**n - 1 of whole numbers; `torch.where`, `minimum`, `maximum`, `clamp`, `abs`, `sign`, `square`, `reciprocal`, `relu`, `tanh`,
`exp`, `exp2`, `log`, `log2`, `log10`, `sqrt`, `rsqrt`, `sigmoid`, `silu`, `erf`, `sin`, `cos`, `tan`, `logical_and` and its like, `masked_fill`,
also as methods; `full_like`, `zeros_like`, `ones_like`, `new_ones` and their like; `to`, `float`, `int`, `bool` and their like, but no real
number becomes a whole one; and tensors of at most 4 dimensions where each is indexed by a whole number, one index after the other too. Anything
else is a `ValueError` that says the function's name and what it did, as is `if`, `and`, `or` and `not` of what depends on a score or a position.

`torch.compile` has a break where the functions are called, and what is before and after it is compiled. Functions are called again each time.

Real numbers are `float32`, whole ones `int32`. Tensors of `int64` are converted at each call, in one launch, and their numbers looked at on a
CPU alone; those of `float64` likewise; those of `int32`, `bool`, `uint8`, `int8`, `float32`, `bfloat16`, `float16` and the two of 8 bits are read as they
lie. Scores, and so `query`, `key` and `value`, have gradients; tensors that functions read have none, and are refused if they require one.

A block of a `BlockMask` in neither list is not seen, one in the full list is seen whole, and one in the other list as `mask_mod` says. Whether the
lists say the same as `mask_mod` is computed at the first call with a `BlockMask`, its `mask_mod` and the tensors of both, which takes about as long
as `create_block_mask` and waits for the device. If they do, the text of `mask_mod` alone is used: what is outside of ranges of keys such as
`q_idx >= kv_idx` is not computed. Otherwise, and where the first call is captured in a graph, each score looks up its block.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import (
    AuxOutput,
    AuxRequest,
    BlockMask,
    FlexKernelOptions,
    and_masks,
    create_block_mask,
    create_mask,
    noop_mask,
    or_masks,
)

from ._symbols import _Value
from ._traced import _Trace
from .torch import attention

__all__ = [
    "AuxOutput",
    "AuxRequest",
    "BlockMask",
    "FlexKernelOptions",
    "and_masks",
    "create_block_mask",
    "create_mask",
    "flex_attention",
    "noop_mask",
    "or_masks",
]


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Callable | None = None,
    block_mask: BlockMask | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: FlexKernelOptions | None = None,
    *,
    return_aux: AuxRequest | None = None,
) -> Tensor | tuple[Tensor, Tensor] | tuple[Tensor, AuxOutput]:
    """`torch.nn.attention.flex_attention.flex_attention` of tensors (B, H, L, D) of float16 or bfloat16, with gradients. Rows that see no key are
    zeros, and have a log-sum-exp of minus infinity. The log-sum-exp, of `return_lse` or `return_aux`, has no gradient; there are no `max_scores`.

    `kernel_options` that say how torch's kernel is to run (sizes of blocks, warps, stages, `PRESCALE_QK` and the like, also with `fwd_` or `bwd_`) say
    nothing here; a `BACKEND` other than "AUTO" is refused, as is what torch does not know either.
    """
    query, key, value = _checked(query, key, value, enable_gqa)
    if return_lse and return_aux is not None:
        raise ValueError("return_lse is True and return_aux is given, one of them was needed")
    if return_aux is not None and return_aux.max_scores:
        raise ValueError("return_aux has max_scores=True, False was needed: falchion has the log-sum-exp alone")
    _ignored(kernel_options or {})
    if block_mask is not None:
        _masks(block_mask, query, key)
    if key.shape[0] != query.shape[0]:
        rows = block_mask.kv_num_blocks.shape[0] if block_mask is not None else None
        if rows != query.shape[0] or key.shape[0] != 1:
            needed = f"{query.shape[0]} were needed as query has, or 1 with a block_mask of {query.shape[0]}"
            raise ValueError(f"key and value have {key.shape[0]} sequences, {needed}")
        key, value = (tensor.expand(query.shape[0], -1, -1, -1) for tensor in (key, value))
    score, sees, arrays = _texts(query, key, score_mod, block_mask)
    with_sums = return_lse or (return_aux is not None and return_aux.lse)
    found = attention(query, key, value, scale=scale, score=score, sees=sees, arrays=arrays, log_sum_exp=with_sums)
    if return_aux is not None:
        return (found[0], AuxOutput(lse=found[1])) if with_sums else (found, AuxOutput())
    return found


def _checked(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool) -> list[Tensor]:
    """The tensors, in the type of an autocast that runs."""
    inputs = {"query": query, "key": key, "value": value}
    for name, tensor in inputs.items():
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} is a {type(tensor).__name__}, a tensor of torch was needed")
        if tensor.is_nested:
            raise ValueError(f"{name} is a nested tensor, one of (batch, heads, rows, elements) was needed")
        if tensor.device != query.device:
            raise ValueError(f"{name} is on {tensor.device}, {query.device} was needed as query is")
        if torch.is_autocast_enabled(tensor.device.type):
            inputs[name] = tensor = tensor.to(torch.get_autocast_dtype(tensor.device.type))
        if tensor.dtype not in (torch.float16, torch.bfloat16):
            raise ValueError(f"{name} has elements of {tensor.dtype}, torch.float16 or torch.bfloat16 was needed")
        if tensor.dtype != inputs["query"].dtype:
            raise ValueError(f"{name} has elements of {tensor.dtype}, {inputs['query'].dtype} was needed as query has")
        if tensor.dim() != 4:
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}, (batch, heads, rows, elements) was needed")
    if query.shape[3] != key.shape[3]:
        raise ValueError(f"key has heads of {key.shape[3]} elements, {query.shape[3]} were needed as query has")
    if value.shape[:3] != key.shape[:3]:
        raise ValueError(f"value has shape {tuple(value.shape)}, ({', '.join(map(str, key.shape[:3]))}, elements) was needed as key says")
    heads, shared = query.shape[1], key.shape[1]
    if not enable_gqa and heads != shared:
        raise ValueError(f"key has {shared} heads, {heads} were needed as query has, or enable_gqa=True")
    if shared == 0 or heads % shared:
        raise ValueError(f"query has {heads} heads, a multiple of {shared} was needed, the heads of key")
    return list(inputs.values())


def _ignored(options: FlexKernelOptions) -> None:
    """Refuses options that say more than how torch's kernel runs."""
    for name, given in options.items():
        if name.removeprefix("fwd_").removeprefix("bwd_") not in FlexKernelOptions.__annotations__:
            raise ValueError(f"kernel_options has {name!r}, one of {', '.join(FlexKernelOptions.__annotations__)} was needed")
        if name == "BACKEND" and given != "AUTO":
            raise ValueError(f"kernel_options has BACKEND={given!r}, 'AUTO' was needed: the kernel is falchion's")


def _masks(mask: BlockMask, query: Tensor, key: Tensor) -> None:
    """Refuses a mask that is not of these tensors."""
    if not isinstance(mask, BlockMask):
        raise TypeError(f"block_mask is a {type(mask).__name__}, a BlockMask was needed")
    if mask.kv_num_blocks.device != query.device:
        raise ValueError(f"block_mask is on {mask.kv_num_blocks.device}, {query.device} was needed as query is")
    (rows, columns), (queries, keys) = mask.BLOCK_SIZE, (query.shape[2], key.shape[2])
    # torch's own mask that says nothing has one block.
    if (rows, columns) != (1 << 30, 1 << 30) and tuple(mask.seq_lengths) != (queries, keys):
        raise ValueError(f"block_mask is of {mask.seq_lengths[0]} queries and {mask.seq_lengths[1]} keys, {queries} and {keys} were needed")
    for name in ("kv_num_blocks", "full_kv_num_blocks"):
        blocks = getattr(mask, name)
        if blocks is None:
            continue
        lead = (1, 1, *blocks.shape)[-3:-1]
        if any(own not in (1, of) for own, of in zip(lead, query.shape)) or blocks.shape[-1] * rows < queries or blocks.dim() > 3:
            needed = f"({query.shape[0]} or 1, {query.shape[1]} or 1, {-(-queries // rows)})"
            raise ValueError(f"block_mask has {name} of shape {tuple(blocks.shape)}, {needed} was needed")


@torch.compiler.disable(reason="falchion.flex calls score_mod and mask_mod to write them down")
def _texts(query: Tensor, key: Tensor, score_mod: Callable | None, mask: BlockMask | None) -> tuple[str | None, str | None, dict[str, Tensor]]:
    """The texts of scores and of a mask, and their arrays."""
    trace = _Trace(query, key)
    score, sees = trace.product, trace.value(True)
    if score_mod is not None:
        score = trace.traced("score_mod", score_mod, score, *trace.places)
        if score.kind == "truth":
            score = trace.number(score)
        # A score of minus infinity is a key that is not seen, of which the library knows more.
        while score.op == "where" and score.of[0].at_most_of("qkhb"):
            seen, a, b = score.of
            if b.is_constant(-math.inf):
                score = a
            elif a.is_constant(-math.inf):
                seen, score = trace.logical_not(seen), b
            else:
                break
            sees = trace.logical_and(sees, seen)
    if mask is not None:
        of_mask = trace.traced("mask_mod", mask.mask_mod, *trace.places)
        if of_mask.kind != "truth":
            raise trace.refusal(f"returns a {of_mask.kind} number, a truth was needed, as q_idx >= kv_idx")
        sees = trace.logical_and(_by_blocks(trace, mask, of_mask), sees)
    if sees.is_constant(False):
        sees = trace.make("<", "truth", trace.places[3], trace.value(0))
    texts = [None if plain else trace.text(of) for of, plain in ((score, score is trace.product), (sees, sees.is_constant(True)))]
    return *texts, trace.arrays()


# What the lists of a BlockMask say next to its mask_mod: no more, only which blocks are seen at all, or also which are seen whole.
_NOTHING, _SOME, _WHOLE = range(3)


class _Kept(NamedTuple):
    """What is kept of a BlockMask: what its lists say, its blocks as a tensor, and what both were computed of. Who keeps tensors knows that no
    others are where they are."""

    of: Callable[[], object]
    marks: list
    says: int
    blocks: Tensor
    read: list[Tensor]


_kept: weakref.WeakKeyDictionary[BlockMask, _Kept] = weakref.WeakKeyDictionary()


def _by_blocks(trace: _Trace, mask: BlockMask, of_mask: _Value) -> _Value:
    """Whether a query sees a key, of what `mask_mod` and the lists say."""
    # A graph that is captured reads the lists when it runs.
    captured = trace.query.is_cuda and torch.cuda.is_current_stream_capturing()
    depends = of_mask.depends()
    extents = [own if name in depends else 1 for own, name in zip(trace.query.shape, "bh")]
    lists = [mask.kv_num_blocks, mask.kv_indices, mask.full_kv_num_blocks, mask.full_kv_indices]
    read = [tensor for tensor in (*lists, *of_mask.reads()) if tensor is not None]
    marks = [extents, trace.queries, trace.keys, mask.BLOCK_SIZE, *(trace.mark(tensor) for tensor in read)]
    kept = _kept.get(mask)
    if kept is not None and kept.of() is mask.mask_mod and kept.marks == marks:
        says, blocks = kept.says, _dense(mask, trace.keys) if captured and kept.says != _NOTHING else kept.blocks
    else:
        blocks = _dense(mask, trace.keys)
        says = _WHOLE if captured else _says(trace, mask, of_mask, blocks, extents)
        if not captured:
            _kept[mask] = _Kept(_weak(mask.mask_mod), marks, says, blocks, read)
    if says == _NOTHING:
        return of_mask
    b, h, q, k = trace.places
    block = trace.read(blocks, (b, h, trace.floor_divide(q, mask.BLOCK_SIZE[0]), trace.floor_divide(k, mask.BLOCK_SIZE[1])))
    if says == _SOME:
        return trace.logical_and(of_mask, trace.ne(block, 0))
    return trace.logical_or(trace.eq(block, 2), trace.logical_and(trace.eq(block, 1), of_mask))


def _weak(of: object) -> Callable[[], object]:
    try:
        return weakref.ref(of)
    except TypeError:
        return lambda: of


def _dense(mask: BlockMask, keys: int) -> Tensor:
    """The blocks of a mask (B, H, blocks of queries, blocks of keys): 0 is not seen, 1 as `mask_mod` says, 2 whole."""
    columns = -(-keys // mask.BLOCK_SIZE[1])
    found = None
    for number, (counts, indices) in enumerate([(mask.kv_num_blocks, mask.kv_indices), (mask.full_kv_num_blocks, mask.full_kv_indices)], 1):
        if counts is None:
            continue
        counts, indices = (tensor[(None,) * (of - tensor.dim())] for tensor, of in ((counts, 3), (indices, 4)))
        listed = torch.arange(indices.shape[-1], device=indices.device) < counts[..., None]
        # What is not listed goes into a column of its own.
        of_own = torch.zeros(*indices.shape[:-1], columns + 1, dtype=torch.uint8, device=indices.device)
        of_own = of_own.scatter_(-1, torch.where(listed, indices, columns).clamp(0, columns).long(), number)[..., :columns]
        found = of_own if found is None else torch.maximum(found, of_own)
    return found


@torch.no_grad()
def _says(trace: _Trace, mask: BlockMask, of_mask: _Value, blocks: Tensor, extents: list[int]) -> int:
    """What the lists say next to a mask of these batches and heads."""
    queries, keys, device = trace.queries, trace.keys, blocks.device
    many = max(1, (1 << 24) // max(1, extents[0] * extents[1] * keys))
    column = torch.arange(keys, device=device) // mask.BLOCK_SIZE[1]
    less = more = torch.zeros((), dtype=torch.bool, device=device)
    for begin in range(0, queries, many):
        count = min(many, queries - begin)
        row = torch.arange(begin, begin + count, device=device) // mask.BLOCK_SIZE[0]
        of = blocks[:, :, row][..., column]
        if of_mask.op == "constant":
            seen = torch.tensor(of_mask.extra, device=device)
        else:
            seen = create_mask(lambda b, h, q, k: mask.mask_mod(b, h, q + begin, k), *extents, count, keys, device)
        less = less | (seen & (of == 0)).any()
        more = more | (~seen & (of == 2)).any()
    less, more = torch.stack([less, more]).tolist()
    return _WHOLE if more else _SOME if less else _NOTHING
