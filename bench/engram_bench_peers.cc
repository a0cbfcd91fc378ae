#include "engram_bench_peers.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "engram/row_decode.h"
#include "io_bench_reads.h"

namespace ecphory {

namespace {

constexpr uint64_t kSector = 512;
constexpr size_t kScratchBytes = 2048;  // a row and the sectors around it

void Decode(const uint8_t* row, uint16_t* out) {
  if (!engram::DecodeTableRowFast(TableCodec::kRow264, row, nullptr, kRowValues,
                                  out)) {
    Fail("a broken row");
  }
}

struct Free {
  void operator()(uint8_t* memory) const { std::free(memory); }
};
using Scratch = std::unique_ptr<uint8_t, Free>;

Scratch MakeScratch() {
  return Scratch(
      static_cast<uint8_t*>(std::aligned_alloc(4096, 2 * kScratchBytes)));
}

}  // namespace

PlainReader::PlainReader(const std::string& path, bool direct)
    : fd_(::open(path.c_str(), O_RDONLY | (direct ? O_DIRECT : 0))),
      direct_(direct) {
  if (fd_ < 0) Fail(path + ": cannot open");
}

PlainReader::~PlainReader() { ::close(fd_); }

void PlainReader::ReadRow(uint64_t row, uint8_t* scratch, uint16_t* out) const {
  const uint64_t offset = row * kRowBytes;
  const uint64_t begin = direct_ ? offset / kSector * kSector : offset;
  const uint64_t needed = offset + kRowBytes - begin;
  const uint64_t bytes =
      direct_ ? (needed + kSector - 1) / kSector * kSector : needed;
  if (::pread(fd_, scratch, bytes, static_cast<off_t>(begin)) <
      static_cast<ssize_t>(needed)) {
    Fail("a short read");
  }
  Decode(scratch + (offset - begin), out);
}

void PlainReader::ReadLoop(std::span<const uint64_t> rows,
                           uint16_t* out) const {
  static const Scratch scratch = MakeScratch();
  for (size_t i = 0; i < rows.size(); ++i) {
    ReadRow(rows[i], scratch.get(), out + i * kRowValues);
  }
}

void PlainReader::ReadByNewThreads(std::span<const uint64_t> rows,
                                   size_t threads, uint16_t* out) const {
  std::atomic<size_t> next{0};
  std::vector<std::thread> readers;
  for (size_t t = 0; t < threads; ++t) {
    readers.emplace_back([&] {
      const Scratch scratch = MakeScratch();
      for (size_t i; (i = next.fetch_add(1)) < rows.size();) {
        ReadRow(rows[i], scratch.get(), out + i * kRowValues);
      }
    });
  }
  for (std::thread& reader : readers) reader.join();
}

void CopyAndDecode(std::span<const uint8_t> table,
                   std::span<const uint64_t> rows, uint16_t* out) {
  static std::vector<uint8_t> copy;
  copy.resize(rows.size() * kRowBytes);
  for (size_t i = 0; i < rows.size(); ++i) {
    std::memcpy(copy.data() + i * kRowBytes, table.data() + rows[i] * kRowBytes,
                kRowBytes);
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    Decode(copy.data() + i * kRowBytes, out + i * kRowValues);
  }
}

}  // namespace ecphory
