"""Trains a model. Stops cleanly on SIGTERM, SIGINT or after --max-seconds, and goes on where it stopped when called again.

usage: train.py --config configs/mini.json --tokenizer tokenizer.json --data DIR --run DIR [--steps N] [--no-engram] ...

RUN gets checkpoint.pt (replaced whole, never half-written), log.jsonl and settings.json."""
import argparse
import json
import os
import signal
import time

import torch
from tokenizers import Tokenizer

import model
from config import Config
from data import Batches, Corpus, counted, held_out_batches, segments_of
from engram import EngramTables, token_map
from muon import Muon
from store import Store

WEIGHTS = {"wordnet": 2.0, "webster1913": 2.0, "facts": 6.0, "stories": 4.0, "factbook": 1.5, "jargon": 1.0}


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--config", required=True)
    p.add_argument("--tokenizer", required=True)
    p.add_argument("--data", required=True)
    p.add_argument("--run", required=True)
    p.add_argument("--steps", type=int, default=1000)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--length", type=int, default=512)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--no-engram", action="store_true", help="train the twin without the n-gram memory")
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    p.add_argument("--compile", action=argparse.BooleanOptionalAction, default=None, help="default: on a GPU")
    p.add_argument("--dtype", default=None, choices=("float32", "bfloat16"), help="default: bfloat16 on a GPU")
    p.add_argument("--warmup", type=int, default=200)
    p.add_argument("--decay-steps", type=int, default=None, help="last steps, over which the rate falls to zero (default: half)")
    p.add_argument("--dense-steps", type=int, default=2000, help="first steps, in which every visible entry is attended")
    p.add_argument("--graph", action=argparse.BooleanOptionalAction, default=True, help="replay a step as one CUDA graph")
    p.add_argument("--lr-muon", type=float, default=0.015)
    p.add_argument("--lr-embed", type=float, default=0.01)
    p.add_argument("--lr-head", type=float, default=0.003)
    p.add_argument("--lr-small", type=float, default=0.002)
    p.add_argument("--lr-mix", type=float, default=0.002)
    p.add_argument("--lr-memory", type=float, default=0.01)
    p.add_argument("--decay-memory", type=float, default=0.0, help="weight decay of Engram rows")
    p.add_argument("--row-dropout", type=float, default=0.0, help="chance of each fetched Engram row to be left out")
    p.add_argument("--memory-dropout", type=float, default=0.0, help="chance of a token to go without its rows, in each layer")
    p.add_argument("--weight-decay", type=float, default=0.1)
    p.add_argument("--bias-rate", type=float, default=0.001)
    p.add_argument("--log-every", type=int, default=20)
    p.add_argument("--eval-every", type=int, default=500)
    p.add_argument("--save-seconds", type=float, default=120)
    p.add_argument("--max-seconds", type=float, default=0)
    return p.parse_args()


# ---- one step -----------------------------------------------------------------------------------------------------

def token_loss(x, head, targets, mask):
    """Sum of the losses of the counted positions, in nats."""
    logits = model.wide(torch.nn.functional.linear(x, head))
    nll = torch.logsumexp(logits, -1) - logits.gather(-1, targets[..., None])[..., 0]
    return (nll * mask).sum()


class Functions:
    """The parts of a step that torch.compile sees, each as a graph of its own (equal layers share one)."""

    def __init__(self, compile_):
        torch._dynamo.config.recompile_limit = 64
        wrap = (lambda f: torch.compile(f, dynamic=False)) if compile_ else (lambda f: f)
        self.sites = tuple(wrap(f) for f in (model.spread, model.engram, model.attention_site, model.ffn_site))
        self.loss = wrap(token_loss)
        self.rounded = wrap(Store.rounded)


def optimisers(store, args):
    muon = [{"params": [store.masters[k]], "split": {"engram.wkv.weight": 5, "attn.wo_a.weight": 2}.get(k[0], 1), "base": args.lr_muon}
            for k in store.names_of("muon")]
    adam = [{"params": store.tensors(kind), "base": rate, "weight_decay": decay} for kind, rate, decay in (
        ("embed", args.lr_embed, 0.0), ("head", args.lr_head, args.weight_decay), ("small", args.lr_small, 0.0),
        ("mix", args.lr_mix, 0.0), ("memory", args.lr_memory, args.decay_memory)) if store.tensors(kind)]
    gpu = args.device == "cuda"
    for g in muon + adam:
        g["lr"] = learning_rate(args)
    return [Muon(muon, lr=0.0, weight_decay=args.weight_decay),
            torch.optim.AdamW(adam, betas=(0.9, 0.95), eps=1e-10, fused=gpu, capturable=gpu)]


def learning_rate(args):
    """Where a group's rate lives: on a GPU in a tensor, which a captured step reads anew at each replay."""
    return torch.zeros((), device="cuda") if args.device == "cuda" else 0.0


def rate(step, args):
    """Warm-up, plateau, then a straight line to zero at the last step."""
    return min((step + 1) / args.warmup, 1.0, (args.steps - step) / (args.decay_steps or max(1, args.steps // 2)))


class Trainer:
    def __init__(self, args):
        self.args = args
        self.cfg = Config.load(args.config)
        tokenizer = Tokenizer.from_file(args.tokenizer)
        assert tokenizer.get_vocab_size() == self.cfg.vocab_size, "the config's vocab_size is not the tokenizer's"
        if args.no_engram:
            self.cfg.engram_layer_ids = []
        self.tables = EngramTables(self.cfg, token_map(tokenizer)) if self.cfg.engram_layer_ids else None
        if self.tables:
            self.tables.compressed_ids = self.tables.compressed_ids.to(args.device)
        self.dtype = getattr(torch, args.dtype or ("bfloat16" if args.device == "cuda" else "float32"))
        self.store = Store(self.cfg, self.tables, args.seed, args.device)
        self.optimisers = optimisers(self.store, args)
        self.functions = Functions(args.compile if args.compile is not None else args.device == "cuda")
        self.ropes = model.rope_tables(self.cfg, args.length, self.dtype, args.device)
        self.step, self.seconds, position = 0, 0.0, (0, 0)
        path = self.checkpoint_path()
        if os.path.exists(path):
            state = torch.load(path, map_location="cpu", weights_only=True)
            self.store.load_state(state["masters"])
            for o, s in zip(self.optimisers, state["optimisers"]):
                o.load_state_dict(s)
                for g in o.param_groups:
                    g["lr"] = learning_rate(args)
            self.step, self.seconds, position = state["step"], state["seconds"], tuple(state["position"])
        self.batches = Batches(Corpus(os.path.join(args.data, "train.npz"), WEIGHTS), args.batch, args.length, args.seed,
                               args.device, position)
        self.held_out = Corpus(os.path.join(args.data, "valid.npz"))
        self.warm = torch.tensor(False, device=args.device)
        self.bias_rate = torch.zeros((), device=args.device)
        self.graph, self.static, self.eager_steps = None, None, 0
        self.stop = False

    def checkpoint_path(self):
        return os.path.join(self.args.run, "checkpoint.pt")

    def save(self):
        path = self.checkpoint_path()
        torch.save({"masters": self.store.state(), "optimisers": [o.state_dict() for o in self.optimisers], "step": self.step,
                    "seconds": self.seconds, "position": list(self.batches.position), "config": self.cfg.__dict__}, path + ".part")
        os.replace(path + ".part", path)

    def hidden(self, w, tokens, engram="on", training=False):
        segments = segments_of(tokens)
        rows = self.tables.row_numbers(tokens, None, segments) if self.tables else None
        opt = model.Options(engram=engram, index_loss=True, site_functions=self.functions.sites)
        if training:
            opt.row_dropout, opt.memory_dropout = self.args.row_dropout, self.args.memory_dropout
        return model.hidden_states(w, self.cfg, tokens, rows, None, segments, self.warm, opt, self.ropes)

    def compute(self, tokens, targets):
        """Forward, backward, update. Returns loss per token, index loss, highest and lowest share of an expert."""
        mask = counted(tokens)
        w = self.functions.rounded(self.store, self.dtype)
        x, extras = self.hidden(w, tokens, training=True)
        loss = self.functions.loss(x, w["head.weight"], targets, mask) / mask.sum()
        index = sum(extras.index_loss) if extras.index_loss else loss.detach() * 0
        (loss + index).backward()
        for o in self.optimisers:
            o.step()
            o.zero_grad(set_to_none=True)
        with torch.no_grad():
            load = torch.stack(extras.expert_load)
            share = load / load.mean(1, keepdim=True)
            self.store.biases().add_(torch.sign(1 - share) * self.bias_rate)
            self.store.copy_biases()
        return torch.stack((loss.detach().float(), index.detach().float(), share.max(), share.min()))

    def set_rates(self):
        factor = rate(self.step, self.args)
        for o in self.optimisers:
            for g in o.param_groups:
                if torch.is_tensor(g["lr"]):
                    g["lr"].fill_(g["base"] * factor)
                else:
                    g["lr"] = g["base"] * factor
        self.bias_rate.fill_(self.args.bias_rate * min(1.0, 2 * factor))
        self.warm.fill_(self.step < self.args.dense_steps)

    def train_step(self):
        tokens, targets = self.batches.next()
        self.set_rates()
        if self.args.device == "cuda" and self.args.graph:
            stats = self.captured_step(tokens, targets)
        else:
            stats = self.compute(tokens, targets)
        self.step += 1
        return stats

    def captured_step(self, tokens, targets):
        """The first steps run as they are (kernels are compiled, buffers made); then one is captured and replayed ever after."""
        if self.eager_steps < 3:
            self.eager_steps += 1
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                stats = self.compute(tokens, targets)
            torch.cuda.current_stream().wait_stream(side)
            return stats
        if self.graph is None:
            self.static = (tokens.clone(), targets.clone())
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            try:
                with torch.cuda.graph(graph):
                    self.stats = self.compute(*self.static)
            except RuntimeError as error:
                print(f"no graph, steps run one kernel at a time: {error}", flush=True)
                self.args.graph = False
                for o in self.optimisers:
                    o.zero_grad(set_to_none=True)
                return self.compute(tokens, targets)
            self.graph = graph
        for held, new in zip(self.static, (tokens, targets)):
            held.copy_(new)
        self.graph.replay()
        return self.stats.clone()

    def evaluate(self, engram="on"):
        """Bits per byte of the held-out text. (Gradients stay enabled: the compiled graphs of training are used again.)"""
        w = self.functions.rounded(self.store, self.dtype)
        self.warm.fill_(False)
        total = 0.0
        for tokens, targets in held_out_batches(self.held_out, self.args.batch, self.args.length, self.args.device):
            x, _ = self.hidden(w, tokens, engram)
            total += self.functions.loss(x, w["head.weight"], targets, counted(tokens)).item()
        return total / 0.6931471805599453 / self.held_out.bytes

    def log(self, **row):
        line = json.dumps({"step": self.step, **{k: round(v, 5) for k, v in row.items()}})
        print(line, flush=True)
        with open(os.path.join(self.args.run, "log.jsonl"), "a") as f:
            f.write(line + "\n")

    def evaluate_and_log(self):
        row = {"held_out_bits_per_byte": self.evaluate()}
        if self.tables:
            row["gates_shut"] = self.evaluate("shut")
        self.log(**row)

    def run(self):
        args = self.args
        begin = saved = time.monotonic()
        before, marks, recent = self.seconds, (begin, self.step), []
        while self.step < args.steps and not self.stop:
            recent.append(self.train_step())
            now = time.monotonic()
            self.seconds = before + now - begin
            if self.step % args.log_every == 0 or self.step == args.steps:
                loss, index, high, low = torch.stack(recent).mean(0).tolist()
                now = time.monotonic()
                speed = (self.step - marks[1]) * args.batch * args.length / (now - marks[0])
                self.log(loss=loss, index_loss=index, load_high=high, load_low=low, rate=rate(self.step - 1, args),
                         tokens_per_second=float(int(speed)), seconds=self.seconds, epoch=float(self.batches.number))
                marks, recent = (now, self.step), []
            if self.step % args.eval_every == 0 or self.step == args.steps:
                self.evaluate_and_log()
                marks = (time.monotonic(), self.step)
            if args.max_seconds and time.monotonic() - begin > args.max_seconds:
                self.stop = True
            if time.monotonic() - saved > args.save_seconds:
                self.save()
                saved = time.monotonic()
                marks = (saved, self.step)
        self.save()
        print("finished" if self.step >= args.steps else f"stopped at step {self.step}", flush=True)


def main():
    args = arguments()
    os.makedirs(args.run, exist_ok=True)
    with open(os.path.join(args.run, "settings.json"), "w") as f:
        json.dump({k: v for k, v in vars(args).items() if k not in ("run", "data", "tokenizer", "config")}, f, indent=1)
    trainer = Trainer(args)
    for s in (signal.SIGTERM, signal.SIGINT):
        signal.signal(s, lambda *_: setattr(trainer, "stop", True))
    backbone, memory = trainer.store.sizes
    print(f"{backbone} parameters, {memory} in Engram; starting at step {trainer.step} of {args.steps}", flush=True)
    trainer.run()


if __name__ == "__main__":
    main()
