"""Operations and layers for torch: `linear` with a gradient, `matmul` and `attention` for `torch.compile`, `Linear`, `replace_linears`.

The operations are `torch.ops.falchion.linear`, `.matmul` and `.attention`. They have fake kernels, so that
`torch.compile` traces through them, and CUDA graphs capture them after one call outside of the capture.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from . import _native

__all__ = ["Linear", "attention", "linear", "matmul", "replace_linears"]

_library = torch.library.Library("falchion", "DEF")
_library.define("linear(Tensor x, Tensor weight, Tensor? bias) -> Tensor")
_library.define("matmul(Tensor a, Tensor b, str? epilogue, str? types, str[] names, Tensor[] tensors, str[] scalars, float[] values) -> Tensor")
_library.define("attention(Tensor q, Tensor k, Tensor v, bool causal, float? scale) -> (Tensor, Tensor)")
_library.define("attention_backward(Tensor q, Tensor k, Tensor v, Tensor o, Tensor d_o, Tensor sums, bool causal, float? scale) -> (Tensor, Tensor, Tensor)")


def _plain(*tensors: Tensor | None) -> bool:
    """Whether a call runs now: nobody traces it, and the tensors have memory."""
    return not torch.compiler.is_compiling() and all(type(x) in (Tensor, nn.Parameter, type(None)) for x in tensors)


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if bias is None:
        return _native.matmul(x, weight.t())
    return _native.matmul(x, weight.t(), epilogue="acc + bias[n]", bias=bias)


def _linear_fake(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return x.new_empty((x.shape[0], weight.shape[0]))


def _matmul(a, b, epilogue, types, names, tensors, scalars, values):
    inputs = dict(zip(names, tensors)) | dict(zip(scalars, values))
    return _native.matmul(a, b, epilogue=epilogue, types=types, **inputs)


def _matmul_fake(a, b, epilogue, types, names, tensors, scalars, values):
    halvings, dtype = _native.result(str(a.dtype).removeprefix("torch."), epilogue, types)
    batch = a.shape[:-2] if a.dim() == 3 and (b.dim() < 3 or a.shape[0] != 1) else b.shape[:-2]
    return a.new_empty((*batch, a.shape[-2], b.shape[-1] >> halvings), dtype=getattr(torch, dtype))


def _attention(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float | None) -> tuple[Tensor, Tensor]:
    return _native.attention(q, k, v, causal=causal, scale=scale, log_sum_exp=True)


def _attention_fake(q, k, v, causal, scale):
    return q.new_empty((*q.shape[:-1], v.shape[-1])), q.new_empty(q.shape[:-1], dtype=torch.float32)


def _attention_backward(q, k, v, o, d_o, sums, causal, scale):
    return _native.attention_backward(q, k, v, o, d_o, sums, causal=causal, scale=scale)


def _attention_backward_fake(q, k, v, o, d_o, sums, causal, scale):
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


_OPERATIONS = [
    ("attention_backward", _attention_backward, _attention_backward_fake),
    ("linear", _linear, _linear_fake),
    ("matmul", _matmul, _matmul_fake),
    ("attention", _attention, _attention_fake),
]
for _name, _kernel, _fake in _OPERATIONS:
    _library.impl(_name, _kernel, "CUDA")
    _library.impl(_name, _kernel, "CPU")
    torch.library.register_fake(f"falchion::{_name}", _fake, lib=_library)


def _keep(ctx, inputs, output):
    x, weight, bias = inputs
    ctx.save_for_backward(x, weight)
    ctx.biased = bias is not None


def _gradient(ctx, gradient: Tensor):
    x, weight = ctx.saved_tensors
    needs_x, needs_weight, needs_bias = ctx.needs_input_grad
    of_x = matmul(gradient, weight) if needs_x else None
    of_weight = matmul(gradient.t(), x) if needs_weight else None
    of_bias = gradient.sum(0) if ctx.biased and needs_bias else None
    return of_x, of_weight, of_bias


class _Linear(torch.autograd.Function):
    """The same without the dispatcher, whose calls of Python take longer than a launch. Without `setup_context` too: torch then
    reads the signature of `forward` at every call."""

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        y = _linear(x, weight, bias)
        _keep(ctx, (x, weight, bias), y)
        return y

    backward = staticmethod(_gradient)


torch.library.register_autograd("falchion::linear", _gradient, setup_context=_keep, lib=_library)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`x @ weight.T + bias`, as `torch.nn.functional.linear`: x is (..., in), weight (out, in), bias (out)."""
    if x.dim() != 2:
        y = linear(x.reshape(-1, x.shape[-1]), weight, bias)
        return y.reshape(*x.shape[:-1], weight.shape[0])
    if not _plain(x, weight, bias):
        return torch.ops.falchion.linear(x, weight, bias)
    needed = x.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad)
    return _Linear.apply(x, weight, bias) if needed and torch.is_grad_enabled() else _linear(x, weight, bias)


def matmul(a: Tensor, b: Tensor, *, epilogue: str | None = None, types: str | None = None, **inputs: Tensor | float) -> Tensor:
    """`falchion.matmul` as an operation of torch, for `torch.compile`. It has no gradient, and its epilogue writes nothing but
    the result."""
    if _plain(a, b, *(value for value in inputs.values() if isinstance(value, Tensor))):
        return _native.matmul(a, b, epilogue=epilogue, types=types, **inputs)
    tensors = {name: value for name, value in inputs.items() if isinstance(value, Tensor)}
    scalars = {name: float(value) for name, value in inputs.items() if name not in tensors}
    return torch.ops.falchion.matmul(
        a, b, epilogue, types, list(tensors), list(tensors.values()), list(scalars), list(scalars.values())
    )


def _keep_attention(ctx, inputs, output):
    q, k, v, ctx.causal, ctx.scale = inputs
    o, sums = output
    ctx.mark_non_differentiable(sums)
    ctx.save_for_backward(q, k, v, o, sums)


def _gradient_of_attention(ctx, d_o, _):
    q, k, v, o, sums = ctx.saved_tensors
    return *torch.ops.falchion.attention_backward(q, k, v, o, d_o, sums, ctx.causal, ctx.scale), None, None


torch.library.register_autograd("falchion::attention", _gradient_of_attention, setup_context=_keep_attention, lib=_library)


def attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, scale: float | None = None, log_sum_exp: bool = False) -> Tensor | tuple[Tensor, Tensor]:
    """`falchion.attention` as an operation of torch, with a gradient and for `torch.compile`: softmax(scale * q @ k.mT) @ v per
    head, of tensors (B, H, L, D); with `log_sum_exp` also the log-sum-exp (B, H, L), which has no gradient. Gradients are there
    for D of 64, 96 and 128.

    With `causal` the last query stands at the last key; `torch.nn.functional.scaled_dot_product_attention` puts the first query
    at the first key, which is the same where there are as many queries as keys.
    """
    recorded = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
    if not recorded and _plain(q, k, v):
        return _native.attention(q, k, v, causal=causal, scale=scale, log_sum_exp=log_sum_exp)
    o, sums = torch.ops.falchion.attention(q, k, v, causal, scale)
    return (o, sums) if log_sum_exp else o


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
