"""Times tensor-parallel layers as PyTorch has them: a collective and a product, and the operator that overlaps them.

torchrun --nproc-per-node N torch_layers.py NAME:COLUMN:N:K,... TOKENS,...
One line of JSON per layer and number of tokens: microseconds in bf16, medians over turns; the slowest rank counts.
"""
import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
group, device = dist.group.WORLD.group_name, f"cuda:{rank}"
try:
    symm.enable_symm_mem_for_group(group)
except Exception as error:
    print("symmetric memory:", error, file=sys.stderr)


def timed(work):
    """Microseconds of the slowest rank, in bursts of some 20 ms after a rest."""

    def turn(count):
        torch.cuda.synchronize(); dist.barrier(); torch.cuda.synchronize(); time.sleep(0.03)
        work()
        torch.cuda.synchronize(); dist.barrier(); torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(count):
            work()
        torch.cuda.synchronize()
        return (time.perf_counter() - began) * 1e6 / count

    first = torch.tensor([turn(3)], device=device)
    dist.all_reduce(first, op=dist.ReduceOp.MAX)
    count = min(max(int(20_000 / first.item()), 4), 200)
    took = torch.tensor([statistics.median(turn(count) for _ in range(3))], device=device)
    dist.all_reduce(took, op=dist.ReduceOp.MAX)
    return took.item()


def random(*extents):
    return torch.rand(*extents, device=device, dtype=torch.bfloat16) * 2 - 1


for layer in sys.argv[1].split(","):
    name, column, n, k = layer.split(":")
    column, n, k = column == "1", int(n), int(k)
    weight = random(n // world, k) if column else random(n, k // world)
    for tokens in map(int, sys.argv[2].split(",")):
        own = tokens // world
        if column:
            x = symm.empty(own, k, dtype=torch.bfloat16, device=device)
            x.copy_(random(own, k))
            symm.rendezvous(x, group)
            whole, d = random(tokens, k), random(tokens, n // world)

            def sequence():
                dist.all_gather_into_tensor(whole, x)
                torch.matmul(whole, weight.t(), out=d)

            def operator():
                torch.ops.symm_mem.fused_all_gather_matmul(x, [weight.t()], 0, group)
        else:
            x, whole, d = random(tokens, k // world), random(tokens, n), random(own, n)

            def sequence():
                torch.matmul(x, weight.t(), out=whole)
                dist.reduce_scatter_tensor(d, whole)

            def operator():
                torch.ops.symm_mem.fused_matmul_reduce_scatter(x, weight.t(), "sum", 0, group)

        times = {"layer": name, "tokens": tokens, "sequence": timed(sequence)}
        try:
            times["overlapped"] = timed(operator)
        except Exception as error:
            print(name, tokens, str(error)[:200], file=sys.stderr)
        if rank == 0:
            print(json.dumps(times), flush=True)
dist.destroy_process_group()
