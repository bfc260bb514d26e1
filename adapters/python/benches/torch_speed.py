"""falchion beside torch on a GPU, in one run: the host's time of calls, training steps, and random calls of attention with their gradients.

python benches/torch_speed.py
"""

import copy
import random
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn

import falchion
import falchion.torch as ft

GPU = dict(device="cuda", dtype=torch.bfloat16)


def medians(cases, calls, turns=15):
    """Microseconds of the host per call of each case; the cases take turns."""
    times = {name: [] for name in cases}
    for call in cases.values():
        for _ in range(30):
            call()
    for _ in range(turns):
        for name, call in cases.items():
            torch.cuda.synchronize()
            begun = time.perf_counter()
            for _ in range(calls):
                call()
            times[name].append((time.perf_counter() - begun) / calls * 1e6)
    return {name: statistics.median(of) for name, of in times.items()}


def host():
    a, b, out = (torch.randn(256, 256, **GPU) for _ in range(3))
    none, nothing = torch.empty(0, 256, **GPU), torch.empty(0, 256, **GPU)
    q = torch.randn(1, 4, 128, 64, **GPU)
    o = torch.empty_like(q)
    cases = {
        "falchion.matmul(out=)": lambda: falchion.matmul(a, b.t(), out=out),
        "torch.mm(out=)": lambda: torch.mm(a, b.t(), out=out),
        "falchion.matmul of no rows": lambda: falchion.matmul(none, b.t(), out=nothing),
        "falchion.attention(out=)": lambda: falchion.attention(q, q, q, out=o),
        "scaled_dot_product_attention": lambda: F.scaled_dot_product_attention(q, q, q),
    }
    with torch.no_grad():
        for name, microseconds in medians(cases, 200).items():
            print(f"host: {name} {microseconds:.2f} us")


def step(width, depth, rows):
    """A training step of `depth` pairs of linear layers, with and without `replace_linears`."""
    layers = [layer for _ in range(depth) for layer in (nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))]
    own = nn.Sequential(*layers).to(**GPU)
    models = {"torch": own, "falchion": ft.replace_linears(copy.deepcopy(own))}
    optimizers = {name: torch.optim.SGD(model.parameters(), lr=1e-3) for name, model in models.items()}
    x = torch.randn(rows, width, **GPU)

    def run(name):
        optimizers[name].zero_grad()
        (models[name](x) - x).float().pow(2).mean().backward()
        optimizers[name].step()

    times = {name: [] for name in models}
    for turn in range(8):
        for name in models:
            torch.cuda.synchronize()
            begun = time.perf_counter()
            for _ in range(20):
                run(name)
            torch.cuda.synchronize()
            # The first turn compiles kernels.
            times[name] += [(time.perf_counter() - begun) / 20 * 1e3] if turn else []
    torchs, falchions = (statistics.median(times[name]) for name in models)
    print(f"step: {2 * depth} layers of {width} x {4 * width}, {rows} tokens: torch {torchs:.3f} ms, {falchions / torchs:.3f} of it")


def attention(count=48):
    """Results and gradients beside torch's in f64."""
    random.seed(1)
    torch.manual_seed(1)
    wrong = 0
    for i in range(count):
        d, dtype = (64, 128)[i % 2], (torch.bfloat16, torch.float16)[i // 2 % 2]
        shared = random.choice([1, 2, 4])
        heads, queries = shared * random.choice([1, 2, 4]), random.randint(1, 700)
        keys = queries if random.random() < 0.5 else random.randint(1, 700)
        causal = queries == keys and random.random() < 0.5
        tensors = [torch.randn(2, h, length, d, device="cuda").to(dtype) for h, length in ((heads, queries), (shared, keys), (shared, keys))]
        own = [x.clone().requires_grad_() for x in tensors]
        wide = [x.double().requires_grad_() for x in tensors]
        y = ft.attention(*own, causal=causal)
        k, v = (x.repeat_interleave(heads // shared, 1) for x in wide[1:])
        expected = F.scaled_dot_product_attention(wide[0], k, v, is_causal=causal)
        gradient = torch.randn_like(y)
        y.backward(gradient)
        expected.backward(gradient.double())
        pairs = [(y, expected)] + [(a.grad, b.grad) for a, b in zip(own, wide)]
        bound = 0.012 if dtype == torch.bfloat16 else 0.003
        wrong += any((a.double() - b).norm() > bound * b.norm().clamp(min=1e-3) for a, b in pairs)
    print(f"attention and its gradients: {count} random calls, {wrong} wrong")


if __name__ == "__main__":
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    host()
    step(1024, 8, 512)
    step(4096, 4, 4096)
    attention()
