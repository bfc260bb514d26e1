#!/usr/bin/env python3
"""Draws problems of attention as real programs meet them, and times cuDNN at them through PyTorch.

    python3 benches/attention.py --draw SEED COUNT          # problems, one a line, for `falchion tune --family attention`
    python3 benches/attention.py "4x16x4096 mask=causal" …  # cuDNN's microseconds at each
    python3 benches/attention.py --backward "4x16x4096" …   # the same of the backward pass

The same seed gives the same problems. Three families, equally likely: a prompt (as many keys as queries, causal), an encoder (no mask), and a token
of decoding (one query, many keys). Times are measured like a burst of `falchion bench`: after a rest, graph replays for some milliseconds, and the
median of several turns. Tensors change from replay to replay, so that L2 does not keep them. Beside decoding stands the bandwidth of K and V as a part
of a copy's.
"""

import random
import re
import statistics
import sys
import time

# Heads of Q and of K and V, and elements of a head, of published models; also divided among GPUs.
MODELS = [(32, 8, 128), (64, 8, 128), (8, 1, 128), (40, 8, 128), (16, 16, 128), (32, 32, 128), (16, 16, 64), (12, 12, 64), (32, 8, 64)]
# More than the L2 cache of a Hopper GPU.
ROTATED_BYTES = 128 << 20


def drawn(seed, count):
    r, seen = random.Random(seed), {}
    while len(seen) < count:
        (heads, shared, d), family = r.choice(MODELS), r.choice(["prompt", "encoder", "decode"])
        length = r.choice([256, 512, 768, 1024, 1500, 2048, 3000, 4096, 8192, 16384])
        batch = r.choice([1, 1, 2, 4, 8, 16, 32, 64])
        if family == "decode":
            batch, length = r.choice([1, 2, 4, 8, 16, 32, 64, 128]), r.choice([1024, 2048, 4096, 8192, 16384, 32768])
            if not 1e6 < batch * shared * length * d < 1e9:
                continue
        elif not 2e9 < batch * heads * length * length * d < 5e12 or batch * heads * length * d > 4e8:
            continue
        queries = 1 if family == "decode" else length
        mask = " mask=causal" if family == "prompt" else ""
        seen[f"{batch}x{heads}/{shared}x{queries}x{length}{'' if d == 128 else f' d={d}'}{mask}"] = None
    return list(seen)


def burst(functions, turns=5, milliseconds=10.0):
    """Microseconds of a function, which take turns."""
    import torch

    for function in functions:
        function()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for function in functions:
            function()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def once(count):
        begin.record()
        for _ in range(count):
            graph.replay()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / count

    once(1)
    count, times = max(1, int(milliseconds / once(1))), []
    for _ in range(turns):
        time.sleep(0.05)
        times.append(once(count) / len(functions) * 1e3)
    return statistics.median(times)


def timed(problem, backward):
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel

    found = re.match(r"(\d+)x(\d+)(?:/(\d+))?x(\d+)(?:x(\d+))?", problem)
    batch, heads, shared, queries, keys = (int(text) if text else None for text in found.groups())
    shared, keys = shared or heads, keys or queries
    found = re.search(r"\bd=(\d+)(?:x(\d+))?", problem)
    d = int(found[1]) if found else 128
    dv = int(found[2] or d) if found else d
    causal = "mask=causal" in problem

    def normal(heads, length, d=d):
        return torch.randn(batch, heads, length, d, device="cuda", dtype=torch.bfloat16)

    of_set = 2 * batch * (d + dv) * (heads * queries + shared * keys)
    sets = [(normal(heads, queries), normal(shared, keys), normal(shared, keys, dv)) for _ in range(min(8, 1 + ROTATED_BYTES // of_set))]
    call = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=heads != shared)
    part = 0.5 if causal else 1.0
    if backward:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            # Graphs are replayed on the stream of the forward pass, where autograd runs the backward one.
            with torch.cuda.stream(torch.cuda.Stream()):
                of_sets = [[of.requires_grad_() for of in each] for each in sets]
                outputs = [call(*each) for each in of_sets]
                gradients = torch.randn_like(outputs[0])
                gradient = lambda o, each: torch.autograd.grad(o, each, gradients, retain_graph=True)
                microseconds = burst([lambda o=o, each=each: gradient(o, each) for o, each in zip(outputs, of_sets)])
        return microseconds, f"{part * 2 * batch * heads * queries * keys * (3 * d + 2 * dv) / microseconds / 1e6:.0f} TFLOP/s"
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION), torch.no_grad():
        microseconds = burst([lambda of=of: call(*of) for of in sets])
    if queries == 1:
        return microseconds, f"{2 * batch * shared * keys * (d + dv) / microseconds / 1e6:.2f} TB/s"
    return microseconds, f"{part * 2 * batch * heads * queries * keys * (d + dv) / microseconds / 1e6:.0f} TFLOP/s"


def main():
    if len(sys.argv) == 4 and sys.argv[1] == "--draw":
        print("\n".join(drawn(int(sys.argv[2]), int(sys.argv[3]))))
        return
    backward = "--backward" in sys.argv
    import torch

    print(torch.cuda.get_device_name(), "torch", torch.__version__, "cuDNN", torch.backends.cudnn.version())
    source, target = (torch.empty(1 << 30, device="cuda", dtype=torch.uint8) for _ in range(2))
    print(f"copy: {2 * (1 << 30) / burst([lambda: target.copy_(source)]) / 1e6:.2f} TB/s read and written")
    for problem in (text for text in sys.argv[1:] if text != "--backward"):
        try:
            microseconds, rate = timed(problem, backward)
            print(f"{problem}\t{microseconds:.1f}\t{rate}", flush=True)
        except RuntimeError as error:
            print(f"{problem}\t{str(error)[:80]!r}", flush=True)


main()
