#!/usr/bin/env python3
"""Draws problems of attention as real programs meet them, and times what a call takes at them in PyTorch.

    python3 benches/attention.py --draw SEED COUNT          # problems, one a line, for `falchion tune --family attention`
    python3 benches/attention.py "4x16x4096 mask=causal" …  # microseconds at each
    python3 benches/attention.py --backward "4x16x4096" …   # the same of the backward pass
    python3 benches/attention.py --file problems            # problems of a file, one a line

cuDNN is called through PyTorch; beside it falchion's default call, where its package is installed, and FlashAttention-3, where
`flash_attn_interface` is. Behind each line stands the faster rival's time over falchion's, and at the end their mean.

The same seed draws the same problems. Three families, equally likely: a prompt (as many keys as queries, causal), an encoder (no mask), and a token
of decoding (one query, many keys). Times are measured like a burst of `falchion bench`: after a rest, graph replays for some milliseconds, and the
median of several turns, in which all calls take turns. Tensors change from replay to replay, so that L2 does not keep them; they are (sequences, length, heads, elements) in
memory. Beside decoding stands the bandwidth of K and V as a part of a copy's.
"""

import random
import re
import statistics
import sys
import time

# Heads of Q and of K and V, and elements of a head, of published models; also divided among GPUs.
MODELS = [(32, 8, 128), (64, 8, 128), (8, 1, 128), (40, 8, 128), (16, 16, 128), (32, 32, 128), (16, 16, 64), (12, 12, 64), (32, 8, 64)]
# Sequences, heads of Q and of K, queries and keys.
EXTENTS = re.compile(r"(\d+)x(\d+)(?:/(\d+))?x(\d+)(?:x(\d+))?")
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


def burst(of_calls, turns=5, milliseconds=10.0):
    """Microseconds of calls by name, each of them a list of functions that take turns."""
    import torch

    graphs, counts, times = {}, {}, {name: [] for name in of_calls}
    for name, functions in of_calls.items():
        for function in functions:
            function()
        torch.cuda.synchronize()
        graphs[name] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graphs[name]):
            for function in functions:
                function()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def once(name, count):
        begin.record()
        for _ in range(count):
            graphs[name].replay()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / count

    for name in of_calls:
        once(name, 1)
        counts[name] = max(1, int(milliseconds / once(name, 1)))
    for _ in range(turns):
        for name, functions in of_calls.items():
            time.sleep(0.05)
            times[name].append(once(name, counts[name]) / len(functions) * 1e3)
    return {name: statistics.median(of) for name, of in times.items()}


def forwards(causal, shares, decodes, differentiates):
    """Calls by name, of tensors (sequences, heads, length, elements)."""
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def cudnn(q, k, v):
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            # PyTorch's first query stands at the first key. One query sees all keys.
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal and q.shape[2] > 1, enable_gqa=shares)

    calls = {"cuDNN": cudnn}
    try:
        import falchion
        import falchion.torch

        attention = falchion.torch.attention if differentiates else falchion.attention
        calls["falchion"] = lambda q, k, v: attention(q, k, v, causal=causal)
    except ImportError:
        pass
    try:
        import flash_attn_interface as flash

        def flash_attention(q, k, v):
            q, k, v = (of.transpose(1, 2) for of in (q, k, v))
            if decodes:
                return flash.flash_attn_with_kvcache(q, k, v, causal=causal)
            return flash.flash_attn_func(q, k, v, causal=causal)

        calls["FlashAttention-3"] = flash_attention
    except ImportError:
        pass
    return calls


def timed(problem, backward):
    """Microseconds of each call, and the rate of `microseconds`."""
    import torch

    found = EXTENTS.match(problem)
    batch, heads, shared, queries, keys = (int(text) if text else None for text in found.groups())
    shared, keys = shared or heads, keys or queries
    found = re.search(r"\bd=(\d+)(?:x(\d+))?", problem)
    d = int(found[1]) if found else 128
    dv = int(found[2] or d) if found else d
    causal = "mask=causal" in problem

    def normal(heads, length, d=d):
        return torch.randn(batch, length, heads, d, device="cuda", dtype=torch.bfloat16).transpose(1, 2)

    of_set = 2 * batch * (d + dv) * (heads * queries + shared * keys)
    sets = [(normal(heads, queries), normal(shared, keys), normal(shared, keys, dv)) for _ in range(min(8, 1 + ROTATED_BYTES // of_set))]
    calls = forwards(causal, heads != shared, queries != keys, backward)
    if causal and 1 < queries < keys:
        calls.pop("cuDNN")
    times = {}
    if backward:
        # Graphs are replayed on the stream of the forward pass, where autograd runs the backward one.
        with torch.cuda.stream(torch.cuda.Stream()):
            of_sets = [[of.requires_grad_() for of in each] for each in sets]
            gradients = {}
            for name, call in calls.items():
                try:
                    outputs = [call(*each) for each in of_sets]
                    given = torch.randn_like(outputs[0])
                    gradient = lambda o, each, given=given: torch.autograd.grad(o, each, given, retain_graph=True)
                    gradients[name] = [lambda o=o, each=each, gradient=gradient: gradient(o, each) for o, each in zip(outputs, of_sets)]
                except RuntimeError as error:
                    print(f"{name} at {problem}: {str(error)[:80]!r}")
            times = burst(gradients)
        operations = 2 * batch * heads * queries * keys * (3 * d + 2 * dv)
    else:
        with torch.no_grad():
            possible = {}
            for name, call in calls.items():
                try:
                    call(*sets[0])
                    possible[name] = [lambda of=of, call=call: call(*of) for of in sets]
                except RuntimeError as error:
                    print(f"{name} at {problem}: {str(error)[:80]!r}")
            times = burst(possible)
        operations = 2 * batch * heads * queries * keys * (d + dv)
    if queries == 1 and not backward:
        return times, lambda microseconds: f"{2 * batch * shared * keys * (d + dv) / microseconds / 1e6:.2f} TB/s"
    return times, lambda microseconds: f"{(0.5 if causal else 1.0) * operations / microseconds / 1e6:.0f} TFLOP/s"


def main():
    arguments = sys.argv[1:]
    if len(arguments) == 3 and arguments[0] == "--draw":
        print("\n".join(drawn(int(arguments[1]), int(arguments[2]))))
        return
    backward = "--backward" in arguments
    problems = [text for text in arguments if text != "--backward"]
    if "--file" in problems:
        at = problems.index("--file")
        if at + 1 == len(problems):
            sys.exit("--file: the path of a file of problems was needed")
        try:
            with open(problems[at + 1]) as file:
                problems[at : at + 2] = [line.strip() for line in file if line.strip()]
        except OSError as error:
            sys.exit(f"--file {problems[at + 1]}: {error.strerror}")
    for problem in problems:
        if not EXTENTS.match(problem):
            sys.exit(f"{problem!r}: sequences x heads x queries x keys were needed, as 4x16/4x4096x4096")
    import torch

    print(torch.cuda.get_device_name(), "torch", torch.__version__, "cuDNN", torch.backends.cudnn.version())
    source, target = (torch.empty(1 << 30, device="cuda", dtype=torch.uint8) for _ in range(2))
    copied = burst({"copy": [lambda: target.copy_(source)]})["copy"]
    print(f"copy: {2 * (1 << 30) / copied / 1e6:.2f} TB/s read and written")
    ratios = []
    for problem in problems:
        try:
            times, rate = timed(problem, backward)
        except RuntimeError as error:
            print(f"{problem}\t{str(error)[:80]!r}", flush=True)
            continue
        line = [problem, *(f"{name} {of:.1f} us {rate(of)}" for name, of in times.items())]
        rivals = [of for name, of in times.items() if name != "falchion"]
        if "falchion" in times and rivals:
            ratios.append(min(rivals) / times["falchion"])
            line.append(f"{ratios[-1]:.3f}")
        print("\t".join(line), flush=True)
    if ratios:
        print(f"falchion: {statistics.geometric_mean(ratios):.3f} in the mean of {len(ratios)}, {min(ratios):.3f} the least")


main()
