// Every case runs once, and its memory is what its arguments say.
#include "measure/op_case.h"

#include <gtest/gtest.h>

#include <set>

namespace ecphory::measure {
namespace {

TEST(OpCases, NamesDiffer) {
  std::set<std::string> names;
  for (const OpCase& op : OpCases(SizesOf(BenchSizes::kReleased))) {
    EXPECT_TRUE(names.insert(op.name).second) << op.name;
  }
  EXPECT_GT(names.size(), 50u);
}

TEST(WeightPool, MatricesFollowEachOtherAndStartAgain) {
  ThreadPool pool(2);
  auto made = WeightPool::Create(WeightFormat::kQ8_0, 4 << 20,
                                 BenchPages::kSmall, pool);
  ASSERT_TRUE(made.ok());
  // 1,024 rows of 8 blocks of 34 bytes: 15 fit in 4 MiB.
  const Matrix first = made->Next(1024, 256);
  const Matrix second = made->Next(1024, 256);
  EXPECT_EQ(second.data, first.data + 1024 * 8 * 34);
  for (int i = 2; i < 15; ++i) made->Next(1024, 256);
  EXPECT_EQ(made->Next(1024, 256).data, first.data);
}

TEST(WeightPool, EveryFormatHoldsFiniteValues) {
  ThreadPool pool(2);
  for (const WeightFormat format : WeightFormats()) {
    auto made = WeightPool::Create(format, 2 << 20, BenchPages::kSmall, pool);
    ASSERT_TRUE(made.ok());
    const Matrix matrix = made->Next(64, 512);
    std::vector<float> row(512);
    double sum = 0;
    for (size_t r = 0; r < 64; ++r) {
      DequantizeRow(matrix, r, row.data());
      for (const float value : row) sum += value * value;
    }
    EXPECT_GT(sum, 0) << WeightFormatName(format);
    EXPECT_LT(sum, 1e30) << WeightFormatName(format);
  }
}

void RunOnce(const OpCase& op, CaseContext& context) {
  auto prepared = op.prepare(context);
  ASSERT_TRUE(prepared.ok()) << op.name << prepared.status().ToString();
  if (prepared->subject.before) prepared->subject.before();
  prepared->subject.call();
  prepared->subject.call();
  EXPECT_GE(prepared->cost.bytes, 0) << op.name;
}

TEST(OpCases, AllOfTheSmallModelRun) {
  BenchOptions options;
  options.sizes = BenchSizes::kMini;
  options.working_set = SizesOf(options.sizes).smallest_set;
  ThreadPool pool(2);
  CaseContext context(CpuOps(), pool, options);
  for (const OpCase& op : OpCases(SizesOf(options.sizes))) RunOnce(op, context);
}

// The long ones run in `ecphory bench`; here it is about their making.
TEST(OpCases, ShortOnesOfTheReleasedModelRun) {
  BenchOptions options;
  options.working_set = SizesOf(options.sizes).smallest_set;
  ThreadPool pool(2);
  CaseContext context(CpuOps(), pool, options);
  for (const OpCase& op : OpCases(SizesOf(options.sizes))) {
    const auto holds = [&](const char* part) {
      return op.name.find(part) != std::string::npos;
    };
    if (holds("512") || holds("128k") || holds("experts")) continue;
    if (holds("matvec") && !holds("/5120x1280")) continue;
    RunOnce(op, context);
  }
}

}  // namespace
}  // namespace ecphory::measure
