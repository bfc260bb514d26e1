#!/usr/bin/env python3
"""Times PyTorch's linear layer with GELU as three calls, in bf16: matmul, add of the bias, gelu (tanh approximation).

    python3 benches/pytorch_unfused.py 8192x8192x8192 4096x4096x512

Shapes are M x N x K as in `falchion bench --shape`: A is M x K, the weight is N x K as in `torch.nn.Linear`. Times are in
microseconds, measured like a burst of `falchion bench`: after a rest, rounds for some milliseconds, and the median of
several turns. The matrices change from round to round, so that L2 does not keep them. Run it on the GPU on which
`falchion bench --epilogue bias-gelu --burst-only` has just run, and divide the times.
"""

import argparse
import statistics
import sys
import time

import torch
import torch.nn.functional as F

# More than the L2 cache of a Hopper GPU.
ROTATED_BYTES = 256 << 20


def shape(text):
    extents = [int(extent) for extent in text.lower().split("x")]
    if len(extents) != 3 or min(extents) < 1:
        raise argparse.ArgumentTypeError(f"{text} is no shape, MxNxK was needed")
    return extents


def sets_of(m, n, k):
    """Enough sets of matrices that L2 does not hold them all."""
    count = min(16, max(2, -(-ROTATED_BYTES // (2 * (m * k + n * k + m * n)))))

    def normal(*extents):
        return torch.randn(*extents, device="cuda", dtype=torch.bfloat16)

    return [(normal(m, k), normal(n, k), normal(n)) for _ in range(count)]


def matmul(a, weight, bias):
    return torch.matmul(a, weight.t())


def unfused(a, weight, bias):
    product = torch.matmul(a, weight.t())
    biased = product + bias
    return F.gelu(biased, approximate="tanh")


def rounds(function, sets, count):
    """Microseconds per round, over `count` consecutive rounds."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for i in range(count):
        function(*sets[i % len(sets)])
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3 / count


def burst(function, sets, options):
    """Microseconds per round: the median over turns, each after a rest."""
    rounds(function, sets, 2 * len(sets))
    estimate = rounds(function, sets, len(sets))
    count = max(len(sets), round(options.burst * 1e6 / estimate))
    times = []
    for _ in range(options.turns):
        time.sleep(options.rest)
        times.append(rounds(function, sets, count))
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="+", type=shape, metavar="MxNxK")
    parser.add_argument("--turns", type=int, default=7, help="turns of each measurement, the median counts")
    parser.add_argument("--rest", type=float, default=0.12, help="seconds of rest before a turn")
    parser.add_argument("--burst", type=float, default=0.01, help="seconds of a turn")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("no GPU that PyTorch can use")
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, bf16, burst, us")
    print(f"{'M x N x K':>24} {'matmul':>10} {'+ bias, gelu':>13} {'of all, matmul':>15}")
    with torch.inference_mode():
        for m, n, k in options.shapes:
            sets = sets_of(m, n, k)
            plain, all_three = (burst(function, sets, options) for function in (matmul, unfused))
            name = f"{m} x {n} x {k}"
            print(f"{name:>24} {plain:10.1f} {all_three:13.1f} {plain / all_three:15.3f}")
            del sets


if __name__ == "__main__":
    main()
