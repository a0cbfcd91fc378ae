"""Turns the corpus (corpus/build.sh) into token files for the trainer.

usage: prepare.py CORPUS tokenizer.json OUT     writes OUT/train.npz, OUT/valid.npz

A document becomes bos, its tokens, eos, and a pad token where that makes its length even (see model.py on packing). Every
document keeps the number of its source (train.py draws some sources more than once an epoch)."""
import argparse
import os
import re

import numpy as np
from tokenizers import Tokenizer

BOS, EOS, PAD = 0, 1, 2


def read_documents(path):
    with open(path, encoding="utf-8") as f:
        return [d for d in re.split(r"\n\n+", f.read().strip("\n")) if d]


def source_index(corpus):
    """({line: source} of all documents' lines of the dictionaries and first lines of the rest, source names)"""
    index, names = {}, []
    for name in sorted(os.listdir(os.path.join(corpus, "parts"))):
        names.append(name.removesuffix(".txt"))
        for d in read_documents(os.path.join(corpus, "parts", name)):
            lines = d.split("\n")
            for line in lines if names[-1] in ("jargon", "devil", "webster1913", "wordnet") else lines[:1]:
                index.setdefault(line, names[-1])
    return index, names


def arrange(document, index):
    """In a dictionary document the plain dictionaries' senses come first, the jest and jargon last."""
    lines = document.split("\n")
    if len(lines) == 1 or ": " not in lines[0]:
        return document
    head, groups = lines[0].split(": ")[0], [[lines[0]]]
    for line in lines[1:]:
        if line.startswith(head + ": "):
            groups.append([line])
        else:
            groups[-1].append(line)
    groups.sort(key=lambda g: index.get(g[0]) in ("jargon", "devil"))
    return "\n".join("\n".join(g) for g in groups)


def encode(documents, tok, index, names):
    documents = [arrange(d, index) for d in documents]
    tokens, starts, sources = [], [0], []
    for at in range(0, len(documents), 4096):
        part = documents[at:at + 4096]
        for d, e in zip(part, tok.encode_batch_fast(part, add_special_tokens=False)):
            ids = [BOS] + e.ids + [EOS]
            tokens.extend(ids + [PAD] * (len(ids) % 2))
            starts.append(len(tokens))
            sources.append(names.index(index[d.split("\n")[0]]) if d.split("\n")[0] in index else len(names))
    return np.array(tokens, dtype=np.uint16), np.array(starts, dtype=np.int64), np.array(sources, dtype=np.uint8)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus")
    parser.add_argument("tokenizer")
    parser.add_argument("out")
    args = parser.parse_args()
    tok = Tokenizer.from_file(args.tokenizer)
    index, names = source_index(args.corpus)
    os.makedirs(args.out, exist_ok=True)
    for part in ("valid", "train"):
        documents = read_documents(os.path.join(args.corpus, part + ".txt"))
        tokens, starts, sources = encode(documents, tok, index, names)
        size = sum(len(d.encode()) for d in documents)
        np.savez(os.path.join(args.out, part + ".npz"), tokens=tokens, starts=starts, sources=sources, bytes=size,
                 names=np.array(names + ["other"]))
        print(f"{part}: {len(documents)} documents, {size} bytes, {len(tokens)} tokens")
        for i, name in enumerate(names + ["other"]):
            n = np.diff(starts)[sources == i]
            print(f"  {name:18} {len(n):7} documents {n.sum():9} tokens")
