// What the operator tests share: the backends they run on, buffers that catch
// reads past the end, and comparison with expectations computed in double.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <ostream>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "base/check.h"
#include "base/thread_pool.h"
#include "ops/cpu/testing.h"
#include "ops/cpu_instructions.h"
#ifdef ECPHORY_CUDA
#include "ops/cuda/testing.h"
#endif
#include "ops/ops.h"
#include "tensor/float_codec.h"

namespace ecphory {

// An array whose end touches a page that may not be accessed, so that a read or
// write past the end stops the test. Starts poisoned: NaN, or bytes 0xa5.
template <typename T>
class GuardedArray {
 public:
  explicit GuardedArray(size_t size) : size_(size) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t bytes = size * sizeof(T);
    const size_t body = (bytes + page - 1) / page * page;
    mapped_ = body + page;
    void* base = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ECPHORY_CHECK(base != MAP_FAILED);
    base_ = static_cast<uint8_t*>(base);
    ECPHORY_CHECK(mprotect(base_ + body, page, PROT_NONE) == 0);
    data_ = reinterpret_cast<T*>(base_ + body - bytes);
#ifdef ECPHORY_CUDA
    ShareWithCudaForTest(base_, body);
#endif
    Poison();
  }
  GuardedArray(std::initializer_list<T> values) : GuardedArray(values.size()) {
    std::copy(values.begin(), values.end(), data_);
  }
  GuardedArray(GuardedArray&& other) noexcept
      : size_(other.size_),
        mapped_(other.mapped_),
        base_(other.base_),
        data_(other.data_) {
    other.base_ = nullptr;
  }
  GuardedArray& operator=(GuardedArray&&) = delete;
  ~GuardedArray() {
    if (base_ == nullptr) return;
#ifdef ECPHORY_CUDA
    if (size_ > 0) UnshareWithCudaForTest(base_);
#endif
    munmap(base_, mapped_);
  }

  void Poison() {
    if constexpr (std::is_floating_point_v<T>) {
      std::fill(begin(), end(), std::numeric_limits<T>::quiet_NaN());
    } else {
      std::memset(static_cast<void*>(data_), 0xa5, size_ * sizeof(T));
    }
  }

  size_t size() const { return size_; }
  T* data() { return data_; }
  const T* data() const { return data_; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  std::vector<T> Copy() const { return std::vector<T>(begin(), end()); }

 private:
  size_t size_;
  size_t mapped_;
  uint8_t* base_;
  T* data_;
};

// A seeded source of test values.
class Random {
 public:
  explicit Random(uint32_t seed) : bits_(seed) {}

  uint32_t Below(uint32_t n) { return static_cast<uint32_t>(bits_() % n); }
  float Uniform(float low, float high) {
    return low + (high - low) * static_cast<float>(bits_() >> 8) * 0x1p-24f;
  }
  // In [-1, 1).
  float Signed() { return Uniform(-1, 1); }

  GuardedArray<float> Array(size_t size, float scale = 1) {
    GuardedArray<float> values(size);
    for (float& value : values) value = scale * Signed();
    return values;
  }

 private:
  std::mt19937 bits_;
};

// An expected value and the sum of the magnitudes of the terms that make it:
// rounding errors scale with the latter.
struct Expected {
  double value = 0;
  double magnitude = 0;

  void Add(double term) {
    value += term;
    magnitude += std::fabs(term);
  }
};

// Every |actual - expected| <= bound * magnitude; NaN never is.
inline testing::AssertionResult AllClose(const std::vector<Expected>& expected,
                                         const float* actual, double bound) {
  for (size_t i = 0; i < expected.size(); ++i) {
    const double error = std::fabs(actual[i] - expected[i].value);
    if (!(error <= bound * expected[i].magnitude)) {
      return testing::AssertionFailure()
             << "[" << i << "] is " << actual[i] << ", expected "
             << expected[i].value << ", error " << error << ", allowed "
             << bound * expected[i].magnitude;
    }
  }
  return testing::AssertionSuccess();
}

// Rounded to bf16, and back.
inline GuardedArray<uint16_t> ToBf16(const GuardedArray<float>& values) {
  GuardedArray<uint16_t> bits(values.size());
  std::transform(values.begin(), values.end(), bits.begin(), F32ToBF16);
  return bits;
}
inline GuardedArray<float> Widened(const GuardedArray<uint16_t>& bits) {
  GuardedArray<float> values(bits.size());
  std::transform(bits.begin(), bits.end(), values.begin(), BF16ToF32);
  return values;
}

template <typename A, typename B>
testing::AssertionResult SameBits(const A& expected, const B& actual) {
  for (size_t i = 0; i < expected.size(); ++i) {
    if (std::memcmp(&expected[i], &actual[i], sizeof(expected[i])) != 0) {
      return testing::AssertionFailure() << "[" << i << "] is " << +actual[i]
                                         << ", expected " << +expected[i];
    }
  }
  return testing::AssertionSuccess();
}

// x as bf16 values; NaN, which gaps are filled with, stays the same NaN.
inline std::vector<float> RoundedToBf16(const GuardedArray<float>& x) {
  std::vector<float> rounded = x.Copy();
  for (float& value : rounded) {
    if (!std::isnan(value)) value = RoundToBF16(value);
  }
  return rounded;
}

// One pool a thread count for the whole test program, 1 <= threads <= 3.
inline ThreadPool& Pool(size_t threads) {
  static ThreadPool pools[] = {ThreadPool(1), ThreadPool(2), ThreadPool(3)};
  return pools[threads - 1];
}

// Lengths around the vector widths in use (4, 8, 16 lanes): N - 1, N, N + 1,
// 2N + 3, odd ones, and long ones.
inline constexpr size_t kDims[] = {1,  3,  4,  5,  7,  8,  9,   11,  15,
                                   16, 17, 19, 31, 32, 33, 127, 4096};

// A backend under test; "cpu" once for each vector target it can run on here,
// "cuda" where it was built (without a device its tests are skipped).
struct Backend {
  std::string name;  // "ref", "cpu_AVX2", "cuda", ...
  const Ops& (*ops)();
  int64_t cpu_target;  // 0 for others

  friend void PrintTo(const Backend& backend, std::ostream* out) {
    *out << backend.name;
  }
};

inline std::vector<Backend> Backends() {
  std::vector<Backend> backends = {{"ref", RefOps, 0}};
  for (const int64_t target : CpuTargetsForTest()) {
    backends.push_back(
        {std::string("cpu_") + CpuTargetNameForTest(target), CpuOps, target});
  }
#ifdef ECPHORY_CUDA
  backends.push_back({"cuda", CudaOps, 0});
#endif
  return backends;
}

// Fixture of tests that run on every backend.
class OpTest : public testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    SetCpuTargetForTest(GetParam().cpu_target);
#ifdef ECPHORY_CUDA
    if (!is_cuda()) return;
    const std::string& reason = CudaUnavailableForTest();
    if (!reason.empty()) GTEST_SKIP() << reason;
    EnterCudaForTest();
#endif
  }
  void TearDown() override {
    SetCpuTargetForTest(0);
#ifdef ECPHORY_CUDA
    if (is_cuda() && !IsSkipped()) {
      EXPECT_EQ("", CudaErrorForTest());
    }
#endif
  }

  const Ops& ops() const { return GetParam().ops(); }
  bool is_ref() const { return GetParam().name == "ref"; }
  bool is_cuda() const { return GetParam().name == "cuda"; }
  // Whether calls of up to kMaxFewTokens tokens and of more add up bf16 inputs
  // in two ways.
  bool orders_by_tokens() const {
    return is_cuda() || (!is_ref() && CpuOrdersByTokens());
  }

  // Allowed error of a sum of `terms` products relative to the sum of their
  // magnitudes. ref computes in double: one rounding of the result, and one of
  // an fp32 intermediate where there is any. Others accumulate in fp32:
  // rounding errors of random sign grow with sqrt(terms), and a dozen more
  // cover the scalar steps around the sum.
  double SumBound(size_t terms) const {
    constexpr double kUnit = 0x1p-24;
    if (is_ref()) return 2 * kUnit;
    return (12 + std::sqrt(static_cast<double>(terms))) * kUnit;
  }
};

#define ECPHORY_INSTANTIATE_OP_TEST(Suite)                       \
  INSTANTIATE_TEST_SUITE_P(                                      \
      Backends, Suite, testing::ValuesIn(::ecphory::Backends()), \
      [](const auto& backend) { return backend.param.name; })

}  // namespace ecphory
