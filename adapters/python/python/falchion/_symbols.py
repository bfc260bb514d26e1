"""What stands for tensors in functions that `falchion.flex` traces."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

if TYPE_CHECKING:
    from ._traced import _Trace


def _place(tensor: Tensor) -> tuple:
    """Where a tensor lies."""
    return tensor.data_ptr(), tensor.dtype, tensor.device, tensor.shape, tensor.stride()


class _Symbol:
    """What stands for a tensor in a function that is traced."""

    __slots__ = ("trace",)
    # numpy's numbers leave arithmetic to this class.
    __array_ufunc__ = None

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        of = next(of for of in _flat((*args, *(kwargs or {}).values())) if isinstance(of, _Symbol))
        return of.trace.call(func, args, kwargs or {})

    def __bool__(self):
        raise self.trace.refusal(
            "asks whether something is true that depends on a score, a position or a tensor: torch.where was needed in place of if, and &, | and ~ "
            "in place of and, or and not"
        )

    def _host(self, *_):
        raise self.trace.refusal(
            "asks for the number of something that depends on a score, a position or a tensor: a tensor was needed where a list is read, and "
            "functions of torch in place of those of math"
        )

    __int__ = __float__ = __complex__ = __index__ = __len__ = __iter__ = __round__ = __floor__ = __ceil__ = __trunc__ = _host

    def __setitem__(self, index, value):
        raise self.trace.refusal("writes into a tensor, which has no translation: torch.where was needed")

    def __getattr__(self, name: str):
        # Who asks for these asks what a thing can do.
        if name.startswith("__") or not hasattr(Tensor, name):
            raise AttributeError(f"{type(self).__name__} has no {name}")
        raise self.trace.refusal(f"calls torch.Tensor.{name}, which has no translation")


class _Part(_Symbol):
    """A tensor of which some dimensions have an index, and those with `None` have none."""

    __slots__ = ("index", "tensor")

    def __init__(self, trace: _Trace, tensor: Tensor, index: list[_Value | None]):
        self.trace, self.tensor, self.index = trace, tensor, index

    @property
    def shape(self) -> torch.Size:
        return torch.Size(extent for extent, at in zip(self.tensor.shape, self.index) if at is None)

    def __getitem__(self, index):
        return self.trace.read(self, index if isinstance(index, tuple) else (index,))


class _Value(_Symbol):
    """A real number, a whole one between `low` and `high`, or a truth: an operation of other values."""

    __slots__ = ("extra", "high", "kind", "low", "number", "of", "op")

    def __init__(self, trace: _Trace, op: str, kind: str, of: tuple[_Value, ...], extra: object, bounds: tuple[int, int]):
        self.trace, self.op, self.kind, self.of, self.extra = trace, op, kind, of, extra
        self.low, self.high = bounds
        self.number = len(trace.values)

    dtype = property(lambda self: {"real": torch.float32, "whole": torch.int32, "truth": torch.bool}[self.kind])
    device = property(lambda self: self.trace.query.device)
    shape = property(lambda self: torch.Size([]))
    ndim = property(lambda self: 0)
    requires_grad = property(lambda self: False)
    is_cuda = property(lambda self: self.trace.query.is_cuda)

    def dim(self) -> int:
        return 0

    def size(self) -> torch.Size:
        return torch.Size([])

    def numel(self) -> int:
        return 1

    def is_floating_point(self) -> bool:
        return self.kind == "real"

    def is_constant(self, value: object) -> bool:
        """Whether it is this constant."""
        return self.op == "constant" and type(self.extra) is type(value) and self.extra == value

    def all(self) -> list[_Value]:
        """It, and all that it is made of, in the order in which they were made."""
        found, left = {self.number: self}, [self]
        while left:
            for of in left.pop().of:
                if of.number not in found:
                    found[of.number] = of
                    left.append(of)
        return [found[number] for number in sorted(found)]

    def depends(self) -> set[str]:
        """The variables that it is made of."""
        return {of.extra for of in self.all() if of.op == "variable"}

    def at_most_of(self, names: str) -> bool:
        """Whether it is made of no other variables."""
        return self.depends() <= set(names)

    def reads(self) -> list[Tensor]:
        """The tensors that it reads."""
        return [self.trace.tensors[of.extra] for of in self.all() if of.op == "element"]


def _flat(given):
    """What is in tuples, lists and slices."""
    for of in given:
        if isinstance(of, (tuple, list)):
            yield from _flat(of)
        elif isinstance(of, slice):
            yield from (of.start, of.stop, of.step)
        else:
            yield of


class _Reading(TorchFunctionMode):
    """Hands the functions of torch to a trace, also those of tensors alone, whose index may be a symbol."""

    def __init__(self, trace: _Trace):
        super().__init__()
        self.trace = trace

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return self.trace.call(func, args, kwargs or {})
