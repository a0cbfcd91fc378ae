// Watches a forward pass and says what each stream took of the memory.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "ecphory/engram_trace.h"
#include "ecphory/session.h"

namespace ecphory::trace {

// Keeps one pass's streams of one layer; nothing grows with the text.
class GateObserver : public TensorObserver {
 public:
  // Called once for each token, layer and pass, in order of layers: `token`
  // counts from the first token observed, `layer` is an index into `layers`.
  using Sink = std::function<void(size_t token, size_t layer,
                                  std::span<const EngramStreamTrace>)>;
  GateObserver(std::vector<uint32_t> layers, Sink sink);

  bool Wants(uint32_t layer) const override;
  void OnF32(uint32_t layer, const std::string& name,
             std::span<const float> values,
             const std::vector<uint64_t>& shape) override;
  void OnI32(uint32_t, const std::string&, std::span<const int32_t>,
             const std::vector<uint64_t>&) override {}
  void OnU8(uint32_t, const std::string&, std::span<const uint8_t>,
            const std::vector<uint64_t>&) override {}

 private:
  void Emit(size_t layer, std::span<const float> gates, size_t streams);

  std::vector<uint32_t> layers_;
  Sink sink_;
  std::vector<size_t> done_;    // tokens emitted, by layer index
  std::vector<float> streams_;  // [T, H, D] before the injection under way
  std::vector<float> value_;    // [T, D]
  std::vector<EngramStreamTrace> row_;  // [H]
};

// The four numbers of one stream: gate, h[D] before, v[D].
EngramStreamTrace DescribeStream(float gate, std::span<const float> h,
                                 std::span<const float> v);

}  // namespace ecphory::trace
