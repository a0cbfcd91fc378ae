#!/usr/bin/env python3
"""Recomputes the worked example of docs/engram.md without the engine.

worked_example.py ECPHORY REPOSITORY: reads the model's numbers from the GGUF
file itself, derives primes and multipliers from the rules in docs/engram.md,
follows every n-gram to its rows, and holds 'ecphory engram trace --json' and
the numbers in docs/engram.md to the result. Standard library only.
With --print it prints the example's lines for the document instead.
"""
import json
import struct
import subprocess
import sys

TEXT = "And the old man"
SHOWN_LAYER = 1  # the layer whose arithmetic the document shows, last token
MASK64 = (1 << 64) - 1
MASK128 = (1 << 128) - 1


# --- GGUF metadata -----------------------------------------------------------

class Reader:
    FORMATS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f",
               7: "<?", 10: "<Q", 11: "<q", 12: "<d"}

    def __init__(self, file):
        self.file = file

    def scalar(self, form):
        return struct.unpack(form, self.file.read(struct.calcsize(form)))[0]

    def string(self):
        return self.file.read(self.scalar("<Q"))

    def value(self, kind):
        if kind == 8:
            return self.string()
        if kind == 9:
            kind, count = self.scalar("<I"), self.scalar("<Q")
            return [self.value(kind) for _ in range(count)]
        return self.scalar(self.FORMATS[kind])


def read_metadata(path):
    with open(path, "rb") as file:
        reader = Reader(file)
        assert file.read(4) == b"GGUF" and reader.scalar("<I") == 3
        reader.scalar("<Q")
        keys = reader.scalar("<Q")
        return {reader.string().decode(): reader.value(reader.scalar("<I"))
                for _ in range(keys)}


# --- The rules ---------------------------------------------------------------

def seed_sequence(entropy):
    """NumPy's SeedSequence: four 64-bit words from one 32-bit seed."""
    def mixer(constant, factor):
        def mix(value):
            nonlocal constant
            value = (value ^ constant) & 0xFFFFFFFF
            constant = constant * factor & 0xFFFFFFFF
            value = value * constant & 0xFFFFFFFF
            return value ^ value >> 16
        return mix

    def combine(x, y):
        result = (x * 0xCA01F9DD - y * 0x4973F715) & 0xFFFFFFFF
        return result ^ result >> 16

    into = mixer(0x43B0D7E5, 0x931E8875)
    pool = [into(word) for word in (entropy, 0, 0, 0)]
    for source in range(4):
        for target in range(4):
            if source != target:
                pool[target] = combine(pool[target], into(pool[source]))
    out = mixer(0x8B51F9DD, 0x58F38DED)
    words = [out(pool[i % 4]) for i in range(8)]
    return [words[i] | words[i + 1] << 32 for i in range(0, 8, 2)]


def pcg64(seed):
    factor = 0x2360ED051FC65DA44385DF649FCCF645
    words = seed_sequence(seed)
    increment = ((words[2] << 64 | words[3]) << 1 | 1) & MASK128
    state = (words[0] << 64 | words[1]) + increment
    state = (state * factor + increment) & MASK128
    while True:
        state = (state * factor + increment) & MASK128
        folded, turn = (state >> 64 ^ state) & MASK64, state >> 122
        yield (folded >> turn | folded << (64 - turn)) & MASK64 if turn else folded


def multipliers(layer, vocabulary, count):
    bound = max(1, ((1 << 63) - 1) // vocabulary // 2)
    assert bound > 1 << 32, "smaller bounds are drawn from 32-bit halves"
    random, numbers = pcg64(10007 * layer), []
    while len(numbers) < count:
        product = next(random) * bound
        if product & MASK64 >= (1 << 64) % bound:  # Lemire's rejection
            numbers.append((product >> 64) * 2 + 1)
    return numbers


def is_prime(n):
    divisor = 2
    while divisor * divisor <= n:
        if n % divisor == 0:
            return False
        divisor += 1
    return n > 1


def primes_from(first, count):
    found = []
    while len(found) < count:
        if is_prime(first):
            found.append(first)
        first += 1
    return found


class Layout:
    def __init__(self, metadata):
        def get(key):
            return metadata["deepseek41.engram." + key]
        self.layers = get("layer_ids")
        self.max_ngram = len(get("multipliers")) // len(self.layers)
        columns = len(get("primes")) // len(self.layers)
        self.heads = columns // (self.max_ngram - 1)
        self.token_map, self.pad = get("token_map"), get("pad_id")
        everything = primes_from(get("primes")[0], columns * len(self.layers))
        assert everything == get("primes"), "not the primes in order"
        self.primes, self.multipliers = {}, {}
        for i, layer in enumerate(self.layers):
            self.primes[layer] = everything[i * columns:(i + 1) * columns]
            self.multipliers[layer] = multipliers(
                layer, get("compressed_vocab_size"), self.max_ngram)
            assert sum(self.primes[layer]) == get("rows")[i]

    def window(self, ids, position):
        """Compressed ids, newest first, padding beyond the beginning."""
        return [self.token_map[ids[position - back]] if back <= position
                else self.pad for back in range(self.max_ngram)]

    def mixed(self, layer, window):
        x, steps = window[0] * self.multipliers[layer][0], []
        for back in range(1, self.max_ngram):
            x ^= window[back] * self.multipliers[layer][back]
            steps.append(x)
        return steps

    def rows(self, layer, window):
        steps, rows, offset = self.mixed(layer, window), [], 0
        for column, prime in enumerate(self.primes[layer]):
            rows.append(steps[column // self.heads] % prime + offset)
            offset += prime
        return rows


# --- The document ------------------------------------------------------------

def document_lines(layout, tokens):
    """The example as docs/engram.md shows it."""
    ids = [token["id"] for token in tokens]
    lines = ["position  id     compressed  piece"]
    for position, token in enumerate(tokens):
        lines.append("%-9d %-6d %-11d %s" % (
            position, ids[position], layout.token_map[ids[position]],
            json.dumps(token["piece"], ensure_ascii=False)))
    window = layout.window(ids, len(ids) - 1)
    factors = layout.multipliers[SHOWN_LAYER]
    lines.append("")
    for back, (identifier, factor) in enumerate(zip(window, factors)):
        lines.append("id[%d] * multiplier[%d] = %4d * %16d = %d" % (
            back, back, identifier, factor, identifier * factor))
    lines.append("")
    steps = layout.mixed(SHOWN_LAYER, window)
    before = "product[0]"
    for n, step in enumerate(steps, start=2):
        lines.append("mixed[%d] = %s xor product[%d] = %d" % (
            n, before, n - 1, step))
        before = "mixed[%d]" % n
    lines.append("")
    offset = 0
    rows = layout.rows(SHOWN_LAYER, window)
    for column, prime in enumerate(layout.primes[SHOWN_LAYER]):
        n, head = column // layout.heads + 2, column % layout.heads
        lines.append("%d-gram head %d: mixed[%d] mod %d = %5d, + %6d = row %6d" % (
            n, head, n, prime, rows[column] - offset, offset, rows[column]))
        offset += prime
    return lines


def check(condition, what):
    if not condition:
        sys.exit("FAILED: " + what)


def check_trace(layout, trace):
    ids = [token["id"] for token in trace["tokens"]]
    check([facts["layer"] for facts in trace["layers"]] == layout.layers, "layers")
    for facts in trace["layers"]:
        layer = facts["layer"]
        check([int(m) for m in facts["multipliers"]] == layout.multipliers[layer],
              "multipliers of layer %d" % layer)
        check([c["prime"] for c in facts["columns"]] == layout.primes[layer],
              "primes of layer %d" % layer)
    for position, token in enumerate(trace["tokens"]):
        window = layout.window(ids, position)
        check(token["compressed"] == window[0], "compressed id %d" % position)
        for ngram in token["ngrams"]:
            check(ngram["compressed"] == window[:ngram["n"]][::-1],
                  "%d-gram at %d" % (ngram["n"], position))
        for entry in token["layers"]:
            layer = entry["layer"]
            check([int(m) for m in entry["mixed"]] == layout.mixed(layer, window),
                  "mixed numbers at %d, layer %d" % (position, layer))
            check(entry["rows"] == layout.rows(layer, window),
                  "rows at %d, layer %d" % (position, layer))
            for stream in entry["streams"]:
                check(0 < stream["gate"] < 1, "gate at %d" % position)


def main():
    tool, repository = sys.argv[1:3]
    model = repository + "/models/ecphory-mini.gguf"
    layout = Layout(read_metadata(model))
    output = subprocess.run(
        [tool, "engram", "trace", "-m", model, "-p", TEXT, "--json"],
        check=True, stdout=subprocess.PIPE).stdout
    trace = json.loads(output)
    lines = document_lines(layout, trace["tokens"])
    if "--print" in sys.argv:
        print("\n".join(lines))
        return
    check_trace(layout, trace)
    with open(repository + "/docs/engram.md", encoding="utf-8") as file:
        document = file.read().splitlines()
    check(TEXT in "\n".join(document), "docs/engram.md has no such example")
    for line in lines:
        check(line in document, "not in docs/engram.md: " + line)
    print("trace, document and recomputation agree on %d rows" % sum(
        len(entry["rows"]) for token in trace["tokens"] for entry in token["layers"]))


if __name__ == "__main__":
    main()
