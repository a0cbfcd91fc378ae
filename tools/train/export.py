"""Writes a trained model in the released layout.

usage: export.py RUN/checkpoint.pt OUT --tokenizer tokenizer.json"""
import argparse

import torch
from tokenizers import Tokenizer

import weights
from config import Config
from engram import EngramTables, token_map
from store import Store


def restore(path, tokenizer_path):
    """(Config, EngramTables or None, {name: fp32 master}) of a checkpoint."""
    state = torch.load(path, map_location="cpu", weights_only=True)
    cfg = Config(**state["config"])
    tables = EngramTables(cfg, token_map(Tokenizer.from_file(tokenizer_path))) if cfg.engram_layer_ids else None
    store = Store(cfg, tables, 0)
    store.load_state(state["masters"])
    return cfg, tables, store.named()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint")
    parser.add_argument("out")
    parser.add_argument("--tokenizer", required=True)
    args = parser.parse_args()
    cfg, tables, masters = restore(args.checkpoint, args.tokenizer)
    with open(args.tokenizer, encoding="utf-8") as f:
        weights.export(args.out, cfg, tables, masters, f.read())
    print(f"{args.out}: written")
