"""Text from an exported model: the plain forward, the whole sequence anew for each token.

usage: sample.py MODEL_DIR PROMPT... [-n 80] [--temp 0.8] [--top-p 0.95] [--seed 1] [--no-engram]

Each prompt starts with bos. --temp 0 is greedy. The text ends at eos or after -n tokens."""
import argparse
import os

import torch
from tokenizers import Tokenizer

import model
import weights


def pick(logits, temp, top_p, generator):
    if temp == 0:
        return int(logits.argmax())
    p = torch.softmax(logits.double() / temp, -1)
    p, order = torch.sort(p, descending=True, stable=True)
    p[p.cumsum(0) - p >= top_p] = 0
    return int(order[torch.multinomial(p, 1, generator=generator)])


@torch.no_grad()
def generate(w, cfg, tables, ids, n, temp, top_p, seed, engram="on"):
    """Yields token ids until eos."""
    generator = torch.Generator().manual_seed(seed)
    ids = list(ids)
    for _ in range(n):
        logits = model.logits(w, cfg, tables, torch.tensor([ids]), opt=model.Options(engram=engram))[0, -1]
        token = pick(logits, temp, top_p, generator)
        if token == cfg.eos_token_id:
            return
        ids.append(token)
        yield token


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("prompt", nargs="+")
    parser.add_argument("-n", type=int, default=80)
    parser.add_argument("--temp", type=float, default=0.8)
    parser.add_argument("--top-p", type=float, default=0.95)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-engram", action="store_true")
    args = parser.parse_args()
    cfg, tables, w = weights.load(args.model)
    tok = Tokenizer.from_file(os.path.join(args.model, "tokenizer.json"))
    for prompt in args.prompt:
        ids = [cfg.bos_token_id] + tok.encode(prompt, add_special_tokens=False).ids
        out = list(generate(w, cfg, tables, ids, args.n, args.temp, args.top_p, args.seed, "shut" if args.no_engram else "on"))
        print(f"--- temp {args.temp} top-p {args.top_p} seed {args.seed}\n{prompt}{tok.decode(out)}\n", flush=True)
