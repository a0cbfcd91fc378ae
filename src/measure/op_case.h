// Operators at the sizes of a model, each ready to be timed.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "ecphory/bench.h"
#include "ecphory/status.h"
#include "measure/op_cost.h"
#include "measure/sampler.h"
#include "measure/sizes.h"
#include "measure/weight_pool.h"
#include "measure/yardsticks.h"
#include "ops/ops.h"

namespace ecphory::measure {

// What products may take their input for, and how names say so.
struct InputKind {
  const char* suffix;
  MatmulInput input;
  Arithmetic arithmetic;
};
inline constexpr InputKind kExactInput = {"", MatmulInput::kF32,
                                          Arithmetic::kF32};
inline constexpr InputKind kInt8Input = {"_int8", MatmulInput::kInt8,
                                         Arithmetic::kNone};
inline constexpr InputKind kBf16Input = {"_bf16", MatmulInput::kBF16,
                                         Arithmetic::kBF16};
// Whether that can make a difference: int8 is for codes that are integers, bf16
// for formats all of whose values are bf16.
bool HasInput(WeightFormat format, MatmulInput input);

// What cases are prepared with. Weights of the format asked for last are kept,
// so that neighbours share them.
class CaseContext {
 public:
  CaseContext(const Ops& ops, ThreadPool& pool, const BenchOptions& options)
      : ops_(ops), pool_(pool), options_(options) {}

  const Ops& ops() const { return ops_; }
  ThreadPool& pool() const { return pool_; }
  const Sizes& sizes() const { return SizesOf(options_.sizes); }
  size_t working_set() const { return options_.working_set; }
  BenchPages pages() const { return options_.pages; }
  Result<std::shared_ptr<WeightPool>> Weights(WeightFormat format);
  // Random fp32 values in memory of the run's page kind.
  Result<std::shared_ptr<Buffer>> Floats(size_t count);

 private:
  const Ops& ops_;
  ThreadPool& pool_;
  const BenchOptions& options_;
  std::shared_ptr<WeightPool> weights_;
};

// A case that is ready. The subject owns its memory and uses the context's
// operators and pool.
struct PreparedCase {
  Subject subject;
  OpCost cost;  // of a call; zeros where nothing bounds it
};

struct OpCase {
  std::string name;
  Limits limits;
  std::function<Result<PreparedCase>(CaseContext&)> prepare;
};

// By kind; the names of all differ.
void AddReadCases(const Sizes& sizes, std::vector<OpCase>* cases);
void AddMatmulCases(const Sizes& sizes, std::vector<OpCase>* cases);
void AddExpertCases(const Sizes& sizes, std::vector<OpCase>* cases);
void AddStreamCases(const Sizes& sizes, std::vector<OpCase>* cases);
void AddAttentionCases(const Sizes& sizes, std::vector<OpCase>* cases);
void AddSmallCases(const Sizes& sizes, std::vector<OpCase>* cases);

// All of them, in the order of the report.
std::vector<OpCase> OpCases(const Sizes& sizes);

}  // namespace ecphory::measure
