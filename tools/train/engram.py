"""Addresses of the n-gram memory: token map, multipliers, primes, row numbers."""
import re
import unicodedata

import numpy as np
import torch


# ---- compressed token ids -----------------------------------------------------------------------------------------

def normalise(text):
    """The key under which tokens of alike text share one compressed id."""
    text = unicodedata.normalize("NFD", unicodedata.normalize("NFKC", text))
    text = "".join(c for c in text if not unicodedata.category(c).startswith("M"))
    text = "".join(c.lower() for c in text)
    text = re.sub(r"[ \t\r\n]+", " ", text)
    return text if text == " " else text.strip()


def token_map(tokenizer):
    """int32 [vocab]: compressed id of each token, given out in token order at first sight of a key."""
    ids, out = {}, []
    for token in range(tokenizer.get_vocab_size(with_added_tokens=True)):
        text = tokenizer.decode([token], skip_special_tokens=False)
        key = ("raw", tokenizer.id_to_token(token)) if "\ufffd" in text else ("text", normalise(text) or text)
        out.append(ids.setdefault(key[1], len(ids)))
    return np.array(out, dtype=np.int32)


# ---- tables -------------------------------------------------------------------------------------------------------

def multipliers(layer, look_backs, compressed_vocab):
    bound = max(1, (2 ** 63 - 1) // compressed_vocab // 2)
    draw = np.random.default_rng(10007 * layer).integers(0, bound, size=look_backs, dtype=np.int64)
    return draw * 2 + 1


def is_prime(n):
    return n > 1 and all(n % d for d in range(2, int(n ** 0.5) + 1))


def primes(layers, ngram_sizes, heads, start):
    """[layer][n-gram size][head]: the next primes from `start` on that no earlier column took."""
    taken, out = set(), []
    for _ in range(layers):
        per_layer = []
        for _ in range(ngram_sizes):
            row, n = [], start - 1
            while len(row) < heads:
                n += 1
                if n not in taken and is_prime(n):
                    taken.add(n)
                    row.append(n)
            per_layer.append(row)
        out.append(per_layer)
    return out


class EngramTables:
    """All address constants of one configuration."""

    def __init__(self, cfg, compressed_ids):
        n = cfg.engram_max_ngram_size
        self.layers = cfg.engram_layer_ids
        self.compressed_ids = torch.as_tensor(np.asarray(compressed_ids), dtype=torch.int64)
        self.compressed_vocab = cfg.engram_compressed_vocab_size or int(self.compressed_ids.max()) + 1
        self.pad = int(self.compressed_ids[cfg.engram_pad_id])
        self.primes = primes(len(self.layers), n - 1, cfg.engram_n_heads, cfg.engram_vocab_size)
        self.multipliers = [multipliers(l, n, self.compressed_vocab).tolist() for l in self.layers]
        flat = [[p for row in layer for p in row] for layer in self.primes]
        self.offsets = [np.concatenate([[0], np.cumsum(f)[:-1]]).tolist() for f in flat]
        self.rows = [sum(f) for f in flat]

    def row_numbers(self, tokens, dead=None, segments=None):
        """tokens [B, T] -> one int64 [B, T, columns] per Engram layer.

        `dead` marks positions the look-back cannot pass (and which hash as all-pad themselves); with `segments` (an id per
        position) it also stops where the segment begins, as it does at the start of a sequence."""
        ids = self.compressed_ids.to(tokens.device)[tokens]
        alive = torch.ones_like(tokens, dtype=torch.bool) if dead is None else ~dead
        history = []
        reach = torch.ones_like(alive)
        n = len(self.multipliers[0])
        for back in range(n):
            shifted = shift(ids, back, self.pad)
            ok = shift(alive, back, False)
            if segments is not None:
                ok = ok & (shift(segments, back, -1) == segments)
            reach = reach & ok
            history.append(torch.where(reach, shifted, self.pad))
        return [self._rows_of(layer, history) for layer in range(len(self.layers))]

    def _rows_of(self, layer, history):
        mult, primes_, columns = self.multipliers[layer], self.primes[layer], []
        x = history[0] * mult[0]
        for k in range(1, len(mult)):
            x = x ^ (history[k] * mult[k])
            for head, p in enumerate(primes_[k - 1]):
                columns.append(x % p + self.offsets[layer][(k - 1) * len(primes_[0]) + head])
        return torch.stack(columns, -1)


def shift(x, back, fill):
    """x[:, t - back] at position t; `fill` before the start."""
    if back == 0:
        return x
    out = torch.full_like(x, fill)
    out[:, back:] = x[:, :-back]
    return out
