"""The native part of the package, which `falchion` exports."""

from collections.abc import Sequence
from typing import Any

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

class Operand:
    """A prepared operand: few-bit weights, or a sparse matrix. `falchion.weights` and `falchion.sparse` make it."""

    def __new__(
        cls,
        values: Any,
        shape: tuple[int, int],
        dtype: str,
        *,
        is_b: bool,
        code: str | None = None,
        group: int = 0,
        scales: Any | None = None,
        zeros: Any | None = None,
        metadata: Any | None = None,
        order: Any | None = None,
        count: int = 0,
    ) -> Operand: ...
    @property
    def shape(self) -> tuple[int, int]: ...
    @property
    def count(self) -> int: ...
    @staticmethod
    def stacked(operands: list[Operand]) -> Operand: ...
    def to(self, device: Any) -> Operand: ...

class Choice:
    @property
    def problem(self) -> str: ...
    @property
    def spec(self) -> str: ...
    @property
    def microseconds(self) -> float: ...
    @property
    def reason(self) -> str: ...

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
    softcap: float = 0.0,
    alibi_slopes: Any | None = None,
    score: str | None = None,
    sees: str | None = None,
    arrays: dict[str, Any] | None = None,
    sinks: Any | None = None,
    q_descale: Any | None = None,
    k_descale: Any | None = None,
    v_descale: Any | None = None,
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
    softcap: float = 0.0,
    alibi_slopes: Any | None = None,
    score: str | None = None,
    sees: str | None = None,
    arrays: dict[str, Any] | None = None,
) -> tuple[Any, Any, Any]: ...
def merge_attention(
    o_a: Any,
    lse_a: Any,
    o_b: Any,
    lse_b: Any,
    *,
    out: Any | None = None,
    log_sum_exp: Any | None = None,
    types: str | None = None,
) -> tuple[Any, Any]: ...
def append_pages(
    k: Any,
    v: Any | None,
    k_cache: Any,
    v_cache: Any | None,
    slots: Any,
    *,
    types: str | None = None,
) -> None: ...
def check(a: Any, b: Any, *, schedules: int = 8, **keywords: Any) -> Kernel: ...
def plan_matmul(a: Any, b: Any, **keywords: Any) -> Kernel: ...
def plan_attention(q: Any, k: Any, v: Any | None = None, *, card: str | None = None, most: int = 1, **keywords: Any) -> list[Choice]: ...
def tune_attention(q: Any, k: Any, v: Any | None = None, *, card: str | None = None, budget: int = 24, **keywords: Any) -> Choice: ...
def plan_attention_backward(q: Any, k: Any, v: Any, o: Any, d_o: Any, log_sum_exp: Any, *, card: str | None = None, most: int = 1, **keywords: Any) -> list[Choice]: ...
def tune_attention_backward(q: Any, k: Any, v: Any, o: Any, d_o: Any, log_sum_exp: Any, *, card: str | None = None, budget: int = 24, **keywords: Any) -> Choice: ...
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

# What the modules of the package use.

_Lines = tuple[int, bytes] | None
_Parts = tuple[str, int, bytes, _Lines, _Lines, list[int] | None]

def compiled(card: str) -> tuple[str, str]: ...
def checked(
    launch: str,
    fetch: Any,
    *,
    is_json: bool,
    text: str | None = None,
    file: str | None = None,
    schedules: int = 50,
    seed: int = 0,
    suppress: Sequence[str] = (),
) -> tuple[str, str, str]: ...
def page(kernel: Kernel, title: str, extents: tuple[int, int, int] | None, batch: int) -> str: ...
def result(dtype: str, epilogue: str | None, types: str | None) -> tuple[int, str]: ...
def linear(x: Any, weight: Any, bias: Any | None) -> Any: ...
def linear_backward(gradient: Any, x: Any, weight: Any, needed: tuple[bool, ...]) -> Any: ...
def pack(code: str, dtype: str, shape: list[int], codes: bytes, scales: bytes | None, zeros: bytes | None) -> _Parts: ...
def gptq(
    numbers: tuple[int, int],
    dtype: str,
    shape: list[int],
    count: int,
    qweight: bytes,
    scales: bytes,
    qzeros: bytes,
    index: bytes | None,
) -> _Parts: ...
def awq(dtype: str, shape: list[int], groups: int, qweight: bytes, scales: bytes, qzeros: bytes) -> _Parts: ...
def mxfp4(dtype: str, shape: list[int], blocks: bytes, scales: bytes) -> _Parts: ...
def fp8(dtype: str, shape: list[int], codes: bytes, scales: list[float]) -> _Parts: ...
def compress(dtype: str, shape: list[int], elements: bytes, prune: bool) -> tuple[bytes, bytes]: ...
