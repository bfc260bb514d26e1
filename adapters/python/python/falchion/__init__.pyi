"""Matrix kernels for NVIDIA's Hopper GPUs: see the functions."""

from typing import Any

from .pages import explore as explore

__version__: str


class Fault(RuntimeError):
    """The emulator found a race, a bad access or a hang. Its text is the report."""

class Kernel:
    """A kernel that was chosen, with its predicted time."""

    @property
    def spec(self) -> str: ...
    @property
    def microseconds(self) -> float: ...
    @property
    def reason(self) -> str: ...
    @property
    def tile(self) -> tuple[int, int, int]: ...
    @property
    def stages(self) -> int: ...
    @property
    def threads(self) -> int: ...
    @property
    def shared_bytes(self) -> int: ...
    @property
    def rust_type(self) -> str: ...
    def ptx(self) -> str: ...
    def _repr_html_(self) -> str: ...

def matmul(
    a: Any,
    b: Any,
    *,
    out: Any | None = None,
    epilogue: str | None = None,
    types: str | None = None,
    c: Any | None = None,
    alpha: float | None = None,
    beta: float | None = None,
    scale_a: Any | None = None,
    scale_b: Any | None = None,
    groups: Any | None = None,
    reproducible: bool = False,
    spec: str | None = None,
    **inputs: Any,
) -> Any: ...
def attention(
    q: Any,
    k: Any,
    v: Any | None = None,
    *,
    causal: bool = False,
    window: tuple[int, int] | None = None,
    scale: float | None = None,
    out: Any | None = None,
    log_sum_exp: Any | None = None,
    cu_seqlens_q: Any | None = None,
    cu_seqlens_k: Any | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    block_table: Any | None = None,
    cache_seqlens: Any | None = None,
    types: str | None = None,
    spec: str | None = None,
) -> Any: ...
def attention_backward(
    q: Any,
    k: Any,
    v: Any,
    o: Any,
    d_o: Any,
    log_sum_exp: Any,
    *,
    causal: bool = False,
    window: tuple[int, int] | None = None,
    scale: float | None = None,
    deterministic: bool = False,
    cu_seqlens_q: Any = None,
    cu_seqlens_k: Any = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
) -> tuple[Any, Any, Any]: ...
def check(a: Any, b: Any, *, schedules: int = 8, **keywords: Any) -> Kernel: ...
def plan(
    m: int,
    n: int,
    k: int,
    *,
    types: str = "bf16",
    layout: str = "kn",
    batch: int = 1,
    epilogue: str | None = None,
    reproducible: bool = False,
    card: str = "h200",
    most: int = 1,
) -> list[Kernel]: ...
def tune(
    m: int,
    n: int,
    k: int,
    *,
    types: str = "bf16",
    layout: str = "kn",
    batch: int = 1,
    epilogue: str | None = None,
    reproducible: bool = False,
    card: str = "cuda:0",
    budget: int = 24,
) -> Kernel: ...
