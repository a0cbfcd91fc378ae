// What the commands about Engram tables print alike: progress with rate and
// time left, and what was written.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "ecphory/engram_tables.h"
#include "output.h"
#include "progress.h"

namespace ecphory::cli {

// "writing FILE 12 %, 1.2 GB/s, 2 min 10 s left" on standard error, when that
// is a terminal; and the end at Ctrl-C.
class PhaseProgress {
 public:
  explicit PhaseProgress(std::string subject) : subject_(std::move(subject)) {}
  TableProgress Callback();
  void Erase();

 private:
  bool Show(const std::string& phase, uint64_t done, uint64_t total);

  std::string subject_;
  std::string phase_;
  std::unique_ptr<Progress> line_;
  uint64_t begin_bytes_ = 0;
  std::chrono::steady_clock::time_point begin_;
};

// "1.23 GB/s"; "" for no time at all.
std::string RateText(uint64_t bytes, double seconds);
// "45 s", "2 min 10 s", "3 h 05 min".
std::string DurationText(double seconds);

// "layer 1", or "table" where the layer is not known; and as JSON, or null.
std::string TableLabel(std::optional<uint32_t> layer);
Json LayerJson(std::optional<uint32_t> layer);

std::string WrittenText(const WrittenTables& written);
Json WrittenJson(const WrittenTables& written);

}  // namespace ecphory::cli
