"""Kernels in Pallas for Hopper (Mosaic GPU) that JAX ships, compiled without a GPU: `python of_pallas.py FOLDER [NAME]...`.

Needs gcc, and `pip install jax jax-cuda12-plugin jax-cuda12-pjrt nvidia-cuda-nvcc-cu12 absl-py ml_dtypes`.
"""

import ctypes
import importlib.util
import os
import re
import subprocess
import tempfile
from pathlib import Path
from types import SimpleNamespace

DUMPED = Path(tempfile.mkdtemp(prefix="mosaic-"))
TOOLKIT = Path(importlib.util.find_spec("nvidia").submodule_search_locations[0], "cuda_nvcc")
os.environ.update(JAX_PLATFORMS="cpu", MOSAIC_GPU_DUMP_TO=str(DUMPED), MOSAIC_GPU_CUDA_ROOT=str(TOOLKIT), CUDA_ROOT=str(TOOLKIT))
os.environ["PATH"] = f"{TOOLKIT / 'bin'}{os.pathsep}{os.environ['PATH']}"

import describe
import jax
import numpy as np
import record
from describe import buffer, f64, numbers, result

recorder = record.Recorder(processors=4)
# The compiler asks the runtime for the card.
ctypes.CDLL(str(record.built("libcudart.so.12")), mode=ctypes.RTLD_GLOBAL)

from jax._src.lib.mlir import ir
from jax.experimental.pallas.ops.gpu import attention_mgpu, hopper_matmul_mgpu, ragged_dot_mgpu

attention_mgpu.cuda_versions = SimpleNamespace(cuda_runtime_get_version=lambda: 13000)
LIBRARY = Path(importlib.util.find_spec("jax_plugins.xla_cuda12").submodule_search_locations[0], "xla_cuda_plugin.so")
plugin = ctypes.CDLL(str(LIBRARY))
plugin.MosaicGpuCompile.restype = ctypes.POINTER(ctypes.c_void_p)


def register_target():
    """Calls what makes PTX known to the compiler. A client of a GPU does it, which there is none of here, and it is no public function: its place
    is known relative to one."""
    symbols = subprocess.run(["nm", LIBRARY], check=True, capture_output=True, text=True).stdout
    wanted, known = (
        int(re.search(rf"^(\w+) \w {name}", symbols, re.MULTILINE)[1], 16)
        for name in (r"\S*EnsureLLVMNVPTXTargetIsRegisteredEv$", "MosaicGpuCompile")
    )
    place = ctypes.cast(plugin.MosaicGpuCompile, ctypes.c_void_p).value
    ctypes.CFUNCTYPE(None)(place + wanted - known)()


register_target()


def calls(operation):
    """The calls of kernels in a module."""
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                if inner.operation.name == "stablehlo.custom_call" and "mosaic_gpu" in str(inner.attributes["call_target_name"]):
                    yield inner
                yield from calls(inner.operation)


def launch(function, arrays, results, launches=2):
    """Compiles a function of JAX that calls one kernel, and calls it. `arrays` are its arguments, and `results` buffers of its results."""
    recorder.begin()
    structures = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in arrays.values()]
    module = jax.jit(function).trace(*structures).lower(lowering_platforms=("cuda",)).compiler_ir()
    (call,) = calls(module.operation)
    with module.context:
        code = call.attributes["mhlo.backend_config"]["module"].value_bytes
    compiled = plugin.MosaicGpuCompile(ctypes.c_char_p(code), ctypes.c_int(len(code)))
    assert compiled, "not compiled"
    recorder.ptx = max(DUMPED.rglob("*.ptx"), key=lambda file: file.stat().st_mtime_ns).read_text(encoding="utf-8")
    # The kernel may take the function's arguments in another order.
    order = [ir.BlockArgument(operand).arg_number for operand in call.operands]
    held = [recorder.array(name, arrays[name]) for name in (list(arrays)[number] for number in order)]
    held += [recorder.array(of["name"], np.zeros(of["shape"], dtype)) for of, dtype in results]
    places = (ctypes.c_void_p * len(held))(*(array.ctypes.data for array in held))
    # The host's program takes what the compiler returned, a stream, and the list of buffers.
    ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)(compiled[1])(compiled[0], None, places)
    described = [buffer(name, array, unchanged=True) for name, array in arrays.items()]
    return recorder.launch([*described, *(of for of, _ in results)], launches)


def product(m=256, n=128, k=320, **config):
    hopper_matmul_mgpu.get_num_sms = lambda: 2
    config = hopper_matmul_mgpu.TuningConfig(tile_m=64, tile_n=64, tile_k=64, max_concurrent_steps=3, **config)
    a, b = numbers(m, k), numbers(k, n, seed=1)
    made = result("d", f64(a) @ f64(b), np.float16, 2e-3, 3e-2), np.float16
    return launch(lambda a, b: hopper_matmul_mgpu.matmul(a, b, None, config), {"a": a, "b": b}, [made])


def attention(causal=False):
    config = attention_mgpu.TuningConfig(block_q=64, block_kv=64, max_concurrent_steps=2, causal=causal)
    keys = 128 if causal else 192
    q, k, v = numbers(1, 128, 2, 64), numbers(1, keys, 1, 64, seed=1), numbers(1, keys, 1, 64, seed=2)
    scores = np.einsum("bqhd,bkxd->bhqk", f64(q), f64(k))
    if causal:
        scores = np.where(np.tri(128, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(3, keepdims=True))
    want = np.einsum("bhqk,bkxd->bqhd", weights / weights.sum(3, keepdims=True), f64(v))
    made = result("out", want, np.float16, 1e-2, 2e-3), np.float16
    return launch(lambda q, k, v: attention_mgpu.attention(q, k, v, config), {"q": q, "k": k, "v": v}, [made])


def grouped():
    """Groups of rows, each with a B of its own; how many rows each has, the kernel reads."""
    sizes = np.array([70, 0, 58], np.int32)
    a, b = numbers(128, 128), numbers(3, 128, 128, seed=1)
    groups = np.repeat(np.arange(3), sizes)
    want = np.einsum("mk,mkn->mn", f64(a), f64(b)[groups])
    made = result("d", want, np.float16, 2e-3, 3e-2), np.float16
    options = dict(block_m=64, block_n=64, block_k=64, max_concurrent_steps=2, grid_block_n=1)
    return launch(lambda a, b, sizes: ragged_dot_mgpu.ragged_dot(a, b, group_sizes=sizes, **options), {"a": a, "b": b, "sizes": sizes}, [made])


CASES = {
    "pallas-product": ("product, warp-specialised, persistent", product),
    "pallas-product-cluster": (
        "product, clusters of two CTAs",
        lambda: product(cluster_dimension=hopper_matmul_mgpu.MatmulDimension.M),
    ),
    "pallas-grouped": ("products of groups of rows", grouped),
    "pallas-attention": ("attention, heads share keys", attention),
    "pallas-attention-causal": ("causal attention", lambda: attention(causal=True)),
}

if __name__ == "__main__":
    describe.main("jax", CASES)
