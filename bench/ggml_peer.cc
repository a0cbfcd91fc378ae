#include "ggml_peer.h"

#include <dlfcn.h>

#include <cstring>

namespace ecphory {

namespace {

// As ggml's headers declare them; the two that grow with versions have room to
// spare behind the fields used here.
struct InitParams {
  size_t mem_size;
  void* mem_buffer;
  bool no_alloc;
};
struct Plan {
  size_t work_size;
  uint8_t* work_data;
  int n_threads;
  void* threadpool;
  char rest[256];
};
struct alignas(16) ThreadpoolParams {
  char bytes[4096];
};

constexpr int kGgmlF32 = 0;

Result<int> GgmlType(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32: return kGgmlF32;
    case WeightFormat::kF16: return 1;
    case WeightFormat::kBF16: return 30;
    case WeightFormat::kQ8_0: return 8;
    case WeightFormat::kMXFP4: return 39;
    case WeightFormat::kQ4_K: return 12;
    case WeightFormat::kQ2_K: return 10;
    case WeightFormat::kIQ2_XXS: return 16;
    default:
      return Unsupported("%s: not a format of GGUF", WeightFormatName(format));
  }
}

}  // namespace

struct GgmlProducts::Library {
  ~Library() {
    if (threadpool != nullptr) threadpool_free(threadpool);
    if (context != nullptr) free_context(context);
  }
  Status Load(const std::string& folder);
  template <typename Function>
  Status Find(void* handle, const char* name, Function** function) {
    *function = reinterpret_cast<Function*>(dlsym(handle, name));
    if (*function != nullptr) return {};
    return Unsupported("ggml: no symbol %s in these libraries", name);
  }

  void* (*init)(InitParams);
  void (*free_context)(void*);
  void* (*new_tensor_2d)(void*, int, int64_t, int64_t);
  void* (*mul_mat)(void*, void*, void*);
  void* (*new_graph)(void*, size_t, bool);
  void (*build_forward_expand)(void*, void*);
  void* (*get_data)(const void*);
  size_t (*quantize_chunk)(int, const float*, void*, int64_t, int64_t, int64_t,
                           const float*);
  void (*cpu_init)();
  void (*threadpool_params_init)(void*, int);
  void* (*threadpool_new)(void*);
  void (*threadpool_free)(void*);
  void (*threadpool_pause)(void*);
  void (*threadpool_resume)(void*);
  Plan (*graph_plan)(const void*, int, void*);
  int (*graph_compute)(void*, Plan*);

  void* context = nullptr;
  void* threadpool = nullptr;
  void* graph = nullptr;
  void* x = nullptr;
  std::vector<void*> weights;
  std::vector<void*> products;
  std::vector<uint8_t> work;
  Plan plan = {};
};

Status GgmlProducts::Library::Load(const std::string& folder) {
  void* handles[2];
  const char* const names[] = {"libggml-base.so", "libggml-cpu.so"};
  for (size_t i = 0; i < 2; ++i) {
    const std::string path = folder + "/" + names[i];
    handles[i] = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (handles[i] == nullptr) return NotFound("%s", dlerror());
  }
  const auto [base, cpu] = handles;
  ECPHORY_RETURN_IF_ERROR(Find(base, "ggml_init", &init));
  ECPHORY_RETURN_IF_ERROR(Find(base, "ggml_free", &free_context));
  ECPHORY_RETURN_IF_ERROR(Find(base, "ggml_new_tensor_2d", &new_tensor_2d));
  ECPHORY_RETURN_IF_ERROR(Find(base, "ggml_mul_mat", &mul_mat));
  ECPHORY_RETURN_IF_ERROR(Find(base, "ggml_new_graph_custom", &new_graph));
  ECPHORY_RETURN_IF_ERROR(
      Find(base, "ggml_build_forward_expand", &build_forward_expand));
  ECPHORY_RETURN_IF_ERROR(Find(base, "ggml_get_data", &get_data));
  ECPHORY_RETURN_IF_ERROR(Find(base, "ggml_quantize_chunk", &quantize_chunk));
  ECPHORY_RETURN_IF_ERROR(
      Find(base, "ggml_threadpool_params_init", &threadpool_params_init));
  ECPHORY_RETURN_IF_ERROR(Find(cpu, "ggml_cpu_init", &cpu_init));
  ECPHORY_RETURN_IF_ERROR(Find(cpu, "ggml_threadpool_new", &threadpool_new));
  ECPHORY_RETURN_IF_ERROR(Find(cpu, "ggml_threadpool_free", &threadpool_free));
  ECPHORY_RETURN_IF_ERROR(
      Find(cpu, "ggml_threadpool_pause", &threadpool_pause));
  ECPHORY_RETURN_IF_ERROR(
      Find(cpu, "ggml_threadpool_resume", &threadpool_resume));
  ECPHORY_RETURN_IF_ERROR(Find(cpu, "ggml_graph_plan", &graph_plan));
  return Find(cpu, "ggml_graph_compute", &graph_compute);
}

GgmlProducts::GgmlProducts(std::unique_ptr<Library> library, const Shape& shape)
    : library_(std::move(library)), shape_(shape) {}

GgmlProducts::~GgmlProducts() = default;

Result<std::unique_ptr<GgmlProducts>> GgmlProducts::Create(
    const std::string& folder, const Shape& shape, size_t threads) {
  auto library = std::make_unique<Library>();
  ECPHORY_RETURN_IF_ERROR(library->Load(folder));
  std::unique_ptr<GgmlProducts> products(
      new GgmlProducts(std::move(library), shape));
  ECPHORY_RETURN_IF_ERROR(products->Build(threads));
  return products;
}

Status GgmlProducts::Build(size_t threads) {
  Library& ggml = *library_;
  ECPHORY_ASSIGN_OR_RETURN(const int type, GgmlType(shape_.format));
  const auto rows = static_cast<int64_t>(shape_.rows);
  const auto cols = static_cast<int64_t>(shape_.cols);
  const auto tokens = static_cast<int64_t>(shape_.tokens);
  ggml.cpu_init();
  const size_t product_bytes = shape_.rows * shape_.tokens * sizeof(float);
  const size_t each = shape_.rows * matrix(0).row_bytes() + product_bytes;
  // A graph and the tensors' descriptions take a few kilobytes each.
  constexpr size_t kOverhead = 8192;
  const size_t bytes = shape_.matrices * (each + kOverhead) +
                       shape_.tokens * shape_.cols * sizeof(float) +
                       (size_t{16} << 20);
  ggml.context = ggml.init({bytes, nullptr, false});
  if (ggml.context == nullptr) return ResourceExhausted("ggml_init failed");
  ggml.graph = ggml.new_graph(ggml.context, 2 * shape_.matrices + 16, false);
  ggml.x = ggml.new_tensor_2d(ggml.context, kGgmlF32, cols, tokens);
  for (size_t i = 0; i < shape_.matrices; ++i) {
    ggml.weights.push_back(ggml.new_tensor_2d(ggml.context, type, cols, rows));
    ggml.products.push_back(
        ggml.mul_mat(ggml.context, ggml.weights.back(), ggml.x));
    ggml.build_forward_expand(ggml.graph, ggml.products.back());
  }
  ThreadpoolParams params = {};
  ggml.threadpool_params_init(&params, static_cast<int>(threads));
  ggml.threadpool = ggml.threadpool_new(&params);
  ggml.plan =
      ggml.graph_plan(ggml.graph, static_cast<int>(threads), ggml.threadpool);
  ggml.work.resize(ggml.plan.work_size + 64);
  ggml.plan.work_data = ggml.work.data();
  return {};
}

void GgmlProducts::Encode(const std::vector<float>& values) {
  Library& ggml = *library_;
  const int type = *GgmlType(shape_.format);
  const size_t n = values.size() / shape_.cols;
  const size_t row_bytes = matrix(0).row_bytes();
  std::vector<uint8_t> encoded(n * row_bytes);
  const std::vector<float> importance(shape_.cols, 1.0f);
  ggml.quantize_chunk(type, values.data(), encoded.data(), 0,
                      static_cast<int64_t>(n),
                      static_cast<int64_t>(shape_.cols), importance.data());
  for (void* tensor : ggml.weights) {
    auto* const data = static_cast<uint8_t*>(ggml.get_data(tensor));
    for (size_t r = 0; r < shape_.rows; ++r) {
      std::memcpy(data + r * row_bytes, &encoded[r % n * row_bytes], row_bytes);
    }
  }
}

Matrix GgmlProducts::matrix(size_t i) const {
  Matrix view{
      .format = shape_.format, .rows = shape_.rows, .cols = shape_.cols};
  if (i < library_->weights.size()) {
    view.data =
        static_cast<const uint8_t*>(library_->get_data(library_->weights[i]));
  }
  return view;
}

float* GgmlProducts::x() {
  return static_cast<float*>(library_->get_data(library_->x));
}

const float* GgmlProducts::y(size_t i) const {
  return static_cast<const float*>(library_->get_data(library_->products[i]));
}

void GgmlProducts::Pause() { library_->threadpool_pause(library_->threadpool); }

void GgmlProducts::Resume() {
  library_->threadpool_resume(library_->threadpool);
}

void GgmlProducts::Run() {
  library_->graph_compute(library_->graph, &library_->plan);
}

}  // namespace ecphory
