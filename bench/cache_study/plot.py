"""Draws docs/img/engram-cache*.svg from what `engram_cache_study curves` prints.

usage: plot.py CURVES.tsv OUT_FOLDER
"""

import math
import os
import sys

KINDS = ["repeated", "code", "chat", "mixed", "prose", "chinese"]
POLICIES = ["LRU", "W-TinyLFU", "S3-FIFO", "row cache", "optimum"]
COLORS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"]
POLICY_COLORS = {"LRU": "#999999", "W-TinyLFU": "#56b4e9",
                 "S3-FIFO": "#009e73", "row cache": "#d55e00",
                 "optimum": "#333333"}
LAST_MB = 8192


def read(path):
    """{kind: {policy: [(MB, rates of the second half)]}}"""
    curves = {}
    for line in open(path, encoding="utf-8"):
        if line.startswith("#"):
            continue
        kind, policy, megabytes, *rates = line.split("\t")
        points = curves.setdefault(kind, {}).setdefault(policy, [])
        points.append((int(megabytes), [float(r) for r in rates[4:]]))
    return curves


def size_name(megabytes):
    return f"{megabytes} MB" if megabytes < 1024 else f"{megabytes // 1024} GB"


class Panel:
    """Axes of one plot: sizes from 1 MB to 8 GB, rates from 0 to 100 %."""

    def __init__(self, x, y, width, height, title):
        self.x, self.y, self.width, self.height = x, y, width, height
        self.parts = [text(x + width / 2, y - 8, title, "middle", 13, True)]
        for percent in range(0, 101, 20):
            at = self.place_y(percent / 100)
            self.parts.append(line(x, at, x + width, at, "#e0e0e0"))
            self.parts.append(text(x - 6, at + 4, f"{percent} %", "end"))
        for log in range(0, 14, 2 if width < 400 else 1):
            at = self.place_x(2**log)
            self.parts.append(line(at, y, at, y + height, "#f0f0f0"))
            label = size_name(2**log)
            if width < 400:
                label = label.replace(" MB", "M").replace(" GB", "G")
            self.parts.append(text(at, y + height + 16, label, "middle"))
        self.parts.append(f'<rect x="{x}" y="{y}" width="{width}" '
                          f'height="{height}" fill="none" stroke="#888"/>')

    def place_x(self, megabytes):
        return self.x + math.log2(megabytes) / math.log2(LAST_MB) * self.width

    def place_y(self, rate):
        return self.y + (1 - rate) * self.height

    def curve(self, points, color, dashes=""):
        path = " ".join(f"{self.place_x(m):.1f},{self.place_y(r):.1f}"
                        for m, r in points)
        extra = f' stroke-dasharray="{dashes}"' if dashes else ""
        self.parts.append(f'<polyline points="{path}" fill="none" '
                          f'stroke="{color}" stroke-width="2"{extra}/>')


def line(x1, y1, x2, y2, color, dashes=""):
    extra = f' stroke-dasharray="{dashes}" stroke-width="2"' if dashes else ""
    return (f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
            f'stroke="{color}"{extra}/>')


def text(x, y, words, anchor="start", size=11, bold=False):
    weight = ' font-weight="bold"' if bold else ""
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" '
            f'font-size="{size}"{weight}>{words}</text>')


def legend(x, y, entries, step):
    parts = []
    for i, (name, color, dashes) in enumerate(entries):
        dx, dy = (0, i * 18) if step == 0 else (i * step, 0)
        parts.append(line(x + dx, y + dy, x + dx + 22, y + dy, color,
                          dashes or "1000"))
        parts.append(text(x + dx + 28, y + dy + 4, name))
    return parts


def write(path, width, height, parts):
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" '
                   f'height="{height}" viewBox="0 0 {width} {height}" '
                   'font-family="sans-serif" fill="#222">\n'
                   f'<rect width="{width}" height="{height}" fill="#fff"/>\n')
        file.write("\n".join(parts) + "\n</svg>\n")


def draw_kinds(curves, path):
    panel = Panel(60, 40, 640, 360,
                  "Rows found in the cache, by kind of text and cache size")
    kinds = [k for k in KINDS if k in curves]
    for kind, color in zip(kinds, COLORS):
        panel.curve([(m, r[0]) for m, r in curves[kind]["row cache"]], color)
    parts = panel.parts + legend(
        720, 60, [(k, c, "") for k, c in zip(kinds, COLORS)], 0)
    parts.append(text(380, 440, "memory of the cache (--engram-cache)",
                      "middle"))
    write(path, 830, 455, parts)


def draw_orders(curves, path):
    parts = []
    for i, kind in enumerate(["prose", "code", "chat"]):
        panel = Panel(60 + i * 300, 60, 240, 240, kind)
        for order, color in zip(range(3), COLORS):
            panel.curve([(m, r[1 + order])
                         for m, r in curves[kind]["row cache"]], color)
        parts += panel.parts
    names = [(f"rows of {n}-grams", COLORS[n - 2], "") for n in (2, 3, 4)]
    parts += legend(260, 20, names, 170)
    parts.append(text(480, 340, "memory of the cache", "middle"))
    write(path, 930, 350, parts)


def draw_policies(curves, path):
    parts = []
    kinds = [k for k in KINDS if k in curves]
    for i, kind in enumerate(kinds):
        panel = Panel(60 + i % 3 * 300, 60 + i // 3 * 290, 240, 220, kind)
        for policy in POLICIES:
            panel.curve([(m, r[0]) for m, r in curves[kind][policy]],
                        POLICY_COLORS[policy],
                        "4 3" if policy == "optimum" else "")
        parts += panel.parts
    parts += legend(140, 20, [
        (p, POLICY_COLORS[p], "4 3" if p == "optimum" else "")
        for p in POLICIES], 140)
    parts.append(text(480, 625, "memory of the cache", "middle"))
    write(path, 930, 635, parts)


def main():
    curves, out = read(sys.argv[1]), sys.argv[2]
    draw_kinds(curves, os.path.join(out, "engram-cache.svg"))
    draw_orders(curves, os.path.join(out, "engram-cache-orders.svg"))
    draw_policies(curves, os.path.join(out, "engram-cache-policies.svg"))


if __name__ == "__main__":
    main()
