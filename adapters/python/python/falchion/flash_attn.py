"""Attention by the names, parameters and layouts of flash-attn 2.8, so that a program changes an import alone:

    from falchion.flash_attn import flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache

Tensors are (batch, rows, heads, elements), sequences of different lengths (all rows, heads, elements), and caches in pages (pages, keys of a
page, heads, elements). All else is `falchion.torch.attention`: elements are float16 or bfloat16, heads have 32 to 256 elements, a multiple of 16, or without a gradient 512,
`causal` puts the last query at the last key, and `window_size` (left, right) has -1 for no limit. What falchion does not have is a `ValueError`
that names the argument, or the one of `falchion.attention` that it became, in whose order of dimensions shapes are then. A query that sees no key has zeros, and minus infinity in the log-sum-exp, which is that of the scores with their caps
and slopes.

`deterministic` is about gradients; results always have the same bits. `return_attn_probs` returns (result, log-sum-exp, probabilities), of
which the last is empty, as it is in flash-attn without dropout.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .torch import _plain, _words, attention

__all__ = [
    "flash_attn_func",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
    "flash_attn_with_kvcache",
]

# The numbers of keys that a page of falchion's kernels may have.
_PAGES = (256, 128, 64, 32, 16)


def flash_attn_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Tensor | tuple[Tensor, Tensor, Tensor]:
    """Attention of q (batch, rows, heads, elements) with k and v (batch, keys, heads of k, elements), with gradients."""
    _fits("q", q, "batch", "rows", "heads", "elements")
    _fits("k", k, q.shape[0], "keys", "heads", q.shape[3])
    _fits("v", v, *k.shape[:3], "elements")
    asked = _asked(dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes)
    return _attend(q, k, v, return_attn_probs, deterministic=deterministic, **asked)


def flash_attn_qkvpacked_func(
    qkv: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Tensor | tuple[Tensor, Tensor, Tensor]:
    """`flash_attn_func` of the three parts of qkv (batch, rows, 3, heads, elements)."""
    _fits("qkv", qkv, "batch", "rows", 3, "heads", "elements")
    rest = (dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs)
    return flash_attn_func(*qkv.unbind(2), *rest)


def flash_attn_kvpacked_func(
    q: Tensor,
    kv: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Tensor | tuple[Tensor, Tensor, Tensor]:
    """`flash_attn_func` of q and of the two parts of kv (batch, keys, 2, heads of k, elements)."""
    _fits("q", q, "batch", "rows", "heads", "elements")
    _fits("kv", kv, q.shape[0], "keys", 2, "heads", q.shape[3])
    rest = (dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs)
    return flash_attn_func(q, *kv.unbind(2), *rest)


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor, Tensor]:
    """Attention of sequences that follow each other, with gradients: q is (all rows, heads, elements), k and v (all keys, heads of k,
    elements), and `cu_seqlens_q` and `cu_seqlens_k`, one number more than sequences, say where each begins. With `block_table` (sequences,
    pages) k and v are (pages, keys of a page, heads of k, elements), `cu_seqlens_k` says how many keys sequences have, and there are no
    gradients."""
    _fits("q", q, "rows", "heads", "elements")
    _fits("k", k, *(["keys"] if block_table is None else ["pages", "keys"]), "heads", q.shape[2])
    _fits("v", v, *k.shape[:-1], "elements")
    asked = _asked(dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes) | {"deterministic": deterministic}
    _fits("cu_seqlens_q", cu_seqlens_q, "sequences + 1")
    _fits("cu_seqlens_k", cu_seqlens_k, *cu_seqlens_q.shape)
    asked |= {"cu_seqlens_q": cu_seqlens_q, "max_seqlen_q": max_seqlen_q, "max_seqlen_k": max_seqlen_k}
    if block_table is None:
        return _attend(q, k, v, return_attn_probs, cu_seqlens_k=cu_seqlens_k, **asked)
    _fits("block_table", block_table, cu_seqlens_k.shape[0] - 1, "pages")
    page = _page(k)
    if page is None:
        raise ValueError(f"k has pages of {k.shape[1]} keys, a multiple of {_PAGES[-1]} was needed")
    k, v, block_table = _paged({"k": k, "v": v}, page, block_table)
    return _attend(q, k, v, return_attn_probs, block_table=block_table, cache_seqlens=cu_seqlens_k.diff(), **asked)


def flash_attn_varlen_qkvpacked_func(
    qkv: Tensor,
    cu_seqlens: Tensor,
    max_seqlen: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Tensor | tuple[Tensor, Tensor, Tensor]:
    """`flash_attn_varlen_func` of the three parts of qkv (all rows, 3, heads, elements)."""
    _fits("qkv", qkv, "rows", 3, "heads", "elements")
    rest = (dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs)
    return flash_attn_varlen_func(*qkv.unbind(1), cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, *rest)


def flash_attn_varlen_kvpacked_func(
    q: Tensor,
    kv: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Tensor | tuple[Tensor, Tensor, Tensor]:
    """`flash_attn_varlen_func` of q and of the two parts of kv (all keys, 2, heads of k, elements)."""
    _fits("q", q, "rows", "heads", "elements")
    _fits("kv", kv, "keys", 2, "heads", q.shape[2])
    rest = (dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs)
    return flash_attn_varlen_func(q, *kv.unbind(1), cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, *rest)


def flash_attn_with_kvcache(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    k: Tensor | None = None,
    v: Tensor | None = None,
    rotary_cos: None = None,
    rotary_sin: None = None,
    cache_seqlens: int | Tensor | None = None,
    cache_batch_idx: Tensor | None = None,
    cache_leftpad: None = None,
    block_table: Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    alibi_slopes: Tensor | None = None,
    num_splits: int = 0,
    return_softmax_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Attention of q (batch, rows, heads, elements) with the first `cache_seqlens` keys of each sequence of a cache, without gradients. The
    cache is (sequences, keys, heads of k, elements), of which `cache_batch_idx` chooses, or with `block_table` (batch, pages) in pages
    (pages, keys of a page, heads of k, elements). `k` and `v` (batch, new keys, heads of k, elements) are written into the cache behind
    those keys first, and are seen. Nothing waits for the device: there, numbers of tensors are not checked, and a new key that the cache
    has no room for fails in torch's indexing.

    Pages, and with `cache_batch_idx` sequences, have a multiple of 16 keys.

    How keys are divided is falchion's choice: `num_splits` is 0 or 1. `rotary_interleaved` says nothing without a `rotary_cos`.
    """
    _without("rotary_cos", rotary_cos, ": rotate q and k before the call")
    _without("rotary_sin", rotary_sin, ": rotate q and k before the call")
    _without("cache_leftpad", cache_leftpad)
    if num_splits not in (0, 1):
        raise ValueError(f"num_splits is {num_splits}, 0 or 1 was needed: falchion chooses how keys are divided")
    _fits("q", q, "batch", "rows", "heads", "elements")
    _fits("k_cache", k_cache, "batch" if block_table is None else "pages", "keys", "heads", q.shape[3])
    _fits("v_cache", v_cache, *k_cache.shape[:3], "elements")
    for name, tensor in {"q": q, "k_cache": k_cache, "v_cache": v_cache, "k": k, "v": v}.items():
        if torch.is_grad_enabled() and tensor is not None and tensor.requires_grad:
            raise ValueError(f"{name} requires a gradient, which attention with a cache does not have: torch.no_grad() was needed")
    asked = _asked(0.0, softmax_scale, causal, window_size, softcap, alibi_slopes)
    batch, keys = q.shape[0], k_cache.shape[1]
    table = _table(k_cache, batch, block_table, cache_batch_idx)
    lengths = _lengths(q, table.shape[1] * keys, cache_seqlens, 0 if k is None else k.shape[1])
    # The cache as the kernel reads it: views, before anything is written.
    page, in_order = _page(k_cache), block_table is None and cache_batch_idx is None
    caches = {"k_cache": k_cache, "v_cache": v_cache}
    of_one = in_order and not isinstance(lengths, Tensor)
    if of_one:
        views = [cache[:batch] for cache in caches.values()]
    elif page is not None:
        *views, of_pages = _paged(caches, page, table)
    elif in_order:
        views = [_view(name, cache[:batch], -1) for name, cache in caches.items()]
    else:
        given = "cache_batch_idx" if block_table is None else "block_table"
        raise ValueError(f"k_cache has {keys} keys where {given} points, a multiple of {_PAGES[-1]} was needed")
    if k is not None or v is not None:
        _append({"k": (k_cache, k), "v": (v_cache, v)}, batch, cache_seqlens, lengths, table)
        lengths = lengths + k.shape[1]
    if of_one:
        found = _attend(q, *(view[:, :lengths] for view in views), return_softmax_lse, **asked)
    elif page is not None:
        lengths = _filled(q, lengths)
        found = _attend(q, *views, return_softmax_lse, block_table=of_pages, cache_seqlens=lengths, **asked)
    else:
        found = _among_rows(q, views, (lengths, keys), return_softmax_lse, asked)
    return found[:2] if return_softmax_lse else found


def _fits(name: str, tensor: object, *shape: int | str) -> None:
    """Refuses a tensor that has not these extents, of which those with a name may be any."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} is a {type(tensor).__name__}, a tensor of torch was needed")
    if tensor.dim() != len(shape) or any(not isinstance(own, str) and own != found for own, found in zip(shape, tensor.shape)):
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}, ({', '.join(map(str, shape))}{',' * (len(shape) == 1)}) was needed")


def _without(name: str, given: object, remedy: str = "") -> None:
    if given is not None:
        raise ValueError(f"{name} is {_words(given)}, None was needed{remedy}")


def _asked(dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes) -> dict:
    """What all functions have, in falchion's words."""
    if dropout_p != 0:
        raise ValueError(f"dropout_p is {dropout_p}, 0 was needed: falchion has no dropout in attention")
    if not isinstance(window_size, (tuple, list)) or len(window_size) != 2:
        raise ValueError(f"window_size is {window_size!r}, (left, right) was needed")
    # Numbers below zero are no limit, and no cap.
    window = None if max(window_size) < 0 else tuple(window_size)
    return {"scale": softmax_scale, "causal": bool(causal), "window": window, "softcap": max(softcap, 0.0), "alibi_slopes": alibi_slopes}


def _attend(q: Tensor, k: Tensor, v: Tensor, with_sums: bool, **asked) -> Tensor | tuple[Tensor, Tensor, Tensor]:
    """Attention of tensors whose heads follow rows: the result, or also the log-sum-exp and the probabilities, of which there are none."""
    found = attention(*(x.transpose(-2, -3) for x in (q, k, v)), log_sum_exp=bool(with_sums), **asked)
    if not with_sums:
        return found.transpose(-2, -3)
    return found[0].transpose(-2, -3), found[1], found[0].new_empty(0)


def _on_host(*tensors: object) -> bool:
    """Whether the numbers of all of these may be read without waiting for a device."""
    given = [tensor for tensor in tensors if isinstance(tensor, Tensor)]
    return _plain(*given) and all(tensor.device.type == "cpu" for tensor in given)


def _table(cache: Tensor, batch: int, block_table: Tensor | None, chosen: Tensor | None) -> Tensor:
    """The pages of each sequence. Without a table a sequence is one page."""
    if block_table is not None:
        _without("cache_batch_idx", chosen, ", as block_table is given")
        _fits("block_table", block_table, batch, "pages")
        return block_table
    sequences = cache.shape[0]
    if chosen is None:
        if sequences < batch:
            raise ValueError(f"k_cache has {sequences} sequences, {batch} were needed as q has, or cache_batch_idx")
        return torch.arange(batch, dtype=torch.int32, device=cache.device)[:, None]
    _fits("cache_batch_idx", chosen, batch)
    wrong = [of for of in chosen.tolist() if not 0 <= of < sequences] if _on_host(chosen) else []
    if wrong:
        raise ValueError(f"cache_batch_idx has {wrong[0]}, 0 to {sequences - 1} was needed")
    return chosen[:, None]


def _lengths(q: Tensor, room: int, given: int | Tensor | None, new: int) -> int | Tensor:
    """How many keys the cache has of each sequence: one number, or a tensor."""
    if given is None:
        return room
    numbers = [given]
    if isinstance(given, Tensor):
        _fits("cache_seqlens", given, q.shape[0])
        numbers = given.tolist() if _on_host(given) else []
    wrong = [length for length in numbers if not 0 <= length <= room - new]
    if wrong:
        rest = f", as k has {new} and the cache {room} keys of a sequence" if new else ""
        raise ValueError(f"cache_seqlens has {wrong[0]}, 0 to {room - new} was needed{rest}")
    return given


def _filled(q: Tensor, lengths: int | Tensor) -> Tensor:
    """Lengths as a tensor."""
    if isinstance(lengths, Tensor):
        return lengths
    return torch.full((q.shape[0],), lengths, dtype=torch.int32, device=q.device)


def _append(pairs: dict[str, tuple[Tensor, Tensor | None]], batch: int, given: object, lengths: int | Tensor, table: Tensor) -> None:
    """Writes new keys and values behind the keys of each sequence of a cache."""
    for name, (cache, new) in pairs.items():
        if new is None:
            raise ValueError(f"{name} is None, a tensor was needed: k and v are written together")
        _fits(name, new, batch, "keys" if name == "k" else pairs["k"][1].shape[1], *cache.shape[2:])
        if new.dtype != cache.dtype:
            raise ValueError(f"{name} has elements of {new.dtype}, {cache.dtype} was needed as {name}_cache has")
    if given is None:
        raise ValueError("cache_seqlens is None, a number or a tensor was needed: k is written behind these keys")
    keys, new = pairs["k"]
    lengths = _filled(new, lengths)
    at = lengths.long()[:, None] + torch.arange(new.shape[1], device=new.device)
    pages = table.long().gather(1, at // keys.shape[1])
    wrong = (pages < 0) | (pages >= keys.shape[0])
    if _on_host(pages) and wrong.any():
        raise ValueError(f"block_table has page {int(pages[wrong][0])} where a key of k belongs, 0 to {keys.shape[0] - 1} was needed")
    # A number below zero would be one from the end.
    pages = torch.where(wrong, keys.shape[0], pages)
    for cache, new in pairs.values():
        cache.index_put_((pages, at % keys.shape[1]), new)


def _page(cache: Tensor) -> int | None:
    """The most keys of a page of falchion's that pages of a cache are divided into."""
    return next((page for page in _PAGES if cache.shape[1] % page == 0), None)


def _paged(caches: dict[str, Tensor], page: int, table: Tensor) -> list[Tensor]:
    """Views of caches in pages of so many keys, and their table."""
    keys = next(iter(caches.values())).shape[1]
    if keys == page:
        return [*caches.values(), table]
    each = keys // page
    parts = torch.arange(each, dtype=table.dtype, device=table.device)
    table = (table[:, :, None] * each + parts).flatten(1)
    return [*(_view(name, cache, -1, page) for name, cache in caches.items()), table]


def _view(name: str, cache: Tensor, *lead: int) -> Tensor:
    """A cache with other extents in front of its heads."""
    if cache.shape[0] > 1 and cache.stride(0) != cache.shape[1] * cache.stride(1):
        needed = cache.shape[1] * cache.stride(1)
        raise ValueError(f"{name} of shape {tuple(cache.shape)} has strides {cache.stride()}, one of {needed} at first was needed")
    return cache.view(*lead, *cache.shape[2:])


def _among_rows(q: Tensor, views: list[Tensor], of_cache: tuple[Tensor, int], with_sums: bool, asked: dict):
    """Attention with the first keys of each sequence of a cache that is not divided into pages: `of_cache` are these numbers, and that of all
    keys of a sequence. Rows of the cache follow each other: those that a sequence does not use are a sequence without queries."""
    (batch, rows), (lengths, keys) = q.shape[:2], of_cache
    begins = torch.arange(batch + 1, dtype=lengths.dtype, device=q.device) * keys
    ends = begins + torch.nn.functional.pad(lengths, (0, 1))
    of_keys = torch.stack([begins, ends], 1).flatten()[:-1]
    of_rows = (torch.arange(2 * batch + 1, dtype=lengths.dtype, device=q.device) + 1) // 2 * rows
    slopes = asked["alibi_slopes"]
    if slopes is not None and slopes.dim() == 2:
        asked = asked | {"alibi_slopes": slopes.repeat_interleave(2, 0)}
    asked = asked | {"cu_seqlens_q": of_rows, "cu_seqlens_k": of_keys, "max_seqlen_q": rows, "max_seqlen_k": keys}
    found = _attend(q.flatten(0, 1), *views, with_sums, **asked)
    if not with_sums:
        return found.unflatten(0, (batch, rows))
    return found[0].unflatten(0, (batch, rows)), found[1].unflatten(1, (batch, rows)).transpose(0, 1).contiguous()
