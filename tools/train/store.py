"""The trainable parameters: fp32 masters of equal shape and role stacked over the layers, so that rounding and optimiser run
as few large operations."""
import re

import torch

import params
import quant
from weights import FAKE, format_of


def role(name):
    """The name without its layer number."""
    return re.sub(r"^layers\.\d+\.", "", name)


def optimiser_of(name):
    """'muon' for the matrices of attention, experts and Engram's projection; 'memory' for its rows; 'none' for router biases."""
    leaf = role(name)
    if leaf.startswith("ffn.gate.bias"):
        return "none"
    if leaf == "engram.embed.weight":
        return "memory"
    if name in ("embed.weight", "head.weight"):
        return name.split(".")[0]
    if leaf.startswith("hc_"):
        return "mix"
    matrix = leaf.endswith((".w1", ".w2", ".w3", ".w1.weight", ".w2.weight", ".w3.weight", "wq_a.weight", "wq_b.weight", "wkv.weight",
                            "wo_a.weight", "wo_b.weight", "wgate.weight"))
    return "muon" if matrix and "indexer" not in leaf else "small"


class Store:
    def __init__(self, cfg, tables, seed, device="cpu"):
        self.groups = {}        # (role, shape) -> list of names
        start = params.init(cfg, tables, seed)
        for name, t in start.items():
            self.groups.setdefault((role(name), tuple(t.shape)), []).append(name)
        self.masters = {}
        for key, names in self.groups.items():
            t = torch.stack([start[n] for n in names]).to(device)
            self.masters[key] = t.requires_grad_(optimiser_of(names[0]) != "none")
        self.sizes = params.count(start)

    def names_of(self, kind):
        return [k for k, names in self.groups.items() if optimiser_of(names[0]) == kind]

    def tensors(self, kind):
        return [self.masters[k] for k in self.names_of(kind)]

    def rounded(self, dtype):
        """{name: tensor} as the exported file will hold them, with gradients flowing to the masters."""
        out = {}
        for key, names in self.groups.items():
            kind = format_of(names[0])
            t = FAKE[kind](self.masters[key])
            t = t if kind == "f32" and dtype != torch.float64 else t.to(dtype)
            out.update(zip(names, t.unbind(0)))
        return out

    def named(self):
        """{name: fp32 master}, detached."""
        return {n: t for key, names in self.groups.items() for n, t in zip(names, self.masters[key].detach().unbind(0))}

    def state(self):
        return {"|".join(names): self.masters[key].detach().cpu() for key, names in self.groups.items()}

    def load_state(self, state):
        with torch.no_grad():
            for key, names in self.groups.items():
                self.masters[key].copy_(state["|".join(names)])

    def biases(self):
        """Router biases of all layers [L, E]."""
        return next(t for (leaf, _), t in self.masters.items() if leaf == "ffn.gate.bias")

    def copy_biases(self):
        with torch.no_grad():
            for (leaf, _), t in self.masters.items():
                if leaf == "ffn.gate.bias_vl":
                    t.copy_(self.biases())
