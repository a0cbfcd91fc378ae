// A file that misbehaves on purpose, for the tests of its readers.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "ecphory/status.h"
#include "io/file.h"

namespace ecphory {

// What goes wrong. Faults are independent; the defaults are harmless.
struct FaultPlan {
  // Reads that touch a byte of [bad_begin, bad_end) fail with kIoError.
  uint64_t bad_begin = 0;
  uint64_t bad_end = 0;
  // The read with this number (from 0) and, if `fail_from_then_on`, every later
  // one fail with kIoError.
  std::optional<uint64_t> fail_read;
  bool fail_from_then_on = false;
  // The file loses its tail after it was opened: size() still tells the old
  // size, reads past this offset are kCorrupt.
  uint64_t truncated_at = UINT64_MAX;
  // Every read first sleeps this long.
  std::chrono::microseconds delay{0};
};

// Thread-safe, as every RandomAccessFile.
class FaultFile : public RandomAccessFile {
 public:
  FaultFile(std::shared_ptr<RandomAccessFile> inner, FaultPlan plan)
      : inner_(std::move(inner)), plan_(plan) {}

  const std::string& path() const override { return inner_->path(); }
  uint64_t size() const override { return inner_->size(); }

  Status ReadExact(uint64_t offset, std::span<uint8_t> out) const override {
    const uint64_t number = reads_.fetch_add(1);
    if (plan_.delay.count() > 0) std::this_thread::sleep_for(plan_.delay);
    const uint64_t end = offset + out.size();
    if (FailsByNumber(number) ||
        (offset < plan_.bad_end && end > plan_.bad_begin)) {
      return IoError("%s: cannot read at offset %llu: injected fault",
                     path().c_str(), static_cast<unsigned long long>(offset));
    }
    if (end > plan_.truncated_at) {
      return Corrupt("%s: ends at byte %llu, read at offset %llu: injected",
                     path().c_str(),
                     static_cast<unsigned long long>(plan_.truncated_at),
                     static_cast<unsigned long long>(offset));
    }
    bytes_read_ += out.size();
    return inner_->ReadExact(offset, out);
  }

  // Calls of ReadExact so far, failed ones included.
  uint64_t reads() const { return reads_; }
  // Bytes of the reads that were passed on.
  uint64_t bytes_read() const { return bytes_read_; }

 private:
  bool FailsByNumber(uint64_t number) const {
    if (!plan_.fail_read) return false;
    return number == *plan_.fail_read ||
           (plan_.fail_from_then_on && number > *plan_.fail_read);
  }

  const std::shared_ptr<RandomAccessFile> inner_;
  const FaultPlan plan_;
  mutable std::atomic<uint64_t> reads_{0};
  mutable std::atomic<uint64_t> bytes_read_{0};
};

inline std::shared_ptr<FaultFile> MakeFaultFile(
    std::shared_ptr<RandomAccessFile> inner, const FaultPlan& plan) {
  return std::make_shared<FaultFile>(std::move(inner), plan);
}

}  // namespace ecphory
