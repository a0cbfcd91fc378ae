#include "help.h"

#include <algorithm>

namespace ecphory::cli {

namespace {

constexpr size_t kColumns = 80;
// Where descriptions begin: behind most flags with their values.
constexpr size_t kDescriptions = 30;

}  // namespace

HelpFormatter::HelpFormatter() { column_width(kDescriptions); }

std::string HelpFormatter::make_option_opts(const CLI::Option* option) const {
  return option->nonpositional() ? Formatter::make_option_opts(option) : "";
}

std::string HelpFormatter::make_option_desc(const CLI::Option* option) const {
  return WrapLines(option->get_description(), kColumns - kDescriptions);
}

std::string WrapLines(const std::string& text, size_t width) {
  std::string lines;
  size_t column = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const size_t word = end - begin;
    if (column > 0) {
      const bool fits = column + 1 + word <= width;
      lines += fits ? ' ' : '\n';
      column = fits ? column + 1 : 0;
    }
    lines.append(text, begin, word);
    column += word;
    begin = end + 1;
  }
  return lines;
}

}  // namespace ecphory::cli
