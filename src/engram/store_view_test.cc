// Tables that are mapped or copied to memory.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "base/thread_pool.h"
#include "engram/store.h"
#include "engram/store_testing.h"
#include "io/test_directory.h"

namespace ecphory::engram {
namespace {

constexpr uint64_t kRows = 3000;
constexpr uint32_t kWidth = 256;
constexpr uint64_t kOffset = 1000;

class StoreViews
    : public testing::TestWithParam<std::tuple<IoMode, TableCodec>> {
 protected:
  StoreViews()
      : table_(std::get<TableCodec>(GetParam()), kRows, kWidth, "t"),
        path_(directory_ / "table") {
    Write();
  }

  void Write() {
    WriteBytes(path_, Prepend(kOffset, table_.main_bytes()));
    WriteBytes(path_ + "-scales", Prepend(kOffset, table_.scale_bytes()));
  }

  static void WriteBytes(const std::string& path,
                         std::span<const uint8_t> bytes) {
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }

  IoMode mode() const { return std::get<IoMode>(GetParam()); }
  TableCodec codec() const { return std::get<TableCodec>(GetParam()); }

  std::unique_ptr<Store> Open() {
    TableSource source = table_.Source(*OpenFile(path_));
    source.offset = kOffset;
    if (source.scale_file != nullptr) {
      source.scale_file = *OpenFile(path_ + "-scales");
      source.scale_offset = kOffset;
    }
    auto store = Store::Open({source}, {.io = mode()});
    EXPECT_TRUE(store.ok()) << store.status().ToString();
    return store.ok() ? std::move(store).value() : nullptr;
  }

  TestTable table_;
  const TestDirectory directory_;
  const std::string path_;
};

TEST_P(StoreViews, EveryRowInEveryFormat) {
  const auto store = Open();
  EXPECT_EQ(store->io().mode, mode());
  const auto rows = RandomRows(kRows, 500, 1);
  ExpectRows(store.get(), 0, table_, rows);
  ExpectBf16Rows(store.get(), table_, rows);
  ExpectRawRows(store.get(), table_, rows);
  ExpectRows(store.get(), 0, table_, {});
  ExpectRows(store.get(), 0, table_, std::vector<uint64_t>{kRows - 1, 0});
  const StoreStats stats = store->stats();
  EXPECT_EQ(stats.rows_read, stats.rows);
  EXPECT_EQ(stats.cache_hits, 0u);
}

TEST_P(StoreViews, LookupsNobodyWaitsForEnd) {
  const auto store = Open();
  const auto rows = RandomRows(kRows, 2000, 2);
  std::vector<float> out(rows.size() * kWidth);
  const Ticket ticket = store->Submit({0, rows, out.data()});
  while (!store->Ready(ticket)) std::this_thread::yield();
  EXPECT_TRUE(store->Wait(ticket).ok());
  EXPECT_EQ(out[kWidth * 1999], table_.Row(rows[1999])[0]);
  for (int i = 0; i < 20; ++i) {
    store->Cancel(store->Submit({0, rows, out.data()}));
  }
}

TEST_P(StoreViews, TheLowestBrokenRowIsNamed) {
  const bool bf16 = codec() == TableCodec::kBf16;
  for (uint64_t row : {1700, 1500, 1600}) {
    table_.SetByte(row, 0, bf16 ? 0x80 : 0x7f);
    table_.SetByte(row, 1, 0x7f);
  }
  Write();
  const auto store = Open();
  auto rows = RandomRows(1500, 300, 3);
  rows[20] = 1600;
  rows[21] = 1700;
  rows[200] = 1500;
  std::vector<float> out(rows.size() * kWidth);
  ExpectError(store->Wait(store->Submit({0, rows, out.data()})),
              StatusCode::kCorrupt, "table 't', row 1500 at offset");
  rows[20] = rows[21] = rows[200] = 5;
  ExpectRows(store.get(), 0, table_, rows);
}

TEST_P(StoreViews, AFileCutShortWhileRunning) {
  const auto store = Open();
  ASSERT_EQ(::truncate(path_.c_str(), 100'000), 0);
  const auto rows = RandomRows(kRows, 300, 4);
  std::vector<float> out(rows.size() * kWidth);
  const Status status = store->Wait(store->Submit({0, rows, out.data()}));
  if (mode() == IoMode::kRam) {
    EXPECT_TRUE(status.ok()) << status.ToString();
    ExpectRows(store.get(), 0, table_, rows);
  } else {
    ExpectError(status, StatusCode::kCorrupt, "table 't', row");
  }
}

TEST_P(StoreViews, AFileReplacedByRename) {
  const auto store = Open();
  const std::string other = directory_ / "other";
  WriteBytes(other, std::vector<uint8_t>(100, 0xff));
  ASSERT_EQ(std::rename(other.c_str(), path_.c_str()), 0);
  ExpectRows(store.get(), 0, table_, RandomRows(kRows, 100, 5));
}

std::string WayAndCodec(
    const testing::TestParamInfo<StoreViews::ParamType>& test) {
  const char* codecs[] = {"Row264", "ReleasedPair", "Bf16",
                          "Q8",     "Q4",           "Q4WithMinimum"};
  return std::string(IoModeName(std::get<IoMode>(test.param))) +
         codecs[static_cast<int>(std::get<TableCodec>(test.param))];
}

INSTANTIATE_TEST_SUITE_P(
    WaysIn, StoreViews,
    testing::Combine(testing::Values(IoMode::kMmap, IoMode::kRam),
                     testing::Values(TableCodec::kRow264,
                                     TableCodec::kReleasedPair,
                                     TableCodec::kBf16, TableCodec::kQ8_0,
                                     TableCodec::kQ4_0, TableCodec::kQ4_1)),
    WayAndCodec);

// Many requests of a call, whose rows several threads fetch.
class StoreTogether : public StoreViews {};

INSTANTIATE_TEST_SUITE_P(
    Ways, StoreTogether,
    testing::Combine(testing::Values(IoMode::kBuffered, IoMode::kMmap,
                                     IoMode::kRam, IoMode::kPread),
                     testing::Values(TableCodec::kRow264,
                                     TableCodec::kReleasedPair)),
    WayAndCodec);

TEST_P(StoreTogether, EachRequestGetsItsRows) {
  constexpr size_t kRequests = 70, kEach = 150, kMissing = 33;
  const auto store = Open();
  ThreadPool pool(3);
  const size_t bytes = table_.WholeRow(0).size();
  std::vector<uint64_t> rows = RandomRows(kRows, kRequests * kEach, 7);
  rows[kMissing * kEach + 5] = kRows;  // of one request
  for (int round = 0; round < 3; ++round) {
    std::vector<uint8_t> out(rows.size() * bytes);
    std::vector<LookupRequest> requests;
    for (size_t i = 0; i < kRequests; ++i) {
      requests.push_back({.rows = std::span(rows).subspan(i * kEach, kEach),
                          .out = out.data() + i * kEach * bytes,
                          .format = RowFormat::kRaw});
    }
    std::vector<Ticket> tickets(kRequests);
    store->Submit(requests, tickets, &pool);
    for (size_t i = 0; i < kRequests; ++i) {
      const Status status = store->Wait(tickets[i]);
      ASSERT_EQ(status.ok(), i != kMissing) << i << status.ToString();
      for (size_t j = i * kEach; status.ok() && j < (i + 1) * kEach; ++j) {
        const std::vector<uint8_t> expected = table_.WholeRow(rows[j]);
        ASSERT_TRUE(std::equal(expected.begin(), expected.end(),
                               out.begin() + static_cast<ptrdiff_t>(j * bytes)))
            << i << " " << j;
      }
    }
  }
  EXPECT_EQ(store->stats().lookups, 3 * kRequests);
}

}  // namespace
}  // namespace ecphory::engram
