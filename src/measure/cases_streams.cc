// The residual streams: mHC sites, their operators, the Engram gate.
#include <memory>
#include <string>
#include <vector>

#include "base/ceil_div.h"
#include "measure/op_case.h"
#include "model/hyper_connections.h"
#include "tensor/float_codec.h"

namespace ecphory::measure {

namespace {

constexpr float kEps = 1e-6f;

// Streams of as many passes as fill the working set, taken in turn.
class Turns {
 public:
  Turns(size_t working_set, size_t bytes)
      : count_(std::max<size_t>(1, working_set / bytes)) {}
  size_t count() const { return count_; }
  size_t Next() { return next_++ % count_; }

 private:
  size_t count_;
  size_t next_ = 0;
};

void Fill(RandomBits& bits, size_t count, Streams h) {
  for (size_t i = 0; i < count; ++i) {
    if (h.is_bf16()) {
      static_cast<uint16_t*>(h.data)[i] = F32ToBF16(bits.Signed());
    } else {
      static_cast<float*>(h.data)[i] = bits.Signed();
    }
  }
}

struct StoredStreams {
  std::shared_ptr<Buffer> memory;
  Streams view;
};

Result<StoredStreams> MakeStreams(CaseContext& context, size_t count,
                                  StreamFormat format) {
  StoredStreams streams;
  const size_t bytes = count * StreamBytes(format);
  ECPHORY_ASSIGN_OR_RETURN(streams.memory,
                           context.Floats(CeilDiv(bytes, sizeof(float))));
  streams.view = {streams.memory->floats(), format};
  RandomBits bits(count);
  if (format == StreamFormat::kBF16) Fill(bits, count, streams.view);
  return streams;
}

using Sites = std::vector<std::unique_ptr<HyperConnections>>;

// One instance serves a token (its streams are 80 KB and stay in the cache, as
// they do between layers); of a prompt as many as fill the working set are
// taken in turn.
Result<std::shared_ptr<Sites>> MakeSites(CaseContext& context, size_t tokens,
                                         StreamFormat format) {
  const size_t H = context.sizes().streams, D = context.sizes().hidden;
  const HyperConnections::Shape shape = {.streams = H,
                                         .dim = D,
                                         .norm_eps = kEps,
                                         .hc_eps = kEps,
                                         .sinkhorn_iters = 20,
                                         .format = format};
  const Turns turns(context.working_set(),
                    tokens * H * D * StreamBytes(format));
  auto sites = std::make_shared<Sites>();
  for (size_t i = 0; i < (tokens > 1 ? turns.count() : 1); ++i) {
    sites->push_back(std::make_unique<HyperConnections>(shape, context.ops(),
                                                        context.pool()));
    ECPHORY_RETURN_IF_ERROR(sites->back()->Allocate(tokens, HostDevice()));
    sites->back()->Begin(tokens);
    RandomBits bits(i);
    Fill(bits, tokens * H * D, sites->back()->streams());
  }
  return sites;
}

// Sites as the forward pass runs them, without their sublayers.
Result<PreparedCase> PrepareSite(CaseContext& context, size_t tokens,
                                 StreamFormat format) {
  const size_t H = context.sizes().streams, D = context.sizes().hidden;
  const size_t mix_rows = (2 + H) * H;
  ECPHORY_ASSIGN_OR_RETURN(const auto weights,
                           context.Weights(WeightFormat::kF32));
  ECPHORY_ASSIGN_OR_RETURN(const auto sites,
                           MakeSites(context, tokens, format));
  PreparedCase prepared;
  const float y = 0;  // that there is one, is all that counts
  prepared.cost = CostOf(HcSplitArgs{.y = &y,
                                     .h = {nullptr, format},
                                     .fn = weights->Next(mix_rows, H * D),
                                     .tokens = tokens,
                                     .streams = H,
                                     .dim = D});
  auto turn = std::make_shared<size_t>(0);
  auto mix = std::make_shared<HyperConnectionWeights>();
  const std::vector<float> scale(3, 0.01f), norm(D, 1.0f);
  ECPHORY_ASSIGN_OR_RETURN(mix->scale,
                           DeviceArray<float>::Of(HostDevice(), scale));
  ECPHORY_ASSIGN_OR_RETURN(
      mix->base, DeviceArray<float>::Allocate(HostDevice(), mix_rows));
  prepared.subject.call = [=] {
    mix->fn = weights->Next(mix_rows, H * D);
    (*sites)[(*turn)++ % sites->size()]->Site(*mix, norm.data(),
                                              [](const float*, float*) {});
  };
  return prepared;
}

Result<PreparedCase> PrepareExpand(CaseContext& context, size_t tokens,
                                   StreamFormat format) {
  const size_t H = context.sizes().streams, D = context.sizes().hidden;
  const size_t width = tokens * H * D;
  Turns turns(context.working_set(), width * StreamBytes(format));
  ECPHORY_ASSIGN_OR_RETURN(const auto h,
                           MakeStreams(context, turns.count() * width, format));
  ECPHORY_ASSIGN_OR_RETURN(const auto y, context.Floats(tokens * D));
  auto post = std::make_shared<std::vector<float>>(tokens * H, 0.1f);
  auto comb = std::make_shared<std::vector<float>>(tokens * H * H, 1.0f / H);
  const auto args = [=](size_t turn) {
    return HcExpandArgs{.y = y->floats(),
                        .post = post->data(),
                        .comb = comb->data(),
                        .tokens = tokens,
                        .streams = H,
                        .dim = D,
                        .h = h.view.From(turn * width)};
  };
  auto next = std::make_shared<Turns>(turns);
  return PreparedCase{{[=, &context] {
                         context.ops().hc_expand(args(next->Next()),
                                                 context.pool());
                       },
                       nullptr},
                      CostOf(args(0))};
}

Result<PreparedCase> PrepareGate(CaseContext& context, size_t tokens,
                                 StreamFormat format) {
  const size_t H = context.sizes().streams, D = context.sizes().hidden;
  const size_t width = tokens * H * D, kv_width = tokens * (H + 1) * D;
  // A token's keys, value and streams stay in the cache.
  const Turns turns(tokens > 1 ? context.working_set() : 1,
                    sizeof(float) * kv_width);
  ECPHORY_ASSIGN_OR_RETURN(const auto kv,
                           context.Floats(turns.count() * kv_width));
  ECPHORY_ASSIGN_OR_RETURN(const auto h,
                           MakeStreams(context, turns.count() * width, format));
  ECPHORY_ASSIGN_OR_RETURN(const auto w, context.Floats(H * D));
  const auto args = [=](size_t turn) {
    return EngramGateArgs{.kv = kv->floats() + turn * kv_width,
                          .q_weight = w->floats(),
                          .k_weight = w->floats(),
                          .tokens = tokens,
                          .streams = H,
                          .dim = D,
                          .eps = kEps,
                          .h = h.view.From(turn * width)};
  };
  auto next = std::make_shared<Turns>(turns);
  return PreparedCase{{[=, &context] {
                         context.ops().engram_gate(args(next->Next()),
                                                   context.pool());
                       },
                       nullptr},
                      CostOf(args(0))};
}

}  // namespace

void AddStreamCases(const Sizes&, std::vector<OpCase>* cases) {
  for (const size_t tokens : {size_t{1}, kPromptTokens}) {
    const std::string n = std::to_string(tokens);
    // A token's streams are small: what it reads is the mix's weights. A
    // prompt's lie in large pages where they are a session's.
    const auto add = [&](const std::string& name, Traffic many, auto prepare) {
      const Limits limits = {.traffic = tokens > 1 ? many : Traffic::kRead};
      for (const auto format : {StreamFormat::kF32, StreamFormat::kBF16}) {
        const char* const suffix = format == StreamFormat::kBF16 ? "_bf16" : "";
        cases->push_back({name + n + suffix, limits, [=](CaseContext& context) {
                            return prepare(context, tokens, format);
                          }});
      }
    };
    add("mhc/site", Traffic::kUpdateHuge, PrepareSite);
    add("mhc/expand", Traffic::kUpdate, PrepareExpand);
    add("engram_gate/", Traffic::kUpdate, PrepareGate);
  }
}

}  // namespace ecphory::measure
