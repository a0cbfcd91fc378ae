// ggml's CPU matrix product as a peer to measure against, from a shared library
// given by path: nothing of it is needed to build.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ecphory/status.h"
#include "tensor/matrix.h"

namespace ecphory {

// Several weight matrices of one shape and format in ggml's memory, and one
// graph that multiplies the same x with each of them in turn.
class GgmlProducts {
 public:
  struct Shape {
    WeightFormat format = WeightFormat::kQ8_0;  // one that GGUF has
    size_t rows = 0;
    size_t cols = 0;
    size_t tokens = 1;
    size_t matrices = 1;
  };
  // Loads libggml-base.so and libggml-cpu.so of a folder. kNotFound and
  // kUnsupported name the file or symbol.
  static Result<std::unique_ptr<GgmlProducts>> Create(const std::string& folder,
                                                      const Shape& shape,
                                                      size_t threads);
  ~GgmlProducts();

  // The weights are ggml's own encoding of fp32 rows: `values` is [n, cols], a
  // few rows that are repeated through all matrices. To be called once.
  void Encode(const std::vector<float>& values);
  Matrix matrix(size_t i) const;
  float* x();                      // [tokens, cols], to be filled
  const float* y(size_t i) const;  // [tokens, rows], of the last Run()
  void Run();                      // all products
  // Its workers spin for some 70 ms after a product, unless they are paused.
  void Pause();
  void Resume();

 private:
  struct Library;
  GgmlProducts(std::unique_ptr<Library> library, const Shape& shape);
  Status Build(size_t threads);
  std::unique_ptr<Library> library_;
  Shape shape_;
};

}  // namespace ecphory
