// The script of the trace page, first part: colours the text and draws the
// scale. All text reaches the page through textContent, never as markup.
#include "trace/page.h"

namespace ecphory::trace {

const std::string_view kTraceScript = R"js(
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const T = data.tokens, L = data.layers, H = data.streams;
const box = document.getElementById("text");
const spans = Array.from(box.querySelectorAll(".t"));
const panel = document.getElementById("panel");
const legend_box = document.getElementById("legend");
const state = { layer: "mean", stream: "mean", measure: H ? "gate" : "repeat",
  range: H ? "auto" : "full", at: 0 };

function el(tag, attributes, ...children) {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(attributes || {})) e.setAttribute(k, v);
  e.append(...children.filter(c => c !== null));
  return e;
}
function svg(tag, attributes, ...children) {
  const e = document.createElementNS(legend_box.namespaceURI, tag);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  e.append(...children);
  return e;
}
const group = n => String(n).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
const percent = x => (100 * x).toFixed(Math.abs(x) < .0995 ? 1 : 0) + "%";
const show = piece => piece.replace(/ /g, "\u00b7").replace(/\n/g, "\u23ce")
  .replace(/\t/g, "\u21e5").replace(/\r/g, "\u240d");

// The longest n-gram of each token that ended earlier in the text, and where.
const seen = (() => {
  const last = new Map();
  return T.map((t, i) => {
    const found = {};
    for (let n = 2; n <= data.max_ngram && n <= t.reach; ++n) {
      const key = t.window.slice(0, n).join(" ");
      if (last.has(key)) found[n] = last.get(key);
      last.set(key, i);
    }
    return found;
  });
})();
const longest = i => Math.max(0, ...Object.keys(seen[i]).map(Number));

const kinds = { gate: 0, move: 2 };
function value(i) {
  if (state.measure === "repeat") return longest(i) / data.max_ngram;
  const field = kinds[state.measure];
  const layers = state.layer === "mean" ? L.map((_, k) => k) : [+state.layer];
  const perLayer = layers.map(k => {
    const s = T[i].layers[k].streams.map(x => x[field]);
    if (state.stream === "mean") return s.reduce((a, b) => a + b, 0) / s.length;
    if (state.stream === "max") return Math.max(...s);
    return s[+state.stream];
  });
  return perLayer.reduce((a, b) => a + b, 0) / perLayer.length;
}

let values = [], low = 0, high = 1;
const scaled = v => high > low ? Math.min(1, Math.max(0, (v - low) / (high - low))) : 0;
const dead = i => T[i].compressed < 0;

function recolour() {
  values = T.map((_, i) => value(i));
  const live = values.filter((_, i) => !dead(i)).sort((a, b) => a - b);
  low = 0; high = 1;
  const top = live.length ? live[live.length - 1] : 1;
  if (state.measure === "move") high = top || 1;
  if (state.range === "auto" && state.measure !== "repeat" && live.length > 1) {
    // One token out of hundred at each end may be off the scale.
    low = live[Math.floor(.01 * (live.length - 1))];
    high = live[Math.ceil(.99 * (live.length - 1))];
  }
  spans.forEach((s, i) => s.style.setProperty("--a", dead(i) ? 0 : scaled(values[i]).toFixed(3)));
  map();
  legend(live);
  explain();
}

// Under each token of the token view: a line for each layer, a cell for each
// stream, on the same scale.
function map() {
  const few = L.length <= 8 && H > 0 && state.measure !== "repeat";
  box.style.setProperty("--layers", few ? L.length : 0);
  if (!few) return;
  const field = kinds[state.measure];
  T.forEach((t, i) => {
    const lines = t.layers.map((layer, k) => "linear-gradient(to right," + layer.streams.map((x, s) =>
      "rgba(var(--hot)," + (dead(i) ? 0 : scaled(x[field])).toFixed(2) + ") " + 100 * s / H + "% " + 100 * (s + 1) / H + "%").join(",") +
      ") 0 " + k * 6 + "px / 100% 5px no-repeat");
    spans[i].style.setProperty("--map", lines.join(","));
  });
}

// The scale: a ramp with the values' histogram on it and the token's own mark.
function legend(live) {
  const W = 300, top = 30, ramp = 12, bins = 30;
  const counts = new Array(bins).fill(0);
  for (const v of live) counts[Math.min(bins - 1, Math.floor(scaled(v) * bins))]++;
  const most = Math.max(1, ...counts);
  const out = [];
  legend_box.setAttribute("aria-label", "Colour scale from " + label(low) + " to " + label(high));
  counts.forEach((c, b) => {
    const h = c ? Math.max(1.5, c / most * (top - 4)) : 0;
    out.push(svg("rect", { x: b * W / bins + .5, y: top - h, width: W / bins - 1,
      height: h, fill: "var(--soft)", opacity: .55 }));
  });
  for (let b = 0; b < bins; ++b) {
    out.push(svg("rect", { x: b * W / bins, y: top, width: W / bins + .5,
      height: ramp, fill: "rgba(var(--hot), " + ((b + .5) / bins * .78).toFixed(3) + ")" }));
  }
  out.push(svg("rect", { x: 0, y: top, width: W, height: ramp, fill: "none", stroke: "var(--line)" }));
  const ticks = state.measure === "repeat" ? [0] : [0, .25, .5, .75, 1];
  for (let n = 2; state.measure === "repeat" && n <= data.max_ngram; ++n) ticks.push(n / data.max_ngram);
  for (const k of ticks) {
    out.push(svg("text", { x: k * W, y: top + ramp + 13,
      "text-anchor": k === 0 ? "start" : k === 1 ? "end" : "middle" }, label(low + (high - low) * k)));
  }
  out.push(svg("path", { id: "needle", fill: "var(--ink)", d: "" }));
  legend_box.replaceChildren(...out);
}
function label(v) {
  if (state.measure === "repeat") return v === 0 ? "new" : (v * data.max_ngram).toFixed(0) + "-gram";
  return state.measure === "move" ? percent(v) : v.toFixed(2);
}
function needle() {
  const e = document.getElementById("needle");
  if (e === null) return;
  const x = scaled(values[state.at]) * 300;
  e.setAttribute("d", dead(state.at) ? "" : "M" + x + " 30l-5-8h10z");
}
)js";

}  // namespace ecphory::trace
