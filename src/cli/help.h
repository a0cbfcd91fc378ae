// How --help looks.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace ecphory::cli {

// CLI11's own, but for lines that end at 80 columns, and for arguments without
// a flag, whose name says what they are.
class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter();
  std::string make_option_opts(const CLI::Option* option) const override;
  std::string make_option_desc(const CLI::Option* option) const override;
};

// `text` in lines of at most `width` bytes, cut at blanks; a longer word has a
// line of its own.
std::string WrapLines(const std::string& text, size_t width);

}  // namespace ecphory::cli
