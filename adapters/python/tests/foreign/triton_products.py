"""Products in Triton: each with another way to fetch its operands, to share the work, or to write the result."""

import triton
import triton.language as tl


@triton.jit
def made(a, b, d, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """The kernel makes its tensor maps itself, in memory of its own."""
    a = tl.make_tensor_descriptor(a, shape=[m, k], strides=[k, 1], block_shape=[BM, BK])
    b = tl.make_tensor_descriptor(b, shape=[n, k], strides=[k, 1], block_shape=[BN, BK])
    d = tl.make_tensor_descriptor(d, shape=[m, n], strides=[n, 1], block_shape=[BM, BN])
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    sums = tl.zeros((BM, BN), tl.float32)
    for at in range(0, k, BK):
        sums = tl.dot(a.load([row, at]), b.load([column, at]).T, sums)
    d.store([row, column], sums.to(tl.float16))


@triton.jit
def specialised(a, b, d, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Some warps load, others multiply."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    sums = tl.zeros((BM, BN), tl.float32)
    for at in tl.range(0, k, BK, warp_specialize=True):
        sums = tl.dot(a.load([row, at]), b.load([column, at]).T, sums)
    d.store([row, column], sums.to(tl.float16))


@triton.jit
def persistent(a, b, d, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Each program makes every so-many-th tile."""
    wide = tl.cdiv(n, BN)
    tiles = tl.cdiv(m, BM) * wide
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True):
        row, column = tile // wide * BM, tile % wide * BN
        sums = tl.zeros((BM, BN), tl.float32)
        for at in range(0, k, BK):
            sums = tl.dot(a.load([row, at]), b.load([column, at]).T, sums)
        d.store([row, column], sums.to(tl.float16))


@triton.jit
def persistent_specialised(a, b, d, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Each program makes every so-many-th tile; some warps load, others multiply."""
    wide = tl.cdiv(n, BN)
    tiles = tl.cdiv(m, BM) * wide
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), warp_specialize=True):
        row, column = tile // wide * BM, tile % wide * BN
        sums = tl.zeros((BM, BN), tl.float32)
        for at in range(0, k, BK):
            sums = tl.dot(a.load([row, at]), b.load([column, at]).T, sums)
        d.store([row, column], sums.to(tl.float16))


@triton.jit
def grouped(a, b, d, firsts, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """A product for each group of rows, with a B of its own. Groups have any number of rows."""
    group = tl.program_id(1)
    first, last = tl.load(firsts + group), tl.load(firsts + group + 1)
    columns, depth = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BK)
    for row in range(first, last, BM):
        rows = row + tl.arange(0, BM)
        sums = tl.zeros((BM, BN), tl.float32)
        for at in range(0, k, BK):
            left = tl.load(a + rows[:, None] * k + at + depth[None, :], (rows < last)[:, None], 0.0)
            right = tl.load(b + group * k * n + (at + depth)[:, None] * n + columns[None, :], (columns < n)[None, :], 0.0)
            sums = tl.dot(left, right, sums)
        tl.store(d + rows[:, None] * n + columns[None, :], sums, (rows < last)[:, None] & (columns < n)[None, :])


@triton.jit
def streamed(a, b, d, parts, flags, n, k, share, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Stream-K of one row of tiles: programs have equal shares of all steps along K. Who begins inside of a tile leaves its sums, and a flag, for the
    program that has the tile's first step."""
    program = tl.program_id(0)
    steps = k // BK
    step, end = program * share, tl.minimum((program + 1) * share, steps * (n // BN))
    rows, depth = tl.arange(0, BM), tl.arange(0, BK)
    while step < end:
        tile, at = step // steps, step % steps
        last = tl.minimum(end, (tile + 1) * steps)
        columns = tile * BN + tl.arange(0, BN)
        sums = tl.zeros((BM, BN), tl.float32)
        for now in range(at, at + last - step):
            left = tl.load(a + rows[:, None] * k + now * BK + depth[None, :])
            sums = tl.dot(left, tl.load(b + (now * BK + depth)[:, None] * n + columns[None, :]), sums)
        if at > 0:
            tl.store(parts + program * BM * BN + rows[:, None] * BN + tl.arange(0, BN)[None, :], sums, cache_modifier=".wt")
            tl.debug_barrier()
            tl.atomic_xchg(flags + program, 1, sem="release")
        else:
            other = program + 1
            while last < (tile + 1) * steps:
                while tl.atomic_cas(flags + other, 1, 0, sem="acquire") != 1:
                    pass
                tl.debug_barrier()
                sums += tl.load(parts + other * BM * BN + rows[:, None] * BN + tl.arange(0, BN)[None, :], cache_modifier=".cv")
                last += share
                other += 1
            tl.store(d + rows[:, None] * n + columns[None, :], sums)
        step = (tile + 1) * steps


@triton.jit
def attention_tensor(q, k, v, out, length, scale, D: tl.constexpr, BQ: tl.constexpr, BK: tl.constexpr, SPECIALISED: tl.constexpr):
    """Causal attention of heads that lie one below the other, by tensor copies."""
    head, first = tl.program_id(1) * length, tl.program_id(0) * BQ
    loaded = q.load([head + first, 0])
    queries = first + tl.arange(0, BQ)
    most, total = tl.full((BQ,), -float("inf"), tl.float32), tl.zeros((BQ,), tl.float32)
    sums = tl.zeros((BQ, D), tl.float32)
    for at in tl.range(0, first + BQ, BK, warp_specialize=SPECIALISED):
        scores = tl.dot(loaded, k.load([head + at, 0]).T) * scale
        scores = tl.where(queries[:, None] >= (at + tl.arange(0, BK))[None, :], scores, -float("inf"))
        larger = tl.maximum(most, tl.max(scores, 1))
        weights, old = tl.exp2(scores - larger[:, None]), tl.exp2(most - larger)
        total = total * old + tl.sum(weights, 1)
        sums = tl.dot(weights.to(tl.float16), v.load([head + at, 0]), sums * old[:, None])
        most = larger
    out.store([head + first, 0], (sums / total[:, None]).to(tl.float16))
