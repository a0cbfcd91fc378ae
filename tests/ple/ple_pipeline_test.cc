// A synthetic sidecar, token ids in, streams out; held to a computation of its
// own from the file's bytes.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "base/thread_pool.h"
#include "engram/store.h"
#include "ops/ops.h"
#include "ple/gguf_table.h"
#include "ple/gguf_testing.h"
#include "ple/hasher.h"
#include "ple/testing.h"
#include "tensor/table_codec.h"

namespace ecphory::ple {
namespace {

constexpr size_t kStreams = 3, kDim = 48, kKernel = 4, kDilation = 3;
constexpr size_t kHistory = (kKernel - 1) * kDilation;
constexpr float kEps = 1e-6f;
constexpr int32_t kEosId = 7;

// Floats in [-1, 1), the same for the same seed.
std::vector<float> Random(size_t count, uint32_t seed) {
  std::mt19937 rng(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    value = static_cast<float>(static_cast<int32_t>(rng())) * 0x1p-31f;
  }
  return values;
}

struct Weights {
  explicit Weights(size_t embed)
      : key_proj(Random(kStreams * kDim * embed, 1)),
        value_proj(Random(kDim * embed, 2)),
        key(Random(kStreams * kDim, 3)),
        query(Random(kStreams * kDim, 4)),
        norm(Random(kStreams * kDim, 5)),
        conv(Random(kStreams * kDim * kKernel, 6)) {}
  std::vector<float> key_proj, value_proj, key, query, norm, conv;
};

class PlePipeline : public testing::Test {
 protected:
  PlePipeline() : file_(SidecarOf(SmallLayout())) {
    // Small scales in front of random codes.
    std::mt19937 rng(7);
    for (size_t i = 0; i < file_.data.size(); ++i) {
      file_.data[i] = i % 34 == 1 ? '\x20' : static_cast<char>(rng());
    }
    const std::vector<std::shared_ptr<RandomAccessFile>> files = {file_.File()};
    TableOptions options;
    options.eos_id = kEosId;
    table_ = std::make_unique<Table>(*OpenTable(files, options));
    hasher_ = std::make_unique<Hasher>(*Hasher::Create(table_->layout));
    auto store = engram::Store::Open({table_->source}, {});
    store_ = std::move(store).value();
    weights_ = std::make_unique<Weights>(embed());
  }

  size_t heads() const { return table_->layout.heads(); }
  size_t embed() const { return heads() * table_->layout.width; }

  // What a sequence carries from call to call.
  struct State {
    History history;
    std::vector<float> conv = std::vector<float>(kHistory * kStreams * kDim);
    size_t position = 0;
  };

  std::vector<float> Project(const Ops& ops, const std::vector<float>& in,
                             const std::vector<float>& weight, size_t rows) {
    const size_t tokens = in.size() / embed();
    std::vector<float> out(tokens * rows);
    Matrix matrix;
    matrix.rows = rows;
    matrix.cols = embed();
    matrix.data = reinterpret_cast<const uint8_t*>(weight.data());
    ops.matmul(
        {.weight = matrix, .x = in.data(), .y = out.data(), .tokens = tokens},
        pool_);
    return out;
  }

  // The next tokens of a sequence: `x` [tokens, S, D] takes what they read.
  void Inject(const Ops& ops, std::span<const int32_t> tokens, State* state,
              float* x) {
    std::vector<int32_t> ids(tokens.size());
    ASSERT_TRUE(hasher_->Resolve(tokens, {}, ids).ok());
    std::vector<uint64_t> rows(ids.size() * heads());
    hasher_->Hash(ids, &state->history, rows);
    std::vector<float> e(ids.size() * embed());
    const Status status = store_->Wait(store_->Submit({0, rows, e.data()}));
    ASSERT_TRUE(status.ok()) << status.ToString();
    const auto key = Project(ops, e, weights_->key_proj, kStreams * kDim);
    const auto value = Project(ops, e, weights_->value_proj, kDim);
    ops.ple_gate({.key = key.data(),
                  .value = value.data(),
                  .key_weight = weights_->key.data(),
                  .query_weight = weights_->query.data(),
                  .conv_norm_weight = weights_->norm.data(),
                  .conv_weight = weights_->conv.data(),
                  .tokens = ids.size(),
                  .streams = kStreams,
                  .dim = kDim,
                  .kernel = kKernel,
                  .dilation = kDilation,
                  .eps = kEps,
                  .state = state->conv.data(),
                  .state_rows = kHistory,
                  .position = state->position,
                  .x = x},
                 pool_);
    state->position += ids.size();
  }

  std::vector<double> Expected(std::span<const int32_t> ids,
                               const std::vector<float>& x) const;

  TestGguf file_;
  std::unique_ptr<Table> table_;
  std::unique_ptr<Hasher> hasher_;
  std::unique_ptr<engram::Store> store_;
  std::unique_ptr<Weights> weights_;
  ThreadPool pool_{2};
};

double InverseRms(const double* z) {
  double sum = 0;
  for (size_t i = 0; i < kDim; ++i) sum += z[i] * z[i];
  return 1 / std::sqrt(sum / kDim + kEps);
}

double Sigmoid(double z) { return 1 / (1 + std::exp(-z)); }

// docs/ple.md line by line, in double.
std::vector<double> PlePipeline::Expected(std::span<const int32_t> ids,
                                          const std::vector<float>& x) const {
  const Layout& layout = table_->layout;
  const size_t channels = kStreams * kDim;
  std::vector<double> out(x.begin(), x.end());
  std::vector<double> c(ids.size() * channels);
  for (size_t t = 0; t < ids.size(); ++t) {
    std::vector<double> e;
    uint64_t mixed = 0;
    bool cut = false;
    for (size_t n = 0; n < 3; ++n) {
      if (n > 0) cut = cut || n > t || ids[t - n] == kEosId;
      mixed ^= static_cast<uint64_t>(cut ? kEosId : ids[t - n]) *
               layout.multipliers[n];
      for (size_t i = 0; n > 0 && i < 2; ++i) {
        const size_t head = (n - 1) * 2 + i;
        const uint64_t row = mixed % layout.sizes[head] + layout.offsets[head];
        std::vector<float> values(32);
        EXPECT_TRUE(DecodeTableRow(
            TableCodec::kQ8_0,
            reinterpret_cast<const uint8_t*>(file_.data.data()) + row * 34,
            nullptr, 32, values.data()));
        e.insert(e.end(), values.begin(), values.end());
      }
    }
    std::vector<double> value(kDim);
    for (size_t i = 0; i < kDim; ++i) {
      for (size_t j = 0; j < e.size(); ++j) {
        value[i] += e[j] * weights_->value_proj[i * e.size() + j];
      }
    }
    for (size_t s = 0; s < kStreams; ++s) {
      std::vector<double> k(kDim), q(kDim), u(kDim);
      for (size_t i = 0; i < kDim; ++i) {
        for (size_t j = 0; j < e.size(); ++j) {
          k[i] += e[j] * weights_->key_proj[(s * kDim + i) * e.size() + j];
        }
        q[i] = x[t * channels + s * kDim + i];
      }
      double g = 0;
      for (size_t i = 0; i < kDim; ++i) {
        g += k[i] * (1.0 + weights_->key[s * kDim + i]) * q[i] *
             (1.0 + weights_->query[s * kDim + i]);
      }
      g *= InverseRms(k.data()) * InverseRms(q.data()) / std::sqrt(kDim);
      const double gate =
          Sigmoid(std::copysign(std::sqrt(std::max(std::fabs(g), 1e-6)), g));
      for (size_t i = 0; i < kDim; ++i) u[i] = gate * value[i];
      const double norm = InverseRms(u.data());
      for (size_t i = 0; i < kDim; ++i) {
        const size_t channel = s * kDim + i;
        c[t * channels + channel] =
            u[i] * norm * (1.0 + weights_->norm[channel]);
        double z = 0;
        for (size_t j = 0; j < kKernel; ++j) {
          const size_t back = (kKernel - 1 - j) * kDilation;
          if (back > t) continue;
          z += weights_->conv[channel * kKernel + j] *
               c[(t - back) * channels + channel];
        }
        out[t * channels + channel] += u[i] + z * Sigmoid(z);
      }
    }
  }
  return out;
}

std::vector<int32_t> SomeTokens(size_t count) {
  std::mt19937 rng(8);
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) {
    id = rng() % 6 == 0 ? kEosId : static_cast<int32_t>(rng() % 90);
  }
  return ids;
}

TEST_F(PlePipeline, TokensInStreamsOut) {
  const std::vector<int32_t> tokens = SomeTokens(30);
  const std::vector<float> x = Random(30 * kStreams * kDim, 9);
  const std::vector<double> expected = Expected(tokens, x);
  for (const Ops* ops : {&RefOps(), &CpuOps()}) {
    std::vector<float> streams = x;
    State state;
    Inject(*ops, tokens, &state, streams.data());
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_NEAR(streams[i], expected[i], 1e-3) << ops->name << " " << i;
    }
  }
}

TEST_F(PlePipeline, ChunksGiveTheBitsOfOneCall) {
  const std::vector<int32_t> tokens = SomeTokens(30);
  const std::vector<float> x = Random(30 * kStreams * kDim, 9);
  std::vector<float> whole = x;
  State state;
  Inject(CpuOps(), tokens, &state, whole.data());
  for (const size_t chunk : {1, 2, 7}) {
    std::vector<float> streams = x;
    State chunked;
    for (size_t t = 0; t < tokens.size(); t += chunk) {
      const size_t count = std::min(chunk, tokens.size() - t);
      Inject(CpuOps(), std::span(tokens).subspan(t, count), &chunked,
             streams.data() + t * kStreams * kDim);
    }
    EXPECT_EQ(streams, whole) << "chunks of " << chunk;
    EXPECT_EQ(chunked.conv, state.conv);
  }
}

}  // namespace
}  // namespace ecphory::ple
