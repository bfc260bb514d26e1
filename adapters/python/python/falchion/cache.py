"""Pages of a cache of keys and values: the slots in which new keys are."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["slots"]


def slots(block_table: Any, cache_seqlens: Any, page: int, new: Any = 1) -> Any:
    """The slots of new keys, for `falchion.append_pages`: of token `i` of sequence `s` it is that of key `cache_seqlens[s] + i`.

    `block_table` (B, pages of a sequence) and `cache_seqlens` (B,) are those of `attention` before the new keys are counted, arrays of numpy or
    tensors of torch; `page` is the number of keys of a page, and `new` how many keys each sequence gets: a number, or an array of one for each
    sequence. The tokens of a sequence follow each other, and sequences too. A sequence whose number of keys is negative is left out: its slots are -1. Slots are int64.

    On a card this launches a few small kernels of torch, which a graph can capture if `new` is a number.
    """
    torch = sys.modules.get("torch")
    is_torch = torch is not None and isinstance(block_table, torch.Tensor)
    if is_torch:
        xp, place = torch, {"device": block_table.device}
    else:
        import numpy as xp

        place = {}
        block_table = xp.asarray(block_table)
    # Slots of large caches have more than 32 bits.
    long = (lambda x: torch.as_tensor(x, device=block_table.device).long()) if is_torch else (lambda x: xp.asarray(x).astype(xp.int64))
    block_table, cache_seqlens = long(block_table), long(cache_seqlens)
    if block_table.ndim != 2 or tuple(cache_seqlens.shape) != (block_table.shape[0],):
        shapes = f"block_table has shape {tuple(block_table.shape)} and cache_seqlens {tuple(cache_seqlens.shape)}"
        raise ValueError(f"{shapes}: (sequences, pages) and (sequences,) were needed")
    if page < 1:
        raise ValueError(f"page is {page}, 1 or more was needed")
    batch = block_table.shape[0]
    if hasattr(new, "ndim") and new.ndim == 0 or isinstance(new, int):
        new = int(new)
        if new < 0:
            raise ValueError(f"new is {new}, 0 or more was needed")
        every = xp.arange(batch * new, **place)
        owner, token = every // max(new, 1), every % max(new, 1)
    else:
        new = torch.as_tensor(new, device=block_table.device) if is_torch else xp.asarray(new)
        if (not is_torch or new.device.type == "cpu") and new.ndim == 1 and (new < 0).any():
            raise ValueError(f"new has {int(new.min())}, 0 or more was needed")
        if tuple(new.shape) != (batch,):
            raise ValueError(f"new has shape {tuple(new.shape)}, ({batch},) was needed")
        sequences = xp.arange(batch, **place)
        owner = torch.repeat_interleave(sequences, new) if is_torch else xp.repeat(sequences, new)
        token = xp.arange(owner.shape[0], **place) - (new.cumsum(0) - new)[owner]
    keys = cache_seqlens[owner] + token
    skipped, which = cache_seqlens[owner] < 0, keys // page
    if not is_torch or block_table.device.type == "cpu":
        beyond = (which >= block_table.shape[1]) & ~skipped
        if beyond.any():
            at = int(xp.argmax(beyond if not is_torch else beyond.int()))
            found = f"key {int(keys[at])} of sequence {int(owner[at])} is on page {int(which[at])} of the sequence"
            raise ValueError(f"{found}, at most {block_table.shape[1] - 1} was needed, as block_table says")
    if block_table.shape[1] == 0:
        return skipped * -1
    pages = block_table[owner, xp.where(skipped, 0, which)]
    # A page that is none is no slot that leaves a key out: it is refused, or traps.
    found = xp.where(pages < 0, -2, pages * page + keys % page)
    return xp.where(skipped, -1, found)
