// The fp32 matrix product of OpenBLAS or oneDNN, where one is installed: a
// peer's rate, for measuring only. Nothing else of the project loads them.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "ecphory/status.h"

namespace ecphory::measure {

class Sgemm {
 public:
  // `path` empty: the first of the usual names that the system finds.
  // kNotFound names what was tried; kUnsupported: a library without a product
  // that is known here.
  static Result<std::unique_ptr<Sgemm>> Load(const std::string& path,
                                             size_t threads);
  virtual ~Sgemm() = default;

  // y[m, n] = x[m, k] * w[n, k]^T, rows one behind the other.
  virtual void Run(const float* x, const float* w, float* y, size_t m, size_t n,
                   size_t k) const = 0;
  // As it was loaded: "libopenblas.so.0", and its function.
  const std::string& name() const { return name_; }

 protected:
  explicit Sgemm(std::string name) : name_(std::move(name)) {}

 private:
  std::string name_;
};

}  // namespace ecphory::measure
