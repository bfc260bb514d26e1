"""GEMMs of CUTLASS, compiled by nvcc without a GPU: `python of_cutlass.py FOLDER [NAME]...`. A minute each.

Needs g++, and `pip install nvidia-cuda-nvcc nvidia-cuda-runtime nvidia-cuda-cccl numpy ml_dtypes`, and `pip install --no-deps nvidia-cutlass`
for CUTLASS's headers.
"""

import ctypes
import hashlib
import importlib.util
import subprocess
import tempfile
from pathlib import Path

import ml_dtypes
import numpy as np

import describe
import record
from describe import buffer, f64, numbers, result

KINDS = ["PINGPONG", "COOPERATIVE", "STREAM_K", "GROUPED", "FP8"]
recorder = record.Recorder(processors=4)


def packages(name):
    return Path(importlib.util.find_spec(name).submodule_search_locations[0])


def built(kind):
    """Compiles the call of a kernel, if it is not there from before. Returns the library, and the kernel's PTX."""
    toolkit, headers = packages("nvidia") / "cu13", packages("cutlass_library") / "source"
    source = Path(__file__).with_name("cutlass_kernels.cu")
    folder = Path(tempfile.gettempdir(), f"cutlass-{kind}-{hashlib.sha256(source.read_bytes()).hexdigest()[:16]}")
    folder.mkdir(exist_ok=True)
    library, ptx = folder / "call.so", folder / "cutlass_kernels.ptx"
    includes = [headers / "include", headers / "tools/util/include", toolkit / "include", toolkit / "include/cccl"]
    command = [toolkit / "bin/nvcc", "-shared", "-Xcompiler", "-fPIC", "-cudart", "none", "-std=c++17", "-O3", "--expt-relaxed-constexpr", "-lineinfo"]
    command += ["-gencode", "arch=compute_90a,code=compute_90a", "--keep", "--keep-dir", folder, f"-DKIND={KINDS.index(kind)}", "-w"]
    if not library.exists():
        subprocess.run([*command, *(f"-I{path}" for path in includes), "-o", library, source], check=True)
    return ctypes.CDLL(str(library)), ptx.read_text(encoding="utf-8")


def address(array):
    return ctypes.c_void_p(array.ctypes.data)


def product(kind, m, n, k, dtype=np.float16, processors=2, workspace=1 << 16):
    library, ptx = built(kind)
    recorder.begin()
    recorder.ptx = ptx
    a, b = recorder.array("a", numbers(m, k, dtype=dtype)), recorder.array("b", numbers(n, k, dtype=dtype, seed=1))
    d, memory = recorder.array("d", np.zeros((m, n), np.float16)), recorder.array("workspace", np.zeros(workspace, np.uint8))
    status = library.call(m, n, k, address(a), address(b), address(d), processors, address(memory), ctypes.c_size_t(workspace))
    assert status == 0, f"status {status}"
    buffers = [buffer("a", a, unchanged=True), buffer("b", b, unchanged=True), result("d", f64(a) @ f64(b).T, np.float16, 2e-3, 3e-2)]
    buffers.append({"name": "workspace", "bytes": workspace, "zeros": True, "restore": True, "scratch": True})
    return recorder.launch(buffers)


def pingpong():
    return product("PINGPONG", 72, 136, 136)


def cooperative():
    return product("COOPERATIVE", 200, 72, 200)


def stream_k():
    return product("STREAM_K", 128, 192, 320, processors=4, workspace=1 << 18)


def fp8():
    return product("FP8", 72, 136, 144, dtype=ml_dtypes.float8_e4m3fn)


def grouped():
    library, ptx = built("GROUPED")
    recorder.begin()
    recorder.ptx = ptx
    sizes = [(72, 64, 64), (8, 136, 128), (100, 72, 72)]
    counts = [(m * k, n * k, m * n) for m, n, k in sizes]
    total = [sum(each) for each in zip(*counts)]
    a, b = recorder.array("a", numbers(total[0])), recorder.array("b", numbers(total[1], seed=1))
    d = recorder.array("d", np.zeros(total[2], np.float16))
    names = ["problems", "lefts", "rights", "results", "strides_a", "strides_b", "strides_d"]
    lists = [recorder.array(name, np.zeros(12 * len(sizes) if name == "problems" else 8 * len(sizes), np.uint8)) for name in names]
    memory = recorder.array("workspace", np.zeros(1 << 14, np.uint8))
    given = (ctypes.c_int * 9)(*(extent for size in sizes for extent in size))
    places = (ctypes.c_void_p * 7)(*(array.ctypes.data for array in lists))
    status = library.call(given, len(sizes), address(a), address(b), address(d), 4, places, address(memory), ctypes.c_size_t(1 << 14))
    assert status == 0, f"status {status}"
    want, at = [], [0, 0, 0]
    for (m, n, k), count in zip(sizes, counts):
        left, right = (f64(array[first : first + size]) for array, first, size in zip((a, b), at, count))
        want.append((left.reshape(m, k) @ right.reshape(n, k).T).ravel())
        at = [first + size for first, size in zip(at, count)]
    buffers = [buffer("a", a, unchanged=True), buffer("b", b, unchanged=True), result("d", np.concatenate(want), np.float16, 2e-3, 3e-2)]
    buffers += [recorder.structured(name, unchanged=True) for name in names]
    buffers.append({"name": "workspace", "bytes": 1 << 14, "zeros": True, "restore": True, "scratch": True})
    return recorder.launch(buffers)


CASES = {
    "cutlass-pingpong": ("GEMM, pingpong, persistent", pingpong),
    "cutlass-cooperative": ("GEMM, cooperative, clusters of two CTAs", cooperative),
    "cutlass-stream-k": ("GEMM, cooperative, stream-K", stream_k),
    "cutlass-grouped": ("GEMM of groups, pingpong, tensor maps changed by the kernel", grouped),
    "cutlass-fp8": ("GEMM of e4m3, cooperative, fast accumulation", fp8),
}

if __name__ == "__main__":
    describe.main("nvidia-cutlass", CASES)
