#include "trace/gate_observer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"

namespace ecphory::trace {

namespace {

// gate = sigmoid(r), r = copysign(sqrt(|dot|), dot); exact but for rounding,
// and for |dot| below 1e-6, which the gate does not tell apart. A gate rounded
// to 1 does not say how large the product was.
float DotOfGate(float gate) {
  if (gate <= 0) return 0;
  if (gate >= 1) return std::numeric_limits<float>::quiet_NaN();
  const double g = static_cast<double>(gate);
  const double root = std::log(g / (1 - g));
  return static_cast<float>(root * std::fabs(root));
}

}  // namespace

EngramStreamTrace DescribeStream(float gate, std::span<const float> h,
                                 std::span<const float> v) {
  double hh = 0, vv = 0, hv = 0;
  for (size_t i = 0; i < h.size(); ++i) {
    const double a = static_cast<double>(h[i]), b = static_cast<double>(v[i]);
    hh += a * a;
    vv += b * b;
    hv += a * b;
  }
  EngramStreamTrace stream{gate, DotOfGate(gate), 0, 0};
  if (hh > 0) {
    stream.move =
        static_cast<float>(static_cast<double>(gate) * std::sqrt(vv / hh));
  }
  if (hh > 0 && vv > 0) {
    stream.cosine = static_cast<float>(hv / std::sqrt(hh * vv));
  }
  return stream;
}

GateObserver::GateObserver(std::vector<uint32_t> layers, Sink sink)
    : layers_(std::move(layers)), sink_(std::move(sink)) {
  done_.resize(layers_.size());
}

bool GateObserver::Wants(uint32_t layer) const {
  return std::find(layers_.begin(), layers_.end(), layer) != layers_.end();
}

void GateObserver::OnF32(uint32_t layer, const std::string& name,
                         std::span<const float> values,
                         const std::vector<uint64_t>& shape) {
  if (name == "streams_before_engram") {
    streams_.assign(values.begin(), values.end());
  } else if (name == "engram.value") {
    value_.assign(values.begin(), values.end());
  } else if (name == "engram.gate") {
    const auto at = std::find(layers_.begin(), layers_.end(), layer);
    ECPHORY_CHECK(at != layers_.end());
    Emit(static_cast<size_t>(at - layers_.begin()), values, shape[1]);
  }
}

void GateObserver::Emit(size_t layer, std::span<const float> gates,
                        size_t streams) {
  const size_t tokens = gates.size() / streams;
  const size_t dim = value_.size() / tokens;
  ECPHORY_CHECK(streams_.size() == tokens * streams * dim);
  row_.resize(streams);
  for (size_t t = 0; t < tokens; ++t) {
    const std::span<const float> v(value_.data() + t * dim, dim);
    for (size_t s = 0; s < streams; ++s) {
      const size_t at = t * streams + s;
      row_[s] = DescribeStream(gates[at], {streams_.data() + at * dim, dim}, v);
    }
    sink_(done_[layer] + t, layer, row_);
  }
  done_[layer] += tokens;
}

}  // namespace ecphory::trace
