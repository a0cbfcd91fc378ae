// What the store is compared with: the ways other engines read their rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace ecphory {

// Rows of the released layout in one file, from offset 0 on.
inline constexpr uint32_t kRowValues = 256;
inline constexpr size_t kRowBytes = 264;

// A table's file opened for plain reads. Rows go to out[rows, 256] as bf16.
class PlainReader {
 public:
  // `direct`: past the page cache.
  PlainReader(const std::string& path, bool direct);
  ~PlainReader();
  PlainReader(const PlainReader&) = delete;
  PlainReader& operator=(const PlainReader&) = delete;

  // One pread a row, one after the other.
  void ReadLoop(std::span<const uint64_t> rows, uint16_t* out) const;
  // `threads` threads made for this batch, a pread a row.
  void ReadByNewThreads(std::span<const uint64_t> rows, size_t threads,
                        uint16_t* out) const;

 private:
  void ReadRow(uint64_t row, uint8_t* scratch, uint16_t* out) const;

  int fd_ = -1;
  const bool direct_;
};

// Rows in memory: each copied out, then decoded.
void CopyAndDecode(std::span<const uint8_t> table,
                   std::span<const uint64_t> rows, uint16_t* out);

}  // namespace ecphory
