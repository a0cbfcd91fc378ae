// The style of the trace page.
#include "trace/page.h"

namespace ecphory::trace {

const std::string_view kTraceStyle = R"css(
.top { display: flex; flex-wrap: wrap; gap: 12px 40px; align-items: flex-end;
  justify-content: space-between; margin-bottom: 14px; }
.lead { margin: 0; flex: 1 1 420px; }
.bar { display: flex; flex-wrap: wrap; gap: 10px 22px; align-items: flex-end;
  padding: 12px 0; border-top: 1px solid var(--line); }
fieldset { border: 0; margin: 0; padding: 0; min-width: 0; }
legend { font-size: 12px; color: var(--soft); padding: 0; margin-bottom: 3px; }
.seg { display: inline-flex; flex-wrap: wrap; border: 1px solid var(--line);
  border-radius: 7px; background: var(--raised); overflow: hidden; }
.seg label { position: relative; cursor: pointer; }
.seg input { position: absolute; opacity: 0; inset: 0; margin: 0; cursor: pointer; }
.seg span { display: block; padding: 4px 11px; font-size: 14px;
  border-right: 1px solid var(--line); }
.seg label:last-child span { border-right: 0; }
.seg input:checked + span { background: var(--ink); color: var(--paper); }
.seg input:focus-visible + span { outline: 2px solid var(--accent);
  outline-offset: -3px; }
.scale { margin: 0; }
.scale figcaption { font-size: 12px; color: var(--soft); margin-bottom: 3px; }
.scale svg { display: block; overflow: visible; }
.scale text { font-size: 11px; fill: var(--soft); }
main { display: grid; grid-template-columns: minmax(0, 1fr) 452px; gap: 30px;
  align-items: start; border-top: 1px solid var(--line); padding-top: 18px; }
#text { line-height: 2; font-size: 18px; white-space: pre-wrap;
  overflow-wrap: anywhere; font-family: Charter, "Iowan Old Style", Georgia,
  "DejaVu Serif", serif; }
#text.cells { font-family: ui-monospace, "SF Mono", Menlo, Consolas,
  "DejaVu Sans Mono", monospace; font-size: 14px; line-height: 2.15; }
.t { --a: 0; background-color: rgba(var(--hot), calc(var(--a) * .78));
  border-radius: 3px; padding: 3px 0; margin-right: 1px; cursor: default;
  unicode-bidi: isolate;
  box-decoration-break: clone; -webkit-box-decoration-break: clone; }
.t .ws { color: var(--soft); opacity: .75; user-select: none; }
.t.mark { font: 12px ui-monospace, "DejaVu Sans Mono", monospace;
  color: var(--soft); padding: 3px 4px; border-radius: 4px;
  box-shadow: inset 0 0 0 1px var(--line); }
.t.hex { font: 12px ui-monospace, "DejaVu Sans Mono", monospace;
  padding: 3px 2px; }
.t.hex b { font-weight: 400; font-size: 17px; margin-left: 3px; }
.cells .t { display: inline-block; position: relative; line-height: 1.5;
  padding: 1px 3px calc(3px + var(--layers) * 6px); margin: 3px 5px 3px 0;
  border: 1px solid var(--line); vertical-align: top; }
.cells .t::after { content: ""; position: absolute; inset: auto 0 0 0;
  height: calc(var(--layers) * 6px); background: var(--map), linear-gradient(var(--paper), var(--paper)); }
.cells .t.mark, .cells .t.hex { line-height: 21px; box-shadow: none; }
.cells .t.hex b { font-size: 14px; }
.cells .sp { position: relative; }
.cells .sp::before { content: "\00b7"; position: absolute; color: var(--soft); }
.t.dead { background: repeating-linear-gradient(135deg, transparent 0 4px,
  var(--line) 4px 5px); color: var(--soft); }
.t.near { box-shadow: inset 0 -3px 0 var(--cool); border-radius: 3px 3px 0 0; }
.t.on, .t.on:focus-visible { outline: 2px solid var(--ink); outline-offset: 1px;
  border-radius: 3px; }
.t.same { box-shadow: inset 0 0 0 2px var(--good); }
.panel { position: sticky; top: 16px; background: var(--raised);
  border: 1px solid var(--line); border-radius: 10px; padding: 16px 18px;
  max-height: calc(100vh - 32px); overflow: auto; }
.panel h2 { font-size: 20px; margin: 0; overflow-wrap: anywhere; }
.panel h2 code { background: rgba(var(--hot), calc(var(--a, 0) * .78));
  padding: 1px 6px; border-radius: 4px; white-space: pre-wrap; }
.panel table { width: 100%; }
.panel th { white-space: nowrap; }
.panel td, .panel th { padding-right: 8px; }
.panel td:last-child, .panel th:last-child { padding-right: 0; }
.chips { display: flex; flex-wrap: wrap; gap: 4px; margin: 0 0 5px;
  align-items: center; font-size: 13px; }
.chips b { font-weight: 600; color: var(--soft); width: 54px; font-size: 12px; }
.chip { border: 1px solid var(--line); border-radius: 5px; padding: 0 6px;
  font-family: ui-monospace, "DejaVu Sans Mono", monospace;
  max-width: 150px; overflow: hidden; text-overflow: ellipsis;
  white-space: pre; }
.chip small { color: var(--soft); margin-left: 5px; }
.chip.pad { border-style: dashed; color: var(--soft); }
.seen { color: var(--good); font-size: 12px; margin-left: 4px; }
.gate { width: 40%; }
.meter { position: relative; height: 12px; background: var(--paper);
  border: 1px solid var(--line); border-radius: 3px; min-width: 70px; }
.meter i { position: absolute; inset: 0 auto 0 0; border-radius: 2px;
  background: rgba(var(--hot), .78); }
.meter u { position: absolute; top: -2px; bottom: -2px; left: 50%; width: 1px;
  background: var(--soft); }
.strip { width: 100%; height: 30px; display: block; margin: 4px 0 2px; }
details { margin-top: 10px; }
summary { cursor: pointer; font-size: 13px; color: var(--accent); }
.sum { font-size: 12px; line-height: 1.6; overflow-x: auto; white-space: pre;
  margin: 6px 0; }
footer { margin-top: 30px; padding-top: 14px; border-top: 1px solid var(--line); }
kbd { border: 1px solid var(--line); border-radius: 4px; padding: 0 5px;
  font-size: 12px; background: var(--raised); }
@media (max-width: 940px) {
  main { grid-template-columns: minmax(0, 1fr); }
  .panel { position: static; max-height: none; }
}
@media print { .panel, .bar fieldset:not(.scale) { display: none; }
  main { display: block; } }
)css";

}  // namespace ecphory::trace
