"""Holds this forward pass to golden models of the architecture. usage: test_golden.py [DIR]  (or ECPHORY_GOLDEN=DIR)

DIR holds the folders A, B and C; the default is tests/golden/v41 of the repository."""
import json
import os
import sys

import numpy as np
import torch
from safetensors.torch import load_file

import model
import weights

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "golden", "v41"))


def check_facts(directory, tables):
    with open(os.path.join(directory, "engram.json")) as f:
        facts = json.load(f)
    for key in ("primes", "offsets", "rows", "multipliers"):
        assert getattr(tables, key) == facts[key], f"{directory}: {key}"
    assert tables.pad == facts["pad_compressed_id"]


def check_trace(directory, trace):
    """Decisions exact; codes exact but for a handful; the rest to 1e-4 of their rms."""
    golden = load_file(os.path.join(directory, "trace_s40.safetensors"))
    for name, want in golden.items():
        if name == "final_hidden":
            continue
        layer, key = name[1:].split(".", 1)
        if key == "streams_after_attn":
            continue
        if key not in trace[int(layer)]:
            raise AssertionError(f"{name}: not produced here")
        got = trace[int(layer)][key][0]
        if key == "index_selected":
            picked = [[g for g in row if g >= 0] for row in want.tolist()]
            assert picked == [torch.nonzero(row).flatten().tolist() for row in got], name
        elif key in ("router.indices", "candidate_blocks"):
            assert torch.equal(got.long(), want.long()), name
        elif key in ("window_kv", "compress_kv", "index_k"):
            assert (got.float() != want).sum() <= 5, name
        else:
            finite = torch.isfinite(want)
            assert torch.equal(finite, torch.isfinite(got)), name
            off = (got.double() - want.double())[finite].abs().max() / want[finite].double().square().mean().sqrt()
            assert off < 1e-4, f"{name}: {off:.2e}"


def check(directory, dtype):
    cfg, tables, w = weights.load(directory, dtype)
    golden = load_file(os.path.join(directory, "golden.safetensors"))
    if tables:
        check_facts(directory, tables)
    for name in ("s7", "s40", "s40img", "s150", "s150nq"):
        ids = golden[f"{name}.ids"].long()[None]
        image = golden[f"{name}.image_mask"].bool()[None] if name.endswith("img") else None
        if tables and f"{name}.hash_ids" in golden:
            rows = torch.stack(tables.row_numbers(ids, image), 2)[0]
            assert torch.equal(rows, golden[f"{name}.hash_ids"]), f"{directory} {name}: hash ids"
        trace = {} if name == "s40" else None
        opt = model.Options(round_state=name != "s150nq", trace=trace)
        with torch.no_grad():
            got = model.logits(w, cfg, tables, ids, image, opt=opt)[0]
        want = golden[f"{name}.logits_noquant" if name == "s150nq" else f"{name}.logits"]
        off = (got.double() - want.double()).abs().amax(-1)
        share = (off <= 1e-3).double().mean().item()
        agree = (got.argmax(-1) == want.argmax(-1)).double().mean().item()
        print(f"{os.path.basename(directory)} {name:7} {str(dtype)[6:]}: max abs {off.max():.1e}, within 1e-3 {share:.3f}, same top-1 {agree:.3f}")
        assert share >= 0.8 and agree >= 0.98 if name == "s150" else share == 1.0, name
        if trace is not None:
            check_trace(directory, trace)


def test_golden(root=None):
    root = root or os.environ.get("ECPHORY_GOLDEN", ROOT)
    for folder in "ABC":
        for dtype in (torch.float64, torch.float32):
            check(os.path.join(root, folder), dtype)


if __name__ == "__main__":
    test_golden(*sys.argv[1:])
    print("ok")
