#include "trace/page_parts.h"

#include "trace/format.h"

namespace ecphory::trace {

std::string Cell(const std::string& text, bool number) {
  return (number ? "<td class=\"num\">" : "<td>") + EscapeHtml(text) + "</td>";
}

std::string Head(const std::vector<std::string>& names) {
  std::string html = "<thead><tr>";
  for (size_t i = 0; i < names.size(); ++i) {
    html += (i == 0 ? "<th>" : "<th class=\"num\">") + EscapeHtml(names[i]) +
            "</th>";
  }
  return html + "</tr></thead>\n";
}

std::string Key(const std::vector<std::pair<std::string, size_t>>& names) {
  std::string html = "<ul class=\"key\">";
  for (const auto& [name, colour] : names) {
    html += Print("<li><i style=\"background:var(--s%zu)\"></i>", colour % 8) +
            EscapeHtml(name) + "</li>";
  }
  return html + "</ul>\n";
}

std::string Figure(const std::string& title, const std::string& plot) {
  return "<figure><figcaption>" + EscapeHtml(title) + "</figcaption>" + plot +
         "</figure>\n";
}

}  // namespace ecphory::trace
