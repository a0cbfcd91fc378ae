"""Trains the byte-level BPE vocabulary. The pre-tokenizer has the three splits of the DeepSeek-V3 tokenizer.

usage: train_tokenizer.py TEXT... --vocab 8192 --out tokenizer.json"""
import argparse
import re

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

BOS, EOS, PAD = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"
SPLITS = (
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
)


def new_tokenizer():
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(s), behavior="isolated") for s in SPLITS]
        + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    tok.post_processor = processors.ByteLevel(trim_offsets=False)
    return tok


def documents(paths):
    for path in paths:
        with open(path, encoding="utf-8") as f:
            yield from (d for d in re.split(r"\n\n+", f.read().strip("\n")) if d)


def train(texts, vocab):
    tok = new_tokenizer()
    tok.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=vocab, special_tokens=[BOS, EOS, PAD], min_frequency=2, show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    return tok


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text", nargs="+")
    parser.add_argument("--vocab", type=int, default=8192)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    tok = train(documents(args.text), args.vocab)
    tok.save(args.out)
    print(f"{args.out}: {tok.get_vocab_size()} tokens")
