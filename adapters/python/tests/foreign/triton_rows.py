"""Kernels in Triton that are no products: rows, scans, counts, and sums over all programs."""

import triton
import triton.language as tl


@triton.jit
def layer_norm(x, weight, bias, out, mean, scale, columns, epsilon, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + at, at < columns, 0.0).to(tl.float32)
    centre = tl.sum(values, 0) / columns
    values = tl.where(at < columns, values - centre, 0.0)
    by = 1 / tl.sqrt(tl.sum(values * values, 0) / columns + epsilon)
    tl.store(mean + row, centre)
    tl.store(scale + row, by)
    tl.store(out + row * columns + at, values * by * tl.load(weight + at, at < columns) + tl.load(bias + at, at < columns), at < columns)


@triton.jit
def layer_norm_backward(d_out, x, mean, scale, sums, counts, locks, rows, columns, GROUPS: tl.constexpr, BLOCK: tl.constexpr):
    """Sums of the weights' gradients: programs of a group add up in the same row of sums, one after the other, under a lock."""
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    inside = at < columns
    group = row % GROUPS
    normal = (tl.load(x + row * columns + at, inside, 0.0) - tl.load(mean + row)) * tl.load(scale + row)
    part = tl.load(d_out + row * columns + at, inside, 0.0) * normal
    while tl.atomic_cas(locks + group, 0, 1) == 1:
        pass
    count = tl.load(counts + group)
    if count == 0:
        tl.atomic_xchg(counts + group, 1)
    else:
        part += tl.load(sums + group * columns + at, inside, 0.0)
    tl.store(sums + group * columns + at, part, inside)
    tl.debug_barrier()
    tl.atomic_xchg(locks + group, 0)


@triton.jit
def rms_norm(x, weight, out, columns, epsilon, BLOCK: tl.constexpr):
    """Rows that are longer than a block."""
    row = tl.program_id(0) * columns
    squares = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, columns, BLOCK):
        at = first + tl.arange(0, BLOCK)
        values = tl.load(x + row + at, at < columns, 0.0).to(tl.float32)
        squares += values * values
    by = tl.rsqrt(tl.sum(squares, 0) / columns + epsilon)
    for first in range(0, columns, BLOCK):
        at = first + tl.arange(0, BLOCK)
        values = tl.load(x + row + at, at < columns, 0.0).to(tl.float32)
        tl.store(out + row + at, (values * by * tl.load(weight + at, at < columns)).to(tl.float16), at < columns)


@triton.jit
def histogram(x, counts, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    held = tl.histogram(tl.load(x + at, at < n, 0), BINS, mask=at < n)
    tl.atomic_add(counts + tl.arange(0, BINS), held, sem="relaxed")


@triton.jit
def _after(left_factor, left, right_factor, right):
    return left_factor * right_factor, right_factor * left + right


@triton.jit
def scan(factors, x, sums, out, columns, BLOCK: tl.constexpr):
    """Running sums, and the recurrence h = factor * h + x, of each row."""
    row, at = tl.program_id(0) * columns, tl.arange(0, BLOCK)
    values = tl.load(x + row + at, at < columns, 0.0)
    tl.store(sums + row + at, tl.cumsum(values, 0), at < columns)
    factor = tl.load(factors + row + at, at < columns, 1.0)
    _, states = tl.associative_scan((factor, values), 0, _after)
    tl.store(out + row + at, states, at < columns)


@triton.jit
def looked_back(x, parts, states, out, n, BLOCK: tl.constexpr):
    """A running sum over all programs: each waits for what the one before it says of all before. The state of the last launch is another number."""
    program = tl.program_id(0)
    at = program * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at, at < n, 0)
    before = 0
    if program > 0:
        while tl.atomic_add(states + program - 1, 0, sem="acquire") == 0:
            pass
        tl.debug_barrier()
        before = tl.load(parts + program - 1, volatile=True)
    tl.store(out + at, before + tl.cumsum(values, 0), at < n)
    tl.store(parts + program, before + tl.sum(values, 0))
    tl.debug_barrier()
    tl.atomic_xchg(states + program, 1, sem="release")


@triton.jit
def sort(x, out, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0) * columns, tl.arange(0, BLOCK)
    values = tl.load(x + row + at, at < columns, float("inf"))
    tl.store(out + row + at, tl.sort(values, 0), at < columns)


@triton.jit
def transpose(x, out, rows, columns, BR: tl.constexpr, BC: tl.constexpr):
    row, column = tl.program_id(0) * BR + tl.arange(0, BR), tl.program_id(1) * BC + tl.arange(0, BC)
    tile = tl.load(x + row[:, None] * columns + column[None, :], (row < rows)[:, None] & (column < columns)[None, :])
    tl.store(out + column[:, None] * rows + row[None, :], tile.T, (column < columns)[:, None] & (row < rows)[None, :])


@triton.jit
def cross_entropy(logits, labels, loss, gradient, columns, BLOCK: tl.constexpr):
    """The loss of each row, and its gradient, in two passes over rows that are longer than a block."""
    row = tl.program_id(0) * columns
    most, total = -float("inf"), 0.0
    for first in range(0, columns, BLOCK):
        at = first + tl.arange(0, BLOCK)
        values = tl.load(logits + row + at, at < columns, -float("inf")).to(tl.float32)
        larger = tl.maximum(most, tl.max(values, 0))
        total = total * tl.exp(most - larger) + tl.sum(tl.exp(values - larger), 0)
        most = larger
    label = tl.load(labels + tl.program_id(0))
    tl.store(loss + tl.program_id(0), tl.log(total) + most - tl.load(logits + row + label).to(tl.float32))
    for first in range(0, columns, BLOCK):
        at = first + tl.arange(0, BLOCK)
        values = tl.load(logits + row + at, at < columns, -float("inf")).to(tl.float32)
        tl.store(gradient + row + at, tl.exp(values - most) / total - (at == label), at < columns)
