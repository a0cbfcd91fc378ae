#include "format/buffered_reader.h"

#include <gtest/gtest.h>

#include <vector>

#include "io/fault_file.h"

namespace ecphory {
namespace {

std::vector<uint8_t> Pattern(size_t size) {
  std::vector<uint8_t> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<uint8_t>(i * 7 >> 3);
  return bytes;
}

TEST(BufferedReader, ReadsAcrossWindowsOfEverySize) {
  const auto bytes = Pattern(20 << 20);
  const auto file = MakeFaultFile(MakeMemoryFile("mem", bytes), {});
  BufferedReader reader(*file, UINT64_MAX);
  std::vector<uint8_t> all;
  for (size_t step = 1; reader.remaining() > 0; step = step * 3 + 1) {
    std::vector<uint8_t> piece(std::min<uint64_t>(step, reader.remaining()));
    ASSERT_TRUE(reader.Read(piece).ok());
    all.insert(all.end(), piece.begin(), piece.end());
    ASSERT_EQ(reader.position(), all.size());
  }
  EXPECT_EQ(all, bytes);
  // 64 KiB, doubling up to 4 MiB: far fewer reads than pieces of 64 KiB.
  EXPECT_LE(file->reads(), 12u);
  EXPECT_EQ(file->bytes_read(), bytes.size());
}

TEST(BufferedReader, StopsAtItsLimit) {
  const auto file = MakeFaultFile(MakeMemoryFile("mem", Pattern(1000)), {});
  BufferedReader reader(*file, 100);
  EXPECT_EQ(reader.remaining(), 100u);
  std::vector<uint8_t> piece(100);
  ASSERT_TRUE(reader.Read(piece).ok());
  EXPECT_EQ(reader.remaining(), 0u);
  EXPECT_EQ(file->bytes_read(), 100u);
}

}  // namespace
}  // namespace ecphory
