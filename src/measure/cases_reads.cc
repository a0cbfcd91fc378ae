// A call that only reads: what starting and ending it leave of the bandwidth.
#include <string>

#include "measure/op_case.h"
#include "ops/cpu/peak.h"

namespace ecphory::measure {

namespace {

// What threads share out.
constexpr size_t kBlock = 4096;

Result<PreparedCase> PrepareRead(CaseContext& context, size_t bytes) {
  ECPHORY_ASSIGN_OR_RETURN(const auto weights,
                           context.Weights(WeightFormat::kF32));
  const auto call = [=, &context] {
    const Matrix next = weights->Next(bytes / kBlock, kBlock / sizeof(float));
    context.pool().ParallelForPieces(
        bytes / kBlock, /*grain=*/1, [&](size_t begin, size_t end, size_t) {
          ReadBytes(next.data + begin * kBlock, (end - begin) * kBlock);
        });
  };
  return PreparedCase{{call, nullptr}, {.bytes = static_cast<double>(bytes)}};
}

}  // namespace

void AddReadCases(const Sizes& sizes, std::vector<OpCase>* cases) {
  for (const size_t mib : {1, 2, 8, 32}) {
    const size_t bytes = mib << 20;
    // Several of them rotate.
    if (8 * bytes > sizes.smallest_set) continue;
    cases->push_back(
        {"read/" + std::to_string(mib) + "_MiB",
         {.arithmetic = Arithmetic::kNone},
         [=](CaseContext& context) { return PrepareRead(context, bytes); }});
  }
}

}  // namespace ecphory::measure
