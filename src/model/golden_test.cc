// The whole forward pass against data of an independent implementation
// (tests/golden/v41/README.md holds the tolerances and their reasons).
#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "model/model_impl.h"
#include "model/testing.h"
#include "ops/cpu_instructions.h"
#include "ops/matmul.h"

namespace ecphory {
namespace {

using testing::Capture;
using testing::GoldenDir;
using testing::GoldenFile;
using testing::RunLogits;
using testing::RunOptions;

struct Text {
  std::vector<int32_t> ids;
  std::vector<uint8_t> image;
};

class GoldenTest
    : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {
 protected:
  void SetUp() override {
    const auto [model_name, backend] = GetParam();
    const std::string reason = testing::Unavailable(backend);
    if (!reason.empty()) GTEST_SKIP() << reason;
    dir_ = GoldenDir(model_name);
    model_ = testing::OpenOrDie(dir_, backend);
    golden_ = std::make_unique<GoldenFile>(dir_ + "/golden.safetensors");
    vocab_ = model_->config().vocab_size;
  }

  Text Load(const std::string& name) const {
    Text text;
    for (int64_t id : golden_->Ints(name + ".ids")) {
      text.ids.push_back(static_cast<int32_t>(id));
    }
    if (golden_->Has(name + ".image_mask")) {
      for (int64_t m : golden_->Ints(name + ".image_mask")) {
        text.image.push_back(static_cast<uint8_t>(m));
      }
    }
    return text;
  }

  std::vector<float> Run(const Text& text, RunOptions options = {}) const {
    options.image_mask = text.image;
    return RunLogits(model_, text.ids, options);
  }

  double MaxError(const std::vector<float>& logits,
                  const std::string& name) const {
    const std::vector<float> want = golden_->F32(name);
    EXPECT_EQ(logits.size(), want.size()) << name;
    return testing::MaxOf(testing::RowErrors(logits, want, vocab_));
  }

  static bool IsCuda() {
    return std::get<1>(GetParam()) == std::string("cuda");
  }

  std::string dir_;
  std::shared_ptr<const Model> model_;
  std::unique_ptr<GoldenFile> golden_;
  size_t vocab_ = 0;
};

TEST_P(GoldenTest, InverseFrequencies) {
  const Model::Impl& impl = model_->impl();
  EXPECT_EQ(testing::Values(impl.inv_freq), golden_->F32("inv_freq.main"));
  EXPECT_EQ(testing::Values(impl.inv_freq_compress),
            golden_->F32("inv_freq.compress"));
}

TEST_P(GoldenTest, HashIdsAreExact) {
  if (!model_->config().engram.enabled())
    GTEST_SKIP() << "model without Engram";
  for (const char* name : {"s7", "s40", "s40img", "s150"}) {
    const Text text = Load(name);
    const auto rows = model_->EngramRows(text.ids, text.image);
    ASSERT_TRUE(rows.ok()) << rows.status().ToString();
    std::vector<int64_t> flat;
    for (const auto& token : *rows) {
      for (const auto& layer : token) {
        flat.insert(flat.end(), layer.rows.begin(), layer.rows.end());
      }
    }
    EXPECT_EQ(flat, golden_->Ints(std::string(name) + ".hash_ids")) << name;
  }
}

TEST_P(GoldenTest, ImageTokensAreDeadForTheLookBackWithoutAMask) {
  if (!model_->config().engram.enabled())
    GTEST_SKIP() << "model without Engram";
  const Text text = Load("s40img");
  const auto masked = model_->EngramRows(text.ids, text.image);
  const auto unmasked = model_->EngramRows(text.ids, {});
  ASSERT_TRUE(masked.ok() && unmasked.ok());
  for (size_t t = 0; t < text.ids.size(); ++t) {
    for (size_t layer = 0; layer < (*masked)[t].size(); ++layer) {
      EXPECT_EQ((*unmasked)[t][layer].rows, (*masked)[t][layer].rows) << t;
    }
  }
  const std::vector<uint8_t> wrong_size(3);
  EXPECT_EQ(model_->EngramRows(text.ids, wrong_size).status().code(),
            StatusCode::kInvalidArgument);
}

TEST_P(GoldenTest, ShortTextsMatch) {
  for (const char* name : {"s7", "s40", "s40img"}) {
    const double error =
        MaxError(Run(Load(name)), std::string(name) + ".logits");
    EXPECT_LE(error, 1e-3) << name;
    RecordProperty(name, std::to_string(error));
  }
}

TEST_P(GoldenTest, LongTextWithoutRoundingMatchesEverywhere) {
  RunOptions options;
  options.session.state_rounding = false;
  const double error =
      MaxError(Run(Load("s150nq"), options), "s150nq.logits_noquant");
  EXPECT_LE(error, 1e-3);
}

TEST_P(GoldenTest, LongTextMatchesUpToFlippedCodes) {
  const std::vector<float> logits = Run(Load("s150"));
  const std::vector<float> want = golden_->F32("s150.logits");
  const auto errors = testing::RowErrors(logits, want, vocab_);
  size_t close = 0;
  for (double error : errors) close += error <= 1e-3;
  EXPECT_GE(static_cast<double>(close),
            0.8 * static_cast<double>(errors.size()));
  EXPECT_GE(testing::Top1Agreement(logits, want, vocab_), 0.98);
}

// Arithmetic per token does not depend on what else is in the chunk, so these
// are equal bit for bit, not only within tolerance. On a GPU chunks of up to
// kAlikeTokens and on AMX of up to kMaxFewTokens are computed in one way, and
// larger ones in others.
TEST_P(GoldenTest, AnyChunkingGivesTheSameBits) {
  // The definitions are slow on purpose: they get the short texts only.
  const bool definitions = std::get<1>(GetParam()) == std::string("ref");
  std::vector<const char*> names = {"s40", "s40img"};
  if (!definitions) names.push_back("s150");
  for (const char* name : names) {
    const Text text = Load(name);
    RunOptions wide;
    uint32_t most = 64;
    if (IsCuda()) {
      most = testing::kAlikeTokens;
    } else if (!definitions && CpuOrdersByTokens()) {
      most = static_cast<uint32_t>(kMaxFewTokens);
    }
    if (most < 64) wide.session.chunk = most;
    const std::vector<float> whole = Run(text, wide);
    for (uint32_t size : {1u, 2u, 3u, 5u, 7u, 64u}) {
      if (definitions && size % 2 == 1) continue;
      if (size > most) continue;
      RunOptions by_chunk;
      by_chunk.session.chunk = size;
      EXPECT_EQ(Run(text, by_chunk), whole) << name << " chunk " << size;
      RunOptions by_call;
      by_call.step = size;
      EXPECT_EQ(Run(text, by_call), whole) << name << " step " << size;
    }
  }
}

TEST_P(GoldenTest, VendorKeysMatchAndDifferFromOwnKeys) {
  const Text text = Load("s40");
  const std::span<const int32_t> ids(text.ids);
  const auto decode = [&](IndexKeys keys) {
    SessionOptions options;
    options.index_keys = keys;
    auto session = Session::Create(model_, options);
    EXPECT_TRUE(session.ok());
    EXPECT_TRUE((*session)->Append(ids.first(24), {}).ok());
    std::vector<float> all;
    for (size_t t = 24; t < ids.size(); ++t) {
      EXPECT_TRUE((*session)->Append(ids.subspan(t, 1), {}).ok());
      const auto logits = (*session)->logits();
      all.insert(all.end(), logits.begin(), logits.end());
    }
    return all;
  };
  const std::vector<float> vendor = decode(IndexKeys::kVendor);
  EXPECT_LE(MaxError(vendor, "s40.decode24_vendor_slot.logits"), 1e-3);
  EXPECT_NE(vendor, decode(IndexKeys::kOwn));
}

TEST_P(GoldenTest, Bf16ActivationsMatchStatistically) {
  for (const char* name : {"s7", "s40", "s40img", "s150"}) {
    RunOptions options;
    options.session.activations = Activations::kBF16;
    const std::vector<float> logits = Run(Load(name), options);
    const std::vector<float> exact =
        golden_->F32(std::string(name) + ".logits");
    const std::vector<float> stored =
        golden_->F32(std::string(name) + ".logits_bf16");
    const size_t tail = stored.size();
    const auto last = [tail](const std::vector<float>& x) {
      return std::span<const float>(x).last(tail);
    };
    const double ours = testing::MeanKl(last(exact), last(logits), vocab_);
    const double theirs = testing::MeanKl(last(exact), stored, vocab_);
    EXPECT_LE(ours, 2 * theirs + 0.05) << name;
    EXPECT_GT(ours, 0) << name;
  }
}

// Only the experts' FP4 weights take int8 inputs here. Held to what rounding
// activations to bf16 does: these models of noise amplify any rounding.
TEST_P(GoldenTest, Int8ActivationsMatchStatistically) {
  if (IsCuda()) GTEST_SKIP() << "int8 activations: not on CUDA";
  for (const char* name : {"s7", "s40", "s40img", "s150"}) {
    const auto divergence = [&](Activations activations) {
      RunOptions options;
      options.session.activations = activations;
      return testing::MeanKl(golden_->F32(std::string(name) + ".logits"),
                             Run(Load(name), options), vocab_);
    };
    const double int8 = divergence(Activations::kInt8);
    EXPECT_LE(int8, 2 * divergence(Activations::kBF16) + 0.01) << name;
    EXPECT_GT(int8, 1e-6) << name;
  }
}

// The last token of the long text, through every layer and with layers skipped.
// Behind one layer after the last KV source, replay is exact as well.
TEST_P(GoldenTest, SkippedLayersMatch) {
  const Text text = Load("s150nq");
  const std::vector<float> all = golden_->F32("s150nq.logits_noquant");
  const std::vector<float> want(all.end() - static_cast<ptrdiff_t>(vocab_),
                                all.end());
  for (const Prefill prefill :
       {Prefill::kSkip, Prefill::kFull, Prefill::kReplay}) {
    if (prefill == Prefill::kReplay && dir_ == GoldenDir("B")) continue;
    SessionOptions options;
    options.chunk = 32;
    options.state_rounding = false;
    options.prefill = prefill;
    auto session = Session::Create(model_, options);
    ASSERT_TRUE(session.ok());
    AppendOptions append;
    append.image_mask = text.image;
    ASSERT_TRUE((*session)->Append(text.ids, append).ok());
    const auto errors = testing::RowErrors((*session)->logits(), want, vocab_);
    EXPECT_LE(testing::MaxOf(errors), 1e-3);
    EXPECT_EQ((*session)->stats().skipped_tokens > 0,
              prefill != Prefill::kFull);
  }
}

// --- Trace: intermediates of s40, to find where a difference starts ---------

double Rms(const std::vector<float>& x) {
  double sum = 0;
  size_t count = 0;
  for (float v : x) {
    if (!std::isfinite(v)) continue;
    sum += static_cast<double>(v) * v;
    ++count;
  }
  return std::sqrt(sum / static_cast<double>(std::max<size_t>(1, count)));
}

// Elements that differ by more than `bound`; infinities must coincide.
size_t CountFar(const std::vector<float>& a, const std::vector<float>& b,
                double bound) {
  size_t far = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i]) continue;
    far += !(std::abs(static_cast<double>(a[i]) - b[i]) <= bound);
  }
  return far;
}

bool EndsWith(const std::string& text, const std::string& end) {
  return text.size() >= end.size() &&
         text.compare(text.size() - end.size(), end.size(), end) == 0;
}

bool IsQuantised(const std::string& name) {
  return EndsWith(name, ".window_kv") || EndsWith(name, ".compress_kv") ||
         EndsWith(name, ".index_k");
}

TEST_P(GoldenTest, TraceMatches) {
  Capture capture;
  RunOptions options;
  options.observer = &capture;
  Run(Load("s40"), options);
  const GoldenFile trace(dir_ + "/trace_s40.safetensors");
  for (const std::string& name : trace.Names()) {
    const std::string key =
        name == "final_hidden"
            ? "L" + std::to_string(model_->config().n_layers - 1) + "." + name
            : name;
    ASSERT_TRUE(capture.tensors().count(key)) << key << " was not observed";
    const Capture::Tensor& got = capture.tensors().at(key);
    ASSERT_EQ(got.shape, trace.Shape(name)) << name;
    if (got.f32.empty()) {
      EXPECT_EQ(got.ints, trace.Ints(name)) << name;
      continue;
    }
    const std::vector<float> want = trace.F32(name);
    const size_t far = CountFar(got.f32, want, 1e-4 * Rms(want));
    // A flipped code of a quantiser is fp32 noise at a rounding boundary.
    EXPECT_LE(far, IsQuantised(name) ? 3u : 0u) << name;
  }
}

// --- Traps -------------------------------------------------------------------

TEST_P(GoldenTest, ImageSpansLeaveStreamsUntouchedByTheMemory) {
  if (!model_->config().engram.enabled())
    GTEST_SKIP() << "model without Engram";
  Capture capture;
  RunOptions options;
  options.observer = &capture;
  const Text text = Load("s40img");
  Run(text, options);
  const uint32_t layer = model_->config().engram.layer_ids[0];
  const auto& gate =
      capture.tensors().at("L" + std::to_string(layer) + ".engram.gate");
  const size_t streams = model_->config().hc_mult;
  for (size_t t = 0; t < text.ids.size(); ++t) {
    for (size_t s = 0; s < streams; ++s) {
      const float value = gate.f32[t * streams + s];
      if (text.image[t] != 0) {
        EXPECT_EQ(value, 0.0f);
      } else {
        EXPECT_GT(value, 0.0f);
      }
    }
  }
}

TEST_P(GoldenTest, TheMemoryAddsItsValueTimesTheGate) {
  if (!model_->config().engram.enabled())
    GTEST_SKIP() << "model without Engram";
  Capture capture;
  RunOptions options;
  options.session.chunk = 16;
  options.observer = &capture;
  Run(Load("s40img"), options);
  const size_t streams = model_->config().hc_mult;
  const size_t dim = model_->config().hidden_size;
  for (const uint32_t layer : model_->config().engram.layer_ids) {
    const auto tensor = [&](const char* name) {
      return capture.tensors().at("L" + std::to_string(layer) + "." + name).f32;
    };
    const auto gate = tensor("engram.gate"), value = tensor("engram.value");
    const auto before = tensor("streams_before_engram");
    const auto after = tensor("streams_after_engram");
    ASSERT_EQ(before.size(), after.size());
    for (size_t i = 0; i < after.size(); ++i) {
      const size_t row = i / dim, token = row / streams;
      const float moved = gate[row] * value[token * dim + i % dim];
      EXPECT_NEAR(after[i], before[i] + moved, 1e-5f * (1 + std::abs(after[i])))
          << "layer " << layer << " at " << i;
    }
  }
}

TEST_P(GoldenTest, ShutGatesChangeTheResult) {
  if (!model_->config().engram.enabled())
    GTEST_SKIP() << "model without Engram";
  RunOptions options;
  options.session.engram = false;
  const Text text = Load("s40");
  EXPECT_NE(Run(text, options), Run(text));
}

INSTANTIATE_TEST_SUITE_P(
    Models, GoldenTest,
    ::testing::Combine(::testing::Values("A", "B", "C"),
                       ::testing::ValuesIn(testing::Backends())),
    [](const auto& param_info) {
      return std::string(std::get<0>(param_info.param)) + "_" +
             std::get<1>(param_info.param);
    });

}  // namespace
}  // namespace ecphory
