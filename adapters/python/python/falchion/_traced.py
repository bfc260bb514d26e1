"""Functions of scores and masks become texts: what they do with the values that `falchion.flex` gives them."""

from __future__ import annotations

import math
import numbers
import operator
from collections import Counter
from collections.abc import Callable

import torch
from torch import Tensor
from torch.overrides import resolve_name

from ._symbols import _flat, _Part, _place, _Reading, _Symbol, _Value
from .torch import _words

# How tightly signs bind, as in the grammar of texts; names and calls bind most.
_BINDS = {"|": 1, "&": 2, "==": 3, "!=": 3, "<": 3, "<=": 3, ">": 3, ">=": 3, "+": 4, "-": 4, "*": 5, "/": 5, "%": 5}
_MOST = 6

# The largest constant among whole numbers of a text.
_LARGEST = 1 << 30

# Formats of tensors that are read as they lie.
_FORMATS = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16", torch.float8_e4m3fn: "e4m3", torch.float8_e5m2: "e5m2"}
_WHOLES = {torch.int32: "s32", torch.int8: "s8", torch.uint8: "u8", torch.bool: "u8"}
_BOUNDS = {"s32": (-(1 << 31), (1 << 31) - 1), "s8": (-128, 127), "u8": (0, 255)}
_ANY = _BOUNDS["s32"]
# Those that are converted.
_CONVERTED = {torch.float64: "f32"} | dict.fromkeys([torch.int16, torch.int64, torch.uint16, torch.uint32, torch.uint64], "s32")

_READ = _FORMATS | _WHOLES | _CONVERTED

# Types of values; those of few bits may not have room for a number.
_KINDS = {
    **dict.fromkeys([torch.float16, torch.bfloat16, torch.float32, torch.float64], ("real", None)),
    **dict.fromkeys([torch.int32, torch.int64], ("whole", None)),
    torch.int16: ("whole", (-(1 << 15), (1 << 15) - 1)),
    torch.int8: ("whole", _BOUNDS["s8"]),
    torch.uint8: ("whole", _BOUNDS["u8"]),
    torch.bool: ("truth", None),
}


class _Trace:
    """The functions of one call: what they did with the values that they were given. Its methods are torch's functions."""

    def __init__(self, query: Tensor, key: Tensor):
        self.query, self.queries, self.keys = query, query.shape[2], key.shape[2]
        self.values: dict[tuple, _Value] = {}
        self.who = ""
        # The tensors that values read, their numbers by where they lie, and the names of those in texts.
        self.tensors: list[Tensor] = []
        self.numbers: dict[tuple, int] = {}
        self.names: dict[int, str] = {}
        # Tensors that functions made, by where their memory is.
        self.made: dict[int, Tensor] = {}
        self.product = self.make("variable", "real", extra="x")
        extents = {"b": query.shape[0], "h": query.shape[1], "q": self.queries, "k": self.keys}
        self.places = [self.make("variable", "whole", extra=name, bounds=(0, max(extent, 1) - 1)) for name, extent in extents.items()]

    def traced(self, role: str, function: Callable, *given: _Value) -> _Value:
        """What a function makes of values."""
        named = getattr(function, "func", function)
        self.who = f"{role} `{getattr(named, '__name__', type(named).__name__)}`"
        with _Reading(self):
            return self.value(function(*given))

    def refusal(self, reason: str) -> ValueError:
        return ValueError(f"{self.who} {reason}")

    def call(self, func: Callable, args: tuple, kwargs: dict) -> object:
        """A function of torch."""
        if func is Tensor.__getitem__ and isinstance(args[0], Tensor):
            index = args[1] if isinstance(args[1], tuple) else (args[1],)
            return self.read(args[0], index) if any(isinstance(of, _Symbol) for of in _flat(index)) else func(*args)
        if not any(isinstance(of, _Symbol) for of in _flat((*args, *kwargs.values()))):
            found = func(*args, **kwargs)
            if isinstance(found, Tensor) and found._base is None and all(found is not of for of in args):
                self.made[found.untyped_storage().data_ptr()] = found
            return found
        known = _FUNCTIONS.get(func)
        if known is None:
            raise self.refusal(f"calls {resolve_name(func) or func}, which has no translation")
        return self.do(known, args, kwargs)

    def do(self, name: str, args: tuple, kwargs: dict) -> _Value:
        try:
            return getattr(self, name)(*args, **kwargs)
        except TypeError as error:
            reason = str(error).removeprefix("_Trace.")
            raise self.refusal(f"calls torch.{name.rstrip('_')} with arguments that have no translation: {reason}") from error

    def make(self, op: str, kind: str, *of: _Value, extra: object = None, bounds: tuple[int, int] = _ANY) -> _Value:
        """A value, which is one however often it is made."""
        key = (op, kind, type(extra), repr(extra) if isinstance(extra, float) else extra, *(value.number for value in of))
        found = self.values.get(key)
        if found is None:
            found = self.values[key] = _Value(self, op, kind, of, extra, bounds)
        return found

    def value(self, given: object) -> _Value:
        """What a function may give for a number."""
        if isinstance(given, _Value):
            if given.trace is not self:
                raise self.refusal("uses a value that it was given in another call: one of this call was needed")
            return given
        if isinstance(given, Tensor) and given.dim() == 0:
            self.admitted(given)
            # A number on the host is a constant next to tensors on a card.
            return self.value(given.item()) if given.device.type == "cpu" and self.query.is_cuda else self.read(given, ())
        if isinstance(given, (Tensor, _Part)):
            raise self.refusal(f"uses a tensor of shape {tuple(given.shape)} as a number: an index of each dimension was needed")
        if isinstance(given, bool):
            return self.make("constant", "truth", extra=given)
        if isinstance(given, numbers.Integral):
            return self.make("constant", "whole", extra=int(given), bounds=(int(given), int(given)))
        if isinstance(given, numbers.Real) and not math.isnan(given):
            return self.make("constant", "real", extra=float(given))
        raise self.refusal(f"uses {given!r} as a number: a value, a number or a tensor without dimensions was needed")

    def number(self, given: object) -> _Value:
        """A number: of a truth it is 1 or 0."""
        value = self.value(given)
        return self.where(value, 1, 0) if value.kind == "truth" else value

    def real(self, given: object) -> _Value:
        """A real number, or a whole one where a text makes it real."""
        value = self.number(given)
        return self.value(float(value.extra)) if value.op == "constant" else value

    def truth(self, given: object) -> _Value:
        value = self.value(given)
        return value if value.kind == "truth" else self.ne(value, 0)

    def pair(self, a: object, b: object) -> tuple[str, _Value, _Value]:
        """Two numbers of one kind."""
        a, b = self.number(a), self.number(b)
        return ("whole", a, b) if a.kind == b.kind == "whole" else ("real", self.real(a), self.real(b))

    # Tensors that are read.

    def read(self, given: Tensor | _Part, index: tuple) -> _Value | _Part:
        """A tensor with indices of its first dimensions without one."""
        tensor, at = (given.tensor, list(given.index)) if isinstance(given, _Part) else (given, [None] * given.dim())
        free = sum(of is None for of in at)
        if sum(of is not Ellipsis for of in index) > free or sum(of is Ellipsis for of in index) > 1:
            raise self.refusal(f"reads a tensor of shape {tuple(tensor.shape)} with {len(index)} indices, at most {free} were needed")
        if Ellipsis in [of for of in index if of is Ellipsis]:
            where = next(i for i, of in enumerate(index) if of is Ellipsis)
            index = index[:where] + (slice(None),) * (free - len(index) + 1) + index[where + 1 :]
        dimension = 0
        for of in index:
            while at[dimension] is not None:
                dimension += 1
            if isinstance(of, slice):
                tensor = tensor[(slice(None),) * dimension + (of,)]
            elif isinstance(of, numbers.Integral) and not isinstance(of, bool):
                tensor = tensor.select(dimension, int(of))
                at.pop(dimension)
                continue
            elif isinstance(of, (_Value, Tensor)) and self.value(of).kind == "whole":
                at[dimension] = self.value(of)
            else:
                found = _words(of) if not isinstance(of, _Value) else "a truth" if of.kind == "truth" else "a real number"
                raise self.refusal(f"reads a tensor of shape {tuple(tensor.shape)} by {found}: whole numbers were needed")
            dimension += 1
        return _Part(self, tensor, at) if any(of is None for of in at) else self.element(tensor, at)

    def element(self, tensor: Tensor, index: list[_Value]) -> _Value:
        if tensor.device != self.query.device:
            raise self.refusal(f"reads a tensor on {tensor.device}, {self.query.device} was needed as query is")
        if tensor.numel() == 0:
            raise self.refusal(f"reads a tensor of shape {tuple(tensor.shape)}, which has no elements")
        self.admitted(tensor)
        # Of dimensions in which all elements are the same, or one, nothing is said.
        keeps = [tensor.shape[i] > 1 and tensor.stride(i) != 0 for i in range(tensor.dim())]
        index = [self.wrapped(at, extent) for at, extent, keep in zip(index, tensor.shape, keeps) if keep]
        tensor = tensor[tuple(slice(None) if keep else 0 for keep in keeps)]
        if not index:
            tensor, index = tensor[None], [self.value(0)]
        if len(index) > 4:
            raise self.refusal(f"reads a tensor by {len(index)} indices, at most 4 were needed")
        if tensor.dtype not in _READ:
            needed = ", ".join(str(dtype).removeprefix("torch.") for dtype in _READ)
            raise self.refusal(f"reads a tensor of {tensor.dtype}, one of {needed} was needed")
        number = self.numbers.setdefault(_place(tensor), len(self.tensors))
        if number == len(self.tensors):
            self.tensors.append(tensor)
        bounds = _BOUNDS.get(_READ[tensor.dtype])
        if bounds is None:
            return self.make("element", "real", *index, extra=number)
        found = self.make("element", "whole", *index, extra=number, bounds=bounds)
        return self.ne(found, 0) if tensor.dtype == torch.bool else found

    def admitted(self, tensor: Tensor) -> None:
        if tensor.requires_grad and torch.is_grad_enabled():
            raise self.refusal(f"reads a tensor of shape {tuple(tensor.shape)} that requires a gradient, which arrays do not have: detach() was needed")

    def wrapped(self, at: _Value, extent: int) -> _Value:
        """An index, which counts from the end where it is negative."""
        if at.op == "constant" and at.extra < 0:
            return self.value(at.extra + extent)
        return at if at.low >= 0 else self.where(self.lt(at, 0), self.add(at, extent), at)

    def mark(self, tensor: Tensor) -> tuple:
        """What is another one where a tensor is, or was written. What a function makes anew in each call counts as the same, and tensors of
        inference, which do not say so, as not written."""
        if tensor.untyped_storage().data_ptr() in self.made:
            return tensor.dtype, tensor.shape, tensor.stride()
        return *_place(tensor), None if tensor.is_inference() else tensor._version

    def arrays(self) -> dict[str, Tensor]:
        """The tensors of the texts by their names."""
        found = {}
        for number, name in self.names.items():
            tensor = self.tensors[number]
            if tensor.dtype == torch.bool:
                tensor = tensor.view(torch.uint8)
            elif tensor.dtype in _CONVERTED:
                format = _CONVERTED[tensor.dtype]
                if format == "s32" and tensor.device.type == "cpu" and tensor.dtype not in (torch.int16, torch.uint16):
                    # Those of unsigned numbers have no least and no largest one.
                    wide = tensor.to(torch.int64)
                    for wrong in (wide.min().item(), wide.max().item()):
                        if not _ANY[0] <= wrong <= _ANY[1]:
                            raise ValueError(f"a tensor that score_mod or mask_mod reads has {wrong}, {_ANY[0]} to {_ANY[1]} was needed")
                tensor = tensor.to(torch.int32 if format == "s32" else torch.float32)
            found[name] = tensor.detach()
        return found

    # torch's functions.

    def arithmetic(self, sign: str, a: object, b: object) -> _Value:
        kind, a, b = self.pair(a, b)
        if a.op == b.op == "constant" and (sign != "/" or b.extra != 0):
            return self.value(_HOST[sign](a.extra, b.extra))
        ends = [_HOST[sign](x, y) for x in (a.low, a.high) for y in (b.low, b.high)] if sign in "+-*" else _ANY
        return self.make(sign, kind, a, b, bounds=(min(ends), max(ends)))

    def add(self, input, other, *, alpha=1):
        if self.is_truth(input, other) and alpha == 1:
            return self.logical_or(input, other)
        return self.arithmetic("+", input, other if alpha == 1 else self.mul(other, alpha))

    def sub(self, input, other, *, alpha=1):
        return self.arithmetic("-", input, other if alpha == 1 else self.mul(other, alpha))

    def rsub(self, input, other, *, alpha=1):
        return self.sub(other, input, alpha=alpha)

    def mul(self, input, other):
        return self.logical_and(input, other) if self.is_truth(input, other) else self.arithmetic("*", input, other)

    def div(self, input, other, *, rounding_mode=None):
        if rounding_mode == "floor":
            return self.floor_divide(input, other)
        _, a, b = self.pair(input, other)
        if rounding_mode == "trunc" and a.kind == b.kind == "whole":
            return self.quotient(a, b)
        if rounding_mode is not None:
            raise self.refusal(f"divides with rounding_mode={rounding_mode!r}, which has a translation of whole numbers alone: 'floor' or 'trunc' was needed")
        return self.arithmetic("/", self.real_of(a), self.real_of(b))

    def rdiv(self, input, other):
        return self.div(other, input)

    def quotient(self, a: _Value, b: _Value) -> _Value:
        """Of whole numbers, rounded towards zero."""
        self.divides(b)
        most = max(abs(a.low), abs(a.high)) // max(b.low, 1)
        return self.make("/", "whole", a, b, bounds=(0 if a.low >= 0 and b.low >= 0 else -most, most))

    def remains(self, a: _Value, b: _Value) -> _Value:
        """What that quotient leaves."""
        self.divides(b)
        most = min(max(abs(b.low), abs(b.high)) - 1, max(abs(a.low), abs(a.high)))
        return self.make("%", "whole", a, b, bounds=(0 if a.low >= 0 else -most, most))

    def divides(self, b: _Value) -> None:
        if b.is_constant(0):
            raise self.refusal("divides a whole number by 0")

    def whole_pair(self, what: str, a: object, b: object) -> tuple[_Value, _Value]:
        kind, a, b = self.pair(a, b)
        if kind != "whole":
            raise self.refusal(f"takes `{what}` of real numbers, which has no translation: whole ones were needed")
        return a, b

    def floor_divide(self, input, other):
        a, b = self.whole_pair("//", input, other)
        if a.op == b.op == "constant" and b.extra != 0:
            return self.value(a.extra // b.extra)
        if b.low >= 0 and a.low >= 0:
            return self.quotient(a, b)
        if b.op == "constant" and b.extra > 0:
            found = self.quotient(self.where(self.lt(a, 0), self.sub(a, b.extra - 1), a), b)
            found.low, found.high = a.low // b.extra, a.high // b.extra
            return found
        apart = self.apart(self.remains(a, b), b)
        return self.sub(self.quotient(a, b), self.where(apart, 1, 0))

    def rfloor_divide(self, input, other):
        return self.floor_divide(other, input)

    def apart(self, rest: _Value, b: _Value) -> _Value:
        """Whether what a division leaves has another sign than the divisor."""
        below, above = self.logical_and(self.lt(rest, 0), self.gt(b, 0)), self.logical_and(self.gt(rest, 0), self.lt(b, 0))
        return below if b.low >= 0 else self.logical_or(below, above)

    def remainder(self, input, other):
        a, b = self.whole_pair("%", input, other)
        if a.op == b.op == "constant" and b.extra != 0:
            return self.value(a.extra % b.extra)
        rest = self.remains(a, b)
        if b.low >= 0 and a.low >= 0:
            return rest
        if b.op == "constant" and b.extra > 0:
            found = self.where(self.lt(rest, 0), self.add(rest, b), rest)
        else:
            found = self.where(self.apart(rest, b), self.add(rest, b), rest)
        if b.low > 0:
            found.low, found.high = 0, b.high - 1
        return found

    def rremainder(self, input, other):
        return self.remainder(other, input)

    def fmod(self, input, other):
        return self.remains(*self.whole_pair("fmod", input, other))

    def shift_left(self, input, other):
        a, b = self.whole_pair("<<", input, other)
        return self.mul(a, 1 << self.constant("shifts by", b))

    def shift_right(self, input, other):
        a, b = self.whole_pair(">>", input, other)
        return self.floor_divide(a, 1 << self.constant("shifts by", b))

    def rshift_left(self, input, other):
        return self.shift_left(other, input)

    def rshift_right(self, input, other):
        return self.shift_right(other, input)

    def constant(self, what: str, of: _Value) -> int:
        if of.op != "constant" or not 0 <= of.extra < 31:
            raise self.refusal(f"{what} a number that is no constant of 0 to 30, which was needed")
        return of.extra

    def pow(self, input, exponent):
        a, b = self.number(input), self.number(exponent)
        if a.op == b.op == "constant":
            return self.value(a.extra**b.extra)
        if b.op == "constant" and b.extra == int(b.extra) and 0 <= b.extra <= 16:
            if b.kind == "real":
                a = self.real_of(a)
            found = self.value(1 if a.kind == "whole" else 1.0) if b.extra == 0 else a
            for _ in range(int(b.extra) - 1):
                found = self.mul(found, a)
            return found
        if b.op == "constant" and (a.kind == "real" or b.kind == "real"):
            known = {0.5: self.sqrt, -0.5: self.rsqrt, -1: self.reciprocal}.get(b.extra)
            if known is not None:
                return known(a)
            if b.extra == int(b.extra) and b.extra >= -16:
                return self.reciprocal(self.pow(a, -b.extra))
            return self.exp2(self.mul(self.log2(a), float(b.extra)))
        if a.op == "constant" and a.extra > 0 and (a.kind == "real" or b.kind == "real"):
            return self.exp2(b if a.extra == 2 else self.mul(b, math.log2(a.extra)))
        raise self.refusal("takes a power that has no translation: a constant exponent, or a constant base above 0 that is a real number, was needed")

    def rpow(self, input, other):
        return self.pow(other, input)

    def neg(self, input):
        a = self.number(input)
        return self.value(-a.extra) if a.op == "constant" else self.make("neg", a.kind, a, bounds=(-a.high, -a.low))

    def positive(self, input):
        return self.number(input)

    def abs(self, input):
        a = self.number(input)
        low, high = sorted((abs(a.low), abs(a.high)))
        return a if a.kind == "whole" and a.low >= 0 else self.make("abs", a.kind, a, bounds=(0 if a.low < 0 < a.high else low, high))

    def square(self, input):
        return self.mul(input, input)

    def reciprocal(self, input):
        return self.div(1.0, input)

    def sign(self, input):
        return self.where(self.gt(input, 0), 1, self.where(self.lt(input, 0), -1, 0))

    def extreme(self, which: str, input: object, other: object) -> _Value:
        if self.is_truth(input, other):
            return self.logical_and(input, other) if which == "min" else self.logical_or(input, other)
        kind, a, b = self.pair(input, other)
        of = min if which == "min" else max
        if a.op == b.op == "constant":
            return self.value(of(a.extra, b.extra))
        return self.make(which, kind, a, b, bounds=(of(a.low, b.low), of(a.high, b.high)))

    def minimum(self, input, other):
        return self.extreme("min", input, other)

    def maximum(self, input, other):
        return self.extreme("max", input, other)

    def clamp(self, input, min=None, max=None):
        found = input if min is None else self.maximum(input, min)
        return self.value(found) if max is None else self.minimum(found, max)

    def clamp_min(self, input, min):
        return self.maximum(input, min)

    def clamp_max(self, input, max):
        return self.minimum(input, max)

    def relu(self, input, inplace=False):
        return self.maximum(input, 0)

    def silu(self, input, inplace=False):
        return self.mul(input, self.sigmoid(input))

    def tan(self, input):
        return self.div(self.sin(input), self.cos(input))

    def log10(self, input):
        return self.mul(self.log2(input), math.log10(2))

    def where(self, condition, input, other):
        c, a, b = self.truth(condition), self.value(input), self.value(other)
        if c.op == "constant":
            return a if c.extra else b
        if a.kind == b.kind == "truth":
            return self.logical_or(self.logical_and(c, a), self.logical_and(self.logical_not(c), b))
        kind, a, b = self.pair(a, b)
        return a if a is b else self.make("where", kind, c, a, b, bounds=(min(a.low, b.low), max(a.high, b.high)))

    def where_of(self, input, condition, other):
        return self.where(condition, input, other)

    def masked_fill(self, input, mask, value):
        return self.where(mask, value, input)

    def is_truth(self, *given: object) -> bool:
        return all(self.value(of).kind == "truth" for of in given)

    def compared(self, sign: str, input: object, other: object) -> _Value:
        equal = sign in ("==", "!=")
        if equal and self.is_truth(input, other):
            differ = self.logical_xor(input, other)
            return differ if sign == "!=" else self.logical_not(differ)
        kind, a, b = self.pair(input, other)
        if a.op == b.op == "constant":
            return self.value(_HOST[sign](a.extra, b.extra))
        if equal and kind == "real":
            # Real numbers are compared by their order.
            signs, join = (("<=", ">="), self.logical_and) if sign == "==" else (("<", ">"), self.logical_or)
            return join(*(self.make(of, "truth", a, b) for of in signs))
        return self.make(sign, "truth", a, b)

    def logical_and(self, input, other):
        a, b = self.truth(input), self.truth(other)
        if a.op == "constant" or b.op == "constant":
            known, left = (a, b) if a.op == "constant" else (b, a)
            return left if known.extra else known
        return a if a is b else self.make("&", "truth", a, b)

    def logical_or(self, input, other):
        a, b = self.truth(input), self.truth(other)
        if a.op == "constant" or b.op == "constant":
            known, left = (a, b) if a.op == "constant" else (b, a)
            return known if known.extra else left
        return a if a is b else self.make("|", "truth", a, b)

    def logical_xor(self, input, other):
        a, b = self.truth(input), self.truth(other)
        return self.logical_or(self.logical_and(a, self.logical_not(b)), self.logical_and(self.logical_not(a), b))

    def logical_not(self, input):
        a = self.truth(input)
        if a.op == "constant":
            return self.value(not a.extra)
        return a.of[0] if a.op == "!" else self.make("!", "truth", a)

    def bitwise_and(self, input, other):
        if self.is_truth(input, other):
            return self.logical_and(input, other)
        a, b = self.whole_pair("&", input, other)
        a, b = (b, a) if a.op == "constant" else (a, b)
        if b.op == "constant" and b.extra >= 0 and b.extra & (b.extra + 1) == 0:
            return self.remainder(a, b.extra + 1)
        raise self.refusal("takes `&` of whole numbers, which has a translation with 2**n - 1 alone")

    def bitwise_or(self, input, other):
        return self.of_truths("|", self.logical_or, input, other)

    def bitwise_xor(self, input, other):
        return self.of_truths("^", self.logical_xor, input, other)

    def of_truths(self, sign: str, function: Callable, input: object, other: object) -> _Value:
        if not self.is_truth(input, other):
            raise self.refusal(f"takes `{sign}` of numbers, which has no translation: truths were needed")
        return function(input, other)

    def bitwise_not(self, input):
        if self.is_truth(input):
            return self.logical_not(input)
        a, _ = self.whole_pair("~", input, 0)
        return self.sub(self.neg(a), 1)

    # Values of a type.

    def real_of(self, given: object) -> _Value:
        """A real number, also in texts where it stands alone."""
        a = self.number(given)
        return self.real(a) if a.kind == "real" or a.op == "constant" else self.make("real", "real", a)

    def cast(self, given: object, dtype: torch.dtype) -> _Value:
        a = self.value(given)
        kind, bounds = _KINDS.get(dtype, (None, None))
        if kind == "truth":
            return self.truth(a)
        if kind == "real":
            return self.real_of(a)
        if kind == "whole" and a.op == "constant" and math.isfinite(a.extra):
            a = self.value(int(a.extra))
        a = self.number(a)
        if kind is None or a.kind == "real" or (bounds is not None and not bounds[0] <= a.low <= a.high <= bounds[1]):
            raise self.refusal(f"makes a {a.kind} number one of {dtype}, which has no translation")
        return a

    def to(self, input, *given, dtype=None, device=None, non_blocking=False, copy=False, memory_format=None):
        types = [getattr(of, "dtype", of) for of in (*given, dtype) if isinstance(getattr(of, "dtype", of), torch.dtype)]
        return self.cast(input, types[0]) if types else self.value(input)

    def type(self, input, dtype, non_blocking=False):
        return self.cast(input, dtype)

    def type_as(self, input, other):
        return self.cast(input, other.dtype)

    def same(self, input, *_, **__):
        return self.value(input)

    def full_like(self, input, fill_value, *, dtype=None, **_):
        return self.cast(fill_value, dtype or self.value(input).dtype)

    def zeros_like(self, input, **kwargs):
        return self.full_like(input, 0, **kwargs)

    def ones_like(self, input, **kwargs):
        return self.full_like(input, 1, **kwargs)

    def new_full(self, input, size, fill_value, **kwargs):
        shape = (size,) if isinstance(size, int) else tuple(size)
        if shape:
            raise self.refusal(f"makes a tensor of shape {shape} of a value, one without dimensions was needed")
        return self.full_like(input, fill_value, **kwargs)

    def new_zeros(self, input, size=(), **kwargs):
        return self.new_full(input, size, 0, **kwargs)

    def new_ones(self, input, size=(), **kwargs):
        return self.new_full(input, size, 1, **kwargs)

    def new_tensor(self, input, data, **kwargs):
        return self.full_like(input, data, **kwargs)

    # Texts.

    def text(self, root: _Value) -> str:
        """The text of a value: what is used several times has a name."""
        values, uses = root.all(), Counter()
        for value in values:
            uses.update(of.number for of in value.of)
        written, bound = {}, []
        for value in values:
            text, binds, is_real = self.written(value, [written[of.number] for of in value.of])
            # A text has at most 100 parts in each other, and a name is one.
            if uses[value.number] > 1 and len(text) > 8 and len(bound) < 60:
                bound.append(f"v{len(bound)}={text};")
                text, binds = f"v{len(bound) - 1}", _MOST
            written[value.number] = text, binds, is_real
        return "".join(bound) + written[root.number][0]

    def written(self, value: _Value, parts: list[tuple[str, int, bool]]) -> tuple[str, int, bool]:
        """The text of a value, how tightly it binds, and whether it is that of a real number, as that of 2.0 is not."""
        op = value.op
        if op == "constant":
            return self.written_constant(value)
        if op == "variable":
            return value.extra, _MOST, value.kind == "real"
        if op == "element":
            name = self.names.setdefault(value.extra, f"a{len(self.names)}")
            format = _READ[self.tensors[value.extra].dtype]
            index = ",".join(text for text, *_ in parts)
            return f"{name}[{index}]" + ("" if format == "f32" else f":{format}"), _MOST, value.kind == "real"
        is_real = value.kind == "real" and any(part[2] for part in parts)
        if op in ("neg", "!"):
            text, binds, _ = parts[0]
            sign, own = ("-", 4) if op == "neg" else ("!", _MOST)
            return sign + (text if binds == _MOST else f"({text})"), own, is_real
        if op in _BINDS:
            if value.kind == "real" and not is_real:
                parts[0] = f"real({parts[0][0]})", _MOST, True
            (a, binds_a, _), (b, binds_b, _), own = *parts, _BINDS[op]
            return (a if binds_a >= own else f"({a})") + op + (b if binds_b > own else f"({b})"), own, value.kind == "real"
        text = f"{op}({','.join(text for text, *_ in parts)})"
        return text, _MOST, is_real if op in ("min", "max", "abs", "where") else value.kind == "real"

    def written_constant(self, value: _Value) -> tuple[str, int, bool]:
        of = value.extra
        if value.kind == "real" and (of != int(of) if math.isfinite(of) else True):
            text = repr(of) if abs(of) < _INFINITE else "inf" if of > 0 else "-inf"
            return text, 4 if of < 0 else _MOST, True
        if abs(of) > _LARGEST:
            if value.kind == "real":
                text = repr(of) if abs(of) < _INFINITE else "inf" if of > 0 else "-inf"
                return text, 4 if of < 0 else _MOST, True
            if not _ANY[0] <= of <= _ANY[1]:
                raise self.refusal(f"uses {of} as a whole number, {_ANY[0]} to {_ANY[1]} was needed")
            sign = "-" if of < 0 else "+"
            return f"{'-' if of < 0 else ''}{_LARGEST}{sign}{abs(of) - _LARGEST}", 4, False
        return str(int(of)), 4 if of < 0 else _MOST, False


# Real numbers of this amount, and above, are infinite in 32 bits.
_INFINITE = (2 - 2**-24) * 2.0**127

_HOST = {
    **{"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv},
    **{"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne},
}

# Methods of a trace by the names of torch's functions that are others.
_ALIASES = {
    **{"multiply": "mul", "subtract": "sub", "divide": "div", "true_divide": "div", "negative": "neg", "absolute": "abs", "clip": "clamp"},
    **{"greater": "gt", "greater_equal": "ge", "less": "lt", "less_equal": "le", "not_equal": "ne", "fmin": "minimum", "fmax": "maximum"},
    **{"bitwise_left_shift": "shift_left", "bitwise_right_shift": "shift_right", "expit": "sigmoid"},
    **dict.fromkeys(["clone", "detach", "contiguous", "squeeze"], "same"),
}

# Those of functions that are what a text has by the same name; and those of comparisons.
_ELEMENTARY = ["tanh", "exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sigmoid", "erf", "sin", "cos"]
_COMPARED = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}

_OWN = """add sub rsub mul div floor_divide remainder fmod pow neg positive abs square reciprocal sign minimum maximum clamp clamp_min clamp_max relu
silu tan log10 where masked_fill logical_and logical_or logical_xor logical_not bitwise_and bitwise_or bitwise_xor bitwise_not full_like zeros_like
ones_like new_full new_zeros new_ones new_tensor to type type_as""".split()

_OPERATORS = {
    **{"__add__": "add", "__radd__": "add", "__sub__": "sub", "__rsub__": "rsub", "__mul__": "mul", "__rmul__": "mul"},
    **{"__truediv__": "div", "__rtruediv__": "rdiv", "__floordiv__": "floor_divide", "__rfloordiv__": "rfloor_divide"},
    **{"__mod__": "remainder", "__rmod__": "rremainder", "__pow__": "pow", "__rpow__": "rpow"},
    **{"__neg__": "neg", "__pos__": "positive", "__abs__": "abs", "__invert__": "bitwise_not"},
    **{"__and__": "bitwise_and", "__rand__": "bitwise_and", "__or__": "bitwise_or", "__ror__": "bitwise_or"},
    **{"__xor__": "bitwise_xor", "__rxor__": "bitwise_xor", "__lshift__": "shift_left", "__rshift__": "shift_right"},
    **{"__rlshift__": "rshift_left", "__rrshift__": "rshift_right"},
    **{f"__{name}__": name for name in _COMPARED},
}

_CASTS = {
    **{"float": torch.float32, "double": torch.float64, "half": torch.float16, "bfloat16": torch.bfloat16, "int": torch.int32},
    **{"long": torch.int64, "short": torch.int16, "char": torch.int8, "byte": torch.uint8, "bool": torch.bool},
}


def _elementary(name: str) -> Callable:
    return lambda self, input: self.make(name, "real", self.real(input))


def _comparison(sign: str) -> Callable:
    return lambda self, input, other: self.compared(sign, input, other)


def _method(name: str) -> Callable:
    return lambda self, *args, **kwargs: self.trace.do(name, (self, *args), kwargs)


def _cast(dtype: torch.dtype) -> Callable:
    return lambda self: self.trace.cast(self, dtype)


def _functions() -> dict[Callable, str]:
    """The methods of a trace by torch's functions, which values have, too."""
    for name in _ELEMENTARY:
        setattr(_Trace, name, _elementary(name))
    for name, sign in _COMPARED.items():
        setattr(_Trace, name, _comparison(sign))
    for name, dtype in _CASTS.items():
        setattr(_Value, name, _cast(dtype))
    found = {}
    named = {name: name for name in (*_OWN, *_ELEMENTARY, *_COMPARED)} | _ALIASES | _OPERATORS
    for name, own in named.items():
        setattr(_Value, name, _method("where_of" if name == "where" else own))
        for module in (torch, torch.nn.functional, torch.special, Tensor):
            function = getattr(module, name, None)
            if function is not None and (module is not Tensor or function is not getattr(object, name, None)):
                found[function] = "where_of" if function is Tensor.where else own
    return found


_FUNCTIONS = _functions()
