#!/usr/bin/env python3
"""mHC and the Engram gate as others compute them, beside bench/cuda_bench.

  cuda_peers.py [NAME]     runs the cases whose names contain NAME

Two peers on the GPU at hand: the formulas in PyTorch, compiled by
torch.compile, and tile-kernels (PyPI), where it is installed. As in cuda_bench,
a call is timed in a CUDA graph over several sets of random buffers that exceed
the L2, the median of 25 replays is reported, and its bytes (inputs once,
outputs once) are held against a copy on the same GPU. Streams are bf16.
"""
import statistics
import sys

import torch

HIDDEN, STREAMS, OUTPUTS = 5120, 4, 24
NORM_EPS, HC_EPS, ITERATIONS = 1e-20, 1e-6, 20
GB = 1e-9


def random(*shape, dtype=torch.bfloat16, scale=1.0):
    values = torch.rand(*shape, device="cuda", dtype=torch.float32) * 2 - 1
    return (values * scale).to(dtype)


def seconds(calls):
    """The median time of one of `calls`, replayed as one graph."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(2):
            for call in calls:
                call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    times = []
    for _ in range(25):
        begin = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e-3 / len(calls))
    return statistics.median(times)


def measured_copy():
    source = random(1 << 30, dtype=torch.float32)
    target = torch.empty_like(source)
    rate = 2 * source.nbytes / seconds([lambda: target.copy_(source)])
    print(f"copy of 4 GiB: {rate * GB:.0f} GB/s, read and written")
    return rate


# The formulas: docs/architecture.md.


def sinkhorn(logits):
    comb = torch.softmax(logits, -1) + HC_EPS
    comb = comb / (comb.sum(-2, keepdim=True) + HC_EPS)
    for _ in range(ITERATIONS - 1):
        comb = comb / (comb.sum(-1, keepdim=True) + HC_EPS)
        comb = comb / (comb.sum(-2, keepdim=True) + HC_EPS)
    return comb


def split(h, fn, scale, base, collapse_pre, norm):
    z = h.float().flatten(1)
    m = z @ fn.T * torch.rsqrt(z.square().mean(-1, keepdim=True) + NORM_EPS)
    pre = torch.sigmoid(m[:, :4] * scale[0] + base[:4]) + HC_EPS
    post = 2 * torch.sigmoid(m[:, 4:8] * scale[1] + base[4:8])
    comb = sinkhorn((m[:, 8:] * scale[2] + base[8:]).unflatten(1, (4, 4)))
    x = (collapse_pre.unsqueeze(-1) * h.float()).sum(1).bfloat16().float()
    x = norm * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + NORM_EPS)
    return pre, post, comb, x.bfloat16()


def expand(y, h, post, comb):
    out = post.unsqueeze(-1) * y.float().unsqueeze(1)
    out = out + (comb.unsqueeze(-1) * h.float().unsqueeze(2)).sum(1)
    return out.bfloat16()


def gate(kv, weight, h):
    x, k, v = h.float(), kv[:, :STREAMS].float(), kv[:, STREAMS:].float()
    dot = (x * weight * k).sum(-1)
    dot = dot * torch.rsqrt(x.square().mean(-1) + NORM_EPS)
    dot = dot * torch.rsqrt(k.square().mean(-1) + NORM_EPS) * HIDDEN**-0.5
    root = dot.abs().clamp_min(1e-6).sqrt()
    opened = torch.sigmoid(torch.copysign(root, dot))
    return (x + opened.unsqueeze(-1) * v).bfloat16()


class Site:
    """Streams of one chunk and what a site needs."""

    def __init__(self, tokens):
        coefficients = torch.float32
        self.h = random(tokens, STREAMS, HIDDEN)
        self.y = random(tokens, HIDDEN)
        self.kv = random(tokens, STREAMS + 1, HIDDEN)
        self.fn = random(OUTPUTS, STREAMS * HIDDEN, dtype=coefficients)
        self.scale = random(3, dtype=coefficients)
        self.base = random(OUTPUTS, dtype=coefficients)
        self.norm = random(HIDDEN, dtype=coefficients)
        self.pre = random(tokens, STREAMS, dtype=coefficients)
        self.post = random(tokens, STREAMS, dtype=coefficients)
        self.comb = random(tokens, STREAMS, STREAMS, dtype=coefficients)
        self.weight = random(STREAMS, HIDDEN, dtype=coefficients)

    def splits(self, f):
        return lambda: f(self.h, self.fn, self.scale, self.base, self.pre,
                         self.norm)

    def expands(self, f):
        return lambda: f(self.y, self.h, self.post, self.comb)

    def gates(self, f):
        return lambda: f(self.kv, self.weight, self.h)


def tile_kernels():
    """Expand and gate of tile-kernels, or why there are none. Its split has
    the projection in another library, and no collapse by a given pre."""
    try:
        from tile_kernels.engram import engram_gate_fwd
        from tile_kernels.mhc import mhc_post_fwd
    except Exception as error:  # whatever its packages run into
        return None, f"{type(error).__name__}: {error}"

    def post(y, h, post_mix, comb):
        return mhc_post_fwd(y.unsqueeze(0), h.unsqueeze(0),
                            post_mix.unsqueeze(0).unsqueeze(-1),
                            comb.unsqueeze(0))

    def gated(kv, weight, h):
        return engram_gate_fwd(h, kv, weight, NORM_EPS, 1e-6,
                               save_for_backward=False)[0]

    return {"hc_expand": post, "engram_gate": gated}, ""


def main(wanted):
    print(torch.cuda.get_device_name(), "PyTorch", torch.__version__)
    rate = measured_copy()
    row = HIDDEN * 2
    fn = OUTPUTS * STREAMS * HIDDEN * 4
    cases = {
        "hc_split": (split, Site.splits, (STREAMS + 1) * row, fn),
        "hc_expand": (expand, Site.expands, (2 * STREAMS + 1) * row, 0),
        "engram_gate": (gate, Site.gates, (3 * STREAMS + 1) * row, 0),
    }
    others, why = tile_kernels()
    if others is None:
        print("tile-kernels does not run here:", why)
    for tokens in (1, 4096):
        sites = [Site(tokens) for _ in range(200 if tokens == 1 else 3)]
        for name, (formula, bind, token_bytes, once) in cases.items():
            peers = {"torch.compile": torch.compile(formula, dynamic=False)}
            if others is not None and name in others:
                peers["tile-kernels"] = others[name]
            for peer, run in peers.items():
                case = f"{peer} {name}/{tokens}"
                if wanted not in case:
                    continue
                try:
                    took = seconds([bind(site, run) for site in sites])
                except Exception as error:
                    print(f"{case:<36} failed: {type(error).__name__}: "
                          f"{str(error)[:300]}")
                    continue
                moved = token_bytes * tokens + once
                print(f"{case:<36} {took * 1e6:10.2f} us "
                      f"{moved / took * GB:9.0f} GB/s "
                      f"{moved / took / rate:6.2f} of copy", flush=True)
        del sites


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
