#include "trace/page.h"

#include "trace/format.h"

namespace ecphory::trace {

std::string RenderPage(const Page& page) {
  std::string html = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n";
  html += "<meta charset=\"utf-8\">\n";
  html +=
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src "
      "'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n";
  html +=
      "<meta name=\"viewport\" content=\"width=device-width, "
      "initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light "
      "dark\">\n";
  html += "<title>" + EscapeHtml(page.title) + "</title>\n<style>";
  html += kBaseStyle;
  html += page.style;
  html += "</style>\n</head>\n<body>\n" + page.body;
  if (!page.data.empty()) {
    html += "<script type=\"application/json\" id=\"data\">" +
            EscapeScript(page.data) + "</script>\n";
  }
  if (!page.script.empty()) {
    html += "<script>";
    html += page.script;
    html += "</script>\n";
  }
  return html + "</body>\n</html>\n";
}

const std::string_view kBaseStyle = R"css(
:root {
  --paper: #fdfcf9; --raised: #ffffff; --ink: #1c1b19; --soft: #625d55;
  --line: #dcd7cd; --hot: 240, 118, 12; --accent: #b24a00; --cool: #2b6cb0;
  --good: #1f7a4d; --bad: #b3261e;
  --s0: #b24a00; --s1: #2b6cb0; --s2: #2f7d4f; --s3: #8a3ea0; --s4: #7a6a00;
  --s5: #b3265e; --s6: #00727a; --s7: #5a5a5a;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #16171a; --raised: #1e2024; --ink: #ecebe8; --soft: #a5a29b;
    --line: #383a40; --hot: 226, 105, 12; --accent: #ff9a4a; --cool: #79b4f2;
    --good: #6cc799; --bad: #ff8a80;
    --s0: #ff9a4a; --s1: #79b4f2; --s2: #6cc799; --s3: #d49bea; --s4: #d9c552;
    --s5: #ff8fbd; --s6: #5fc9d2; --s7: #b5b5b5;
  }
}
* { box-sizing: border-box; }
html { background: var(--paper); color: var(--ink); }
body { margin: 0 auto; max-width: 1240px; padding: 28px 24px 56px;
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
h1 { font-size: 26px; line-height: 1.2; margin: 0 0 4px; letter-spacing: -.01em; }
h2 { font-size: 17px; margin: 0 0 8px; }
h3 { font-size: 14px; margin: 20px 0 6px; }
p { margin: 0 0 12px; max-width: 76ch; }
.sub, .note { color: var(--soft); font-size: 14px; }
.num, code, kbd { font-family: ui-monospace, "SF Mono", Menlo, Consolas,
  "DejaVu Sans Mono", monospace; font-variant-numeric: tabular-nums; }
table { border-collapse: collapse; font-size: 13px; }
th { font-weight: 600; text-align: left; color: var(--soft); }
th, td { padding: 2px 12px 2px 0; vertical-align: baseline; }
td.num, th.num { text-align: right; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
)css";

}  // namespace ecphory::trace
