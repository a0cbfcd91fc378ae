// What a cache of rows keeps, in simulation: no row's bytes, only its number.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "stream.h"

namespace ecphory::study {

// Rows are numbered 0..n-1, so that all state is in arrays.
class Policy {
 public:
  virtual ~Policy() = default;
  // Whether the row is there; if not it was read and is offered.
  virtual bool Access(uint32_t id) = 0;
};

struct NamedPolicy {
  std::string name;
  bool every_size;  // else at every second one
  std::function<std::unique_ptr<Policy>(const Sample&, size_t capacity)> make;
};

std::vector<NamedPolicy> ListPolicies();  // over the whole cache
std::vector<NamedPolicy> SetPolicies();   // in sets of 16
std::vector<NamedPolicy> SetChoices();    // S3-FIFO in sets, other parameters

// Hits at each access by the offline optimum (Belady's, and a row that is used
// later than all that is kept is not let in).
std::vector<bool> Optimum(const Sample& sample, size_t capacity);

}  // namespace ecphory::study
