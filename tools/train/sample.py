"""Text from an exported model: the plain forward, the whole sequences anew for each token.

usage: sample.py MODEL_DIR PROMPT... [-n 80] [--temp 0.8] [--top-p 0.95] [--seed 1] [--no-engram]

Each prompt starts with bos and has a seed of its own (--seed, --seed + 1, ...). --temp 0 is greedy. A text ends at eos or after
-n tokens."""
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
def generate(w, cfg, tables, prompts, n, temp, top_p, seeds, engram="on"):
    """Token lists that follow `prompts` (lists of ids), each up to eos. All sequences advance together, padded at the right."""
    generators = [torch.Generator().manual_seed(s) for s in seeds]
    rows = [list(p) for p in prompts]
    running = set(range(len(rows)))
    for _ in range(n):
        if not running:
            break
        live = sorted(running)
        length = max(len(rows[i]) for i in live)
        tokens = torch.tensor([rows[i] + [cfg.engram_pad_id] * (length - len(rows[i])) for i in live])
        numbers = tables.row_numbers(tokens) if tables is not None else None
        x, _ = model.hidden_states(w, cfg, tokens, numbers, opt=model.Options(engram=engram))
        last = torch.stack([x[at, len(rows[i]) - 1] for at, i in enumerate(live)])
        logits = torch.nn.functional.linear(last, w["head.weight"])
        for at, i in enumerate(live):
            token = pick(logits[at], temp, top_p, generators[i])
            if token == cfg.eos_token_id:
                running.remove(i)
            else:
                rows[i].append(token)
    return [r[len(p):] for r, p in zip(rows, prompts)]


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
    prompts = [[cfg.bos_token_id] + tok.encode(p, add_special_tokens=False).ids for p in args.prompt]
    seeds = [args.seed + i for i in range(len(prompts))]
    out = generate(w, cfg, tables, prompts, args.n, args.temp, args.top_p, seeds, "shut" if args.no_engram else "on")
    for prompt, seed, ids in zip(args.prompt, seeds, out):
        print(f"--- temp {args.temp} top-p {args.top_p} seed {seed}\n{prompt}{tok.decode(ids)}\n", flush=True)
