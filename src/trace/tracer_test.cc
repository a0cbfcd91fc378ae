// Traces of a golden model, held to its own numbers and to plain loops.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>

#include "ecphory/engram_trace.h"
#include "ecphory/session.h"
#include "io/test_directory.h"
#include "trace/gate_observer.h"

namespace ecphory {
namespace {

const char kModel[] = ECPHORY_TEST_DATA "/golden/v41/A";
constexpr int32_t kImageToken = 509;  // of golden model A

std::unique_ptr<EngramTracer> OpenOrDie(bool weights) {
  EngramTracerOptions options;
  options.weights = weights;
  options.model.threads = 1;
  auto tracer = EngramTracer::Open(kModel, options);
  EXPECT_TRUE(tracer.ok()) << tracer.status().ToString();
  return std::move(tracer).value();
}

EngramTrace TraceOrDie(const EngramTracer& tracer,
                       const std::vector<int32_t>& tokens,
                       const EngramTraceOptions& options = {}) {
  auto trace = tracer.Trace(tokens, options);
  EXPECT_TRUE(trace.ok()) << trace.status().ToString();
  return std::move(trace).value();
}

std::vector<int32_t> SomeTokens(size_t count) {
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<int32_t>(i * i * 7 % 500));
  }
  return tokens;
}

// Names and values of every Engram tensor of a forward pass.
class Recorder : public TensorObserver {
 public:
  bool Wants(uint32_t) const override { return true; }
  void OnF32(uint32_t layer, const std::string& name,
             std::span<const float> values,
             const std::vector<uint64_t>&) override {
    auto& all = tensors[std::to_string(layer) + name];
    all.insert(all.end(), values.begin(), values.end());
  }
  void OnI32(uint32_t, const std::string&, std::span<const int32_t>,
             const std::vector<uint64_t>&) override {}
  void OnU8(uint32_t, const std::string&, std::span<const uint8_t>,
            const std::vector<uint64_t>&) override {}
  std::map<std::string, std::vector<float>> tensors;
};

TEST(TracerTest, RowsAreTheModelsOwn) {
  const auto model = Model::Open(kModel, {.threads = 1});
  ASSERT_TRUE(model.ok());
  std::vector<int32_t> tokens = SomeTokens(12);
  tokens[5] = kImageToken;
  const auto rows = (*model)->EngramRows(tokens, {});
  ASSERT_TRUE(rows.ok());
  const EngramTrace trace = TraceOrDie(*OpenOrDie(false), tokens);
  ASSERT_EQ(trace.tokens.size(), tokens.size());
  EXPECT_EQ(trace.streams, 0u);
  for (size_t t = 0; t < tokens.size(); ++t) {
    for (size_t i = 0; i < trace.layers.size(); ++i) {
      EXPECT_EQ(trace.tokens[t].layers[i].rows, (*rows)[t][i].rows);
    }
  }
}

// The rules of docs/engram.md once more, on the trace's own facts.
TEST(TracerTest, EveryNumberFollowsFromTheOnesBeforeIt) {
  std::vector<int32_t> tokens = SomeTokens(9);
  tokens[4] = kImageToken;
  const EngramTrace trace = TraceOrDie(*OpenOrDie(false), tokens);
  for (size_t t = 0; t < tokens.size(); ++t) {
    const EngramTraceToken& token = trace.tokens[t];
    std::vector<int32_t> window(trace.max_ngram, trace.pad_compressed);
    uint32_t reach = 0;
    for (; reach < trace.max_ngram && reach <= t; ++reach) {
      if (tokens[t - reach] == kImageToken) break;
      window[reach] = trace.tokens[t - reach].compressed;
    }
    EXPECT_EQ(token.window, window) << t;
    EXPECT_EQ(token.reach, reach) << t;
    EXPECT_EQ(token.compressed < 0, t == 4);
    for (size_t i = 0; i < trace.layers.size(); ++i) {
      const EngramTraceLayer& layer = trace.layers[i];
      uint64_t offset = 0;
      for (size_t c = 0; c < layer.columns.size(); ++c) {
        const EngramTraceColumn& column = layer.columns[c];
        EXPECT_EQ(column.ngram, c / trace.heads + 2);
        EXPECT_EQ(column.head, c % trace.heads);
        EXPECT_EQ(column.offset, offset);
        offset += column.prime;
        uint64_t x = 0;
        for (uint32_t n = 0; n < column.ngram; ++n) {
          x ^= static_cast<uint64_t>(window[n]) * layer.multipliers[n];
        }
        EXPECT_EQ(token.layers[i].mixed[column.ngram - 2], x);
        EXPECT_EQ(token.layers[i].rows[c], x % column.prime + column.offset);
      }
      EXPECT_EQ(layer.rows, offset);
    }
  }
}

TEST(TracerTest, GatesAndMovementAreThoseOfTheForwardPass) {
  std::vector<int32_t> tokens = SomeTokens(300);  // more than one pass of 256
  tokens[7] = kImageToken;
  const EngramTrace trace = TraceOrDie(*OpenOrDie(true), tokens);
  const auto model = Model::Open(kModel, {.threads = 1});
  ASSERT_TRUE(model.ok());
  SessionOptions session_options;
  session_options.context = 300;
  const auto session = Session::Create(*model, session_options);
  ASSERT_TRUE(session.ok());
  Recorder recorder;
  AppendOptions append;
  append.observer = &recorder;
  ASSERT_TRUE((*session)->Append(tokens, append).ok());

  const size_t streams = trace.streams;
  const size_t dim = (*model)->config().hidden_size;
  for (size_t i = 0; i < trace.layers.size(); ++i) {
    const std::string layer = std::to_string(trace.layers[i].layer);
    const auto& gates = recorder.tensors.at(layer + "engram.gate");
    const auto& before = recorder.tensors.at(layer + "streams_before_engram");
    const auto& after = recorder.tensors.at(layer + "streams_after_engram");
    ASSERT_EQ(gates.size(), tokens.size() * streams);
    for (size_t t = 0; t < tokens.size(); ++t) {
      ASSERT_EQ(trace.tokens[t].layers[i].streams.size(), streams);
      for (size_t s = 0; s < streams; ++s) {
        const EngramStreamTrace& stream = trace.tokens[t].layers[i].streams[s];
        const size_t at = t * streams + s;
        EXPECT_EQ(stream.gate, gates[at]);
        double moved = 0, norm = 0;
        for (size_t d = at * dim; d < (at + 1) * dim; ++d) {
          moved += std::pow(static_cast<double>(after[d] - before[d]), 2);
          norm += std::pow(static_cast<double>(before[d]), 2);
        }
        EXPECT_NEAR(stream.move, std::sqrt(moved / norm), 1e-4);
        EXPECT_EQ(stream.move == 0, t == 7);
      }
    }
  }
}

TEST(TracerTest, StreamNumbers) {
  const std::vector<float> h = {3, 0, 4}, v = {0, 0, 10};
  const EngramStreamTrace stream = trace::DescribeStream(0.5f, h, v);
  EXPECT_FLOAT_EQ(stream.move, 1.0f);
  EXPECT_FLOAT_EQ(stream.cosine, 0.8f);
  EXPECT_FLOAT_EQ(stream.dot, 0.0f);
  const float gate = 1 / (1 + std::exp(1.5f));  // dot = -2.25
  EXPECT_NEAR(trace::DescribeStream(gate, h, v).dot, -2.25, 1e-5);
  const std::vector<float> zero = {0, 0, 0};
  EXPECT_EQ(trace::DescribeStream(0.5f, zero, v).move, 0);
  EXPECT_EQ(trace::DescribeStream(0.5f, h, zero).cosine, 0);
  EXPECT_EQ(trace::DescribeStream(0, h, v).dot, 0);
  EXPECT_TRUE(std::isnan(trace::DescribeStream(1, h, v).dot));
}

TEST(TracerTest, TheSameTextGivesTheSameBytes) {
  const auto tracer = OpenOrDie(true);
  const EngramTrace a = TraceOrDie(*tracer, SomeTokens(20));
  const EngramTrace b = TraceOrDie(*tracer, SomeTokens(20));
  EXPECT_EQ(EngramTraceJson(a), EngramTraceJson(b));
  EXPECT_EQ(EngramTraceHtml(a), EngramTraceHtml(b));
}

TEST(TracerTest, LimitsAndErrors) {
  const auto tracer = OpenOrDie(false);
  const std::vector<int32_t> tokens = SomeTokens(30);
  const EngramTrace trace = TraceOrDie(*tracer, tokens, {.limit = 10});
  EXPECT_EQ(trace.tokens.size(), 10u);
  EXPECT_EQ(trace.tokens_given, 30u);
  const auto code = [&](const std::vector<int32_t>& ids,
                        const EngramTraceOptions& options) {
    return tracer->Trace(ids, options).status().code();
  };
  EXPECT_EQ(code({}, {}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(tokens, {.limit = 0}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(tokens, {.limit = kMaxTraceTokens + 1}),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(code({1, 512}, {}), StatusCode::kOutOfRange);
  EXPECT_EQ(code({-1}, {}), StatusCode::kOutOfRange);
  const std::vector<uint8_t> mask(29, 0);
  EXPECT_EQ(code(tokens, {.image_mask = mask}), StatusCode::kInvalidArgument);
  EXPECT_EQ(EngramTracer::Open("no such model", {}).status().code(),
            StatusCode::kNotFound);
  EXPECT_EQ(
      EngramTracer::Open(ECPHORY_TEST_DATA "/golden/v41/B", {}).status().code(),
      StatusCode::kInvalidArgument);
}

TEST(TracerTest, AddressesNeedAConfigurationAndAMapAlone) {
  const TestDirectory directory;
  for (const char* name : {"config.json", "token_map.npy"}) {
    std::filesystem::copy_file(std::string(kModel) + "/" + name,
                               directory / name);
  }
  std::vector<int32_t> tokens = SomeTokens(20);
  tokens[9] = kImageToken;
  const EngramTrace whole = TraceOrDie(*OpenOrDie(false), tokens);
  EngramTracerOptions options;
  EXPECT_FALSE(EngramTracer::Open(directory.path(), options).ok());
  options.weights = false;
  for (const std::string& path :
       {directory.path(), directory / "config.json"}) {
    const auto tracer = EngramTracer::Open(path, options);
    ASSERT_TRUE(tracer.ok()) << tracer.status().ToString();
    const EngramTrace alone = TraceOrDie(**tracer, tokens);
    for (size_t t = 0; t < tokens.size(); ++t) {
      EXPECT_EQ(alone.tokens[t].compressed, whole.tokens[t].compressed);
      for (size_t i = 0; i < whole.layers.size(); ++i) {
        EXPECT_EQ(alone.tokens[t].layers[i].rows,
                  whole.tokens[t].layers[i].rows);
      }
    }
    EXPECT_EQ(alone.tokens[9].compressed, -1);
  }
  std::filesystem::remove(directory / "token_map.npy");
  EXPECT_FALSE(EngramTracer::Open(directory.path(), options).ok());
}

TEST(TracerTest, ClassesCountTheirMembers) {
  const EngramTrace trace = TraceOrDie(*OpenOrDie(false), SomeTokens(5));
  ASSERT_FALSE(trace.classes.empty());
  for (size_t i = 0; i < trace.classes.size(); ++i) {
    EXPECT_GE(trace.classes[i].members, 1u);
    if (i > 0) {
      EXPECT_LT(trace.classes[i - 1].compressed, trace.classes[i].compressed);
    }
  }
}

TEST(TracerTest, FilesAreWrittenWholeOrNotAtAll) {
  TestDirectory directory;
  const std::string path = directory / "page.html";
  EXPECT_TRUE(WriteTextFile(path, "text").ok());
  EXPECT_EQ(directory.List().size(), 1u);
  EXPECT_FALSE(WriteTextFile(directory / "no/page.html", "text").ok());
}

}  // namespace
}  // namespace ecphory
