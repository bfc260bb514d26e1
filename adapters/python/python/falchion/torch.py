"""Operations and layers for torch: `linear`, `experts` and `attention` with gradients, `matmul`, `Linear`, `replace_linears`, and
`scaled_dot_product_attention` as torch has it.

The operations are `torch.ops.falchion.linear`, `.experts`, `.matmul` and `.attention`. They have fake kernels, so that
`torch.compile` traces through them, and CUDA graphs capture them after one call outside of the capture.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from . import _native

__all__ = ["Linear", "attention", "experts", "linear", "matmul", "replace_linears", "scaled_dot_product_attention"]

_library = torch.library.Library("falchion", "DEF")
_library.define("linear(Tensor x, Tensor weight, Tensor? bias) -> Tensor")
_library.define("experts(Tensor x, Tensor weight, Tensor offsets) -> Tensor")
_library.define("experts_weight_gradient(Tensor gradient, Tensor x, Tensor offsets) -> Tensor")
_library.define("matmul(Tensor a, Tensor b, str? epilogue, str? types, str[] names, Tensor[] tensors, str[] scalars, float[] values) -> Tensor")
_library.define(
    "attention(Tensor q, Tensor k, Tensor v, bool causal, int[]? window, float? scale, bool deterministic, float softcap, Tensor? alibi_slopes, Tensor? sinks, "
    "Tensor? q_descale, Tensor? k_descale, Tensor? v_descale, Tensor? cu_seqlens_q, Tensor? cu_seqlens_k, int? max_seqlen_q, int? max_seqlen_k, "
    "Tensor? block_table, Tensor? cache_seqlens, str? score, str? sees, str[] names, Tensor[] arrays) -> (Tensor, Tensor)",
    # The result has its heads where those of q are.
    tags=(torch.Tag.needs_fixed_stride_order,),
)
_library.define(
    "attention_backward(Tensor q, Tensor k, Tensor v, Tensor o, Tensor d_o, Tensor sums, bool causal, int[]? window, float? scale, bool deterministic, "
    "float softcap, Tensor? alibi_slopes, Tensor? cu_seqlens_q, Tensor? cu_seqlens_k, int? max_seqlen_q, int? max_seqlen_k, "
    "str? score, str? sees, str[] names, Tensor[] arrays) "
    "-> (Tensor, Tensor, Tensor)"
)

_OWN = {Tensor, nn.Parameter, type(None)}


def _plain(*tensors: Tensor | None) -> bool:
    """Whether a call runs now: nobody traces it, and the tensors have memory."""
    return not torch.compiler.is_compiling() and _OWN.issuperset(map(type, tensors))


# The transformation of `torch.func` that runs, or None. It is no public name of torch.
_transformed = getattr(getattr(torch._C, "_functorch", None), "peek_interpreter_stack", lambda: None)

_RULES = {
    "Vmap": "vmap: tensors with a dimension more were needed",
    "Jvp": "jvp and forward derivatives: a backward pass was needed",
    "Grad": "torch.func.grad and vjp: a backward pass, or torch.autograd.grad, was needed",
}


def _admitted(name: str, *tensors: Tensor | None) -> bool:
    """Whether `_plain` may be asked: no transformation of `torch.func` runs. Refuses those that an operation has no rule for,
    which torch would ignore."""
    if torch.compiler.is_compiling():
        return True
    stack = _transformed()
    rule = stack.key().name if stack is not None else None
    if forward_ad._current_level >= 0 and any(t is not None and forward_ad.unpack_dual(t).tangent is not None for t in tensors):
        rule = "Jvp"
    if rule in _RULES:
        raise NotImplementedError(f"falchion.torch.{name} has no rule for {_RULES[rule]}")
    return stack is None


class _Once(torch.autograd.Function):
    """Gradients that have no gradient."""

    @staticmethod
    def forward(name: str, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(tensor.clone() for tensor in tensors[:count])

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.name = inputs[0]

    @staticmethod
    def backward(ctx, *_):
        raise NotImplementedError(f"the gradient of falchion.torch.{ctx.name} has no gradient: a graph without create_graph=True was needed")


def _once(name: str, gradients: tuple[Tensor | None, ...], *inputs: Tensor | None) -> tuple[Tensor | None, ...]:
    """The gradients of an operation, which refuse to be differentiated by what they depend on."""
    if not torch.is_grad_enabled() or torch.compiler.is_compiling():
        return gradients
    own = [gradient.detach() for gradient in gradients if gradient is not None]
    marked = iter(_Once.apply(name, len(own), *own, *(tensor for tensor in inputs if tensor is not None)))
    return tuple(None if gradient is None else next(marked) for gradient in gradients)


def _linear_fake(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return x.new_empty((*x.shape[:-1], weight.shape[0]))


def _matmul(a, b, epilogue, types, names, tensors, scalars, values):
    inputs = dict(zip(names, tensors)) | dict(zip(scalars, values))
    return _native.matmul(a, b, epilogue=epilogue, types=types, **inputs)


def _matmul_fake(a, b, epilogue, types, names, tensors, scalars, values):
    halvings, dtype = _native.result(str(a.dtype).removeprefix("torch."), epilogue, types)
    batch = a.shape[:-2] if a.dim() == 3 and (b.dim() < 3 or a.shape[0] != 1) else b.shape[:-2]
    return a.new_empty((*batch, a.shape[-2], b.shape[-1] >> halvings), dtype=getattr(torch, dtype))


def _experts(x: Tensor, weight: Tensor, offsets: Tensor) -> Tensor:
    return _native.matmul(x, weight.mT, groups=offsets)


def _experts_fake(x: Tensor, weight: Tensor, offsets: Tensor) -> Tensor:
    return x.new_empty((x.shape[0], weight.shape[1]))


def _experts_weight_gradient(gradient: Tensor, x: Tensor, offsets: Tensor) -> Tensor:
    # The host must know the length of each product's K.
    ends = offsets.tolist()
    out = x.new_empty((len(ends) - 1, gradient.shape[1], x.shape[1]))
    for own, begin, end in zip(out, ends, ends[1:]):
        if end > begin:
            _native.matmul(gradient[begin:end].t(), x[begin:end], out=own)
        else:
            own.zero_()
    return out


def _experts_weight_gradient_fake(gradient: Tensor, x: Tensor, offsets: Tensor) -> Tensor:
    return x.new_empty((offsets.shape[0] - 1, gradient.shape[1], x.shape[1]))


_NUMBERS = ("alibi_slopes", "sinks", "q_descale", "k_descale", "v_descale")
_SEQUENCES = ("cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k", "block_table", "cache_seqlens")
_MORE = ("softcap", *_NUMBERS, *_SEQUENCES)


def _heads_follow(q: Tensor) -> bool:
    """Whether the heads of a tensor stand after its rows, as in a view of (B, L, H, D)."""
    return q.layout is torch.strided and not q.is_nested and q.dim() > 2 and q.stride(-2) > q.stride(-3)


def _result_type(q: Tensor) -> torch.dtype:
    """That of the result: of tensors in 8 bits it is bfloat16."""
    return q.dtype if q.dtype.itemsize == 2 else torch.bfloat16


def _result_like(q: Tensor, v: Tensor, packed: bool) -> Tensor | None:
    """Room for the result where heads follow rows, so that its view (B, L, H, D) is contiguous, too. Elsewhere `None`: heads are in front."""
    if not _heads_follow(q):
        return None
    *lead, heads, rows, _ = q.shape
    # On a card nobody knows whether each row is of a sequence.
    make = q.new_zeros if packed and q.is_cuda else q.new_empty
    return make((*lead, rows, heads, v.shape[-1]), dtype=_result_type(q)).transpose(-2, -3)


def _attend(q, k, v, **asked):
    out = _result_like(q, v, asked.get("cu_seqlens_q") is not None)
    return _native.attention(q, k, v, out=out, **asked)


def _formulas(score, sees, names, arrays):
    return {"score": score, "sees": sees, "arrays": dict(zip(names, arrays)) or None}


def _attention(q, k, v, causal, window, scale, deterministic, *more):
    *more, score, sees, names, arrays = more
    how = dict(zip(_MORE, more)) | _formulas(score, sees, names, arrays)
    return _attend(q, k, v, causal=causal, window=window, scale=scale, log_sum_exp=True, **how)


def _attention_fake(q, k, v, causal, window, scale, deterministic, *more):
    out = _result_like(q, v, False)
    if out is None:
        out = q.new_empty((*q.shape[:-1], v.shape[-1]), dtype=_result_type(q))
    return out, q.new_empty(q.shape[:-1], dtype=torch.float32)


def _attention_backward(q, k, v, o, d_o, sums, causal, window, scale, deterministic, *more):
    how = {"causal": causal, "window": window, "scale": scale, "deterministic": deterministic}
    *more, score, sees, names, arrays = more
    how |= _formulas(score, sees, names, [array.detach() for array in arrays])
    return _native.attention_backward(q, k, v, o, d_o, sums, **how, **dict(zip(("softcap", "alibi_slopes", *_SEQUENCES), more)))


def _attention_backward_fake(q, k, v, o, d_o, sums, causal, window, scale, deterministic, *more):
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


_OPERATIONS = [
    ("attention_backward", _attention_backward, _attention_backward_fake),
    ("linear", _native.linear, _linear_fake),
    ("experts", _experts, _experts_fake),
    ("experts_weight_gradient", _experts_weight_gradient, _experts_weight_gradient_fake),
    ("matmul", _matmul, _matmul_fake),
    ("attention", _attention, _attention_fake),
]
for _name, _kernel, _fake in _OPERATIONS:
    _library.impl(_name, _kernel, "CUDA")
    _library.impl(_name, _kernel, "CPU")
    torch.library.register_fake(f"falchion::{_name}", _fake, lib=_library)


def _keep(ctx, inputs, output):
    x, weight, _ = inputs
    ctx.save_for_backward(x, weight)


def _gradient(ctx, gradient: Tensor):
    x, weight = ctx.saved_tensors
    return _once("linear", _gradients_of_linear(ctx, gradient, x, weight), gradient, x, weight)


def _gradients_of_linear(ctx, gradient: Tensor, x: Tensor, weight: Tensor):
    if _transformed() is None and _plain(gradient):
        return _native.linear_backward(gradient.detach(), x.detach(), weight.detach(), ctx.needs_input_grad)
    needs_x, needs_weight, needs_bias = ctx.needs_input_grad
    rows = gradient.flatten(0, -2)
    rows, x_rows, weight = rows.detach(), x.detach().flatten(0, -2), weight.detach()
    of_x = matmul(rows, weight).view_as(x) if needs_x else None
    of_weight = matmul(rows.t(), x_rows) if needs_weight else None
    return of_x, of_weight, rows.sum(0) if needs_bias else None


class _Linear(torch.autograd.Function):
    """The same without the dispatcher, whose calls of Python take longer than a launch. Without `setup_context` too: torch then
    reads the signature of `forward` at every call."""

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _native.linear(x, weight, bias)

    backward = staticmethod(_gradient)


torch.library.register_autograd("falchion::linear", _gradient, setup_context=_keep, lib=_library)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`x @ weight.T + bias`, as `torch.nn.functional.linear`: x is (..., in), weight (out, in), bias (out)."""
    if not _admitted("linear", x, weight, bias) or not _plain(x, weight, bias):
        return torch.ops.falchion.linear(x, weight, bias)
    needed = x.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad)
    return _Linear.apply(x, weight, bias) if needed and torch.is_grad_enabled() else _native.linear(x, weight, bias)


def _keep_experts(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _gradient_of_experts(ctx, gradient: Tensor):
    x, weight, offsets = ctx.saved_tensors
    needs_x, needs_weight, _ = ctx.needs_input_grad
    own, x_own, weight_own = gradient.detach().contiguous(), x.detach(), weight.detach()
    of_x = torch.ops.falchion.experts(own, weight_own.mT, offsets) if needs_x else None
    of_weight = torch.ops.falchion.experts_weight_gradient(own, x_own, offsets) if needs_weight else None
    return _once("experts", (of_x, of_weight, None), gradient, x, weight)


torch.library.register_autograd("falchion::experts", _gradient_of_experts, setup_context=_keep_experts, lib=_library)


def experts(x: Tensor, weight: Tensor, offsets: Tensor) -> Tensor:
    """`x[i] @ weight[e].T` for the rows i of each expert e, in one launch: x is (rows, in), sorted by expert, weight (experts, out,
    in), and offsets (experts + 1) in int32 (on a CPU also int64) say where each expert's rows begin; the last is the number of rows. The gradient of the
    weight takes one launch per expert and copies the offsets to the host."""
    _admitted("experts", x, weight)
    return torch.ops.falchion.experts(x, weight, offsets)


def matmul(a: Tensor, b: Tensor, *, epilogue: str | None = None, types: str | None = None, **inputs: Tensor | float) -> Tensor:
    """`falchion.matmul` as an operation of torch, for `torch.compile`. It has no gradient, and its epilogue writes nothing but
    the result."""
    given = (a, b, *(value for value in inputs.values() if isinstance(value, Tensor)))
    if _admitted("matmul", *given) and _plain(*given):
        return _native.matmul(a, b, epilogue=epilogue, types=types, **inputs)
    tensors = {name: value for name, value in inputs.items() if isinstance(value, Tensor)}
    scalars = {name: float(value) for name, value in inputs.items() if name not in tensors}
    return torch.ops.falchion.matmul(
        a, b, epilogue, types, list(tensors), list(tensors.values()), list(scalars), list(scalars.values())
    )


# Where the sinks are among the operation's arguments.
_SINKS = 8 + _NUMBERS.index("sinks")


def _keep_attention(ctx, inputs, output):
    q, k, v, causal, window, scale, deterministic, softcap, slopes, sinks, *factors, of_q, of_k, longest_q, longest_k, table, lengths = inputs[:-4]
    *ctx.formulas, arrays = inputs[-4:]
    ctx.how, ctx.softcap, ctx.longest = (causal, window, scale, deterministic), softcap, (longest_q, longest_k)
    # The gradient of sinks needs the results alone.
    tensors = any(ctx.needs_input_grad[:3])
    if tensors and (table is not None or lengths is not None):
        raise ValueError("block_table is given and a tensor requires a gradient, which keys in pages do not have")
    if tensors and k.shape[-1] > 256:
        raise ValueError(f"heads have {k.shape[-1]} elements and a tensor requires a gradient, which heads of more than 256 do not have")
    if slopes is not None and slopes.requires_grad:
        raise ValueError("alibi_slopes requires a gradient, which slopes do not have")
    if any(array.requires_grad for array in arrays):
        raise ValueError("an array of score or sees requires a gradient, which arrays do not have")
    if any(factor is not None and factor.requires_grad for factor in factors):
        raise ValueError("a factor requires a gradient, which factors do not have")
    if tensors and k.dtype.itemsize == 1:
        raise ValueError(f"k has elements of {k.dtype} and a tensor requires a gradient, which tensors in 8 bits do not have")
    o, sums = output
    ctx.mark_non_differentiable(sums)
    ctx.save_for_backward(q, k, v, o, sums, slopes, sinks, of_q, of_k, *arrays)


def _gradient_of_attention(ctx, d_o, _):
    q, k, v, o, sums, slopes, sinks, of_q, of_k, *arrays = ctx.saved_tensors
    own = (tensor.detach() for tensor in (q, k, v, o, d_o, sums))
    gradients = (None, None, None)
    if any(ctx.needs_input_grad[:3]):
        more = (slopes, of_q, of_k, *ctx.longest, *ctx.formulas, arrays)
        gradients = torch.ops.falchion.attention_backward(*own, *ctx.how, ctx.softcap, *more)
    d_sinks = None
    if sinks is not None and ctx.needs_input_grad[_SINKS]:
        # A sink has a weight in each row, and no value: its scores have the gradient -weight * (o . d_o). Rows of no sequence weigh nothing.
        weights = torch.where(sums.isneginf(), 0, torch.exp(sinks.detach()[:, None] - sums))
        products = weights * (o.detach().float() * d_o.detach().float()).sum(-1)
        d_sinks = -products.transpose(-1, -2).reshape(-1, sinks.shape[0]).sum(0)
    *gradients, d_sinks = _once("attention", (*gradients, d_sinks), q, k, v, d_o, sinks)
    rest = [None for _ in _MORE]
    rest[1 + _NUMBERS.index("sinks")] = d_sinks
    # Gradients of a list of tensors are a list; torch takes a list without names for one.
    return *gradients, *(None for _ in ctx.how), *rest, None, None, None if arrays else [], [None for _ in arrays]


torch.library.register_autograd("falchion::attention", _gradient_of_attention, setup_context=_keep_attention, lib=_library)


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor | None = None,
    *,
    causal: bool = False,
    window: tuple[int, int] | None = None,
    scale: float | None = None,
    log_sum_exp: bool = False,
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    sinks: Tensor | None = None,
    deterministic: bool = False,
    score: str | None = None,
    sees: str | None = None,
    arrays: dict[str, Tensor] | None = None,
    **more: Tensor | int | None,
) -> Tensor | tuple[Tensor, Tensor]:
    """`falchion.attention` as an operation of torch, with a gradient and for `torch.compile`: softmax(scale * q @ k.mT) @ v per
    head, of tensors (B, H, L, D); with `log_sum_exp` also the log-sum-exp (B, H, L), which has no gradient. Gradients are there
    for the heads of `falchion.attention_backward`, also with `cu_seqlens_q`, and of the sinks, but not for keys in pages; with `deterministic` that of
    `q` has the same bits in every run. The result has its heads where those of `q` are: after the rows in a view of (B, L, H, D). `more` are the other arguments
    of `falchion.attention`: tensors of sequences and pages, and factors of tensors in 8 bits. `score`, `sees` and `arrays` are its formulas, through which
    `q` and `k` have gradients, but arrays have none. Without `v`, heads have 576 elements, and the first 512 of `k` are `v`.

    With `causal` the last query stands at the last key; `torch.nn.functional.scaled_dot_product_attention` puts the first query
    at the first key, which is the same where there are as many queries as keys.
    """
    for name in more:
        if name not in _MORE:
            raise ValueError(f"{name} is given, one of {', '.join(_MORE)} was needed")
    more |= {"softcap": softcap, "alibi_slopes": alibi_slopes, "sinks": sinks}
    if v is None:
        if k.shape[-1] != 576:
            raise ValueError(f"v is None and heads have {k.shape[-1]} elements, a v was needed, or heads of 576 elements")
        v = k[..., :512]
    arrays = arrays or {}
    inputs = [x for x in (q, k, v, *(more.get(name) for name in _NUMBERS), *arrays.values()) if x is not None]
    admitted = _admitted("attention", *inputs)
    recorded = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)
    if admitted and not recorded and _plain(*inputs):
        more |= _formulas(score, sees, arrays, arrays.values())
        return _attend(q, k, v, causal=causal, window=window, scale=scale, log_sum_exp=log_sum_exp, **more)
    given = [*(more.get(name) for name in _MORE), score, sees, list(arrays), list(arrays.values())]
    o, sums = torch.ops.falchion.attention(q, k, v, causal, window, scale, deterministic, *given)
    return (o, sums) if log_sum_exp else o


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """`torch.nn.functional.scaled_dot_product_attention` of tensors (B, H, L, D) or (H, L, D), without dropout. `is_causal` puts the first
    query at the first key: keys after the last query are not seen, and queries after the last key see all keys, which takes a second launch.
    `attn_mask`, which becomes (B, H, L, keys) by broadcasting, says which keys are seen if its elements are bool, and else is added to the
    scores; it is read as it lies, and has no gradient. Queries that see no key have zeros."""
    if attn_mask is not None and is_causal:
        raise ValueError(f"attn_mask is {_words(attn_mask)} and is_causal is True, one of them was needed")
    if dropout_p != 0:
        raise ValueError(f"dropout_p is {dropout_p}, 0 was needed")
    if query.dim() not in (3, 4):
        raise ValueError(f"query has shape {tuple(query.shape)}, (batch, heads, rows, elements) or (heads, rows, elements) was needed")
    for name, tensor in (("key", key), ("value", value)):
        if tensor.dim() != query.dim() or tensor.shape[:-3] != query.shape[:-3]:
            lead = ", ".join(str(extent) for extent in (*query.shape[:-3], "heads", "rows", "elements"))
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}, ({lead}) was needed, as query says")
        if tensor.shape[-3] != query.shape[-3] and not enable_gqa:
            raise ValueError(f"{name} has {tensor.shape[-3]} heads, {query.shape[-3]} were needed as query has, or enable_gqa=True")
    queries, keys = query.shape[-2], key.shape[-2]
    if attn_mask is not None:
        return attention(query, key, value, scale=scale, **_mask(attn_mask, query, keys))
    if is_causal and queries > keys:
        parts = query[..., :keys, :], query[..., keys:, :]
        return torch.cat([attention(part, key, value, causal=causal, scale=scale) for part, causal in zip(parts, (True, False))], -2)
    if is_causal and queries < keys:
        key, value = key[..., :queries, :], value[..., :queries, :]
    return attention(query, key, value, causal=is_causal, scale=scale)


_MASKS = {torch.float32: "", torch.float16: ":f16", torch.bfloat16: ":bf16"}


def _mask(attn_mask: Tensor, query: Tensor, keys: int) -> dict:
    """A mask of torch's in the words of `attention`."""
    if not isinstance(attn_mask, Tensor):
        raise TypeError(f"attn_mask is a {type(attn_mask).__name__}, a tensor of torch was needed")
    whole, shape = (*query.shape[:-1], keys), attn_mask.shape
    if len(shape) > len(whole) or any(own not in (1, of) for own, of in zip(reversed(shape), reversed(whole))):
        raise ValueError(f"attn_mask has shape {tuple(shape)}, one that becomes {tuple(whole)} by broadcasting was needed")
    if attn_mask.dtype not in {torch.bool, torch.float32, query.dtype} & {torch.bool, *_MASKS}:
        raise ValueError(f"attn_mask has elements of {attn_mask.dtype}, torch.bool, torch.float32 or {query.dtype} was needed, as query has")
    if attn_mask.requires_grad and torch.is_grad_enabled():
        raise ValueError("attn_mask requires a gradient, which it does not have: detach() was needed")
    if attn_mask.numel() == 0:
        return {}
    # Along other dimensions all elements are the same.
    several = [extent > 1 and stride != 0 for extent, stride in zip(shape, attn_mask.stride())]
    index = ",".join(name for name, has in zip("bhqk"[4 - len(shape) :], several) if has)
    array = attn_mask[tuple(slice(None) if has else 0 for has in several)]
    if not index:
        array, index = array[None], "0"
    if attn_mask.dtype == torch.bool:
        return {"sees": f"mask[{index}]:u8!=0", "arrays": {"mask": array.view(torch.uint8)}}
    return {"score": f"x+mask[{index}]{_MASKS[attn_mask.dtype]}", "arrays": {"mask": array}}


def _words(given: object) -> str:
    """What is given, in words: a tensor's shape, and what else prints."""
    return f"a tensor of shape {tuple(given.shape)}" if isinstance(given, Tensor) else repr(given)


class Linear(nn.Linear):
    """`torch.nn.Linear` whose products, forward and backward, are falchion's."""

    def forward(self, input: Tensor) -> Tensor:
        weight, bias = self.weight, self.bias
        device = input.device.type
        if torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
            input, weight = input.to(dtype), weight.to(dtype)
            bias = None if bias is None else bias.to(dtype)
        return linear(input, weight, bias)


def replace_linears(
    model: nn.Module, choose: Callable[[str, nn.Linear], bool] = lambda name, layer: True
) -> nn.Module:
    """Replaces each `torch.nn.Linear` in a model by `Linear` with the same parameters, where `choose(name, layer)` is true.

    Subclasses of `torch.nn.Linear` stay. Returns the model.
    """
    for name, layer in list(model.named_modules()):
        if type(layer) is nn.Linear and choose(name, layer):
            # The same object: parameters, hooks and whoever refers to it stay.
            layer.__class__ = Linear
    return model
