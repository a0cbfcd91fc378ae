"""Names, shapes and initial values of a model's parameters (routed experts of a layer stacked)."""
import math

import torch

from model import kind_of


def shapes(cfg, tables):
    """{name: shape}. Without `tables` the model has no Engram layers' tensors."""
    D, d, n, H = cfg.hidden_size, cfg.head_dim, cfg.num_attention_heads, cfg.hc_mult
    E, I, S = cfg.n_routed_experts, cfg.moe_intermediate_size, cfg.n_shared_experts * cfg.moe_intermediate_size
    out = {"embed.weight": (cfg.vocab_size, D), "head.weight": (cfg.vocab_size, D), "norm.weight": (D,)}
    for layer in range(cfg.num_hidden_layers):
        kind = kind_of(cfg, layer)
        s = {
            "attn_norm.weight": (D,), "ffn_norm.weight": (D,),
            "attn.wq_a.weight": (cfg.q_lora_rank, D), "attn.q_norm.weight": (cfg.q_lora_rank,),
            "attn.wq_b.weight": (n * d, cfg.q_lora_rank),
            "attn.wkv.weight": (d, D), "attn.kv_norm.weight": (d,), "attn.attn_sink": (n,),
            "attn.wo_a.weight": (cfg.o_groups * cfg.o_lora_rank, n * d // cfg.o_groups),
            "attn.wo_b.weight": (D, cfg.o_groups * cfg.o_lora_rank),
            "ffn.gate.weight": (E, D), "ffn.gate.bias": (E,), "ffn.gate.bias_vl": (E,),
            "ffn.experts.w1": (E, I, D), "ffn.experts.w3": (E, I, D), "ffn.experts.w2": (E, D, I),
            "ffn.shared_experts.w1.weight": (S, D), "ffn.shared_experts.w3.weight": (S, D), "ffn.shared_experts.w2.weight": (D, S),
        }
        for site in ("attn", "ffn"):
            s[f"hc_{site}_fn"] = ((2 + H) * H, H * D)
            s[f"hc_{site}_base"] = ((2 + H) * H,)
            s[f"hc_{site}_scale"] = (3,)
        if kind.kv_source:
            s["attn.compressor.wkv.weight"] = (d, D)
            s["attn.compressor.norm.weight"] = (d,)
            s["attn.indexer.wk.weight"] = (cfg.index_head_dim, d)
            s["attn.indexer.k_norm.weight"] = (cfg.index_head_dim,)
            if kind.ratio > 1:
                s["attn.compressor.wgate.weight"] = (d, D)
        if kind.index_source:
            s["attn.indexer.wq_b.weight"] = (cfg.index_n_heads * cfg.index_head_dim, cfg.q_lora_rank)
            s["attn.indexer.weights_proj.weight"] = (cfg.index_n_heads, D)
        if tables is not None and layer in cfg.engram_layer_ids:
            s["engram.embed.weight"] = (tables.rows[cfg.engram_layer_ids.index(layer)], cfg.engram_head_dim)
            s["engram.wkv.weight"] = ((H + 1) * D, cfg.engram_columns * cfg.engram_head_dim)
            s["engram.q_weight"] = s["engram.k_weight"] = (H, D)
        out.update({f"layers.{layer}.{k}": v for k, v in s.items()})
    return out


def mix_base(cfg, site):
    """Start of a mix: read mainly stream `site mod H`, write to all, carry each stream over to itself."""
    H = cfg.hc_mult
    pre = torch.full((H,), -1.8)
    pre[site % H] = 1.0
    comb = torch.full((H, H), -2.0)
    comb.fill_diagonal_(2.0)
    return torch.cat((pre, torch.zeros(H), comb.flatten()))


def init(cfg, tables, seed):
    """fp32 start values for training."""
    g = torch.Generator().manual_seed(seed)
    out = {}
    for name, shape in shapes(cfg, tables).items():
        leaf = name.split(".", 2)[-1] if name.startswith("layers.") else name
        layer = int(name.split(".")[1]) if name.startswith("layers.") else 0
        if leaf.startswith("hc_") and leaf.endswith("base"):
            out[name] = mix_base(cfg, 2 * layer + leaf.startswith("hc_ffn"))
        elif leaf.startswith("hc_") and leaf.endswith("scale"):
            out[name] = torch.full(shape, 0.1)
        elif leaf.endswith("norm.weight") or leaf in ("engram.q_weight", "engram.k_weight"):
            out[name] = torch.ones(shape)
        elif leaf.startswith("ffn.gate.bias") or leaf == "attn.attn_sink":
            out[name] = torch.zeros(shape)
        else:
            std = {"embed.weight": 0.7, "head.weight": 0.005, "engram.embed.weight": 0.05}.get(leaf, shape[-1] ** -0.5)
            if leaf in ("attn.wo_b.weight", "ffn.experts.w2", "ffn.shared_experts.w2.weight"):
                std *= (2 * cfg.num_hidden_layers) ** -0.5
            out[name] = torch.randn(shape, generator=g) * std
    return out


def count(w):
    """(parameters outside Engram, parameters of Engram)"""
    sizes = {k: math.prod(v.shape) for k, v in w.items()}
    memory = sum(v for k, v in sizes.items() if ".engram." in k)
    return sum(sizes.values()) - memory, memory
