"""Batches of packed documents, a pure function of (seed, position): nothing is drawn while training runs."""
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

BOS, EOS, PAD = 0, 1, 2


class Corpus:
    def __init__(self, path, weights=None):
        z = np.load(path)
        self.tokens, self.starts, self.sources = z["tokens"], z["starts"], z["sources"]
        self.bytes, self.names = int(z["bytes"]), [str(n) for n in z["names"]]
        weights = weights or {}
        self.weight = np.array([weights.get(n, 1.0) for n in self.names])[self.sources]

    def epoch(self, seed, number):
        """All documents in an order of their own, each as often as its source's weight says, as one uint16 array."""
        rng = np.random.default_rng([seed, number])
        times = np.floor(self.weight + rng.random(len(self.weight))).astype(np.int64)
        order = rng.permutation(np.repeat(np.arange(len(times)), times))
        return self.concatenate(order)

    def concatenate(self, order):
        length = self.starts[order + 1] - self.starts[order]
        ends = np.cumsum(length)
        index = np.repeat(self.starts[order] - (ends - length), length) + np.arange(ends[-1])
        return self.tokens[index]


class Batches:
    """Consecutive batches of `batch` sequences; `position` = (epoch, offset) says all about where it is."""

    def __init__(self, corpus, batch, length, seed, device, position=(0, 0)):
        self.corpus, self.batch, self.length, self.seed, self.device = corpus, batch, length, seed, device
        self.number, self.offset = position
        self.worker = ThreadPoolExecutor(1)
        self.coming = self.prepare(self.number)
        self.begin_epoch()

    def prepare(self, number):
        return self.worker.submit(lambda: self.corpus.epoch(self.seed, number).astype(np.int32))

    def begin_epoch(self):
        self.stream = torch.from_numpy(self.coming.result()).to(self.device)
        self.coming = self.prepare(self.number + 1)

    @property
    def position(self):
        return (self.number, self.offset)

    def next(self):
        size = self.batch * self.length
        if self.offset + size + 1 > len(self.stream):
            self.number, self.offset = self.number + 1, 0
            self.begin_epoch()
        part = self.stream[self.offset:self.offset + size + 1].long()
        self.offset += size
        return part[:-1].view(self.batch, self.length), part[1:].view(self.batch, self.length)


def segments_of(tokens):
    """A number for each document of a packed sequence; the rest of a document that began earlier is 0."""
    return (tokens == BOS).cumsum(1)


def counted(tokens):
    """Positions whose next token is text or eos."""
    return (tokens != EOS) & (tokens != PAD)


def held_out_batches(corpus, batch, length, device):
    """The corpus in its own order, packed as in training, filled up with pad tokens."""
    stream = corpus.concatenate(np.arange(len(corpus.sources))).astype(np.int64)
    size = batch * length
    stream = np.concatenate([stream, np.full(-len(stream) % size + 1, PAD)])
    for at in range(0, len(stream) - 1, size):
        part = torch.from_numpy(stream[at:at + size + 1]).to(device)
        yield part[:-1].view(batch, length), part[1:].view(batch, length)
