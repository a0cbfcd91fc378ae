// Every tensor a model of a given configuration consists of: its name, its
// shape, what kind it is, and where its view belongs in Weights. Loading,
// `info` and conversion all walk this one list.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ecphory/config.h"
#include "model/weights.h"

namespace ecphory {

// What a tensor is for; decides its type in converted files.
enum class TensorRole : uint8_t {
  kVector,     // norms, biases, scales: copied to fp32
  kEmbedding,  // the input embedding
  kDense,      // attention, shared expert and head matrices
  kSmall,      // stream mixes, compressor, indexer, Engram projection
  kRouter,     // the router's gate
  kExperts,    // one projection of all routed experts
};

struct TensorSlot {
  std::string name;  // released, without ".weight"
  TensorRole role = TensorRole::kVector;
  // Outermost first: [n] or [H, D], [rows, cols], [experts, rows, cols].
  std::vector<uint64_t> shape;
  bool optional = false;

  // The place to fill, by role; empty until the tensor is bound.
  DeviceArray<float>* vector = nullptr;    // kVector
  std::vector<Expert>* experts = nullptr;  // kExperts: this projection of each
  Matrix Expert::*expert_part = nullptr;
  Matrix* matrix = nullptr;  // all others

  uint64_t ValueCount() const;
  // Name of one expert's projection in released files (kExperts).
  std::string ExpertName(size_t expert) const;
};

// Lists the slots of `config` (validated) in the order GGUF files hold them:
// embedding, norm, head, then layer by layer. They point into `weights`, whose
// layers are created but left empty: sizes that only the configuration claims
// allocate nothing.
std::vector<TensorSlot> MakeTensorSlots(const ModelConfig& config,
                                        Weights* weights);

}  // namespace ecphory
