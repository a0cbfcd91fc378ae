#include "model/weight_reading.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <string>

#include "io/fault_file.h"
#include "model/test_models.h"
#include "model/testing.h"

namespace ecphory {
namespace {

using testing::ExpectHas;

// Read into memory, weights are the same bytes; on any number of threads.
TEST(WeightReading, CopiesAreTheMappedBytes) {
  for (const char* name : {"A", "B", "C"}) {
    const Result<ModelSource> source =
        OpenModelSource(testing::GoldenDir(name));
    ASSERT_TRUE(source.ok()) << source.status().ToString();
    const Result<Weights> mapped = LoadWeights(*source);
    ASSERT_TRUE(mapped.ok());
    ThreadPool pool(3);
    uint64_t last = 0, all = 1;
    const Result<Weights> copied =
        LoadWeights(*source, {.copy = true,
                              .pool = &pool,
                              .progress = [&](uint64_t done, uint64_t total) {
                                EXPECT_GE(done, last);
                                last = done;
                                all = total;
                                return true;
                              }});
    ASSERT_TRUE(copied.ok()) << copied.status().ToString();
    EXPECT_EQ(last, all);
    EXPECT_TRUE(copied->mappings.empty());
    EXPECT_EQ(copied->mapped_bytes, mapped->mapped_bytes);
    const auto same = [](const Matrix& a, const Matrix& b) {
      ASSERT_EQ(a.rows, b.rows);
      EXPECT_EQ(std::memcmp(a.data, b.data, a.rows * a.row_bytes()), 0);
      if (a.scales == nullptr) return;
      EXPECT_EQ(std::memcmp(a.scales, b.scales, (a.rows / 32) * (a.cols / 32)),
                0);
    };
    same(copied->embed, mapped->embed);
    for (size_t i = 0; i < mapped->layers.size(); ++i) {
      const LayerWeights& a = copied->layers[i];
      const LayerWeights& b = mapped->layers[i];
      same(a.attn.wq_b, b.attn.wq_b);
      same(a.hc_ffn.fn, b.hc_ffn.fn);
      same(a.moe.shared.w2, b.moe.shared.w2);
      for (size_t e = 0; e < a.moe.experts.size(); ++e) {
        same(a.moe.experts[e].w1, b.moe.experts[e].w1);
        same(a.moe.experts[e].w2, b.moe.experts[e].w2);
      }
      EXPECT_EQ(testing::Values(a.attn_norm), testing::Values(b.attn_norm));
    }
  }
}

TEST(WeightReading, CanBeCancelled) {
  const Result<ModelSource> source = OpenModelSource(testing::GoldenDir("A"));
  ASSERT_TRUE(source.ok());
  ThreadPool pool(1);
  const Result<Weights> weights = LoadWeights(
      *source, {.copy = true,
                .pool = &pool,
                .progress = [](uint64_t, uint64_t) { return false; }});
  EXPECT_EQ(weights.status().code(), StatusCode::kCancelled);
}

// Bytes of address space that the process has.
uint64_t AddressSpace() {
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * 4096;
}

// Opens files in which the read with this number fails.
FileOpener FailingRead(uint64_t number, bool short_file) {
  return [=](const std::string& path)
             -> Result<std::shared_ptr<RandomAccessFile>> {
    ECPHORY_ASSIGN_OR_RETURN(std::shared_ptr<RandomAccessFile> file,
                             OpenFile(path));
    FaultPlan plan;
    if (short_file) {
      plan.truncated_at = file->size() / 2;
    } else {
      plan.fail_read = number;
    }
    return std::shared_ptr<RandomAccessFile>(
        std::make_shared<FaultFile>(std::move(file), plan));
  };
}

// The first, one in the middle, and a file that has lost its end.
TEST(WeightReading, AFailedReadIsNamedAndLeavesNothing) {
  const Result<ModelSource> source = OpenModelSource(testing::GoldenDir("A"));
  ASSERT_TRUE(source.ok());
  ThreadPool pool(2);
  const auto load = [&](uint64_t number, bool short_file) {
    const Result<Weights> weights = LoadWeights(
        *source,
        {.copy = true, .pool = &pool, .open = FailingRead(number, short_file)});
    EXPECT_FALSE(weights.ok());
    return weights.ok() ? "loaded" : weights.status().message();
  };
  (void)load(0, false);
  const uint64_t before = AddressSpace();
  ASSERT_GT(before, 0u);
  for (const uint64_t number : {0, 57}) {
    const std::string error = load(number, false);
    ExpectHas(error, "tensor '");
    ExpectHas(error, ".safetensors: cannot read at offset");
  }
  ExpectHas(load(0, true), ".safetensors: ends at byte");
#if !defined(__SANITIZE_ADDRESS__)  // which keeps what is freed for a while
  // A copy takes 2 MiB at least.
  EXPECT_LT(AddressSpace(), before + (1u << 20));
#endif
}

TEST(WeightReading, AFileThatIsGoneIsNamed) {
  const Result<ModelSource> source = OpenModelSource(testing::GoldenDir("A"));
  ASSERT_TRUE(source.ok());
  ThreadPool pool(1);
  const Result<Weights> weights = LoadWeights(
      *source, {.copy = true, .pool = &pool, .open = [](const std::string& p) {
                  return OpenFile(p + ".gone");
                }});
  ASSERT_FALSE(weights.ok());
  ExpectHas(weights.status().message(), ".gone");
}

}  // namespace
}  // namespace ecphory
