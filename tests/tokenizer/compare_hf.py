#!/usr/bin/env python3
"""Holds the tokenizer to the Hugging Face `tokenizers` package, id for id.

usage: compare_hf.py TOKENIZE_LINES TOKENIZER.JSON[.xz] [--lines N] [--seed S]

Generates N lines of mixed text (the same for the same seed), encodes each with
special tokens off and on, decodes ids both ways and compares exactly. Exits 0
when nothing differs, 1 when something does, 77 (skipped) without the package.
"""

import argparse
import json
import lzma
import os
import random
import re
import subprocess
import sys
import tempfile

try:
    import tokenizers
except ImportError:
    print("SKIPPED: Python package tokenizers not installed", flush=True)
    sys.exit(77)

WHITE_SPACE = [" ", "  ", "\t", "\n", "\r", "\r\n", "\n\n", "\u00a0", "\u3000",
               "\u2003", "\u2028", "\u2029", "\u0085", "\u000b", "\u000c",
               "\u200b", "\u180e", "\ufeff", "\u1680", "\u202f", "\u205f"]
CODE = ["for (int i = 0; i < n; ++i) {", "}", "    return x->y(*p);",
        "def f(self, *args, **kwargs):", "#include <vector>", "$foo['bar'];",
        "a += b << 3 | ~c;", "<div class=\"x\">&nbsp;</div>", "// note", "/* */",
        "SELECT * FROM t WHERE a <> 'b''c';", "\\frac{1}{2}", "x[::-1]", "=>",
        "https://example.org/a?b=c&d=%20#e", "0x7fffffff", "1e-9", "3.14159",
        "fn main() -> Result<(), Box<dyn Error>> {", "@property", "'re", "I'll"]
WORDS = ["the", "The", " THE", "memory", " n-gram", "Straße", "naïve", "été",
         "Ελληνικά", "ΣΊΣΥΦΟΣ", "Привет", "мир", "שלום", "مرحبا", "नमस्ते", "ไทย",
         "tiếng Việt", "İstanbul", "ﬁﬂ", "ǅ", "don't", "e.g.", "U.S.A."]
CJK = ["你好，世界。", "漢字かな交じり文", "カタカナ", "한국어", "日本語テスト", "龥龦", "々〆〇",
       "ㄅㄆㄇ", "𠀀𠮷", "「引用」", "１２３", "ｶﾞ", "・ー"]
EMOJI = ["😀", "👩‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇩🇪🇯🇵", "❤️", "1️⃣", "🫨", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "☃", "©", "™"]
DIGITS = ["0", "12", "123", "1234", "1234567", "٣٤٥", "०१२३", "๑๒๓", "𝟘𝟙", "Ⅷ", "½",
          "²³", "①②", "〇", "𐒠𐒡", "1,234.56", "𑽐"]
PUNCTUATION = ["...", "!?", "--", "—", "“”", "«»", "()[]{}", "!!!\r\n", ".\n\n", "_x",
               "@x", "€100", "%", "^", "~~~", "|", "¿Qué?", "、", "…", "``"]


def random_character(rng):
    """Any scalar value, low planes more often."""
    while True:
        end = rng.choice([0x80, 0x250, 0x800, 0x3100, 0x10000, 0x20000, 0x110000])
        point = rng.randrange(end)
        if not 0xD800 <= point < 0xE000:
            return chr(point)


def combining_mark(rng):
    base = rng.choice("aeiouAEIOUçñкद1 ")
    marks = [rng.randrange(0x300, 0x370) for _ in range(rng.randrange(1, 5))]
    return base + "".join(map(chr, marks + [0x20DD] * rng.randrange(2)))


def white_space(rng):
    kinds = rng.sample(WHITE_SPACE, rng.randrange(1, 4))
    longest = rng.choice([2, 3, 6, 20, 200])
    return "".join(rng.choice(kinds) for _ in range(rng.randrange(1, longest)))


def control_characters(rng):
    return "".join(chr(rng.choice([*range(0x20), 0x7F, *range(0x80, 0xA0)]))
                   for _ in range(rng.randrange(1, 6)))


def from_list(items):
    return lambda rng: rng.choice(items)


def fragment_makers(added):
    spelled = from_list(added)

    def broken_spelling(rng):
        text = spelled(rng)
        at = rng.randrange(len(text) + 1)
        return rng.choice([text[:at], text[at:], text[:at] + " " + text[at:],
                           text + text[at:], text[:at] + text])

    return [from_list(CODE), from_list(WORDS), from_list(WORDS), from_list(CJK),
            from_list(EMOJI), from_list(DIGITS), from_list(PUNCTUATION),
            white_space, control_characters, combining_mark, spelled,
            broken_spelling,
            lambda rng: "".join(random_character(rng) for _ in range(rng.randrange(1, 9))),
            lambda rng: rng.choice("aAxé中😀-=") * rng.randrange(1, 80),
            lambda rng: str(rng.randrange(10 ** rng.randrange(1, 20)))]


def all_characters():
    """Every scalar value of the planes that hold characters, as a word's start."""
    points = [p for p in (*range(0x40000), *range(0xE0000, 0xE0200))
              if not 0xD800 <= p < 0xE000]
    for begin in range(0, len(points), 1024):
        yield "".join(f"a {chr(p)}b" for p in points[begin:begin + 1024])


def make_lines(count, seed, added):
    rng = random.Random(seed)
    makers = fragment_makers(added)
    lines = ["", " ", "\n", " " * 5000, "\n" * 5000, "a" * 5000, " \n" * 2000]
    lines += all_characters()
    while len(lines) < count:
        pieces = rng.choice([1, 2, 3, 6, 12])
        text = ""
        for _ in range(pieces):
            text += rng.choice(makers)(rng) + rng.choice(["", "", " ", "\n"])
        lines.append(text)
    return lines


def ask(program, tokenizer_path, questions):
    """Sends one JSON object per line, returns the answers in order."""
    text = "".join(json.dumps(question) + "\n" for question in questions)
    run = subprocess.run([program, tokenizer_path], input=text, text=True,
                         stdout=subprocess.PIPE, check=True)
    return [json.loads(line) for line in run.stdout.splitlines()]


def report(kind, line, found, expected):
    at = next((i for i, pair in enumerate(zip(found, expected)) if pair[0] != pair[1]),
              min(len(found), len(expected)))
    print(f"{kind}: {line[:200]!r}\n  first difference at {at}: ours {found[at:at + 8]}, "
          f"reference {expected[at:at + 8]}")


def newer_characters():
    """What Unicode 15 and 16 added, from the table the tokenizer is built with."""
    table = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                         "../../src/text/unicode_additions.h")
    with open(table, encoding="utf-8") as file:
        ranges = re.findall(r"\{0x(\w+), 0x(\w+),", file.read())
    return {p for a, b in ranges for p in range(int(a, 16), int(b, 16) + 1)}


def knows_unicode_16():
    """Old releases of the package have the tables of Unicode 14."""
    digits = tokenizers.pre_tokenizers.Split(tokenizers.Regex(r"\p{N}"), "isolated")
    return len(digits.pre_tokenize_str("a\U00010d40")) == 2


def compare(program, path, lines):
    if not knows_unicode_16():
        print("this release of tokenizers is older than Unicode 15: its new characters are left out")
        left_out = dict.fromkeys(newer_characters())
        lines = [line.translate(left_out) for line in lines]
    reference = tokenizers.Tokenizer.from_file(path)
    differences = 0
    for special in (False, True):
        reference.encode_special_tokens = not special
        expected = [e.ids for e in reference.encode_batch(lines, add_special_tokens=False)]
        found = ask(program, path, [{"text": t, "special": special} for t in lines])
        decoded = ask(program, path, [{"ids": ids} for ids in expected])
        texts = reference.decode_batch(expected, skip_special_tokens=False)
        for line, ours, ids, answer, text in zip(lines, found, expected, decoded, texts):
            if ours != ids:
                report(f"encode (special={special})", line, ours, ids)
                differences += 1
            raw = bytes.fromhex(answer["hex"])
            if raw.decode("utf-8", "replace") != text or raw != line.encode():
                report(f"decode (special={special})", line, raw, text.encode())
                differences += 1
    return differences


def plain_json(path):
    """The path of an unpacked copy when `path` is .xz."""
    if not path.endswith(".xz"):
        return path
    handle, name = tempfile.mkstemp(suffix=".json")
    with os.fdopen(handle, "wb") as out, lzma.open(path) as packed:
        out.write(packed.read())
    return name


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("tokenizer")
    parser.add_argument("--lines", type=int, default=12000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    path = plain_json(arguments.tokenizer)
    try:
        with open(path, encoding="utf-8") as file:
            added = [t["content"] for t in json.load(file)["added_tokens"]]
        lines = make_lines(arguments.lines, arguments.seed, added)
        differences = compare(arguments.program, path, lines)
    finally:
        if path != arguments.tokenizer:
            os.unlink(path)
    size = sum(len(line.encode()) for line in lines)
    print(f"{len(lines)} lines, {size} bytes, special tokens off and on: "
          f"{differences} differences from tokenizers {tokenizers.__version__}")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
