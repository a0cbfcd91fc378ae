#include "format/buffered_reader.h"

#include "base/check.h"

namespace ecphory {

namespace {

// A vocabulary of 130k tokens and its merges take about 6 MB.
constexpr size_t kMaxWindow = size_t{4} << 20;

}  // namespace

Status BufferedReader::Read(std::span<uint8_t> out) {
  ECPHORY_CHECK(out.size() <= remaining());
  while (!out.empty()) {
    if (used_ == window_.size()) ECPHORY_RETURN_IF_ERROR(Refill());
    const size_t count = std::min(out.size(), window_.size() - used_);
    std::copy_n(window_.begin() + static_cast<ptrdiff_t>(used_), count,
                out.begin());
    used_ += count;
    out = out.subspan(count);
  }
  return Status::Ok();
}

Status BufferedReader::Refill() {
  window_begin_ = position();
  used_ = 0;
  window_.resize(static_cast<size_t>(
      std::min<uint64_t>(next_window_, end_ - window_begin_)));
  next_window_ = std::min(2 * next_window_, kMaxWindow);
  return file_.ReadExact(window_begin_, window_);
}

}  // namespace ecphory
