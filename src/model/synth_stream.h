// A synthetic tensor's bytes, made piece by piece by all threads of a pool.
#pragma once

#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "format/tensor_stream.h"
#include "model/synth_values.h"

namespace ecphory {

// Not thread-safe: producers of one stream share its buffer.
class SynthStream {
 public:
  // `pool` outlives this.
  SynthStream(uint64_t seed, ThreadPool* pool) : seed_(seed), pool_(*pool) {}

  // Makes all rows of `tensor`, in order. Both outlive the producer.
  TensorStream::Producer ProducerOf(const SynthTensor& tensor);

 private:
  Status Produce(const SynthTensor& tensor, const TensorStream::Sink& sink);

  const uint64_t seed_;
  ThreadPool& pool_;
  std::vector<uint8_t> piece_;
};

}  // namespace ecphory
