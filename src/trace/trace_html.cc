// A trace as a page: the text, coloured, and what lies behind each token.
#include <algorithm>

#include "ecphory/engram_trace.h"
#include "trace/format.h"
#include "trace/page.h"
#include "trace/trace_page_data.h"

namespace ecphory {

namespace {

using trace::EscapeHtml;
using trace::Grouped;
using trace::Print;

// --- Text -------------------------------------------------------------------

// A visible sign for what a line of text would swallow. The line breaks inside
// the token, except for newlines at its end: those break it after the token.
std::string VisiblePiece(std::string_view html) {
  const size_t last = html.find_last_not_of('\n');
  const size_t end = last == std::string_view::npos ? 0 : last + 1;
  std::string visible;
  // Marked, so that the token view can show a dot.
  const size_t blanks = std::min(html.find_first_not_of(' '), html.size());
  if (blanks > 0) {
    visible =
        "<span class=\"sp\">" + std::string(html.substr(0, blanks)) + "</span>";
  }
  for (size_t i = blanks; i < html.size(); ++i) {
    if (html[i] == '\n') {
      visible += "<span class=\"ws\">\xE2\x8F\x8E</span>";
      if (i < end) visible += '\n';
    } else if (html[i] == '\t') {
      visible += "<span class=\"ws\">\xE2\x87\xA5</span>\t";
    } else {
      visible += html[i];
    }
  }
  return visible;
}

std::string TrailingBreaks(const std::string& piece) {
  const size_t last = piece.find_last_not_of('\n');
  return piece.substr(last == std::string::npos ? 0 : last + 1);
}

bool IsBlank(const std::string& piece) {
  return std::all_of(piece.begin(), piece.end(), [](char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
  });
}

// Bytes in hexadecimal, and the character that they complete, if any.
std::string PartialPiece(const std::string& piece, std::string_view text,
                         size_t begin) {
  std::string html = trace::Hex(piece);
  const size_t end = begin + piece.size();
  const std::string before =
      trace::WholeCharacters(text.substr(0, end), begin, end);
  if (!before.empty()) html += "<b>" + EscapeHtml(before) + "</b>";
  return html;
}

// `text` has the bytes of all tokens; this one's begin at `begin`.
std::string TokenHtml(const EngramTraceToken& token, size_t at,
                      std::string_view text, size_t begin) {
  std::string kind, content;
  if (token.piece.empty()) {
    kind = " mark";
    content = Print("#%d", token.id);
  } else if (token.special) {
    kind = " mark";
    content = EscapeHtml(token.piece);
  } else if (!trace::IsWholeUtf8(token.piece)) {
    kind = " hex";
    content = PartialPiece(token.piece, text, begin);
  } else {
    content = VisiblePiece(EscapeHtml(token.piece));
  }
  std::string aria;
  if (!token.piece.empty() && IsBlank(token.piece)) {
    aria = " aria-label=\"" + EscapeHtml(trace::QuotePiece(token.piece)) + "\"";
  }
  if (token.compressed < 0) kind += " dead";
  return Print("<span class=\"t%s\" id=\"t%zu\" data-i=\"%zu\"%s>",
               kind.c_str(), at, at, aria.c_str()) +
         content + "</span>" + TrailingBreaks(token.piece);
}

std::string TextHtml(const EngramTrace& trace, std::string_view text) {
  std::string html =
      "<section id=\"text\" aria-label=\"The text, token by token\">";
  size_t begin = 0;
  for (size_t t = 0; t < trace.tokens.size(); ++t) {
    html += TokenHtml(trace.tokens[t], t, text, begin);
    begin += trace.tokens[t].piece.size();
  }
  return html + "</section>\n";
}

// --- Controls ---------------------------------------------------------------

struct Choice {
  std::string value;
  std::string label;
};

std::string Segments(const std::string& legend, const std::string& name,
                     const std::vector<Choice>& choices,
                     const std::string& checked) {
  std::string html =
      "<fieldset><legend>" + legend + "</legend><div class=\"seg\">";
  for (const Choice& choice : choices) {
    html += "<label><input type=\"radio\" name=\"" + name + "\" value=\"" +
            choice.value + "\"" + (choice.value == checked ? " checked" : "") +
            "><span>" + choice.label + "</span></label>";
  }
  return html + "</div></fieldset>\n";
}

std::string Controls(const EngramTrace& trace) {
  std::string html = "<div class=\"bar\">\n";
  if (trace.streams > 0) {
    std::vector<Choice> layers = {{"mean", "mean"}},
                        streams = {{"mean", "mean"}, {"max", "widest"}};
    for (size_t i = 0; i < trace.layers.size(); ++i) {
      layers.push_back(
          {std::to_string(i), std::to_string(trace.layers[i].layer)});
    }
    for (uint32_t s = 0; s < trace.streams; ++s) {
      streams.push_back({std::to_string(s), std::to_string(s)});
    }
    html += Segments(
        "Colour", "measure",
        {{"gate", "gate"}, {"move", "movement"}, {"repeat", "repeats"}},
        "gate");
    html += Segments("Layer", "layer", layers, "mean");
    html += Segments("Stream", "stream", streams, "mean");
    html += Segments("Scale", "range",
                     {{"auto", "this text"}, {"full", "whole"}}, "auto");
  }
  html +=
      Segments("View", "view", {{"text", "text"}, {"cells", "tokens"}}, "text");
  return html + "</div>\n";
}

// The ramp is drawn by the script.
std::string Scale() {
  return "<figure class=\"scale\"><figcaption>Colour scale, and how many "
         "tokens "
         "lie where</figcaption><svg id=\"legend\" width=\"300\" height=\"58\" "
         "role=\"img\"></svg></figure>\n";
}

std::string Lead(const EngramTrace& trace) {
  std::string html = Print(
      "<p class=\"lead\">Each token looks up rows of a large table by the last "
      "2 to %u tokens: in each Engram layer, %zu rows of %u numbers. ",
      trace.max_ngram, trace.layers[0].columns.size(), trace.row_width);
  if (trace.streams > 0) {
    html += Print(
        "What it finds goes to %u parallel streams, and each has a "
        "<b>gate</b>: 0 leaves the stream alone, 1 lets all of it in. The "
        "colour is the gate.",
        trace.streams);
  } else {
    html +=
        "This page has addresses only; the colour is the longest n-gram that "
        "occurred earlier in the text, whose rows are therefore read again.";
  }
  return html +
         " Point at a token, or focus the text and walk with the arrow keys; a "
         "click holds on to a token.</p>\n";
}

std::string Subtitle(const EngramTrace& trace) {
  std::string layers;
  for (const EngramTraceLayer& layer : trace.layers) {
    layers += (layers.empty() ? "" : ", ") + std::to_string(layer.layer);
  }
  std::string html = "<p class=\"sub\">" +
                     EscapeHtml(trace.name.empty() ? trace.path : trace.name) +
                     " \xC2\xB7 " + Grouped(trace.tokens.size()) +
                     " tokens \xC2\xB7 Engram layers " + layers;
  if (trace.streams > 0) html += " \xC2\xB7 " + EscapeHtml(trace.backend);
  html += "</p>\n";
  if (trace.tokens.size() < trace.tokens_given) {
    html += "<p class=\"note\"><b>Cut:</b> the first " +
            Grouped(trace.tokens.size()) + " of " +
            Grouped(trace.tokens_given) + " tokens are shown.</p>\n";
  }
  return html;
}

std::string Footer(const EngramTrace& trace) {
  std::string html =
      "<footer class=\"note\"><p><b>How to read it.</b> Blue underlines: the "
      "tokens before, as far as the n-grams reach. Green frame: where the "
      "longest n-gram that ends here ended before. The strip in the panel is a "
      "layer's table on disk from its first row to its last; each tick is a "
      "row that this token reads, each colour an n-gram size. View 'tokens' "
      "shows under each token a line for each layer and in it a cell for each "
      "stream.</p>";
  if (trace.streams > 0) {
    html +=
        "<p><b>Numbers.</b> gate = sigmoid(\xC2\xB1\xE2\x88\x9A|dot|), dot the "
        "scaled product of the row's key and the stream, so 0.5 is a memory "
        "that neither fits nor contradicts. moves = |gate \xC2\xB7 v| / |h|, "
        "with v the memory's value and h the stream before it. cos: of v and "
        "h.</p>";
  }
  return html +
         "<p><kbd>\xE2\x86\x90</kbd> <kbd>\xE2\x86\x92</kbd> a token, "
         "<kbd>\xE2\x86\x91</kbd> <kbd>\xE2\x86\x93</kbd> ten, "
         "<kbd>Home</kbd> <kbd>End</kbd> first and last, <kbd>Esc</kbd> lets "
         "go of a held token.</p></footer>\n";
}

}  // namespace

std::string EngramTraceHtml(const EngramTrace& trace) {
  std::string text;
  for (const auto& token : trace.tokens) text += token.piece;
  trace::Page page;
  page.title =
      "Engram trace: " + (trace.name.empty() ? trace.path : trace.name);
  page.style = trace::kTraceStyle;
  page.script = std::string(trace::kTraceScript);
  page.script += trace::kTracePanelScript;
  page.data = trace::TracePageData(trace, text);
  page.body = "<h1>Engram trace</h1>\n" + Subtitle(trace) +
              "<div class=\"top\">" + Lead(trace) + Scale() + "</div>\n" +
              Controls(trace) + "<main>\n" + TextHtml(trace, text) +
              "<aside class=\"panel\" id=\"panel\" aria-live=\"polite\" "
              "aria-label=\"The chosen token\"></aside>\n</main>\n" +
              Footer(trace);
  return trace::RenderPage(page);
}

}  // namespace ecphory
