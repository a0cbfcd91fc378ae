#include "engram/store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <numeric>
#include <string>
#include <thread>
#include <utility>

#include "engram/store_testing.h"
#include "io/fault_file.h"
#include "io/test_directory.h"

namespace ecphory::engram {
namespace {

constexpr TableCodec kCodecs[] = {
    TableCodec::kRow264, TableCodec::kReleasedPair, TableCodec::kBf16,
    TableCodec::kQ8_0,   TableCodec::kQ4_0,         TableCodec::kQ4_1};

// Without a cache, so that every lookup reads.
std::unique_ptr<Store> OpenStore(std::vector<TableSource> tables,
                                 uint32_t io_threads = 4) {
  auto store = Store::Open(std::move(tables),
                           {.io_threads = io_threads, .cache_bytes = 0});
  EXPECT_TRUE(store.ok()) << store.status().ToString();
  return store.ok() ? std::move(store).value() : nullptr;
}

void ExpectRefused(TableSource table, const std::string& part) {
  const auto store = Store::Open({std::move(table)}, {});
  ASSERT_FALSE(store.ok()) << "accepted, expected: " << part;
  EXPECT_NE(store.status().message().find(part), std::string::npos)
      << store.status().ToString();
}

TEST(Store, ReadsEveryCodecInAnyOrder) {
  for (TableCodec codec : kCodecs) {
    SCOPED_TRACE(TableCodecName(codec));
    const TestTable table(codec, 500, 96);
    const auto store = OpenStore({table.Source()});
    ExpectRows(store.get(), 0, table, std::vector<uint64_t>{499, 0, 7, 7, 3});
    ExpectRows(store.get(), 0, table, RandomRows(500, 3000, 1));
    ExpectRows(store.get(), 0, table, {});
  }
}

TEST(Store, SeveralTablesOfDifferentWidths) {
  const TestTable a(TableCodec::kRow264, 40, 256, "a");
  const TestTable b(TableCodec::kReleasedPair, 60, 32, "b");
  const auto store = OpenStore({a.Source(), b.Source()});
  EXPECT_EQ(store->tables(), 2u);
  EXPECT_EQ(store->table(1).name, "b");
  ExpectRows(store.get(), 1, b, RandomRows(60, 100, 1));
  ExpectRows(store.get(), 0, a, RandomRows(40, 100, 2));
}

TEST(Store, RowsLieAtTheOffsetsGiven) {
  const TestTable table(TableCodec::kReleasedPair, 50, 64);
  TableSource source = table.Source();
  source.file = MakeMemoryFile("codes", Prepend(1000, table.main_bytes()));
  source.offset = 1000;
  source.scale_file = MakeMemoryFile("scales", Prepend(7, table.scale_bytes()));
  source.scale_offset = 7;
  const auto store = OpenStore({source});
  ExpectRows(store.get(), 0, table, RandomRows(50, 100, 3));
}

TEST(Store, CountsWhatItReads) {
  const TestTable table(TableCodec::kReleasedPair, 500, 64);
  const auto store = OpenStore({table.Source()});
  ExpectRows(store.get(), 0, table, std::vector<uint64_t>{5, 9, 5, 5, 200, 9});
  ExpectRows(store.get(), 0, table, std::vector<uint64_t>{5});
  StoreStats stats = store->stats();
  EXPECT_EQ(stats.lookups, 2u);
  EXPECT_EQ(stats.rows, 7u);
  EXPECT_EQ(stats.rows_read, 4u);  // duplicates of one lookup are read once
  EXPECT_EQ(stats.bytes_read, 4u * (64 + 2));
  EXPECT_GT(stats.read_seconds, 0);
  EXPECT_GT(stats.wait_seconds, 0);
  store->ResetStats();
  stats = store->stats();
  EXPECT_EQ(stats.lookups + stats.rows + stats.rows_read + stats.bytes_read,
            0u);
  EXPECT_EQ(stats.read_seconds + stats.wait_seconds, 0);
}

TEST(Store, TellsWhatOneLookupCost) {
  const TestTable table(TableCodec::kRow264, 500, 64);
  const auto store = OpenStore({table.Source()});
  std::vector<float> out(4 * 64);
  const std::vector<uint64_t> rows = {5, 9, 5, 200};
  for (int i = 0; i < 2; ++i) {
    LookupStats stats;
    const Ticket ticket = store->Submit({0, rows, out.data()});
    ASSERT_TRUE(store->Wait(ticket, &stats).ok());
    EXPECT_EQ(stats.cache_hits, 0u);
    EXPECT_EQ(stats.rows_read, 3u);
    EXPECT_EQ(stats.bytes_read, 3u * 66);
  }
}

TEST(Store, ManyThreadsShareOneStore) {
  const TestTable a(TableCodec::kRow264, 300, 64);
  const TestTable b(TableCodec::kBf16, 200, 32);
  const auto store = OpenStore({a.Source(), b.Source()}, 3);
  std::vector<std::thread> callers;
  for (uint32_t caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&, caller] {
      for (uint32_t i = 0; i < 50; ++i) {
        const auto rows_a = RandomRows(300, 48, caller * 100 + i);
        const auto rows_b = RandomRows(200, i, caller * 100 + i);
        std::vector<float> early(rows_a.size() * 64);
        const Ticket ticket = store->Submit({0, rows_a, early.data()});
        ExpectRows(store.get(), 1, b, rows_b);
        if (i % 5 == 0) {
          store->Cancel(ticket);
        } else {
          EXPECT_TRUE(store->Wait(ticket).ok());
          EXPECT_EQ(early[0], a.Row(rows_a[0])[0]);
        }
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

TEST(Store, ReadyTurnsTrueWithoutAWait) {
  const TestTable table(TableCodec::kRow264, 100, 32);
  const auto file = std::make_shared<GateFile>(table.Source().file);
  const auto store = OpenStore({table.Source(file)}, 2);
  std::vector<float> out(64 * 32);
  file->Close();
  const Ticket ticket = store->Submit({0, RandomRows(100, 64, 4), out.data()});
  EXPECT_FALSE(store->Ready(ticket));
  file->Open();
  while (!store->Ready(ticket)) std::this_thread::yield();
  EXPECT_TRUE(store->Wait(ticket).ok());
}

// Rows whose reads cannot be merged.
std::vector<uint64_t> EveryOtherRow(size_t count) {
  std::vector<uint64_t> rows(count);
  for (size_t i = 0; i < count; ++i) rows[i] = 2 * i;
  return rows;
}

TEST(Store, EveryReaderTakesPartInALookup) {
  const TestTable table(TableCodec::kRow264, 100, 32);
  const auto file = std::make_shared<GateFile>(table.Source().file);
  const auto store = OpenStore({table.Source(file)}, 5);
  std::vector<float> out(50 * 32);
  file->Close();
  const Ticket ticket = store->Submit({0, EveryOtherRow(50), out.data()});
  EXPECT_TRUE(file->AwaitReaders(5));
  file->Open();
  EXPECT_TRUE(store->Wait(ticket).ok());
}

TEST(Store, ALookupEndsWhileAnOlderOneIsHeldUp) {
  const TestTable slow(TableCodec::kRow264, 100, 32);
  const TestTable quick(TableCodec::kRow264, 100, 32);
  const auto file = std::make_shared<GateFile>(slow.Source().file);
  const auto store = OpenStore({slow.Source(file), quick.Source()}, 4);
  std::vector<float> out(3 * 32);
  file->Close();
  const Ticket ticket = store->Submit({0, EveryOtherRow(3), out.data()});
  EXPECT_TRUE(file->AwaitReaders(3));
  ExpectRows(store.get(), 1, quick, RandomRows(100, 64, 7));
  EXPECT_FALSE(store->Ready(ticket));
  file->Open();
  EXPECT_TRUE(store->Wait(ticket).ok());
}

TEST(Store, CancelWaitsForNoRead) {
  const TestTable table(TableCodec::kRow264, 500, 32);
  const auto file = std::make_shared<GateFile>(table.Source().file);
  const auto store = OpenStore({table.Source(file)}, 2);
  std::vector<float> out(200 * 32, 1.5f);
  file->Close();
  const Ticket ticket = store->Submit({0, EveryOtherRow(200), out.data()});
  EXPECT_TRUE(file->AwaitReaders(2));
  store->Cancel(ticket);  // the file is still closed
  EXPECT_TRUE(store->Ready(ticket));
  file->Open();
  ExpectRows(store.get(), 0, table, RandomRows(500, 64, 9));
  EXPECT_EQ(out, std::vector<float>(200 * 32, 1.5f));
  ExpectError(store->Wait(ticket), StatusCode::kInvalidArgument, "ticket");
}

TEST(Store, LookupsNobodyWaitsForGoOn) {
  // Many more rows than reads in flight, and none is reaped by a caller.
  const TestTable table(TableCodec::kRow264, 5000, 32);
  auto opened =
      Store::Open({table.Source()}, {.queue_depth = 8, .cache_bytes = 0});
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  Store& store = **opened;
  std::vector<float> out(2500 * 32);
  const Ticket ticket = store.Submit({0, EveryOtherRow(2500), out.data()});
  while (store.stats().rows_read < 2500) std::this_thread::yield();
  EXPECT_TRUE(store.Ready(ticket));
  EXPECT_TRUE(store.Wait(ticket).ok());
}

TEST(Store, FewRowsOvertakeMany) {
  const TestTable table(TableCodec::kRow264, 5000, 32);
  FaultPlan plan;
  plan.delay = std::chrono::milliseconds(2);  // 5 s for all
  const auto file = MakeFaultFile(table.Source().file, plan);
  auto opened =
      Store::Open({table.Source(file)},
                  {.io_threads = 1, .queue_depth = 4, .cache_bytes = 0});
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  Store& store = **opened;
  std::vector<float> out(2500 * 32), few(10 * 32);
  const Ticket many = store.Submit({0, EveryOtherRow(2500), out.data()});
  const Ticket quick = store.Submit({0, EveryOtherRow(10), few.data()});
  EXPECT_TRUE(store.Wait(quick).ok());
  EXPECT_FALSE(store.Ready(many));
  store.Cancel(many);
}

TEST(Store, SeveralRequestsInOneSubmission) {
  const TestTable a(TableCodec::kRow264, 300, 64, "a");
  const TestTable b(TableCodec::kReleasedPair, 200, 32, "b");
  const auto store = OpenStore({a.Source(), b.Source()});
  const auto rows_a = RandomRows(300, 24, 1), rows_b = RandomRows(200, 24, 2);
  std::vector<float> out_a(24 * 64), out_b(24 * 32);
  const LookupRequest requests[] = {{0, rows_a, out_a.data()},
                                    {1, rows_b, out_b.data()}};
  Ticket tickets[2] = {};
  store->Submit(requests, tickets);
  EXPECT_NE(tickets[0], tickets[1]);
  EXPECT_TRUE(store->Wait(tickets[1]).ok());
  EXPECT_TRUE(store->Wait(tickets[0]).ok());
  for (size_t i = 0; i < 24; ++i) {
    EXPECT_EQ(out_a[i * 64], a.Row(rows_a[i])[0]);
    EXPECT_EQ(out_b[i * 32 + 31], b.Row(rows_b[i])[31]);
  }
}

TEST(Store, EveryFormat) {
  for (TableCodec codec : kCodecs) {
    const TestTable table(codec, 300, 64);
    for (const uint64_t cache_bytes : {uint64_t{0}, uint64_t{1} << 20}) {
      auto store = Store::Open({table.Source()}, {.cache_bytes = cache_bytes});
      ASSERT_TRUE(store.ok());
      const auto rows = RandomRows(300, 100, 13);
      for (int again = 0; again < 2; ++again) {
        ExpectRows(store->get(), 0, table, rows);
        ExpectBf16Rows(store->get(), table, rows);
        ExpectRawRows(store->get(), table, rows);
      }
    }
  }
}

TEST(Store, RowsThatTouchShareARead) {
  const TestTable table(TableCodec::kReleasedPair, 500, 64);
  const auto store = OpenStore({table.Source()});
  ExpectRows(store.get(), 0, table, std::vector<uint64_t>{12, 10, 11, 300, 10});
  StoreStats stats = store->stats();
  EXPECT_EQ(stats.rows_read, 4u);
  EXPECT_EQ(stats.reads, 2u * 2);  // codes and scales
  EXPECT_EQ(stats.bytes_read, 4u * 66);
  // No read is longer than a page: 64 rows of codes.
  store->ResetStats();
  std::vector<uint64_t> rows(130);
  std::iota(rows.begin(), rows.end(), 100);
  ExpectRows(store.get(), 0, table, rows);
  EXPECT_EQ(store->stats().reads, 3u * 2);
}

TEST(Store, RowsOfTheCacheAreNotRead) {
  const TestTable table(TableCodec::kReleasedPair, 500, 64);
  auto store = Store::Open({table.Source()}, {});
  ASSERT_TRUE(store.ok());
  const std::vector<uint64_t> rows = {3, 100, 3, 250};
  ExpectRows(store->get(), 0, table, rows);
  EXPECT_EQ((*store)->stats().cache_hits, 0u);
  std::vector<float> out(rows.size() * 64);
  LookupStats stats;
  ASSERT_TRUE(
      (*store)->Wait((*store)->Submit({0, rows, out.data()}), &stats).ok());
  EXPECT_EQ(stats.cache_hits, 4u);
  EXPECT_EQ(stats.rows_read, 0u);
  EXPECT_EQ((*store)->stats().cache_hits, 4u);
  EXPECT_EQ((*store)->stats().rows_read, 3u);
}

TEST(Store, KeepsRowsByDefaultWhereNothingElseDoes) {
  const TestTable table(TableCodec::kRow264, 100, 64);
  const TestDirectory directory;
  const std::string path = directory / "table";
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(table.main_bytes().data()),
             static_cast<std::streamsize>(table.main_bytes().size()));
  const TableSource source = table.Source(*OpenFile(path));
  const auto report = [&](const StoreOptions& options) {
    const auto store = Store::Open({source}, options);
    EXPECT_TRUE(store.ok()) << store.status().ToString();
    return store.ok() ? (*store)->io() : IoReport();
  };
  const auto near = [](uint64_t bytes, uint64_t most) {
    return bytes <= most && bytes > most - most / 16;
  };
  constexpr uint64_t kMany = uint64_t{1} << 20;
  EXPECT_TRUE(
      near(report({.io = IoMode::kPread}).cache_bytes, kDefaultCacheBytes));
  EXPECT_TRUE(
      near(report({.io = IoMode::kBuffered}).cache_bytes, kDefaultCacheBytes));
  EXPECT_EQ(report({.io = IoMode::kPread, .cache_bytes = 0}).cache_bytes, 0u);
  // The page cache holds such a table.
  EXPECT_EQ(report({}).cache_bytes, 0u);
  EXPECT_TRUE(near(report({.cache_bytes = kMany}).cache_bytes, kMany));
  for (const IoMode mode : {IoMode::kMmap, IoMode::kRam}) {
    const IoReport asked = report({.io = mode, .cache_bytes = kMany});
    EXPECT_EQ(asked.cache_bytes, 0u);
    EXPECT_NE(asked.reason.find("; no row cache"), std::string::npos);
    EXPECT_EQ(report({.io = mode}).reason.find("row cache"), std::string::npos);
  }
}

TEST(Store, CountsByTable) {
  const TestTable a(TableCodec::kRow264, 40, 256, "a");
  const TestTable b(TableCodec::kBf16, 60, 32, "b");
  const auto store = OpenStore({a.Source(), b.Source()});
  ExpectRows(store.get(), 1, b, std::vector<uint64_t>{1, 5});
  EXPECT_EQ(store->table_stats(0).rows_read, 0u);
  EXPECT_EQ(store->table_stats(1).rows_read, 2u);
  EXPECT_EQ(store->stats().rows_read, 2u);
  EXPECT_EQ(store->LatencyQuantile(0, 0.5), 0);
  EXPECT_GT(store->LatencyQuantile(1, 0.5), 0);
}

TEST(Store, DestructionEndsLookupsUnderWay) {
  const TestTable table(TableCodec::kRow264, 500, 32);
  const auto file = std::make_shared<GateFile>(table.Source().file);
  std::vector<float> out(2 * 400 * 32);
  auto store = OpenStore({table.Source(file)}, 2);
  file->Close();
  store->Submit({0, RandomRows(500, 400, 10), out.data()});
  store->Submit({0, RandomRows(500, 400, 11), out.data() + 400 * 32});
  EXPECT_TRUE(file->AwaitReaders(2));
  std::thread opener([&] { file->Open(); });
  store.reset();
  opener.join();
}

TEST(Store, EveryTicketIsWaitedForOnce) {
  const TestTable table(TableCodec::kRow264, 50, 32);
  const auto store = OpenStore({table.Source()});
  float out[32];
  const uint64_t row = 3;
  const Ticket ticket = store->Submit({0, {&row, 1}, out});
  EXPECT_NE(ticket, 0u);
  EXPECT_TRUE(store->Wait(ticket).ok());
  ExpectError(store->Wait(ticket), StatusCode::kInvalidArgument, "ticket");
  ExpectError(store->Wait(0), StatusCode::kInvalidArgument, "ticket 0");
  EXPECT_TRUE(store->Ready(ticket));
  store->Cancel(ticket);
}

TEST(Store, RowsAndTablesThatDoNotExist) {
  const TestTable table(TableCodec::kRow264, 50, 32, "blk.1.engram_embd");
  const auto store = OpenStore({table.Source()});
  std::vector<float> out(3 * 32);
  for (uint64_t bad : {uint64_t{50}, UINT64_MAX}) {
    const std::vector<uint64_t> rows = {1, bad, 2};
    ExpectError(store->Wait(store->Submit({0, rows, out.data()})),
                StatusCode::kOutOfRange,
                "table 'blk.1.engram_embd': row " + std::to_string(bad));
  }
  const uint64_t row = 0;
  ExpectError(store->Wait(store->Submit({1, {&row, 1}, out.data()})),
              StatusCode::kInvalidArgument, "table 1");
  ExpectRows(store.get(), 0, table, std::vector<uint64_t>{49, 0});
}

TEST(Store, ABrokenRowIsNamed) {
  for (TableCodec codec : {TableCodec::kRow264, TableCodec::kReleasedPair}) {
    for (const auto& [value, byte] :
         {std::pair(0, uint8_t{0x7f}), std::pair(63, uint8_t{0xff}),
          std::pair(64, uint8_t{0xff})}) {  // codes, and the first scale
      TestTable table(codec, 1000, 64, "t");
      // Not among the sampled rows; of two broken ones the lower is named.
      table.SetByte(700, value, byte);
      table.SetByte(701, value, byte);
      const auto store = OpenStore({table.Source()});
      const std::vector<uint64_t> rows = {701, 999, 702, 700, 0, 700};
      std::vector<float> out(rows.size() * 64);
      for (int trial = 0; trial < 20; ++trial) {
        ExpectError(store->Wait(store->Submit({0, rows, out.data()})),
                    StatusCode::kCorrupt, "table 't', row 700 at offset");
      }
      ExpectRows(store.get(), 0, table, std::vector<uint64_t>{699, 702});
    }
  }
}

TEST(Store, AReadErrorIsNamedAndDoesNotStick) {
  const TestTable table(TableCodec::kRow264, 1000, 64, "t");
  const uint64_t row_bytes = 66;
  FaultPlan plan;
  plan.bad_begin = 700 * row_bytes;
  plan.bad_end = plan.bad_begin + 1;
  const auto store =
      OpenStore({table.Source(MakeFaultFile(table.Source().file, plan))});
  const auto rows = RandomRows(700, 300, 12);
  std::vector<uint64_t> with_bad = rows;
  with_bad[150] = 700;
  std::vector<float> out(rows.size() * 64);
  ExpectError(store->Wait(store->Submit({0, with_bad, out.data()})),
              StatusCode::kIoError, "table 't', row 700");
  ExpectRows(store.get(), 0, table, rows);
}

TEST(Store, AFileThatShrinksIsAnError) {
  const TestTable table(TableCodec::kReleasedPair, 1000, 64, "t");
  TableSource source = table.Source();
  FaultPlan plan;
  plan.truncated_at = 999 * 2 + 1;  // inside the last row's scales
  source.scale_file = MakeFaultFile(source.scale_file, plan);
  ExpectRefused(source, "table 't', row 999");
}

TEST(Store, SlowReadsOfManyLookups) {
  const TestTable table(TableCodec::kRow264, 400, 32);
  FaultPlan plan;
  plan.delay = std::chrono::microseconds(50);
  const auto file = MakeFaultFile(table.Source().file, plan);
  const auto store = OpenStore({table.Source(file)}, 8);
  std::vector<Ticket> tickets;
  std::vector<std::vector<float>> outs;
  for (uint32_t i = 0; i < 10; ++i) {
    outs.emplace_back(24 * 32);
    tickets.push_back(
        store->Submit({0, RandomRows(400, 24, i), outs.back().data()}));
  }
  for (uint32_t i = 10; i-- > 0;) {  // in another order than submitted
    ASSERT_TRUE(store->Wait(tickets[i]).ok());
    EXPECT_EQ(outs[i][32], table.Row(RandomRows(400, 24, i)[1])[0]);
  }
}

TEST(StoreOpen, RefusesTablesThatEndOutsideTheirFile) {
  const TestTable table(TableCodec::kRow264, 100, 64, "t");
  std::vector<uint8_t> bytes = table.main_bytes();
  TableSource source = table.Source();
  source.offset = 1;
  ExpectRefused(source, "table 't': 100 rows of 66 bytes from offset 1");
  source.offset = UINT64_MAX;
  ExpectRefused(source, "reach past the end");
  source.offset = 0;
  source.rows = UINT64_MAX / 66 + 1;
  ExpectRefused(source, "reach past the end");
  bytes.pop_back();  // inside the last row
  ExpectRefused(table.Source(MakeMemoryFile("short", bytes)),
                "short: table 't': 100 rows");
}

TEST(StoreOpen, RefusesScalesThatEndOutsideTheirFile) {
  const TestTable table(TableCodec::kReleasedPair, 100, 64, "t");
  TableSource source = table.Source();
  std::vector<uint8_t> scales = table.scale_bytes();
  scales.pop_back();
  source.scale_file = MakeMemoryFile("scales", scales);
  ExpectRefused(source, "scales: table 't': 100 rows of 2 bytes");
  source.scale_file = nullptr;
  ExpectRefused(source, "no file is given");
  source.file = nullptr;
  ExpectRefused(source, "no file is given");
}

TEST(StoreOpen, RefusesShapesAndOptionsOutOfRange) {
  const TestTable table(TableCodec::kRow264, 100, 64, "t");
  for (uint32_t width : {0u, 33u, 1u << 17, UINT32_MAX}) {
    TableSource source = table.Source();
    source.width = width;
    ExpectRefused(source, "rows of " + std::to_string(width) + " values");
  }
  TableSource source = table.Source();
  source.rows = 0;
  ExpectRefused(source, "has no rows");
  EXPECT_FALSE(Store::Open({table.Source()}, {.io_threads = 0}).ok());
  EXPECT_FALSE(Store::Open({table.Source()}, {.io_threads = 257}).ok());
}

TEST(StoreOpen, RefusesATableOfZeros) {
  for (TableCodec codec : kCodecs) {
    const TestTable table(codec, 1000, 32, "t");
    TableSource source = table.Source();
    source.file = MakeMemoryFile(
        "zeros", std::vector<uint8_t>(table.main_bytes().size()));
    if (codec == TableCodec::kReleasedPair) {
      source.scale_file = MakeMemoryFile(
          "zeros", std::vector<uint8_t>(table.scale_bytes().size()));
    }
    ExpectRefused(source, "zeros: table 't': all 32 sampled rows");
  }
}

TEST(StoreOpen, ATableWithSomeRowsOfZerosIsFine) {
  TestTable table(TableCodec::kRow264, 100, 32);
  for (uint64_t row = 1; row < 100; ++row) {
    for (size_t i = 0; i < 33; ++i) table.SetByte(row, i, 0);
  }
  const auto store = OpenStore({table.Source()});
  ExpectRows(store.get(), 0, table, std::vector<uint64_t>{0, 50});
}

TEST(StoreOpen, RefusesABrokenSample) {
  for (uint64_t row : {0, 99}) {  // always sampled
    TestTable table(TableCodec::kRow264, 100, 32, "t");
    table.SetByte(row, 32, 255);
    ExpectRefused(table.Source(), "row " + std::to_string(row));
  }
}

// Writes `bytes` at `offset` of a sparse file.
bool WriteAt(int fd, uint64_t offset, std::span<const uint8_t> bytes) {
  return ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset)) ==
         static_cast<ssize_t>(bytes.size());
}

TEST(StoreLarge, RowsOnBothSidesOfByte2To32) {
  constexpr uint64_t kRowBytes = 264, kRows = 16'268'818;
  // Row 16,268,815 straddles byte 2^32, row 16,268,816 begins behind it.
  static_assert(16'268'815 * kRowBytes < (uint64_t{1} << 32));
  static_assert(16'268'816 * kRowBytes > (uint64_t{1} << 32));
  const TestTable small(TableCodec::kRow264, 4, 256, "t");
  const TestDirectory directory;
  const std::string path = directory / "table";
  const int fd = ::open(path.c_str(), O_CREAT | O_RDWR, 0600);
  ASSERT_GE(fd, 0);
  bool written = ::ftruncate(fd, static_cast<off_t>(kRows * kRowBytes)) == 0;
  for (uint64_t i = 0; i < 4; ++i) {  // the last four rows
    written =
        written && WriteAt(fd, (kRows - 4 + i) * kRowBytes, small.RowBytes(i));
  }
  ::close(fd);
  if (!written) GTEST_SKIP() << "no room for a sparse file of 4.3 GB";

  TableSource source = small.Source(*OpenFile(path));
  source.rows = kRows;
  const auto store = OpenStore({source});
  std::vector<float> out(4 * 256);
  const std::vector<uint64_t> rows = {16'268'817, 16'268'816, 16'268'815,
                                      16'268'814};
  ASSERT_TRUE(store->Wait(store->Submit({0, rows, out.data()})).ok());
  for (size_t i = 0; i < 4; ++i) {
    const std::vector<float> expected = small.Row(3 - i);
    EXPECT_TRUE(
        std::equal(expected.begin(), expected.end(), out.begin() + i * 256))
        << "row " << rows[i];
  }
}

}  // namespace
}  // namespace ecphory::engram
