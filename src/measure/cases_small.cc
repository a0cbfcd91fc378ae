// What is short: the pool's latencies, norms, the router, table rows.
#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "engram/row_decode.h"
#include "measure/op_case.h"
#include "tensor/table_codec.h"

namespace ecphory::measure {

namespace {

// From the call until every thread has taken its part and all have returned.
// Without the meeting the caller would take the parts of those who are late.
void Meet(ThreadPool& pool) {
  std::atomic<size_t> here{0};
  const size_t threads = pool.threads();
  pool.ParallelFor(threads, 1, [&](size_t begin, size_t end, size_t) {
    here.fetch_add(end - begin);
    for (int i = 0; here.load() < threads; ++i) {
      if (i > 10'000) std::this_thread::yield();
    }
  });
}

Result<PreparedCase> PreparePoolAwake(CaseContext& context) {
  return PreparedCase{{[&context] { Meet(context.pool()); }, nullptr}, {}};
}

// Workers have slept for a while when the call comes, as between requests.
Result<PreparedCase> PreparePoolAsleep(CaseContext& context) {
  return PreparedCase{
      {[&context] { Meet(context.pool()); },
       [] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }},
      {}};
}

Result<PreparedCase> PrepareNorm(CaseContext& context) {
  const size_t D = context.sizes().hidden;
  ECPHORY_ASSIGN_OR_RETURN(const auto x, context.Floats(D));
  ECPHORY_ASSIGN_OR_RETURN(const auto weight, context.Floats(D));
  ECPHORY_ASSIGN_OR_RETURN(const auto y, context.Floats(D));
  return PreparedCase{{[=, &context] {
                         context.ops().rms_norm({.x = x->floats(),
                                                 .weight = weight->floats(),
                                                 .y = y->floats(),
                                                 .rows = 1,
                                                 .dim = D,
                                                 .eps = 1e-20f},
                                                context.pool());
                       },
                       nullptr},
                      {}};
}

Result<PreparedCase> PrepareRouter(CaseContext& context) {
  const size_t experts = context.sizes().experts;
  const size_t topk = context.sizes().topk_experts;
  ECPHORY_ASSIGN_OR_RETURN(const auto logits, context.Floats(experts));
  ECPHORY_ASSIGN_OR_RETURN(const auto bias, context.Floats(experts));
  auto ids = std::make_shared<std::vector<int32_t>>(topk);
  auto weights = std::make_shared<std::vector<float>>(topk);
  return PreparedCase{{[=, &context] {
                         context.ops().router({.logits = logits->floats(),
                                               .bias = bias->floats(),
                                               .bias_image = bias->floats(),
                                               .tokens = 1,
                                               .experts = experts,
                                               .topk = topk,
                                               .ids = ids->data(),
                                               .weights = weights->data()},
                                              context.pool());
                       },
                       nullptr},
                      {}};
}

// A token's 48 rows of two layers, packed one behind the other.
Result<PreparedCase> PrepareRows(CaseContext&) {
  constexpr size_t kRows = 48, kWidth = 256;
  const auto codec = TableCodec::kRow264;
  const size_t bytes = TableRowBytes(codec, kWidth);
  auto rows = std::make_shared<std::vector<uint8_t>>(kRows * bytes);
  RandomBits bits(1);
  for (size_t i = 0; i < rows->size(); ++i) {
    const bool scale = i % bytes >= kWidth;
    (*rows)[i] = static_cast<uint8_t>(scale ? 120 : bits.Next() & 0xbf);
  }
  auto out = std::make_shared<std::vector<uint16_t>>(kRows * kWidth);
  return PreparedCase{{[=] {
                         for (size_t r = 0; r < kRows; ++r) {
                           const uint8_t* const row = rows->data() + r * bytes;
                           (void)engram::DecodeTableRowFast(
                               codec, row, row + bytes, kWidth,
                               out->data() + r * kWidth);
                         }
                       },
                       nullptr},
                      {}};
}

}  // namespace

void AddSmallCases(const Sizes& sizes, std::vector<OpCase>* cases) {
  const auto add = [&](const std::string& name, auto prepare) {
    cases->push_back({name, {}, prepare});
  };
  add("rms_norm1", PrepareNorm);
  add("router1/" + std::to_string(sizes.experts), PrepareRouter);
  add("row_decode/48_rows", PrepareRows);
  add("pool/awake", PreparePoolAwake);
  add("pool/asleep", PreparePoolAsleep);
}

}  // namespace ecphory::measure
