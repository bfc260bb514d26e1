#!/usr/bin/env python3
"""Times PyTorch's grouped GEMMs at the shapes of a record of `falchion tune --rows ... --jsonl FILE`.

    python3 benches/pytorch_groups.py groups.jsonl

It calls `torch._grouped_mm` for bf16, and `torch._scaled_grouped_mm` for 8-bit floats, with one scale per row and column. Times are
in microseconds per call, of calls in a CUDA graph; the median of several replays. Run it on the GPU on which the record was made,
and divide the times.
"""

import json
import statistics
import sys

import torch


def timed(function, operations):
    """The time of a call in microseconds."""
    function()
    torch.cuda.synchronize()
    count = max(4, min(100, int(4e12 / operations)))
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            function()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            function()
    times = []
    for turn in range(9):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        if turn > 1:  # the first two warm up
            times.append(begin.elapsed_time(end) * 1e3 / count)
    return statistics.median(times)


def call(line):
    """The grouped GEMM of a line of the record, on random numbers."""
    rows, n, k = torch.tensor(line["rows"]), line["n"], line["k"]
    ends = torch.cumsum(rows, 0).to(torch.int32).cuda()
    m, experts = int(rows.sum()), len(rows)

    def normal(*extents):
        return torch.randn(*extents, device="cuda", dtype=torch.bfloat16)

    if line["dtype"] == "bf16":
        a, b = normal(m, k), normal(experts, n, k)
        return lambda: torch._grouped_mm(a, b.transpose(-2, -1), offs=ends)
    a = normal(m, k).to(torch.float8_e4m3fn)
    b = torch.stack([normal(n, k).to(torch.float8_e4m3fn) for _ in range(experts)])
    of_rows, of_columns = torch.rand(m, device="cuda"), torch.rand(experts, n, device="cuda")
    return lambda: torch._scaled_grouped_mm(
        a, b.transpose(-2, -1), of_rows, of_columns, offs=ends, out_dtype=torch.bfloat16, use_fast_accum=True
    )


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with open(sys.argv[1]) as file:
        lines = [json.loads(line) for line in file]
    for line in (line for line in lines if line["rows"]):
        operations = 2.0 * sum(line["rows"]) * line["n"] * line["k"]
        microseconds = timed(call(line), operations)
        shape = f"{len(line['rows'])} groups, {line['m']} x {line['n']} x {line['k']} {line['dtype']}"
        print(f"{shape:50} {microseconds:10.1f} us {operations / microseconds / 1e6:8.1f} TFLOP/s", flush=True)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
