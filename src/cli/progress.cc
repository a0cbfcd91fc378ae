#include "progress.h"

#include <unistd.h>

#include <cstdio>

#include "utf8.h"

namespace ecphory::cli {

namespace {
// Ten lines a second are enough to see it move.
constexpr std::chrono::milliseconds kInterval{100};
}  // namespace

Progress::Progress(std::string label, uint64_t min_total)
    : label_(OneLine(label)),
      min_total_(min_total),
      terminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() { Erase(); }

void Progress::Show(uint64_t done, uint64_t total, const std::string& detail) {
  if (!terminal_ || total < min_total_ || total == 0) return;
  const auto now = std::chrono::steady_clock::now();
  if (shown_ && now - last_ < kInterval) return;
  const double percent =
      100.0 * static_cast<double>(done) / static_cast<double>(total);
  std::fprintf(stderr, "\r\033[K%s %.0f %%%s", label_.c_str(), percent,
               detail.c_str());
  shown_ = true;
  last_ = now;
}

void Progress::Erase() {
  if (shown_) std::fputs("\r\033[K", stderr);
  shown_ = false;
}

}  // namespace ecphory::cli
