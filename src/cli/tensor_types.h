// Tensors counted by element type.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ecphory/model.h"

namespace ecphory::cli {

struct TypeTotal {
  uint64_t tensors = 0;
  uint64_t bytes = 0;
};

inline std::map<std::string, TypeTotal> TotalsByType(
    const std::vector<TensorFacts>& tensors) {
  std::map<std::string, TypeTotal> totals;
  for (const TensorFacts& tensor : tensors) {
    TypeTotal& total = totals[tensor.dtype];
    ++total.tensors;
    total.bytes += tensor.bytes;
  }
  return totals;
}

}  // namespace ecphory::cli
