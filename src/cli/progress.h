// One line of progress on standard error, when that is a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace ecphory::cli {

class Progress {
 public:
  // "label 12 %". Silent for a total below `min_total`.
  explicit Progress(std::string label, uint64_t min_total = 0);
  ~Progress();  // erases the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `detail` follows the percentage.
  void Show(uint64_t done, uint64_t total, const std::string& detail = "");
  void Erase();

 private:
  std::string label_;
  uint64_t min_total_;
  bool terminal_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace ecphory::cli
