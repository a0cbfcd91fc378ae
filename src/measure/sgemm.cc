#include "measure/sgemm.h"

#include <dlfcn.h>

#include <cstdint>
#include <utility>

namespace ecphory::measure {

namespace {

constexpr const char* kLibraries[] = {"libopenblas.so.0", "libopenblas.so",
                                      "libdnnl.so.3", "libdnnl.so.2"};

// Of the CBLAS interface.
constexpr int kRowMajor = 101, kNoTrans = 111, kTrans = 112;

// `Int` is the library's integer.
template <typename Int>
using CblasSgemm = void (*)(int order, int trans_a, int trans_b, Int m, Int n,
                            Int k, float alpha, const float* a, Int lda,
                            const float* b, Int ldb, float beta, float* c,
                            Int ldc);

template <typename Int>
class Cblas : public Sgemm {
 public:
  Cblas(std::string name, CblasSgemm<Int> sgemm)
      : Sgemm(std::move(name)), sgemm_(sgemm) {}
  void Run(const float* x, const float* w, float* y, size_t m, size_t n,
           size_t k) const override {
    const Int rows = static_cast<Int>(m), columns = static_cast<Int>(n);
    const Int inner = static_cast<Int>(k);
    sgemm_(kRowMajor, kNoTrans, kTrans, rows, columns, inner, 1, x, inner, w,
           inner, 0, y, columns);
  }

 private:
  CblasSgemm<Int> sgemm_;
};

// oneDNN, row-major. Returns a status, 0 for success.
using DnnlSgemm = int (*)(char trans_a, char trans_b, int64_t m, int64_t n,
                          int64_t k, float alpha, const float* a, int64_t lda,
                          const float* b, int64_t ldb, float beta, float* c,
                          int64_t ldc);

class Dnnl : public Sgemm {
 public:
  Dnnl(std::string name, DnnlSgemm sgemm)
      : Sgemm(std::move(name)), sgemm_(sgemm) {}
  void Run(const float* x, const float* w, float* y, size_t m, size_t n,
           size_t k) const override {
    const auto rows = static_cast<int64_t>(m);
    const auto columns = static_cast<int64_t>(n);
    const auto inner = static_cast<int64_t>(k);
    sgemm_('N', 'T', rows, columns, inner, 1, x, inner, w, inner, 0, y,
           columns);
  }

 private:
  DnnlSgemm sgemm_;
};

template <typename Function>
Function Find(void* library, const std::string& symbol) {
  return reinterpret_cast<Function>(::dlsym(library, symbol.c_str()));
}

// Each library starts as many threads as there are processors unless told.
void SetThreads(void* library, size_t threads) {
  for (const char* name :
       {"openblas_set_num_threads", "scipy_openblas_set_num_threads",
        "openblas_set_num_threads64_", "scipy_openblas_set_num_threads64_",
        "omp_set_num_threads"}) {
    const auto set = Find<void (*)(int)>(library, name);
    if (set != nullptr) set(static_cast<int>(threads));
  }
}

// Wheels of Python packages put prefixes before the names, and suffixes behind
// those with 64-bit integers.
std::unique_ptr<Sgemm> Bind(void* library, const std::string& path) {
  for (const char* prefix : {"", "scipy_"}) {
    const std::string symbol = std::string(prefix) + "cblas_sgemm";
    const std::string name = path + ", " + symbol;
    if (const auto narrow = Find<CblasSgemm<int>>(library, symbol)) {
      return std::make_unique<Cblas<int>>(name, narrow);
    }
    if (const auto wide = Find<CblasSgemm<int64_t>>(library, symbol + "64_")) {
      return std::make_unique<Cblas<int64_t>>(name + "64_", wide);
    }
  }
  if (const auto dnnl = Find<DnnlSgemm>(library, "dnnl_sgemm")) {
    return std::make_unique<Dnnl>(path + ", dnnl_sgemm", dnnl);
  }
  return nullptr;
}

}  // namespace

Result<std::unique_ptr<Sgemm>> Sgemm::Load(const std::string& path,
                                           size_t threads) {
  std::string tried;
  for (const char* usual : kLibraries) {
    const std::string name = path.empty() ? usual : path;
    // Kept open to the end: such libraries have threads of their own.
    void* const library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) {
      auto sgemm = Bind(library, name);
      if (sgemm == nullptr) {
        return Unsupported("%s: no cblas_sgemm and no dnnl_sgemm in it",
                           name.c_str());
      }
      SetThreads(library, threads);
      return sgemm;
    }
    if (!path.empty()) {
      const char* const error = ::dlerror();  // begins with the name
      return NotFound("%s", error != nullptr ? error : name.c_str());
    }
    tried += (tried.empty() ? "" : ", ") + name;
  }
  return NotFound("none of %s is installed; --sgemm FILE names another",
                  tried.c_str());
}

}  // namespace ecphory::measure
