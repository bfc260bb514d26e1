"""Matrix kernels for NVIDIA's Hopper GPUs: see the functions."""

from . import cache as cache
from . import sparse as sparse
from . import weights as weights
from ._native import Choice as Choice
from ._native import Fault as Fault
from ._native import Kernel as Kernel
from ._native import Operand as Operand
from ._native import __version__ as __version__
from ._native import append_pages as append_pages
from ._native import attention as attention
from ._native import attention_backward as attention_backward
from ._native import check as check
from ._native import matmul as matmul
from ._native import merge_attention as merge_attention
from ._native import plan as plan
from ._native import plan_attention as plan_attention
from ._native import plan_attention_backward as plan_attention_backward
from ._native import plan_matmul as plan_matmul
from ._native import tune as tune
from ._native import tune_attention as tune_attention
from ._native import tune_attention_backward as tune_attention_backward
from .pages import explore as explore
from .ptx import CompilerReport as CompilerReport
from .ptx import Report as Report
from .ptx import check_compiler as check_compiler
from .ptx import check_ptx as check_ptx
