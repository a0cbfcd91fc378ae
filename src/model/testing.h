// Helpers for tests that run golden models: data, capture, comparison.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ecphory/model.h"
#include "ecphory/session.h"
#include "format/tensor_index.h"
#include "io/file.h"
#include "ops/device_array.h"

namespace ecphory::testing {

// A GPU computes passes of up to so many tokens alike (MatmulArgs).
inline constexpr uint32_t kAlikeTokens = 4;

// Tensors of one .safetensors file, read whole.
class GoldenFile {
 public:
  explicit GoldenFile(const std::string& path);
  bool Has(const std::string& name) const;
  std::vector<uint64_t> Shape(const std::string& name) const;
  std::vector<float> F32(const std::string& name) const;
  std::vector<int64_t> Ints(const std::string& name) const;  // I32, I64, U8
  std::vector<std::string> Names() const;

 private:
  const TensorInfo& Info(const std::string& name) const;
  std::vector<uint8_t> Bytes(const TensorInfo& info) const;
  std::shared_ptr<RandomAccessFile> file_;
  TensorIndex index_;
};

// "<tests>/golden/v41/<name>"
std::string GoldenDir(const std::string& name);

// Everything observed, by "L<layer>.<name>"; rows of later chunks are appended
// when the inner shape is the same.
class Capture : public TensorObserver {
 public:
  struct Tensor {
    std::vector<uint64_t> shape;
    std::vector<float> f32;
    std::vector<int64_t> ints;
  };
  bool Wants(uint32_t) const override { return true; }
  void OnF32(uint32_t layer, const std::string& name,
             std::span<const float> values,
             const std::vector<uint64_t>& shape) override;
  void OnI32(uint32_t layer, const std::string& name,
             std::span<const int32_t> values,
             const std::vector<uint64_t>& shape) override;
  void OnU8(uint32_t layer, const std::string& name,
            std::span<const uint8_t> values,
            const std::vector<uint64_t>& shape) override;
  const std::map<std::string, Tensor>& tensors() const { return tensors_; }

 private:
  Tensor& At(uint32_t layer, const std::string& name,
             const std::vector<uint64_t>& shape);
  std::map<std::string, Tensor> tensors_;
};

// All values of an array; fails the test when they cannot be had.
template <typename T>
std::vector<T> Values(const DeviceArray<T>& array) {
  Result<std::vector<T>> values = array.ReadAll();
  EXPECT_TRUE(values.ok()) << values.status().ToString();
  return values.ok() ? std::move(values).value() : std::vector<T>();
}

// "ref", "cpu", and "cuda" where it was built.
std::vector<const char*> Backends();
// Why this backend cannot run here; empty where it can.
std::string Unavailable(const std::string& backend);

// Opens a model or fails the test.
std::shared_ptr<const Model> OpenOrDie(const std::string& path,
                                       const std::string& backend,
                                       uint32_t threads = 2);

// Logits [T, vocab] of a text run through a fresh session in Append calls of
// `step` tokens (0 = one call).
struct RunOptions {
  SessionOptions session;
  std::vector<uint8_t> image_mask;
  size_t step = 0;
  TensorObserver* observer = nullptr;
};
std::vector<float> RunLogits(const std::shared_ptr<const Model>& model,
                             std::span<const int32_t> tokens,
                             const RunOptions& options);

// Largest absolute difference of each row.
std::vector<double> RowErrors(std::span<const float> a,
                              std::span<const float> b, size_t columns);
double MaxOf(const std::vector<double>& values);
// Mean over rows of KL(softmax(p) || softmax(q)).
double MeanKl(std::span<const float> p, std::span<const float> q,
              size_t columns);
// Share of rows with the same argmax.
double Top1Agreement(std::span<const float> a, std::span<const float> b,
                     size_t columns);

}  // namespace ecphory::testing
