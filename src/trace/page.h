// Self-contained HTML pages: one skeleton, one palette, nothing from outside.
#pragma once

#include <string>
#include <string_view>

namespace ecphory::trace {

struct Page {
  std::string title;  // plain text
  std::string_view style;
  std::string body;  // HTML
  std::string data;  // JSON for the script; "" = none
  std::string script;
};

// A whole document. Its content security policy forbids every load, so that a
// mistake in it cannot reach the network either.
std::string RenderPage(const Page& page);

// Colours for light and dark, type, buttons and tables: in every page.
extern const std::string_view kBaseStyle;
extern const std::string_view kReportStyle;
extern const std::string_view kTraceStyle;
extern const std::string_view kTraceScript;
extern const std::string_view kTracePanelScript;

}  // namespace ecphory::trace
