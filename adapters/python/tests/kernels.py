"""Small kernels of Triton for the tests of `falchion.triton`: some right, some with a mistake."""

import triton
import triton.language as tl


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, at < n) + tl.load(y + at, at < n), at < n)


@triton.jit
def softmax(x, out, columns, stride, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * stride + at, at < columns, -float("inf"))
    weights = tl.exp(values - tl.max(values, 0))
    tl.store(out + row * stride + at, weights / tl.sum(weights, 0), at < columns)


@triton.jit
def matmul(a, b, d, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    sums = tl.zeros((BM, BN), tl.float32)
    for at in range(0, k, BK):
        inside = at + depth < k
        left = tl.load(a + rows[:, None] * k + at + depth[None, :], (rows < m)[:, None] & inside[None, :], 0.0)
        right = tl.load(b + (at + depth)[:, None] * n + columns[None, :], inside[:, None] & (columns < n)[None, :], 0.0)
        sums = tl.dot(left, right, sums)
    tl.store(d + rows[:, None] * n + columns[None, :], sums.to(d.dtype.element_ty), (rows < m)[:, None] & (columns < n)[None, :])


@triton.jit
def matmul_tensor(a, b, d, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    sums = tl.zeros((BM, BN), tl.float32)
    for at in range(0, k, BK):
        sums = tl.dot(a.load([row, at]), b.load([column, at]).T, sums)
    d.store([row, column], sums.to(tl.float16))


@triton.jit
def attention(q, k, v, out, length, scale, D: tl.constexpr, BQ: tl.constexpr, BK: tl.constexpr):
    head = tl.program_id(1) * length * D
    queries, columns = tl.program_id(0) * BQ + tl.arange(0, BQ), tl.arange(0, D)
    loaded = tl.load(q + head + queries[:, None] * D + columns[None, :])
    most, total = tl.full((BQ,), -float("inf"), tl.float32), tl.zeros((BQ,), tl.float32)
    sums = tl.zeros((BQ, D), tl.float32)
    for at in range(0, length, BK):
        keys = at + tl.arange(0, BK)
        scores = tl.dot(loaded, tl.load(k + head + keys[None, :] * D + columns[:, None])) * scale
        larger = tl.maximum(most, tl.max(scores, 1))
        weights, old = tl.exp(scores - larger[:, None]), tl.exp(most - larger)
        total = total * old + tl.sum(weights, 1)
        values = tl.load(v + head + keys[:, None] * D + columns[None, :])
        sums = tl.dot(weights.to(tl.float16), values, sums * old[:, None])
        most = larger
    tl.store(out + head + queries[:, None] * D + columns[None, :], (sums / total[:, None]).to(tl.float16))


@triton.jit
def ticket(x, parts, count, out, n, programs, BLOCK: tl.constexpr, PARTS: tl.constexpr):
    """Each program adds up a part; the last one adds up the parts, and sets the count back."""
    program = tl.program_id(0)
    at = program * BLOCK + tl.arange(0, BLOCK)
    tl.store(parts + program, tl.sum(tl.load(x + at, at < n, 0.0), 0))
    tl.debug_barrier()
    if tl.atomic_add(count, 1, sem="acq_rel") == programs - 1:
        tl.debug_barrier()
        number = tl.arange(0, PARTS)
        tl.store(out, tl.sum(tl.load(parts + number, number < programs, 0.0, volatile=True), 0))
        tl.store(count, 0)


@triton.jit
def split(a, b, d, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Each program multiplies a part of K, and adds it to d."""
    rows, columns = tl.arange(0, BM), tl.program_id(0) * BN + tl.arange(0, BN)
    depth = tl.program_id(1) * BK + tl.arange(0, BK)
    left = tl.load(a + rows[:, None] * k + depth[None, :])
    right = tl.load(b + depth[:, None] * n + columns[None, :])
    tl.atomic_add(d + rows[:, None] * n + columns[None, :], tl.dot(left, right), sem="relaxed")


@triton.jit
def neighbours(x, out, n, BLOCK: tl.constexpr):
    """Wrong: each program also writes the first element of the next one."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, at < n)
    tl.store(out + at, value, at < n)
    tl.store(out + at + 1, value, at + 1 < n)


@triton.jit
def beyond(x, out, n, BLOCK: tl.constexpr):
    """Wrong: it has no mask."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at) + n)
