"""Checks of Triton's kernels in the emulator: they are compiled for a Hopper GPU, and none is needed.

    import falchion.triton
    report = falchion.triton.check(kernel[grid], x, y, out, n, BLOCK=256, want={"out": expected})
    report.expect()

Triton must be installed; tested with 3.9.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from .ptx import Report, check_ptx

__all__ = ["Compiled", "Descriptor", "check", "compile"]

_TARGET = GPUTarget("cuda", 90, 32)

# Element types by the names of numpy's and torch's: those of Triton, and of a launch.
_TYPES = {
    "float16": ("fp16", "f16"),
    "bfloat16": ("bf16", "bf16"),
    "float32": ("fp32", "f32"),
    "float64": ("fp64", "f64"),
    "float8_e4m3fn": ("fp8e4nv", "e4m3"),
    "float8_e5m2": ("fp8e5", "e5m2"),
    "bool": ("i1", "u8"),
    "int8": ("i8", "s8"),
    "uint8": ("u8", "u8"),
    "int16": ("i16", "s16"),
    "uint16": ("u16", "u16"),
    "int32": ("i32", "s32"),
    "uint32": ("u32", "u32"),
    "int64": ("i64", "s64"),
    "uint64": ("u64", "u64"),
}
# Element types of tensor maps by their numbers in Triton's metadata, which are those of PTX.
_MAPPED = ["u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f32", "f64", "bf16", "tf32", "tf32"]
_SWIZZLES = ["none", "32B", "64B", "128B"]
# Options of a launch that are not the kernel's arguments.
_OPTIONS = {"num_warps", "num_stages", "num_ctas", "maxnreg", "debug", "launch_pdl", "launch_cooperative_grid", "enable_fp_fusion"}


@dataclass
class Descriptor:
    """A tensor that a kernel copies by tiles of `block_shape`, as Triton's `TensorDescriptor`, but over an array of numpy too."""

    base: Any
    block_shape: list[int]


@dataclass
class Compiled:
    """A compiled kernel: its PTX, and the launch that `check_ptx` takes."""

    ptx: str
    launch: dict[str, Any]


def check(
    launcher: Callable[..., Any] | tuple[Any, Any],
    *args: Any,
    want: Mapping[str, Any] | None = None,
    rtol: float = 0.0,
    atol: float = 0.0,
    unchanged: Iterable[str] = (),
    unwritten: Iterable[str] = (),
    scratch: Iterable[str] = (),
    launches: int = 2,
    schedules: int = 50,
    seed: int = 0,
    suppress: Iterable[str] = (),
    **named: Any,
) -> Report:
    """Checks a kernel of Triton, `kernel[grid]`, with the arguments of its call.

    Arguments are arrays of numpy, tensors of torch on the CPU, numbers, `Descriptor`s and Triton's `TensorDescriptor`s. Each array
    is copied: the caller's stay as they are. Options of the launch, as `num_warps=8`, are given as in a call of Triton's.

    `want` has wanted results by the names of arguments, of the same shape: right is |got - want| <= atol + rtol |want|, in float64. Arguments
    with a wanted result get their contents again before each of the `launches` of the same memory; others keep what a launch has left.
    `unchanged`, `unwritten` and `scratch` name arguments that the kernel must not write, that hold nothing before the launch (a read is
    found), and of which nothing is expected.

    Findings have the lines of the kernel's source in Python. The other arguments are those of `check_ptx`.
    """
    compiled = compile(
        launcher, *args, want=want, rtol=rtol, atol=atol, unchanged=unchanged, unwritten=unwritten, scratch=scratch, launches=launches, **named
    )
    return check_ptx(compiled.ptx, compiled.launch, schedules=schedules, seed=seed, suppress=suppress)


def compile(
    launcher: Callable[..., Any] | tuple[Any, Any],
    *args: Any,
    want: Mapping[str, Any] | None = None,
    rtol: float = 0.0,
    atol: float = 0.0,
    unchanged: Iterable[str] = (),
    unwritten: Iterable[str] = (),
    scratch: Iterable[str] = (),
    launches: int = 2,
    **named: Any,
) -> Compiled:
    """Compiles a kernel for the arguments of a call, and describes the launch. Takes the arguments of `check`."""
    kernel, grid = _parts(launcher)
    options = {name: named.pop(name) for name in list(named) if name in _OPTIONS}
    bound = inspect.signature(kernel.fn).bind(*args, **named)
    bound.apply_defaults()
    expected = {"want": dict(want or {}), "unchanged": set(unchanged), "unwritten": set(unwritten), "scratch": set(scratch)}
    tolerance = {"rtol": rtol, "atol": atol}
    memory, signature, constants, attributes = _Memory(expected, tolerance), {}, {}, {}
    given: list[tuple[str, Any, str]] = []  # what becomes a parameter: name, value, type
    for number, parameter in enumerate(kernel.params):
        name, value = parameter.name, bound.arguments[parameter.name]
        kind = _kind(parameter, value)
        signature[name] = kind
        if kind == "constexpr":
            constants[name] = value
            continue
        given.append((name, value, kind))
        array = kind.startswith("*")
        divisible = _address(value) % 16 == 0 if array else kind[0] in "iu" and isinstance(value, (int, np.integer)) and value % 16 == 0
        if divisible and not parameter.do_not_specialize and not parameter.do_not_specialize_on_alignment:
            attributes[(number,)] = [["tt.divisibility", 16]]
    options = {name: value for name, value in options.items() if value is not None}
    made = triton.compile(ASTSource(kernel, signature, constants, attributes), target=_TARGET, options=options)
    facts = made.metadata
    extents = grid(bound.arguments) if callable(grid) else grid
    extents = [int(extent) for extent in extents] + [1] * (3 - len(extents))
    extents[0] *= facts.num_ctas
    arguments, maps = [], list(getattr(facts, "tensordesc_meta", None) or [])
    for name, value, kind in given:
        if kind.startswith("*"):
            arguments.append({"name": name, "buffer": memory.keep(name, value)})
        elif kind.startswith("tensordesc"):
            arguments += _mapped(name, value, maps.pop(0), memory)
        else:
            arguments.append({"name": name, "scalar": _scalar(kind), "value": value if isinstance(value, (bool, float)) else str(int(value))})
    for name in ("global_scratch", "profile_scratch"):
        size = getattr(facts, f"{name}_size", 0) * extents[0] * extents[1] * extents[2]
        if size:
            align = max(16, getattr(facts, f"{name}_align", 16))
            memory.buffers.append({"name": name, "bytes": size, "align": align, "scratch": True})
        arguments.append({"name": name, "buffer": name} if size else {"name": name, "null": True})
    memory.all_named()
    launch = {
        "entry": facts.name,
        "grid": extents,
        "shared": facts.shared,
        "dependent": bool(getattr(facts, "launch_pdl", False)),
        "launches": launches,
        "buffer": memory.buffers,
        "argument": arguments,
    }
    return Compiled(made.asm["ptx"], launch)


def _parts(launcher: Any) -> tuple[Any, Any]:
    """The kernel and the grid of `kernel[grid]`."""
    if isinstance(launcher, tuple) and len(launcher) == 2:
        kernel, grid = launcher
    else:
        held = inspect.getclosurevars(launcher).nonlocals if inspect.isfunction(launcher) else {}
        kernel, grid = held.get("self"), held.get("grid")
    if not hasattr(kernel, "params") or grid is None:
        shown = type(kernel if kernel is not None else launcher).__name__
        raise ValueError(f"a kernel of triton.jit with its grid was needed, kernel[grid], not {shown}; of a tuned kernel, its `fn`")
    return kernel, grid


def _kind(parameter: Any, value: Any) -> str:
    """Triton's type of an argument, or `constexpr`."""
    if parameter.is_constexpr or value is None:
        return "constexpr"
    stated = parameter.annotation_type if isinstance(parameter.annotation_type, str) else ""
    if isinstance(value, (bool, np.bool_)):
        return stated or "u1"
    if isinstance(value, (int, np.integer)):
        if value == 1 and not parameter.do_not_specialize:
            return "constexpr"
        fits = -(2**31) <= value < 2**31
        return stated or ("i32" if fits else "i64" if value < 2**63 else "u64")
    if isinstance(value, (float, np.floating)):
        return stated or "fp32"
    if hasattr(value, "block_shape"):
        return f"tensordesc<{_type(value.base)[0]}{list(value.block_shape)}>".replace(" ", "")
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return ("*k" if parameter.is_const else "*") + _type(value)[0]
    raise TypeError(f"argument {parameter.name!r}: an array, a tensor on the CPU, a number or a descriptor was needed, not {type(value).__name__}")


def _scalar(kind: str) -> str:
    """The type of a number in a launch."""
    names = {"u1": "u8", "i1": "u8", "fp32": "f32", "fp64": "f64", "fp16": "f16", "bf16": "bf16"}
    return names.get(kind) or kind.replace("i", "s")


def _type(array: Any) -> tuple[str, str]:
    name = re.sub(r"^torch\.", "", str(array.dtype))
    if name not in _TYPES:
        raise TypeError(f"elements of type {name} are not known")
    return _TYPES[name]


def _address(array: Any) -> int:
    return int(array.data_ptr() if hasattr(array, "data_ptr") else array.ctypes.data)


def _view(array: Any) -> np.ndarray:
    """An array's elements as numpy has them: those that it has no type for, as bytes in a last dimension."""
    if not hasattr(array, "data_ptr"):
        return np.asarray(array)
    import torch

    if array.device.type != "cpu":
        raise ValueError(f"a tensor on {array.device} was given, one on the CPU was needed")
    array = array.detach()
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[array.element_size()]
    return array.view(whole).numpy()


class _Memory:
    """The buffers of a launch: one for each array, however often it is an argument."""

    def __init__(self, expected: dict[str, Any], tolerance: dict[str, float]) -> None:
        self.buffers: list[dict[str, Any]] = []
        self._known: list[tuple[int, int, str]] = []
        self._expected, self._tolerance, self._named = expected, tolerance, set[str]()

    def keep(self, name: str, array: Any) -> str:
        """The name of the buffer that holds an array."""
        view, address = _view(array), _address(array)
        for other, size, known in self._known:
            if (other, size) == (address, view.nbytes):
                return known
            if other < address + view.nbytes and address < other + size:
                raise ValueError(f"{name}: its memory overlaps that of {known}, and is not the same")
        # Elements in the order in which they lie.
        order = sorted(range(view.ndim), key=lambda axis: -abs(view.strides[axis]) if view.shape[axis] > 1 else -(1 << 62))
        dense = view.transpose(order)
        if not dense.flags.c_contiguous:
            raise ValueError(f"{name}: shape {view.shape} with strides {view.strides} has gaps, an array without gaps was needed")
        self._known.append((address, view.nbytes, name))
        of = self._expected
        buffer: dict[str, Any] = {"name": name, "element": _type(array)[1], "shape": [int(extent) for extent in dense.shape] or [1]}
        # What the kernel is compiled for, and no more: it may be called with memory that is aligned so.
        buffer["align"] = 16 if address % 16 == 0 else min(16, address & -address)
        if name not in of["unwritten"]:
            buffer["data"] = dense.tobytes()
        if name in of["want"]:
            wanted = of["want"][name]
            shape = tuple(wanted.shape)
            if shape != tuple(view.shape):
                raise ValueError(f"want of {name} has shape {shape}, {tuple(view.shape)} was needed")
            buffer["want"] = {"data": _view(wanted).transpose(order).tobytes(), "element": _type(wanted)[1], **self._tolerance}
            buffer["restore"] = name not in of["unwritten"]
        if name in of["unchanged"]:
            buffer["unchanged"] = True
        if name in of["scratch"]:
            buffer["scratch"] = True
        self._named.add(name)
        self.buffers.append(buffer)
        return name

    def all_named(self) -> None:
        """Fails for names that are those of no argument."""
        for which, names in self._expected.items():
            for name in names:
                if name not in self._named:
                    raise ValueError(f"{which}: no argument {name!r} is an array; these are: {', '.join(sorted(self._named))}")


def _mapped(name: str, descriptor: Any, facts: Mapping[str, Any], memory: _Memory) -> list[dict[str, Any]]:
    """The arguments of a descriptor: a tensor map, then its extents and its strides."""
    base, size = descriptor.base, facts["elem_size"]
    view = _view(base)
    shape = [int(extent) for extent in getattr(descriptor, "shape", view.shape)]
    strides = [int(stride) for stride in getattr(descriptor, "strides", [stride // view.itemsize for stride in view.strides])]
    if facts.get("is_im2col") or facts.get("fp4_padded"):
        raise ValueError(f"{name}: im2col and packed 4-bit elements are not described")
    tensor_map = {
        "buffer": memory.keep(name, base),
        "element": _MAPPED[facts["elem_type"]],
        "dims": shape[::-1],
        "strides": [stride * size for stride in strides[-2::-1]],
        "box": [int(extent) for extent in facts["block_size"]][::-1],
        "swizzle": _SWIZZLES[facts["swizzle"]],
        "fill": getattr(descriptor, "padding", "zero"),
    }
    arguments: list[dict[str, Any]] = [{"name": name, "tensor_map": tensor_map}]
    arguments += [{"name": f"{name}.shape", "scalar": "s32", "value": extent} for extent in shape]
    arguments += [{"name": f"{name}.stride", "scalar": "s64", "value": stride} for stride in strides]
    return arguments


