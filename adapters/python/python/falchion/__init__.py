"""Matrix kernels for NVIDIA's Hopper GPUs: any epilogue as text, no CUDA toolkit, and an emulator that proves them.

Arrays of numpy, and tensors of torch on the CPU, are multiplied in an emulator of the card, which runs the program that
the card runs and finds its races. Tensors of torch on an H100 or H200 are multiplied on the card, on the current stream.
"""

from . import cache, sparse, weights
from ._native import __version__, Choice, Fault, Kernel, Operand, append_pages, attention, attention_backward, check, matmul, merge_attention, plan, tune
from ._native import plan_attention, plan_attention_backward, plan_matmul, tune_attention, tune_attention_backward
from .pages import explore
from .ptx import CompilerReport, Report, check_compiler, check_ptx

__all__ = ["__version__", "Choice", "CompilerReport", "Fault", "Kernel", "Operand", "Report", "append_pages", "attention", "attention_backward", "cache", "check", "check_compiler", "check_ptx", "explore", "matmul", "merge_attention", "plan", "plan_attention", "plan_attention_backward", "plan_matmul", "sparse", "tune", "tune_attention", "tune_attention_backward", "weights"]
