"""Writes a tiny random model in the released layout and its expected logits, for the engine's tests.

usage: make_fixture.py OUT [--seed N]

The seed is one at which fp32 and fp64 runs agree in every decision; the script checks that and says how far they are apart."""
import argparse
import json
import os

import numpy as np
import torch

import model
import params
import quant
import weights
from config import Config
from engram import EngramTables, token_map
from train_tokenizer import train

CONFIG = dict(
    vocab_size=301, hidden_size=64, num_hidden_layers=6, num_attention_heads=2, head_dim=96, qk_rope_head_dim=16, q_lora_rank=96,
    o_groups=2, o_lora_rank=48, sliding_window=12, rope_theta=10000.0, compress_rope_theta=40000.0,
    rope_scaling={"rope_type": "yarn", "factor": 8, "beta_fast": 32, "beta_slow": 1, "original_max_position_embeddings": 128},
    max_position_embeddings=512, compress_ratios=[0, 1, 2, 2, 1, 1], kv_source_layer_ids=[1, 2, 4],
    index_source_layer_ids=[1, 2, 3, 4, 5], candidate_source_layer_id=4, candidate_topk_blocks=3, candidate_block_size=5,
    index_n_heads=3, index_head_dim=32, index_topk=7, moe_intermediate_size=32, n_routed_experts=5, num_experts_per_tok=3,
    routed_scaling_factor=2.0, swiglu_limit=2.0, hc_mult=3, hc_sinkhorn_iters=9, hc_eps=1e-6, rms_norm_eps=1e-6,
    engram_layer_ids=[0, 3], engram_vocab_size=150, engram_max_ngram_size=3, engram_n_heads=2, engram_head_dim=96, engram_pad_id=2,
    image_token_id=300)
SAMPLE = ("the memory of a trace is a trace in the memory. The engram: a postulated change that represents a memory. "
          "A lynx is a kind of wildcat; the lynx has a short tail and the tips of its ears are tufted. " * 4)


def random_weights(cfg, tables, seed):
    """Every tensor random, with magnitudes at which all mechanisms matter."""
    g = torch.Generator().manual_seed(seed)
    out = {}
    for name, shape in params.shapes(cfg, tables).items():
        r = torch.randn(shape, generator=g)
        if name.endswith(("norm.weight", "q_weight", "k_weight")):
            r = 1 + 0.2 * r
        elif "_scale" in name:
            r = 0.5 + 0.1 * r
        elif "bias" in name:
            r = 0.1 * r
        elif "hc_" in name and name.endswith("base"):
            r = 0.7 * r
        elif name.endswith("attn_sink"):
            r = r + 0.5
        else:
            r = r * (1.0 if name.startswith("embed") else 0.5 if name.endswith("engram.embed.weight") else shape[-1] ** -0.5)
        out[name] = weights.fake_quantised(name, r)
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    cfg = Config(**CONFIG)
    tok = train([SAMPLE], cfg.vocab_size)
    assert tok.get_vocab_size() == cfg.vocab_size, tok.get_vocab_size()
    tables = EngramTables(cfg, token_map(tok))
    w = random_weights(cfg, tables, args.seed)
    weights.export(args.out, cfg, tables, w, tok.to_str(pretty=False))

    g = torch.Generator().manual_seed(args.seed)
    tokens = torch.randint(3, 300, (1, 60), generator=g)
    tokens[0, 0] = cfg.bos_token_id
    image = torch.zeros_like(tokens, dtype=torch.bool)
    image[0, 20:24] = True
    with_image = torch.where(image, cfg.image_token_id, tokens)
    results = {}
    for dtype in (torch.float64, torch.float32):
        cfg, tables, w = weights.load(args.out, dtype)
        results[dtype] = (model.logits(w, cfg, tables, tokens)[0], model.logits(w, cfg, tables, with_image, image)[0],
                          model.logits(w, cfg, tables, tokens, opt=model.Options(round_state=False))[0],
                          model.logits(w, cfg, tables, tokens, opt=model.Options(engram="none"))[0])
    names = ("logits", "logits_image", "logits_no_state_rounding", "logits_no_engram")
    for name, a, b in zip(names, results[torch.float64], results[torch.float32]):
        off = (a - b.double()).abs().max().item()
        print(f"{name}: fp32 differs from fp64 by at most {off:.1e} (standard deviation {a.std():.2f})")
        assert off < 1e-4, f"{name}: another seed, please"
        np.save(os.path.join(args.out, name + ".npy"), a.float().numpy())
    np.save(os.path.join(args.out, "tokens.npy"), tokens[0].numpy().astype(np.int32))
    np.save(os.path.join(args.out, "tokens_image.npy"), with_image[0].numpy().astype(np.int32))
    np.save(os.path.join(args.out, "image_mask.npy"), image[0].numpy().astype(np.uint8))
    with open(os.path.join(args.out, "tokens.json"), "w") as f:
        json.dump(tokens[0].tolist(), f)
    rows = torch.stack(tables.row_numbers(tokens), 2)[0]
    np.save(os.path.join(args.out, "engram_rows.npy"), rows.numpy())


if __name__ == "__main__":
    with torch.no_grad():
        main()
