// The C API: the same rows and values as from C++, and every wrong call.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "ecphory/engram.h"
#include "ecphory/model.h"
#include "engram/memory.h"

namespace ecphory {
namespace {

std::string GoldenModel() {
  return std::string(ECPHORY_TEST_DATA) + "/golden/v41/A";
}

std::vector<int32_t> Tokens(size_t count) {
  std::vector<int32_t> tokens(count);
  for (size_t i = 0; i < count; ++i) {
    tokens[i] = static_cast<int32_t>((i * i * 31 + 7) % 512);
  }
  return tokens;
}

void ExpectError(ecphory_engram_status status, ecphory_engram_status expected,
                 const std::string& part) {
  EXPECT_EQ(status, expected) << ecphory_engram_last_error();
  EXPECT_NE(std::string(ecphory_engram_last_error()).find(part),
            std::string::npos)
      << ecphory_engram_last_error();
}

// Options with quick defaults for tests.
ecphory_engram_options TestOptions() {
  ecphory_engram_options options;
  ecphory_engram_options_init(&options, sizeof(options));
  options.io_mode = ECPHORY_ENGRAM_IO_PREAD;
  options.io_threads = 2;
  return options;
}

class EngramC : public ::testing::Test {
 protected:
  void SetUp() override {
    const ecphory_engram_options options = TestOptions();
    ASSERT_EQ(ecphory_engram_open(GoldenModel().c_str(), &options, &engram_),
              ECPHORY_ENGRAM_OK)
        << ecphory_engram_last_error();
    facts_.struct_size = sizeof(facts_);
    ASSERT_EQ(ecphory_engram_get_facts(engram_, &facts_), ECPHORY_ENGRAM_OK);
    ASSERT_EQ(ecphory_engram_sequence_create(engram_, &sequence_),
              ECPHORY_ENGRAM_OK);
  }
  void TearDown() override {
    ecphory_engram_sequence_free(&sequence_);
    ecphory_engram_close(&engram_);
  }

  std::vector<uint64_t> Hash(ecphory_engram_sequence* sequence,
                             const std::vector<int32_t>& tokens,
                             const std::vector<uint8_t>& dead = {}) {
    std::vector<uint64_t> rows(tokens.size() * facts_.columns * facts_.tables);
    EXPECT_EQ(ecphory_engram_hash(sequence, tokens.data(),
                                  dead.empty() ? nullptr : dead.data(),
                                  tokens.size(), rows.data(), rows.size()),
              ECPHORY_ENGRAM_OK);
    return rows;
  }

  // A request that is right.
  ecphory_engram_request Request() {
    ecphory_engram_request request = {};
    request.table = 1;
    request.format = ECPHORY_ENGRAM_F32;
    request.rows = few_rows_;
    request.count = 3;
    request.out = values_;
    request.out_bytes = sizeof(values_);
    return request;
  }

  ecphory_engram* engram_ = nullptr;
  ecphory_engram_sequence* sequence_ = nullptr;
  ecphory_engram_facts facts_ = {};
  uint64_t few_rows_[3] = {3, 1, 3};
  float values_[3 * 64] = {};
};

TEST_F(EngramC, RowsAreThoseOfTheModel) {
  const auto model = Model::Open(GoldenModel(), {});
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  const std::vector<int32_t> tokens = Tokens(300);
  std::vector<uint8_t> dead(tokens.size());
  for (size_t i = 0; i < dead.size(); ++i) dead[i] = i % 13 == 4;
  const auto expected = (*model)->EngramRows(tokens, dead);
  ASSERT_TRUE(expected.ok());
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto image = (*model)->config().image_token_id;
    if (tokens[i] == image) dead[i] = 1;
  }
  const std::vector<uint64_t> rows = Hash(sequence_, tokens, dead);
  for (size_t t = 0; t < tokens.size(); ++t) {
    for (size_t table = 0; table < facts_.tables; ++table) {
      const auto begin =
          rows.begin() +
          static_cast<ptrdiff_t>((table * tokens.size() + t) * facts_.columns);
      EXPECT_EQ(std::vector<uint64_t>(begin, begin + facts_.columns),
                (*expected)[t][table].rows)
          << t;
    }
  }
}

TEST_F(EngramC, FactsAreThoseOfTheMemory) {
  const auto memory = engram::Memory::Open(GoldenModel(), {});
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(facts_.tables, 2u);
  EXPECT_EQ(facts_.max_ngram, 4u);
  EXPECT_EQ(facts_.heads, 2u);
  EXPECT_EQ(facts_.columns, 6u);
  EXPECT_EQ(facts_.width, 64u);
  EXPECT_EQ(facts_.vocab_size, 512u);
  EXPECT_EQ(facts_.compressed_vocab_size, 394u);
  EXPECT_EQ(facts_.pad_id, (*memory)->hasher().pad_id());
  for (uint32_t i = 0; i < facts_.tables; ++i) {
    ecphory_engram_table table = {};
    table.struct_size = sizeof(table);
    ASSERT_EQ(ecphory_engram_get_table(engram_, i, &table), ECPHORY_ENGRAM_OK);
    const engram::LayerLayout& layer = (*memory)->layout().layers[i];
    EXPECT_EQ(table.layer, layer.layer_id);
    EXPECT_EQ(table.codec, ECPHORY_ENGRAM_CODEC_RELEASED_PAIR);
    EXPECT_EQ(table.rows, layer.rows);
    EXPECT_EQ(table.row_bytes, 66u);
    EXPECT_NE(table.scale_file, nullptr);
    EXPECT_STREQ(table.name, (*memory)->store().table(i).name.c_str());
    EXPECT_TRUE(
        std::equal(layer.primes.begin(), layer.primes.end(), table.primes));
    EXPECT_TRUE(
        std::equal(layer.offsets.begin(), layer.offsets.end(), table.offsets));
    EXPECT_TRUE(std::equal(layer.multipliers.begin(), layer.multipliers.end(),
                           table.multipliers));
  }
  size_t count = 0;
  const int32_t* map = ecphory_engram_token_map(engram_, &count);
  EXPECT_EQ(std::vector<int32_t>(map, map + count),
            (*memory)->hasher().token_map());
}

// Every format, submitted as one batch, against the store itself.
TEST_F(EngramC, ValuesAreThoseOfTheStore) {
  const std::vector<int32_t> tokens = Tokens(40);
  const std::vector<uint64_t> rows = Hash(sequence_, tokens);
  const size_t each = tokens.size() * facts_.columns;
  std::vector<float> f32(each * 64);
  std::vector<uint16_t> bf16(each * 64), decoded(each * 64);
  std::vector<uint8_t> raw(each * 66);
  std::vector<ecphory_engram_request> requests(3);
  for (uint32_t i = 0; i < 3; ++i) {
    requests[i].table = 1;
    requests[i].format = i;
    requests[i].rows = rows.data() + each;
    requests[i].count = each;
  }
  requests[0].out = f32.data();
  requests[0].out_bytes = f32.size() * 4;
  requests[1].out = bf16.data();
  requests[1].out_bytes = bf16.size() * 2;
  requests[2].out = raw.data();
  requests[2].out_bytes = raw.size();
  std::vector<ecphory_engram_ticket> tickets(3);
  ASSERT_EQ(
      ecphory_engram_submit_batch(engram_, requests.data(), 3, tickets.data()),
      ECPHORY_ENGRAM_OK);
  for (const auto ticket : tickets) {
    ecphory_engram_lookup_stats stats = {};
    stats.struct_size = sizeof(stats);
    EXPECT_EQ(ecphory_engram_wait(engram_, ticket, &stats), ECPHORY_ENGRAM_OK);
    EXPECT_GT(stats.rows_read + stats.cache_hits, 0u);
  }
  const auto memory = engram::Memory::Open(GoldenModel(), {});
  ASSERT_TRUE(memory.ok());
  std::vector<float> expected(each * 64);
  ASSERT_TRUE(
      (*memory)
          ->store()
          .Wait((*memory)->store().Submit({.table = 1,
                                           .rows = {rows.data() + each, each},
                                           .out = expected.data()}))
          .ok());
  EXPECT_EQ(f32, expected);
  for (size_t i = 0; i < f32.size(); ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, &f32[i], 4);
    ASSERT_EQ(bf16[i], bits >> 16);
  }
  ASSERT_EQ(
      ecphory_engram_decode(engram_, 1, raw.data(), each, ECPHORY_ENGRAM_BF16,
                            decoded.data(), decoded.size() * 2),
      ECPHORY_ENGRAM_OK);
  EXPECT_EQ(decoded, bf16);
}

TEST_F(EngramC, SequencesAreSnapshotsAndBranches) {
  const std::vector<int32_t> tokens = Tokens(9);
  const std::vector<int32_t> head(tokens.begin(), tokens.begin() + 5);
  const std::vector<int32_t> tail(tokens.begin() + 5, tokens.end());
  Hash(sequence_, head);
  ecphory_engram_sequence* branch = nullptr;
  ASSERT_EQ(ecphory_engram_sequence_clone(sequence_, &branch),
            ECPHORY_ENGRAM_OK);
  int32_t ids[3] = {};
  size_t count = 0;
  ASSERT_EQ(ecphory_engram_sequence_get_history(sequence_, ids, 3, &count),
            ECPHORY_ENGRAM_OK);
  ASSERT_EQ(count, 3u);
  int32_t newest = 0;
  ASSERT_EQ(ecphory_engram_compress(engram_, &head[4], nullptr, 1, &newest),
            ECPHORY_ENGRAM_OK);
  EXPECT_EQ(ids[0], newest);
  const std::vector<uint64_t> rows = Hash(sequence_, tail);
  EXPECT_EQ(Hash(branch, tail), rows);
  ASSERT_EQ(ecphory_engram_sequence_reset(branch), ECPHORY_ENGRAM_OK);
  EXPECT_NE(Hash(branch, tail), rows);
  ASSERT_EQ(ecphory_engram_sequence_set_history(branch, ids, count),
            ECPHORY_ENGRAM_OK);
  EXPECT_EQ(Hash(branch, tail), rows);
  ASSERT_EQ(ecphory_engram_sequence_assign(sequence_, branch),
            ECPHORY_ENGRAM_OK);
  // Sequences outlive their memory.
  ecphory_engram_close(&engram_);
  EXPECT_EQ(Hash(branch, tail), Hash(sequence_, tail));
  ecphory_engram_sequence_free(&branch);
  EXPECT_EQ(branch, nullptr);
}

TEST_F(EngramC, HistoriesThatCannotBe) {
  const int32_t outside[1] = {394}, below[1] = {-2}, four[4] = {};
  ExpectError(ecphory_engram_sequence_set_history(sequence_, outside, 1),
              ECPHORY_ENGRAM_OUT_OF_RANGE, "is 394, expected -1..393");
  ExpectError(ecphory_engram_sequence_set_history(sequence_, below, 1),
              ECPHORY_ENGRAM_OUT_OF_RANGE, "is -2");
  ExpectError(ecphory_engram_sequence_set_history(sequence_, four, 4),
              ECPHORY_ENGRAM_INVALID_ARGUMENT, "expected at most 3");
  ASSERT_EQ(ecphory_engram_sequence_set_history(sequence_, four, 2),
            ECPHORY_ENGRAM_OK);
  int32_t ids[1];
  size_t count = 0;
  ExpectError(ecphory_engram_sequence_get_history(sequence_, ids, 1, &count),
              ECPHORY_ENGRAM_INVALID_ARGUMENT, "the history has 2");
  EXPECT_EQ(count, 2u);
}

TEST_F(EngramC, HashingWrongly) {
  const std::vector<int32_t> tokens = {1, 2, 512};
  std::vector<uint64_t> rows(36);
  ExpectError(ecphory_engram_hash(sequence_, tokens.data(), nullptr, 3,
                                  rows.data(), 36),
              ECPHORY_ENGRAM_OUT_OF_RANGE, "token 512 at position 2");
  ExpectError(ecphory_engram_hash(sequence_, tokens.data(), nullptr, 2,
                                  rows.data(), 23),
              ECPHORY_ENGRAM_INVALID_ARGUMENT, "room for 23 row numbers");
  ExpectError(ecphory_engram_hash(sequence_, tokens.data(), nullptr, SIZE_MAX,
                                  rows.data(), 36),
              ECPHORY_ENGRAM_INVALID_ARGUMENT, "row numbers");
  size_t count = 1;
  EXPECT_EQ(ecphory_engram_sequence_get_history(sequence_, nullptr, 0, &count),
            ECPHORY_ENGRAM_OK);
  EXPECT_EQ(count, 0u);
}

TEST_F(EngramC, RequestsThatDoNotFit) {
  ecphory_engram_ticket ticket = 7;
  const auto refused = [&](const ecphory_engram_request& request,
                           const std::string& part) {
    ticket = 7;
    ExpectError(ecphory_engram_submit(engram_, &request, &ticket),
                ECPHORY_ENGRAM_INVALID_ARGUMENT, part);
    EXPECT_EQ(ticket, 0u);
  };
  ecphory_engram_request request = Request();
  request.table = 2;
  refused(request, "table 2 was asked for");
  request = Request();
  request.format = 3;
  refused(request, "format 3, expected 0..2");
  request = Request();
  --request.out_bytes;
  refused(request, "room for 767 bytes, expected 256 for each of 3 rows");
  request = Request();
  request.count = SIZE_MAX / 2;
  refused(request, "rows");
  request = Request();
  request.out = nullptr;
  refused(request, "out is NULL");
  request = Request();
  request.rows = nullptr;
  refused(request, "rows is NULL");
  request = Request();
  request.out = reinterpret_cast<char*>(values_) + 1;
  refused(request, "expected a multiple of 4");
}

TEST_F(EngramC, OneBadRequestSubmitsNone) {
  ecphory_engram_request requests[2] = {Request(), Request()};
  requests[1].table = 9;
  ecphory_engram_ticket tickets[2] = {5, 5};
  ExpectError(ecphory_engram_submit_batch(engram_, requests, 2, tickets),
              ECPHORY_ENGRAM_INVALID_ARGUMENT, "table 9");
  EXPECT_EQ(tickets[0] | tickets[1], 0u);
  ecphory_engram_stats stats = {};
  stats.struct_size = sizeof(stats);
  ASSERT_EQ(
      ecphory_engram_get_stats(engram_, ECPHORY_ENGRAM_ALL_TABLES, &stats),
      ECPHORY_ENGRAM_OK);
  EXPECT_EQ(stats.lookups, 0u);
}

TEST_F(EngramC, RowsThatDoNotExistFailTheirLookupOnly) {
  uint64_t outside[1] = {3424};
  ecphory_engram_request requests[2] = {Request(), Request()};
  requests[0].rows = outside;
  requests[0].count = 1;
  ecphory_engram_ticket tickets[2] = {};
  ASSERT_EQ(ecphory_engram_submit_batch(engram_, requests, 2, tickets),
            ECPHORY_ENGRAM_OK);
  ExpectError(ecphory_engram_wait(engram_, tickets[0], nullptr),
              ECPHORY_ENGRAM_OUT_OF_RANGE, "row 3424 was asked for");
  EXPECT_EQ(ecphory_engram_wait(engram_, tickets[1], nullptr),
            ECPHORY_ENGRAM_OK);
}

TEST_F(EngramC, ATicketTakesOneWaitOrCancel) {
  const ecphory_engram_request request = Request();
  ecphory_engram_ticket ticket = 0;
  ASSERT_EQ(ecphory_engram_submit(engram_, &request, &ticket),
            ECPHORY_ENGRAM_OK);
  // A structure that does not fit leaves the ticket alone.
  ecphory_engram_lookup_stats small = {};
  small.struct_size = sizeof(small) - 1;
  ExpectError(ecphory_engram_wait(engram_, ticket, &small),
              ECPHORY_ENGRAM_INVALID_ARGUMENT, "stats->struct_size");
  EXPECT_EQ(ecphory_engram_wait(engram_, ticket, nullptr), ECPHORY_ENGRAM_OK);
  ExpectError(ecphory_engram_wait(engram_, ticket, nullptr),
              ECPHORY_ENGRAM_INVALID_ARGUMENT, "ticket");
  int ready = 0;
  EXPECT_EQ(ecphory_engram_ready(engram_, ticket, &ready), ECPHORY_ENGRAM_OK);
  EXPECT_EQ(ready, 1);
  EXPECT_EQ(ecphory_engram_cancel(engram_, ticket), ECPHORY_ENGRAM_OK);
  ASSERT_EQ(ecphory_engram_submit(engram_, &request, &ticket),
            ECPHORY_ENGRAM_OK);
  EXPECT_EQ(ecphory_engram_cancel(engram_, ticket), ECPHORY_ENGRAM_OK);
  ExpectError(ecphory_engram_wait(engram_, ticket, nullptr),
              ECPHORY_ENGRAM_INVALID_ARGUMENT, "ticket");
}

TEST_F(EngramC, ClosingEndsLookupsAndTheHandleIsNull) {
  const ecphory_engram_request request = Request();
  ecphory_engram_ticket ticket = 0;
  ASSERT_EQ(ecphory_engram_submit(engram_, &request, &ticket),
            ECPHORY_ENGRAM_OK);
  ecphory_engram_close(&engram_);
  EXPECT_EQ(engram_, nullptr);
  ExpectError(ecphory_engram_cancel(engram_, ticket),
              ECPHORY_ENGRAM_INVALID_ARGUMENT, "engram is NULL");
  ExpectError(ecphory_engram_wait(engram_, ticket, nullptr),
              ECPHORY_ENGRAM_INVALID_ARGUMENT, "engram is NULL");
  ecphory_engram_close(&engram_);
  ecphory_engram_close(nullptr);
  ecphory_engram_sequence_free(nullptr);
}

TEST_F(EngramC, SeveralThreadsShareAMemory) {
  const std::vector<int32_t> tokens = Tokens(60);
  std::vector<std::thread> threads;
  std::vector<std::vector<float>> results(4);
  for (std::vector<float>& result : results) {
    threads.emplace_back([&] {
      ecphory_engram_sequence* own = nullptr;
      ASSERT_EQ(ecphory_engram_sequence_create(engram_, &own),
                ECPHORY_ENGRAM_OK);
      const std::vector<uint64_t> rows = Hash(own, tokens);
      result.resize(tokens.size() * 6 * 64);
      ecphory_engram_request request = Request();
      request.rows = rows.data();
      request.count = tokens.size() * 6;
      request.table = 0;
      request.out = result.data();
      request.out_bytes = result.size() * 4;
      ecphory_engram_ticket ticket = 0;
      EXPECT_EQ(ecphory_engram_submit(engram_, &request, &ticket),
                ECPHORY_ENGRAM_OK);
      EXPECT_EQ(ecphory_engram_wait(engram_, ticket, nullptr),
                ECPHORY_ENGRAM_OK);
      ecphory_engram_sequence_free(&own);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_EQ(result, results[0]);
}

TEST_F(EngramC, StatisticsAndTheWayIn) {
  const ecphory_engram_request request = Request();
  ecphory_engram_ticket ticket = 0;
  ASSERT_EQ(ecphory_engram_submit(engram_, &request, &ticket),
            ECPHORY_ENGRAM_OK);
  ASSERT_EQ(ecphory_engram_wait(engram_, ticket, nullptr), ECPHORY_ENGRAM_OK);
  ecphory_engram_stats stats = {};
  stats.struct_size = sizeof(stats);
  ASSERT_EQ(ecphory_engram_get_stats(engram_, 1, &stats), ECPHORY_ENGRAM_OK);
  EXPECT_EQ(stats.lookups, 1u);
  EXPECT_EQ(stats.rows, 3u);
  EXPECT_EQ(stats.rows_read + stats.cache_hits, 2u);
  ExpectError(ecphory_engram_get_stats(engram_, 2, &stats),
              ECPHORY_ENGRAM_OUT_OF_RANGE, "table 2");
  ASSERT_EQ(ecphory_engram_reset_stats(engram_), ECPHORY_ENGRAM_OK);
  ASSERT_EQ(
      ecphory_engram_get_stats(engram_, ECPHORY_ENGRAM_ALL_TABLES, &stats),
      ECPHORY_ENGRAM_OK);
  EXPECT_EQ(stats.rows, 0u);
  ecphory_engram_io io = {};
  io.struct_size = sizeof(io);
  ASSERT_EQ(ecphory_engram_get_io(engram_, &io), ECPHORY_ENGRAM_OK);
  EXPECT_NE(io.mode, static_cast<uint32_t>(ECPHORY_ENGRAM_IO_AUTO));
  EXPECT_NE(io.reason, nullptr);
}

// ---- structures of other versions ----

TEST_F(EngramC, ResultsOfOtherSizes) {
  struct {
    ecphory_engram_facts facts;
    uint64_t later[2];
  } newer;
  std::memset(&newer, 0xee, sizeof(newer));
  newer.facts.struct_size = sizeof(newer);
  ASSERT_EQ(ecphory_engram_get_facts(engram_, &newer.facts), ECPHORY_ENGRAM_OK);
  EXPECT_EQ(newer.facts.struct_size, sizeof(newer));
  EXPECT_EQ(newer.facts.columns, 6u);
  EXPECT_EQ(newer.later[0] | newer.later[1], 0u);
  for (const size_t size : {size_t{0}, sizeof(facts_) - 1, SIZE_MAX}) {
    facts_.struct_size = size;
    ExpectError(ecphory_engram_get_facts(engram_, &facts_),
                ECPHORY_ENGRAM_INVALID_ARGUMENT, "facts->struct_size");
  }
}

TEST(EngramCOptions, OfOtherSizes) {
  struct {
    ecphory_engram_options options;
    uint64_t later;
  } newer;
  ecphory_engram_options_init(&newer.options, sizeof(newer));
  newer.options.io_mode = ECPHORY_ENGRAM_IO_PREAD;
  ecphory_engram* engram = nullptr;
  EXPECT_EQ(ecphory_engram_open(GoldenModel().c_str(), &newer.options, &engram),
            ECPHORY_ENGRAM_OK)
      << ecphory_engram_last_error();
  ecphory_engram_close(&engram);
  newer.later = 1;
  ExpectError(
      ecphory_engram_open(GoldenModel().c_str(), &newer.options, &engram),
      ECPHORY_ENGRAM_UNSUPPORTED, "is set, this library");
  EXPECT_EQ(engram, nullptr);
  for (const size_t size : {size_t{0}, sizeof(newer.options) - 1, SIZE_MAX}) {
    newer.options.struct_size = size;
    ExpectError(
        ecphory_engram_open(GoldenModel().c_str(), &newer.options, &engram),
        ECPHORY_ENGRAM_INVALID_ARGUMENT, "options->struct_size");
  }
}

TEST(EngramCOptions, InitWritesNoByteBeyondItsSize) {
  unsigned char bytes[sizeof(ecphory_engram_options)];
  std::memset(bytes, 0xee, sizeof(bytes));
  ecphory_engram_options_init(reinterpret_cast<ecphory_engram_options*>(bytes),
                              32);
  EXPECT_EQ(bytes[31], 0);
  EXPECT_EQ(bytes[32], 0xee);
  ecphory_engram_options_init(nullptr, 100);
}

TEST(EngramCOptions, ValuesOutOfRange) {
  ecphory_engram* engram = nullptr;
  const auto refused = [&](void (*change)(ecphory_engram_options*),
                           const std::string& part) {
    ecphory_engram_options options = TestOptions();
    change(&options);
    ExpectError(ecphory_engram_open(GoldenModel().c_str(), &options, &engram),
                ECPHORY_ENGRAM_INVALID_ARGUMENT, part);
  };
  refused([](auto* o) { o->io_mode = 6; }, "io_mode is 6");
  refused([](auto* o) { o->reserved = 1; }, "reserved is 1");
  refused([](auto* o) { o->io_threads = 0; }, "expected 1..");
  refused([](auto* o) { o->probe_seconds = -1; }, "probe_seconds");
  refused([](auto* o) { o->more_tables_count = 1; }, "more_tables is NULL");
  refused(
      [](auto* o) {
        o->token_map = "a";
        o->tokenizer = "b";
      },
      "expected one of them");
}

// ---- NULL and missing files ----

TEST(EngramCNull, EveryFunctionTakesIt) {
  ecphory_engram* engram = nullptr;
  ecphory_engram_sequence* sequence = nullptr;
  int32_t id = 0;
  size_t count = 0;
  int ready = 0;
  uint64_t row = 0;
  ecphory_engram_ticket ticket = 0;
  ecphory_engram_request request = {};
  ecphory_engram_facts facts = {};
  ecphory_engram_table table = {};
  ecphory_engram_io io = {};
  ecphory_engram_stats stats = {};
  const ecphory_engram_status statuses[] = {
      ecphory_engram_open(nullptr, nullptr, &engram),
      ecphory_engram_open("x", nullptr, nullptr),
      ecphory_engram_get_facts(engram, &facts),
      ecphory_engram_get_table(engram, 0, &table),
      ecphory_engram_compress(engram, &id, nullptr, 1, &id),
      ecphory_engram_sequence_create(engram, &sequence),
      ecphory_engram_sequence_create(engram, nullptr),
      ecphory_engram_sequence_clone(sequence, &sequence),
      ecphory_engram_sequence_clone(sequence, nullptr),
      ecphory_engram_sequence_assign(sequence, sequence),
      ecphory_engram_sequence_reset(sequence),
      ecphory_engram_sequence_get_history(sequence, &id, 1, &count),
      ecphory_engram_sequence_set_history(sequence, &id, 1),
      ecphory_engram_hash(sequence, &id, nullptr, 1, &row, 1),
      ecphory_engram_submit(engram, &request, &ticket),
      ecphory_engram_submit_batch(engram, &request, 1, &ticket),
      ecphory_engram_ready(engram, ticket, &ready),
      ecphory_engram_wait(engram, ticket, nullptr),
      ecphory_engram_cancel(engram, ticket),
      ecphory_engram_decode(engram, 0, &row, 1, 0, &row, 8),
      ecphory_engram_get_io(engram, &io),
      ecphory_engram_get_stats(engram, 0, &stats),
      ecphory_engram_reset_stats(engram),
  };
  for (const ecphory_engram_status status : statuses) {
    EXPECT_EQ(status, ECPHORY_ENGRAM_INVALID_ARGUMENT);
  }
  EXPECT_EQ(ecphory_engram_token_map(nullptr, &count), nullptr);
  EXPECT_EQ(ecphory_engram_abi_version(), 1u);
}

TEST_F(EngramC, PlacesForResultsThatAreNull) {
  const ecphory_engram_request request = Request();
  const int32_t token = 1;
  uint64_t row = 0;
  const ecphory_engram_status statuses[] = {
      ecphory_engram_get_facts(engram_, nullptr),
      ecphory_engram_get_table(engram_, 0, nullptr),
      ecphory_engram_compress(engram_, &token, nullptr, 1, nullptr),
      ecphory_engram_compress(engram_, nullptr, nullptr, 1, nullptr),
      ecphory_engram_sequence_get_history(sequence_, nullptr, 0, nullptr),
      ecphory_engram_sequence_set_history(sequence_, nullptr, 1),
      ecphory_engram_hash(sequence_, nullptr, nullptr, 1, &row, 99),
      ecphory_engram_hash(sequence_, &token, nullptr, 1, nullptr, 99),
      ecphory_engram_submit(engram_, nullptr, nullptr),
      ecphory_engram_submit(engram_, &request, nullptr),
      ecphory_engram_ready(engram_, 1, nullptr),
      ecphory_engram_decode(engram_, 0, nullptr, 1, 0, values_, 999),
      ecphory_engram_decode(engram_, 0, values_, 1, 0, nullptr, 999),
      ecphory_engram_get_io(engram_, nullptr),
      ecphory_engram_get_stats(engram_, 0, nullptr),
  };
  for (const ecphory_engram_status status : statuses) {
    EXPECT_EQ(status, ECPHORY_ENGRAM_INVALID_ARGUMENT);
  }
}

TEST(EngramCOpen, FilesThatAreNone) {
  ecphory_engram* engram = nullptr;
  ExpectError(ecphory_engram_open("/nonexistent", nullptr, &engram),
              ECPHORY_ENGRAM_NOT_FOUND, "/nonexistent: no such file");
  const std::string data = ECPHORY_TEST_DATA;
  ExpectError(
      ecphory_engram_open((data + "/golden/v41/B").c_str(), nullptr, &engram),
      ECPHORY_ENGRAM_NOT_FOUND, "no Engram");
  ExpectError(ecphory_engram_open((data + "/golden/v41/A/config.json").c_str(),
                                  nullptr, &engram),
              ECPHORY_ENGRAM_INVALID_ARGUMENT, "raw rows need a configuration");
  ecphory_engram_options options = TestOptions();
  options.config = "/nonexistent.json";
  ExpectError(ecphory_engram_open(GoldenModel().c_str(), &options, &engram),
              ECPHORY_ENGRAM_NOT_FOUND, "/nonexistent.json");
  const std::string rows = data + "/golden/v41/A/config.json";
  options.config = rows.c_str();
  ExpectError(ecphory_engram_open(rows.c_str(), &options, &engram),
              ECPHORY_ENGRAM_CORRUPT, "the rows of 2 tables and nothing else");
  EXPECT_EQ(engram, nullptr);
}

}  // namespace
}  // namespace ecphory
