// The script of the trace page, second part: explains the chosen token.
#include "trace/page.h"

namespace ecphory::trace {

const std::string_view kTracePanelScript = R"js(
function pieceOf(i) {
  const t = T[i];
  if (t.piece === "") return "#" + t.id;
  return t.hex ? t.hex.replace(/(..)(?=.)/g, "$1 ") : show(t.piece);
}

function head(i) {
  const t = T[i];
  const name = el("code", {}, pieceOf(i));
  name.style.setProperty("--a", dead(i) ? 0 : scaled(values[i]));
  const facts = "token " + i + " \u00b7 id " + t.id + " \u00b7 " +
    (dead(i) ? "dead: an image position, no look-up counts" : "compressed id " + t.compressed);
  const out = [el("h2", {}, name), el("p", { class: "note" }, facts)];
  if (t.hex && t.whole) {
    out.push(el("p", { class: "note" }, "These bytes are a part of " + t.whole + ". Such tokens keep an id of their own."));
  }
  const c = data.classes[t.compressed];
  if (c && c.members > 1) {
    out.push(el("p", { class: "note" }, "One of " + c.members + " tokens with this compressed id: " +
      c.pieces.map(show).join("  ") + (c.pieces.length < c.members ? "  \u2026" : "")));
  }
  return out;
}

function ngrams(i) {
  const t = T[i], out = [el("h3", {}, "N-grams that end here")];
  for (let n = 2; n <= data.max_ngram; ++n) {
    const row = el("div", { class: "chips" }, el("b", {}, n + "-gram"));
    for (let back = n - 1; back >= 0; --back) {
      const real = back < t.reach;
      row.append(el("span", { class: real ? "chip" : "chip pad" },
        real ? pieceOf(i - back) : "padding", el("small", {}, String(t.window[back]))));
    }
    if (seen[i][n] !== undefined) row.append(el("span", { class: "seen" }, "seen at token " + seen[i][n]));
    out.push(row);
  }
  return out;
}

function gates(i, k) {
  const rows = T[i].layers[k].streams.map(([gate, dot, move, cosine], s) => {
    const bar = el("i", {});
    bar.style.width = 100 * gate + "%";
    return el("tr", {}, el("th", { scope: "row" }, "stream " + s),
      el("td", { class: "gate" }, el("div", { class: "meter" }, bar, el("u", {}))),
      el("td", { class: "num" }, gate.toFixed(3)), el("td", { class: "num" }, percent(move)),
      el("td", { class: "num" }, cosine.toFixed(2)), el("td", { class: "num" }, dot === null ? "> 270" : dot.toFixed(2)));
  });
  return el("table", {}, el("thead", {}, el("tr", {}, el("th", {}, ""), el("th", {}, "gate"),
    el("th", { class: "num" }, ""), el("th", { class: "num", title: "|gate v| / |h|: how far the stream moves" }, "moves"),
    el("th", { class: "num", title: "cosine of value and stream" }, "cos"),
    el("th", { class: "num", title: "scaled product of key and stream; the gate is made from it" }, "dot"))),
    el("tbody", {}, ...rows));
}

// The table on disk as a line: one segment a column, a tick where the row lies.
function strip(i, k) {
  const layer = L[k], W = 1000, y = x => x / layer.rows * W;
  const out = svg("svg", { class: "strip", viewBox: "0 0 1000 30", preserveAspectRatio: "none", role: "img",
    "aria-label": "Places of the rows in the table of layer " + layer.layer });
  layer.columns.forEach(([n, h, prime, offset]) => out.append(svg("rect", { x: y(offset) + 1, y: 8, width: y(prime) - 2,
    height: 14, fill: "var(--s" + (n - 1) % 8 + ")", opacity: .22 })));
  T[i].layers[k].rows.forEach((row, c) => out.append(svg("rect", { x: y(row) - 2, y: 3, width: 4, height: 24,
    fill: "var(--s" + (layer.columns[c][0] - 1) % 8 + ")" })));
  return out;
}

function rows(i, k) {
  const body = L[k].columns.map(([n, h, prime, offset], c) => {
    const row = T[i].layers[k].rows[c];
    const name = el("td", {}, h === 0 ? n + "-gram" : "");
    name.style.color = "var(--s" + (n - 1) % 8 + ")";
    return el("tr", {}, name, ...[h, prime, row - offset, offset, row].map(x => el("td", { class: "num" }, group(x))));
  });
  return el("table", {}, el("thead", {}, el("tr", {}, el("th", {}, ""), ...["head", "prime", "mixed mod p", "+ offset", "= row"]
    .map(x => el("th", { class: "num" }, x)))), el("tbody", {}, ...body));
}

function arithmetic(i, k) {
  const t = T[i], lines = [];
  t.window.forEach((id, back) => lines.push((back ? " xor " : "     ") + String(id).padStart(6) + " x " + L[k].multipliers[back] +
    (back ? "  = mixed of the " + (back + 1) + "-gram: " + t.layers[k].mixed[back - 1] : "")));
  return el("details", {}, el("summary", {}, "The arithmetic: ids times multipliers, xor, modulo"),
    el("div", { class: "sum num", tabindex: 0 }, lines.join("\n")));
}

function explain() {
  const i = state.at;
  const near = T[i].reach;
  spans.forEach((s, j) => {
    s.classList.toggle("on", j === i);
    s.classList.toggle("near", j < i && j > i - near);
    s.tabIndex = j === i ? 0 : -1;
  });
  document.querySelectorAll(".same").forEach(s => s.classList.remove("same"));
  const most = longest(i);
  if (most) spans[seen[i][most]].classList.add("same");
  const open = Array.from(panel.querySelectorAll("details")).map(d => d.open);
  const out = [...head(i), ...ngrams(i)];
  if (H) L.forEach((layer, k) => out.push(el("h3", {}, "Gates of layer " + layer.layer), gates(i, k)));
  L.forEach((layer, k) => {
    out.push(el("h3", {}, "Rows in the table of layer " + layer.layer), strip(i, k),
      el("details", {}, el("summary", {}, layer.columns.length + " of its " + group(layer.rows) + " rows"), rows(i, k)),
      arithmetic(i, k));
  });
  panel.replaceChildren(...out);
  panel.querySelectorAll("details").forEach((d, n) => { d.open = n < open.length ? open[n] : n === 0; });
  needle();
}

function choose(i, focus) {
  if (i < 0 || i >= T.length) return;
  state.at = i;
  explain();
  if (focus) spans[i].focus();
}
let pinned = false;
box.addEventListener("pointerover", e => {
  const s = e.target.closest(".t");
  if (s && !pinned) choose(+s.dataset.i, false);
});
box.addEventListener("click", e => {
  const s = e.target.closest(".t");
  if (!s) return;
  pinned = !(pinned && +s.dataset.i === state.at);
  choose(+s.dataset.i, true);
});
box.addEventListener("focusin", e => {
  const s = e.target.closest(".t");
  if (s && +s.dataset.i !== state.at) choose(+s.dataset.i, false);
});
box.addEventListener("keydown", e => {
  const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 10, ArrowUp: -10 }[e.key];
  const to = e.key === "Home" ? 0 : e.key === "End" ? T.length - 1 :
    step ? Math.min(T.length - 1, Math.max(0, state.at + step)) : -1;
  if (e.key === "Escape") pinned = false;
  if (to < 0) return;
  e.preventDefault();
  pinned = true;
  choose(to, true);
});
document.querySelectorAll(".seg input").forEach(input => input.addEventListener("change", () => {
  if (input.name === "view") { box.classList.toggle("cells", input.value === "cells"); return; }
  state[input.name] = input.value;
  recolour();
}));
(() => {
  // Begin where there is something to see: a word with a wide gate, or #t12.
  recolour();
  const asked = /^#t(\d+)$/.exec(location.hash);
  const word = i => /^\s?\p{L}{3,}$/u.test(T[i].piece) && T[i].reach === data.max_ngram;
  let best = 0;
  values.forEach((v, i) => { if (!dead(i) && word(i) && (best === 0 || v > values[best])) best = i; });
  choose(asked && +asked[1] < T.length ? +asked[1] : best, false);
})();
)js";

}  // namespace ecphory::trace
