"""Kernels of the CuTe DSL, compiled for Hopper and called without a GPU: what they would launch is recorded.

Import this before anything that imports the DSL. Tensors are torch's, on the CPU, and say that they are on a GPU.
"""

import ctypes
import importlib.util
import os
import tempfile
from pathlib import Path

os.environ.update(CUTE_DSL_ARCH="sm_90a", CUTE_DSL_KEEP="ptx", CUTE_DSL_DUMP_DIR=tempfile.mkdtemp(prefix="cute-"))
os.environ.update(FLASH_ATTENTION_ARCH="sm_90", FLASH_ATTENTION_NUM_SMS="4", QUACK_ARCH="90", QUACK_CACHE_ENABLED="0")

import record

PROCESSORS = 4
recorder = record.Recorder(PROCESSORS)
runtime = Path(importlib.util.find_spec("nvidia_cutlass_dsl").submodule_search_locations[0], "cu12/lib/libcute_dsl_runtime.so")
# The first library that has a function is the one that is called.
os.environ["CUTE_DSL_LIBS"] = f"{recorder.path}{os.pathsep}{runtime}"

import cutlass.cute
import cutlass.cute.runtime
import cutlass.utils
import torch
import tvm_ffi


class OnCard(torch.Tensor):
    """A tensor on the CPU that says it is on a GPU."""

    is_cuda = True


class Lent(ctypes.Structure):
    """DLPack's tensor, with what manages it: memory of the CPU that says it is a GPU's."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    ]

    def __dlpack__(self, **_):
        return new_capsule(ctypes.addressof(self), b"dltensor", None)

    def __dlpack_device__(self):
        return 2, 0


new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype, new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
kept = []


def lent(tensor):
    extents = ctypes.c_int64 * max(tensor.ndim, 1)
    shape, strides = extents(*tensor.shape), extents(*tensor.stride())
    code = 4 if tensor.dtype == torch.bfloat16 else 2 if tensor.is_floating_point() else 1 if tensor.dtype == torch.uint8 else 0
    cuda, bits = (ctypes.c_int32 * 2)(2, 0), 8 * tensor.element_size()
    made = Lent(tensor.data_ptr(), cuda, tensor.ndim, code, bits, 1, shape, strides, 0, None, None)
    kept.append((tensor, shape, strides, made))
    return made


def given(value):
    """An argument of a compiled function, with the tensors in it lent."""
    if isinstance(value, torch.Tensor):
        recorder.found(value.data_ptr(), value.nbytes)
        return tvm_ffi.from_dlpack(lent(value))
    if isinstance(value, tuple):
        held = [given(of) for of in value]
        return type(value)(*held) if hasattr(value, "_fields") else tuple(held)
    return value


compile_, from_dlpack_ = cutlass.cute.compile, cutlass.cute.runtime.from_dlpack


def compiled(*args, **keywords):
    """Compiles, and returns what calls the function and records with its PTX."""
    function, ptx = compile_(*args, **keywords), newest()

    def call(*args, **keywords):
        recorder.ptx = ptx
        return function(*map(given, args), **{name: given(value) for name, value in keywords.items()})

    return call


def from_dlpack(tensor, **keywords):
    return from_dlpack_(lent(tensor) if isinstance(tensor, torch.Tensor) else tensor, **keywords)


cutlass.cute.compile, cutlass.cute.runtime.from_dlpack = compiled, from_dlpack


class Hardware:
    """What the DSL asks a GPU about itself."""

    def __init__(self, device=0):
        pass

    def get_max_active_clusters(self, cluster_size, stream=None):
        return max(1, PROCESSORS // cluster_size)


cutlass.utils.HardwareInfo = Hardware


def newest():
    """The PTX that was compiled last."""
    files = Path(os.environ["CUTE_DSL_DUMP_DIR"]).rglob("*.ptx")
    return max(files, key=lambda file: file.stat().st_mtime_ns).read_text(encoding="utf-8").rstrip("\0")


def tensor(name, array):
    """A tensor of the array's elements, which the recorder knows by a name."""
    held = recorder.array(name, array)
    if str(array.dtype) == "bfloat16":
        return torch.from_numpy(held.view("int16")).view(torch.bfloat16).as_subclass(OnCard)
    return torch.from_numpy(held).as_subclass(OnCard)
