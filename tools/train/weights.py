"""Released-layout directories: reading (dequantised exactly) and writing (quantised as the model was trained)."""
import json
import os
import re

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import quant
from config import Config
from engram import EngramTables, token_map

EXPERT = re.compile(r"(layers\.\d+\.ffn\.experts)\.(\d+)\.(w[123])\.weight$")


def format_of(name):
    """How a tensor is stored: 'fp8' (32x32 tiles), 'fp4' (rows of 32), 'row' (Engram table), 'f32', 'bf16'."""
    leaf = re.sub(r"^layers\.\d+\.", "", name)
    if leaf == "engram.embed.weight":
        return "row"
    if ".experts." in leaf and "shared" not in leaf:
        return "fp4"
    if leaf.startswith("hc_") or leaf in ("attn.attn_sink", "ffn.gate.bias", "ffn.gate.bias_vl"):
        return "f32"
    if (re.fullmatch(r"attn\.(wq_a|wq_b|wkv|wo_a|wo_b|indexer\.wq_b)\.weight", leaf)
            or leaf.startswith("ffn.shared_experts.") or leaf == "engram.wkv.weight"):
        return "fp8"
    return "bf16"


FAKE = {"fp8": quant.fake_fp8_tiles, "fp4": quant.fake_fp4_rows, "row": quant.fake_fp8_rows,
        "bf16": quant.fake_bf16, "f32": lambda w: w}


def fake_quantised(name, w):
    """The value that a stored copy of `w` would have."""
    return FAKE[format_of(name)](w)


def read_raw(directory):
    """{name: tensor} of every shard, as stored."""
    index = os.path.join(directory, "model.safetensors.index.json")
    shards = ["model.safetensors"]
    if os.path.exists(index):
        with open(index) as f:
            shards = sorted(set(json.load(f)["weight_map"].values()))
    raw = {}
    for shard in shards:
        with safe_open(os.path.join(directory, shard), framework="pt") as f:
            raw.update({k: f.get_tensor(k) for k in f.keys()})
    return raw


def dequantise(name, w, scale):
    if scale is None:
        return w
    scale = quant.e8m0_values(scale.view(torch.uint8))
    kind = format_of(name)
    if kind == "fp4":
        codes = w.view(torch.uint8)
        grid = torch.tensor(quant.E2M1_VALUES + tuple(-v for v in quant.E2M1_VALUES))
        w = torch.stack((grid[(codes & 15).long()], grid[(codes >> 4).long()]), -1).flatten(-2)
        return w * scale.repeat_interleave(32, -1)
    w = w.float()
    if kind == "row":
        return w * scale.repeat_interleave(32, -1)
    return w * quant.expand_tile_scale(scale, w.shape)


def load(directory, dtype=torch.float32):
    """(Config, EngramTables or None, {name: tensor of `dtype`}) with routed experts stacked."""
    cfg = Config.load(os.path.join(directory, "config.json"))
    raw = read_raw(directory)
    w, experts = {}, {}
    for name, t in raw.items():
        if name.endswith(".scale") and name[:-6] + ".weight" in raw:
            continue
        value = dequantise(name, t, raw.get(name.removesuffix(".weight") + ".scale") if name.endswith(".weight") else None).to(dtype)
        m = EXPERT.match(name)
        if m:
            experts.setdefault(f"{m[1]}.{m[3]}", {})[int(m[2])] = value
        else:
            w[name] = value
    for name, parts in experts.items():
        w[name] = torch.stack([parts[i] for i in range(len(parts))])
    return cfg, load_tables(directory, cfg), w


def load_tables(directory, cfg):
    if not cfg.engram_layer_ids:
        return None
    path = os.path.join(directory, "token_map.npy")
    if os.path.exists(path):
        return EngramTables(cfg, np.load(path))
    from tokenizers import Tokenizer
    return EngramTables(cfg, token_map(Tokenizer.from_file(os.path.join(directory, "tokenizer.json"))))


def quantised(name, w):
    """{file name: tensor} of one parameter, experts apart."""
    kind, w = format_of(name), w.detach().cpu().float()
    base = name.removesuffix(".weight")
    if kind == "f32":
        return {name: w.contiguous()}
    if kind == "bf16":
        return {name: w.to(torch.bfloat16).contiguous()}
    if kind == "fp4":
        out = {}
        prefix, leaf = name.rsplit(".", 1)
        for e in range(w.shape[0]):
            values, scale = quant.fp4_rows(w[e])
            codes = quant.e2m1_codes(values)
            out[f"{prefix}.{e}.{leaf}.weight"] = (codes[:, 0::2] | (codes[:, 1::2] << 4)).view(torch.int8).contiguous()
            out[f"{prefix}.{e}.{leaf}.scale"] = quant.e8m0_codes(scale).view(torch.float8_e8m0fnu)
        return out
    values, scale = (quant.fp8_tiles if kind == "fp8" else quant.fp8_rows)(w)
    return {base + ".weight": values.to(torch.float8_e4m3fn).contiguous(),
            base + ".scale": quant.e8m0_codes(scale).view(torch.float8_e8m0fnu)}


def export(directory, cfg, tables, w, tokenizer_json=None):
    """Writes config.json, model.safetensors, engram.json, token_map.npy and, where given, tokenizer.json."""
    os.makedirs(directory, exist_ok=True)
    tensors = {}
    for name in sorted(w):
        tensors.update(quantised(name, w[name]))
    save_file(tensors, os.path.join(directory, "model.safetensors"), metadata={"format": "pt"})
    if tables is not None:
        cfg.engram_num_embeddings = list(tables.rows)
        cfg.engram_compressed_vocab_size = tables.compressed_vocab
        np.save(os.path.join(directory, "token_map.npy"), tables.compressed_ids.numpy().astype(np.int32))
        facts = {"compressed_vocab_size": tables.compressed_vocab, "pad_token_id": cfg.engram_pad_id, "pad_compressed_id": tables.pad,
                 "layer_ids": cfg.engram_layer_ids, "max_ngram_size": cfg.engram_max_ngram_size, "n_heads": cfg.engram_n_heads,
                 "primes": tables.primes, "offsets": tables.offsets, "rows": tables.rows, "multipliers": tables.multipliers}
        with open(os.path.join(directory, "engram.json"), "w") as f:
            json.dump(facts, f, indent=1)
    with open(os.path.join(directory, "config.json"), "w") as f:
        json.dump(cfg.released(), f, indent=1)
    if tokenizer_json:
        with open(os.path.join(directory, "tokenizer.json"), "w", encoding="utf-8") as f:
            f.write(tokenizer_json)
