// What goes wrong below the store, for every way in and every codec.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "engram/store.h"
#include "engram/store_internal.h"
#include "engram/store_testing.h"
#include "io/fault_queue.h"
#include "io/make_queue.h"
#include "io/table_file.h"
#include "io/test_directory.h"

namespace ecphory::engram {
namespace {

constexpr uint64_t kRows = 1000;
constexpr uint32_t kWidth = 256;
constexpr uint64_t kBadRow = 700;

// A table in a file, behind 1,000 bytes that belong to something else.
class StoreFaults
    : public testing::TestWithParam<std::tuple<IoMode, TableCodec>> {
 protected:
  StoreFaults()
      : table_(std::get<TableCodec>(GetParam()), kRows, kWidth, "t"),
        path_(directory_ / "table") {
    Write(path_, Prepend(kOffset, table_.main_bytes()));
    Write(path_ + "-scales", Prepend(kOffset, table_.scale_bytes()));
  }

  static constexpr uint64_t kOffset = 1000;

  static void Write(const std::string& path, std::span<const uint8_t> bytes) {
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }

  TableCodec codec() const { return std::get<TableCodec>(GetParam()); }
  size_t row_bytes() const { return TableRowBytes(codec(), kWidth); }

  TableSource Source() const {
    TableSource source = table_.Source(*OpenFile(path_));
    source.offset = kOffset;
    if (source.scale_file != nullptr) {
      source.scale_file = *OpenFile(path_ + "-scales");
      source.scale_offset = kOffset;
    }
    return source;
  }

  std::unique_ptr<Store> Open(const FaultQueuePlan& plan, uint32_t depth = 32) {
    const auto make =
        [&](const auto& files) -> Result<std::unique_ptr<ReadQueue>> {
      std::vector<std::shared_ptr<const TableFile>> opened;
      for (const auto& file : files) {
        ECPHORY_ASSIGN_OR_RETURN(auto table, TableFile::Open(file));
        opened.push_back(std::move(table));
      }
      ECPHORY_ASSIGN_OR_RETURN(MadeQueue made,
                               MakeQueue(std::get<IoMode>(GetParam()), opened,
                                         {.depth = depth, .threads = 4}));
      std::unique_ptr<FaultQueue> queue =
          MakeFaultQueue(std::move(made.queue), plan);
      queue_ = queue.get();
      return std::unique_ptr<ReadQueue>(std::move(queue));
    };
    auto store = StoreAccess::OpenWithQueue({Source()}, make, 0);
    EXPECT_TRUE(store.ok()) << store.status().ToString();
    return store.ok() ? std::move(store).value() : nullptr;
  }

  // Bytes that only reads of row kBadRow touch in the first part, with sectors
  // of 512 bytes as well.
  FaultQueuePlan BadRowPlan() const {
    FaultQueuePlan plan;
    plan.bad_begin = kOffset + kBadRow * row_bytes() + row_bytes() / 2;
    plan.bad_end = plan.bad_begin + 1;
    return plan;
  }

  Status Lookup(Store* store, std::span<const uint64_t> rows) {
    std::vector<float> out(rows.size() * kWidth);
    return store->Wait(store->Submit({0, rows, out.data()}));
  }

  void ExpectAllRows(Store* store) {
    ExpectRows(store, 0, table_, RandomRows(kRows, 200, 1));
    ExpectRows(store, 0, table_, RandomRows(kRows, 3, 2));
    std::vector<uint64_t> all(kRows);  // in long reads
    for (uint64_t row = 0; row < kRows; ++row) all[row] = kRows - 1 - row;
    ExpectRows(store, 0, table_, all);
  }

  TestTable table_;
  const TestDirectory directory_;
  const std::string path_;
  FaultQueue* queue_ = nullptr;  // of the store opened last
};

TEST_P(StoreFaults, None) {
  const auto store = Open({});
  ExpectAllRows(store.get());
  EXPECT_EQ(queue_->faults(), 0u);
}

TEST_P(StoreFaults, ReadsThatWantToBeTriedAgain) {
  for (int error : {EAGAIN, EINTR}) {
    const auto store = Open({.transient_times = 3, .transient_errno = error});
    ExpectAllRows(store.get());
    EXPECT_GT(queue_->faults(), 3u);
  }
}

TEST_P(StoreFaults, ReadsThatWantToBeTriedAgainForEver) {
  const auto store = Open({.transient_times = UINT32_MAX});
  ExpectError(Lookup(store.get(), RandomRows(kRows, 50, 3)),
              StatusCode::kIoError, "cannot read");
}

TEST_P(StoreFaults, ShortReads) {
  for (uint32_t bytes : {1u, 100u, 511u, 512u, 700u}) {
    SCOPED_TRACE(bytes);
    const auto store = Open({.short_times = 2, .short_bytes = bytes});
    ExpectAllRows(store.get());
    EXPECT_GT(queue_->faults(), 0u);
  }
}

TEST_P(StoreFaults, AFileThatEndsBeforeItsEnd) {
  const auto store = Open({.short_times = 1, .short_bytes = 0});
  const uint64_t row = 10;
  ExpectError(Lookup(store.get(), {&row, 1}), StatusCode::kCorrupt,
              "table 't', row 10 at offset");
  ExpectRows(store.get(), 0, table_, {&row, 1});  // it was once
}

TEST_P(StoreFaults, ABadSectorIsNamedAndDoesNotStick) {
  const auto store = Open(BadRowPlan());
  auto rows = RandomRows(kBadRow - 10, 300, 4);
  ExpectRows(store.get(), 0, table_, rows);
  rows[150] = kBadRow;
  for (int i = 0; i < 5; ++i) {
    ExpectError(Lookup(store.get(), rows), StatusCode::kIoError,
                "table 't', row 700 at offset " +
                    std::to_string(kOffset + kBadRow * row_bytes()) +
                    ": cannot read: Input/output error");
  }
  rows[150] = 3;
  ExpectRows(store.get(), 0, table_, rows);
}

TEST_P(StoreFaults, ABadSectorFailsItsOwnLookupOnly) {
  const auto store = Open(BadRowPlan());
  const auto sound = RandomRows(kBadRow - 10, 100, 5);
  auto rows = sound;
  rows[50] = kBadRow;
  std::vector<float> first(100 * kWidth), second(100 * kWidth);
  const LookupRequest requests[] = {{0, rows, first.data()},
                                    {0, sound, second.data()}};
  Ticket tickets[2];
  store->Submit(requests, tickets);
  EXPECT_FALSE(store->Wait(tickets[0]).ok());
  EXPECT_TRUE(store->Wait(tickets[1]).ok());
  EXPECT_EQ(second[99 * kWidth], table_.Row(sound[99])[0]);
}

// Several rows share a sector and a read; still the one that is bad is named,
// the lowest when sectors take others along.
TEST_P(StoreFaults, ABadRowInALongReadIsNamed) {
  const auto store = Open(BadRowPlan());
  std::vector<uint64_t> rows;
  for (uint64_t row = 650; row < 750; ++row) rows.push_back(row);
  const Status status = Lookup(store.get(), rows);
  EXPECT_EQ(status.code(), StatusCode::kIoError);
  uint64_t named = 0;
  const size_t at = status.message().find("row ");
  ASSERT_NE(at, std::string::npos) << status.message();
  ASSERT_EQ(std::sscanf(status.message().c_str() + at, "row %lu", &named), 1);
  EXPECT_LE(named, kBadRow);
  EXPECT_GT(named + 512 / row_bytes() + 2, kBadRow);
}

TEST_P(StoreFaults, ReorderedAndLateCompletions) {
  for (uint64_t seed = 1; seed < 6; ++seed) {
    const auto store = Open({.seed = seed, .reorder = true, .hold_back = 0.7});
    ExpectAllRows(store.get());
  }
}

TEST_P(StoreFaults, RingsTooSmall) {
  for (uint32_t depth : {1u, 2u, 3u}) {
    const auto store = Open({}, depth);
    ExpectAllRows(store.get());
  }
}

TEST_P(StoreFaults, SubmissionsTakenInPart) {
  ExpectAllRows(Open({.submit_at_most = 1}).get());
  ExpectAllRows(Open({.submit_at_most = 3, .refuse_every = 2}).get());
}

TEST_P(StoreFaults, ASubmissionThatFails) {
  const auto store = Open({.submit_error = 0});
  ExpectError(Lookup(store.get(), RandomRows(kRows, 10, 6)),
              StatusCode::kIoError, "table 't', row");
  ExpectAllRows(store.get());
}

TEST_P(StoreFaults, AQueueThatTakesNothing) {
  const auto store = Open({.submit_at_most = 0});
  ExpectError(Lookup(store.get(), RandomRows(kRows, 100, 7)),
              StatusCode::kIoError, "takes no reads");
}

TEST_P(StoreFaults, AQueueThatCannotBeReaped) {
  auto store = Open({.reap_error = 0});
  const auto rows = RandomRows(kRows, 100, 8);
  std::vector<float> out(2 * rows.size() * kWidth);
  const Ticket tickets[] = {
      store->Submit({0, rows, out.data()}),
      store->Submit({0, rows, out.data() + rows.size() * kWidth})};
  store->Cancel(store->Submit({0, rows, out.data()}));
  for (Ticket ticket : tickets) {
    ExpectError(store->Wait(ticket), StatusCode::kIoError, "has stopped");
  }
  ExpectError(Lookup(store.get(), rows), StatusCode::kIoError, "has stopped");
}

TEST_P(StoreFaults, ABrokenRowIsNamed) {
  if (codec() == TableCodec::kRow264 || codec() == TableCodec::kReleasedPair) {
    table_.SetByte(kBadRow, 5, 0x7f);
  } else {
    table_.SetByte(kBadRow, 0, 0x80);  // no number in bf16, nor as f16 scale
    table_.SetByte(kBadRow, 1, 0x7f);
  }
  Write(path_, Prepend(kOffset, table_.main_bytes()));
  const auto store = Open({.reorder = true});
  const std::vector<uint64_t> rows = {999, 701, 700, 0, 700, 699};
  ExpectError(Lookup(store.get(), rows), StatusCode::kCorrupt,
              "table 't', row 700 at offset");
  ExpectRows(store.get(), 0, table_, std::vector<uint64_t>{699, 701});
}

TEST_P(StoreFaults, AFileCutShortWhileRunning) {
  const auto store = Open({});
  const uint64_t end = kOffset + kBadRow * row_bytes() + 7;
  ASSERT_EQ(::truncate(path_.c_str(), static_cast<off_t>(end)), 0);
  std::vector<uint64_t> rows = {kBadRow - 20, kRows - 1, kBadRow, kBadRow - 1};
  ExpectError(Lookup(store.get(), rows), StatusCode::kCorrupt,
              "table 't', row 700 at offset " + std::to_string(end - 7) +
                  ": the file ends at byte " + std::to_string(end));
  // Behind the end nothing is there that would tell where it is.
  rows = {kRows - 1};
  ExpectError(Lookup(store.get(), rows), StatusCode::kCorrupt,
              " or before; it was cut short");
  ExpectRows(store.get(), 0, table_, RandomRows(kBadRow, 50, 9));
}

TEST_P(StoreFaults, AFileReplacedByRename) {
  const auto store = Open({});
  const std::string other = directory_ / "other";
  Write(other, std::vector<uint8_t>(100, 0xff));
  ASSERT_EQ(std::rename(other.c_str(), path_.c_str()), 0);
  ExpectAllRows(store.get());  // the open file stays the old one
}

std::string WayAndCodec(
    const testing::TestParamInfo<StoreFaults::ParamType>& test) {
  const char* codecs[] = {"Row264", "ReleasedPair", "Bf16",
                          "Q8",     "Q4",           "Q4WithMinimum"};
  return std::string(IoModeName(std::get<IoMode>(test.param))) +
         codecs[static_cast<int>(std::get<TableCodec>(test.param))];
}

INSTANTIATE_TEST_SUITE_P(
    WaysIn, StoreFaults,
    testing::Combine(
        testing::Values(IoMode::kUring, IoMode::kPread, IoMode::kBuffered),
        testing::Values(TableCodec::kRow264, TableCodec::kReleasedPair,
                        TableCodec::kBf16, TableCodec::kQ8_0, TableCodec::kQ4_0,
                        TableCodec::kQ4_1)),
    WayAndCodec);

TEST(StoreDescriptors, RunningOutOfThemIsAnError) {
  const TestTable table(TableCodec::kRow264, 100, 32, "t");
  const TestDirectory directory;
  const std::string path = directory / "table";
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(table.main_bytes().data()),
             static_cast<std::streamsize>(table.main_bytes().size()));
  const TableSource source = table.Source(*OpenFile(path));
  // With enough of them it opens; UBSan, too, takes one for what it sees first.
  ASSERT_TRUE(Store::Open({source}, {}).ok());
  rlimit limit;
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  rlimit low = limit;
  low.rlim_cur = 3;  // fewer than are open
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  const auto store = Store::Open({source}, {});
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.status().code(), StatusCode::kResourceExhausted)
      << store.status().ToString();
}

}  // namespace
}  // namespace ecphory::engram
