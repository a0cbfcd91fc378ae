"""Bits per byte of an exported model on held-out text, with Engram and with its gates shut.

usage: evaluate.py MODEL_DIR valid.npz [--dtype float32] [--limit SEQUENCES]

The text is packed into sequences of --length tokens as in training: documents do not see each other, and a document that a
sequence's end cuts goes on in the next one without what came before."""
import argparse
import math

import torch

import model
import weights
from data import Corpus, counted, held_out_batches, segments_of


@torch.no_grad()
def bits_per_byte(directory, corpus, engram, dtype, device, length, batch, limit=0):
    cfg, tables, w = weights.load(directory, dtype)
    w = {k: v.to(device) for k, v in w.items()}
    total, n, done, whole = 0.0, 0, 0, 0
    for tokens, targets in held_out_batches(corpus, batch, length, device):
        whole += 1
        if limit and done >= limit:
            continue
        segments, mask = segments_of(tokens), counted(tokens)
        rows = tables.row_numbers(tokens, None, segments) if tables else None
        x, _ = model.hidden_states(w, cfg, tokens, rows, None, segments, opt=model.Options(engram=engram))
        logits = torch.nn.functional.linear(x, w["head.weight"]).float()
        nll = torch.logsumexp(logits, -1) - logits.gather(-1, targets[..., None])[..., 0]
        total += (nll * mask).sum().item()
        n += int(mask.sum())
        done += batch
    per_token = total / n / math.log(2)
    return per_token, total / math.log(2) / corpus.bytes if not limit else float("nan"), n


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("held_out")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--limit", type=int, default=0)
    args = parser.parse_args()
    corpus = Corpus(args.held_out)
    cfg, _, _ = weights.load(args.model)
    for engram in ("on", "shut") if cfg.engram_layer_ids else ("none",):
        per_token, per_byte, n = bits_per_byte(args.model, corpus, engram, getattr(torch, args.dtype), args.device,
                                               args.length, args.batch, args.limit)
        print(f"engram {engram:4}: {per_byte:.4f} bits per byte, {per_token:.4f} bits per token ({n} tokens, {args.dtype})", flush=True)
