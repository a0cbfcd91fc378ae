"""Draws the loss curves of training runs as an SVG, with the standard library only.

usage: plot.py OUT.svg NAME=log.jsonl..."""
import json
import sys

COLOURS = ("#1f6fb4", "#c8552b", "#3a8f4a", "#7a52a8")
W, H, LEFT, RIGHT, TOP, BOTTOM = 900, 420, 64, 20, 44, 46


def read(path):
    """({step: training loss}, {step: held-out bits per byte}, {step: the same with gates shut})"""
    curves = ({}, {}, {})
    with open(path) as f:
        for line in f:
            row = json.loads(line)
            for curve, key in zip(curves, ("loss", "held_out_bits_per_byte", "gates_shut")):
                if key in row:
                    curve[row["step"]] = row[key]
    return curves


def smooth(points, window=9):
    """A running mean over `window` logged values."""
    out, values = [], []
    for step, value in sorted(points.items()):
        values = (values + [value])[-window:]
        out.append((step, sum(values) / len(values)))
    return out


def panel(x0, width, title, curves, low, high, ticks, last):
    """SVG of one pair of axes; curves are (name, colour, dashes, points)."""
    height = H - TOP - BOTTOM
    px = lambda s: x0 + width * s / last
    py = lambda v: TOP + height * (1 - (min(max(v, low), high) - low) / (high - low))
    out = [f'<text x="{x0}" y="{TOP - 20}" font-weight="bold">{title}</text>']
    for t in ticks:
        out.append(f'<line x1="{x0}" x2="{x0 + width}" y1="{py(t):.1f}" y2="{py(t):.1f}" stroke="#ddd"/>'
                   f'<text x="{x0 - 8}" y="{py(t) + 4:.1f}" text-anchor="end">{t:g}</text>')
    for s in range(0, last + 1, 2000):
        out.append(f'<text x="{px(s):.1f}" y="{H - BOTTOM + 20}" text-anchor="middle">{s}</text>')
    for i, (name, colour, dash, points) in enumerate(curves):
        path = " ".join(f"{px(s):.1f},{py(v):.1f}" for s, v in points)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.8" stroke-dasharray="{dash}"/>')
    out.append(f'<rect x="{x0 + width - 184}" y="{TOP}" width="184" height="{18 * len(curves) + 8}" fill="white" fill-opacity="0.85"/>')
    for i, (name, colour, dash, _) in enumerate(curves):
        y = TOP + 12 + 18 * i
        out.append(f'<line x1="{x0 + width - 178}" x2="{x0 + width - 152}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="2" '
                   f'stroke-dasharray="{dash}"/><text x="{x0 + width - 146}" y="{y + 4}">{name}</text>')
    out.append(f'<text x="{x0 + width / 2}" y="{H - 8}" text-anchor="middle">step</text>')
    return "\n".join(out)


def main(out, *runs):
    left, right, last = [], [], 0
    for colour, run in zip(COLOURS, runs):
        name, path = run.split("=", 1)
        loss, held, shut = read(path)
        last = max(last, max(loss))
        left.append((name, colour, "", smooth(loss)))
        right.append((name, colour, "", sorted(held.items())))
        if shut:
            right.append((f"{name}, gates shut", colour, "5 4", sorted(shut.items())))
    width = (W - 2 * LEFT - 2 * RIGHT) // 2
    svg = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {W} {H}" font-family="sans-serif" font-size="12">',
           f'<rect width="{W}" height="{H}" fill="white"/>',
           panel(LEFT, width, "training loss, nats a token", left, 2.0, 5.0, (2, 2.5, 3, 3.5, 4, 4.5, 5), last),
           panel(2 * LEFT + width + RIGHT, width, "held-out text, bits a byte", right, 1.1, 1.8, (1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8), last), "</svg>"]
    with open(out, "w") as f:
        f.write("\n".join(svg) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
