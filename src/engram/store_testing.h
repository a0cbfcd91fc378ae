// Tables in memory, and a file that holds its readers up, for tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engram/store.h"
#include "io/file.h"
#include "tensor/float_codec.h"

namespace ecphory::engram {

// A table of random finite values.
class TestTable {
 public:
  TestTable(TableCodec codec, uint64_t rows, uint32_t width,
            std::string name = "table")
      : codec_(codec),
        rows_(rows),
        width_(width),
        name_(std::move(name)),
        main_(rows * TableRowBytes(codec, width)),
        scales_(rows * TableScaleBytes(codec, width)) {
    std::mt19937 rng(static_cast<uint32_t>(rows + width));
    for (uint8_t& byte : main_) byte = static_cast<uint8_t>(rng() & 0xbf);
    for (uint8_t& byte : scales_) byte = RandomScale(&rng);
    if (codec != TableCodec::kRow264) return;
    for (uint64_t row = 0; row < rows; ++row) {
      for (size_t i = width; i < TableRowBytes(codec, width); ++i) {
        SetByte(row, i, RandomScale(&rng));
      }
    }
  }

  uint32_t width() const { return width_; }
  const std::vector<uint8_t>& main_bytes() const { return main_; }
  const std::vector<uint8_t>& scale_bytes() const { return scales_; }

  // Sets byte `index` of a row: codes first, then scales, whatever the codec.
  void SetByte(uint64_t row, size_t index, uint8_t value) {
    const size_t row_bytes = TableRowBytes(codec_, width_);
    if (index < row_bytes) {
      main_[row * row_bytes + index] = value;
    } else {
      scales_[row * TableScaleBytes(codec_, width_) + index - row_bytes] =
          value;
    }
  }

  std::span<const uint8_t> RowBytes(uint64_t row) const {
    const size_t row_bytes = TableRowBytes(codec_, width_);
    return std::span(main_).subspan(row * row_bytes, row_bytes);
  }

  // Codes and scales.
  std::vector<uint8_t> WholeRow(uint64_t row) const {
    const std::span<const uint8_t> codes = RowBytes(row);
    std::vector<uint8_t> bytes(codes.begin(), codes.end());
    const size_t scale_bytes = TableScaleBytes(codec_, width_);
    const auto scales = scales_.begin() + row * scale_bytes;
    bytes.insert(bytes.end(), scales, scales + scale_bytes);
    return bytes;
  }

  // The values of a row that is not broken.
  std::vector<float> Row(uint64_t row) const {
    std::vector<float> values(width_);
    const uint8_t* scales =
        scales_.data() + row * TableScaleBytes(codec_, width_);
    EXPECT_TRUE(DecodeTableRow(codec_, RowBytes(row).data(), scales, width_,
                               values.data()));
    return values;
  }

  // The table in memory, or in `file` when one is given.
  TableSource Source(std::shared_ptr<RandomAccessFile> file = nullptr) const {
    TableSource source;
    source.name = name_;
    source.codec = codec_;
    source.rows = rows_;
    source.width = width_;
    source.file = file != nullptr ? file : MakeMemoryFile("main", main_);
    if (!scales_.empty()) source.scale_file = MakeMemoryFile("scales", scales_);
    return source;
  }

 private:
  static uint8_t RandomScale(std::mt19937* rng) {
    return static_cast<uint8_t>(100 + (*rng)() % 50);
  }

  TableCodec codec_;
  uint64_t rows_;
  uint32_t width_;
  std::string name_;
  std::vector<uint8_t> main_;
  std::vector<uint8_t> scales_;
};

// `bytes` behind `count` bytes that belong to something else.
inline std::vector<uint8_t> Prepend(size_t count,
                                    const std::vector<uint8_t>& bytes) {
  std::vector<uint8_t> longer(count + bytes.size(), 0xff);
  std::copy(bytes.begin(), bytes.end(),
            longer.begin() + static_cast<ptrdiff_t>(count));
  return longer;
}

// Holds every reader up while it is closed. Open at first.
class GateFile : public RandomAccessFile {
 public:
  explicit GateFile(std::shared_ptr<RandomAccessFile> inner)
      : inner_(std::move(inner)) {}

  const std::string& path() const override { return inner_->path(); }
  uint64_t size() const override { return inner_->size(); }

  Status ReadExact(uint64_t offset, std::span<uint8_t> out) const override {
    std::unique_lock<std::mutex> lock(mutex_);
    ++readers_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
    --readers_;
    lock.unlock();
    return inner_->ReadExact(offset, out);
  }

  void Open() { SetOpen(true); }
  void Close() { SetOpen(false); }

  // Waits until `count` readers stand at the gate; false when they do not come.
  bool AwaitReaders(int count) const {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60),
                             [&] { return readers_ >= count; });
  }

 private:
  void SetOpen(bool open) {
    std::lock_guard<std::mutex> lock(mutex_);
    open_ = open;
    changed_.notify_all();
  }

  std::shared_ptr<RandomAccessFile> inner_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable int readers_ = 0;
  bool open_ = true;
};

inline void ExpectError(const Status& status, StatusCode code,
                        const std::string& part) {
  EXPECT_EQ(status.code(), code) << status.ToString();
  EXPECT_NE(status.message().find(part), std::string::npos)
      << status.ToString();
}

inline std::vector<uint64_t> RandomRows(uint64_t table_rows, size_t count,
                                        uint32_t seed) {
  std::mt19937 rng(seed);
  std::vector<uint64_t> rows(count);
  for (uint64_t& row : rows) row = rng() % table_rows;
  return rows;
}

// Looks `rows` up and holds every value to the table's own.
inline void ExpectRows(Store* store, size_t index, const TestTable& table,
                       std::span<const uint64_t> rows) {
  std::vector<float> out(rows.size() * table.width());
  const Status status = store->Wait(store->Submit({index, rows, out.data()}));
  ASSERT_TRUE(status.ok()) << status.ToString();
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::vector<float> expected = table.Row(rows[i]);
    ASSERT_TRUE(std::equal(expected.begin(), expected.end(),
                           out.begin() + i * table.width()))
        << "row " << rows[i] << " at " << i;
  }
}

// The same for the other formats.
inline void ExpectBf16Rows(Store* store, const TestTable& table,
                           std::span<const uint64_t> rows) {
  std::vector<uint16_t> out(rows.size() * table.width());
  const Status status =
      store->Wait(store->Submit({0, rows, out.data(), RowFormat::kBf16}));
  ASSERT_TRUE(status.ok()) << status.ToString();
  for (size_t i = 0; i < out.size(); ++i) {
    ASSERT_EQ(BF16ToF32(out[i]),
              table.Row(rows[i / table.width()])[i % table.width()]);
  }
}

inline void ExpectRawRows(Store* store, const TestTable& table,
                          std::span<const uint64_t> rows) {
  const std::vector<uint8_t> first = table.WholeRow(0);
  std::vector<uint8_t> out(rows.size() * first.size());
  const Status status =
      store->Wait(store->Submit({0, rows, out.data(), RowFormat::kRaw}));
  ASSERT_TRUE(status.ok()) << status.ToString();
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::vector<uint8_t> row = table.WholeRow(rows[i]);
    ASSERT_TRUE(
        std::equal(row.begin(), row.end(), out.begin() + i * row.size()))
        << "row " << rows[i];
  }
}

}  // namespace ecphory::engram
