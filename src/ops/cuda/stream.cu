#include "ops/cuda/stream.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "base/check.h"
#include "base/size_text.h"
#include "ops/cuda/memory.cuh"
#include "ops/cuda/shared_limit.cuh"
#include "ops/cuda/stream.cuh"

namespace ecphory::cuda {

namespace {

// The oldest device that this build has code for.
constexpr int kMinMajor = 8;

thread_local Stream* current = nullptr;

// Compiled as all kernels are: its attributes say what for.
constexpr int kWgmmaThreads = 512;
__global__ void
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
__launch_bounds__(kWgmmaThreads)
#endif
    ProbeKernel() {
}

Status DeviceError(cudaError_t error, const std::string& what) {
  const StatusCode code = error == cudaErrorMemoryAllocation
                              ? StatusCode::kResourceExhausted
                              : StatusCode::kDeviceError;
  return {code, "CUDA: " + what + ": " + cudaGetErrorString(error)};
}

std::string Name(int ordinal) { return "device " + std::to_string(ordinal); }

}  // namespace

Result<int> CountDevices() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count > 0) return count;
  (void)cudaGetLastError();
  if (error == cudaErrorInsufficientDriver) {
    int driver = 0;
    (void)cudaDriverGetVersion(&driver);
    if (driver != 0) {
      return Unsupported(
          "CUDA: the driver supports CUDA %d.%d, expected %d.%d or later: "
          "install a newer NVIDIA driver",
          driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000,
          CUDART_VERSION % 1000 / 10);
    }
  }
  if (error == cudaSuccess || error == cudaErrorNoDevice ||
      error == cudaErrorInsufficientDriver) {
    return Unsupported(
        "CUDA: no NVIDIA GPU is visible: look at nvidia-smi and "
        "CUDA_VISIBLE_DEVICES, or use the cpu backend");
  }
  return DeviceError(error, "looking for devices");
}

Result<DeviceFacts> DescribeDevice(int ordinal) {
  ECPHORY_ASSIGN_OR_RETURN(const int count, CountDevices());
  if (ordinal < 0 || ordinal >= count) {
    return InvalidArgument("CUDA: device %d does not exist, expected 0..%d",
                           ordinal, count - 1);
  }
  cudaDeviceProp properties;
  cudaError_t error = cudaGetDeviceProperties(&properties, ordinal);
  if (error != cudaSuccess) return DeviceError(error, Name(ordinal));
  DeviceFacts facts{.ordinal = ordinal,
                    .name = properties.name,
                    .major = properties.major,
                    .minor = properties.minor,
                    .multiprocessors = properties.multiProcessorCount,
                    .memory_bytes = properties.totalGlobalMem,
                    .l2_bytes = static_cast<uint64_t>(properties.l2CacheSize)};
  if (facts.major < kMinMajor) {
    return Unsupported(
        "CUDA: device %d (%s) has compute capability %d.%d, expected %d.0 or "
        "later",
        ordinal, facts.name.c_str(), facts.major, facts.minor, kMinMajor);
  }
  size_t free_bytes = 0, total = 0;
  error = cudaSetDevice(ordinal);
  if (error == cudaSuccess) error = cudaMemGetInfo(&free_bytes, &total);
  if (error != cudaSuccess) return DeviceError(error, Name(ordinal));
  facts.free_bytes = free_bytes;
  cudaFuncAttributes attributes;
  error = cudaFuncGetAttributes(&attributes, ProbeKernel);
  if (error != cudaSuccess) {
    (void)cudaGetLastError();
    return Unsupported(
        "cuda:%d (%s): this build has no code for compute capability %d.%d "
        "(%s): build it with CMAKE_CUDA_ARCHITECTURES=%d%d",
        ordinal, facts.name.c_str(), facts.major, facts.minor,
        cudaGetErrorString(error), facts.major, facts.minor);
  }
  facts.code_version = attributes.ptxVersion;
  facts.wgmma_code = attributes.maxThreadsPerBlock == kWgmmaThreads;
  return facts;
}

Stream::Stream() : handles_(std::make_unique<Handles>()) {}

Result<std::unique_ptr<Stream>> Stream::Create(int ordinal) {
  std::unique_ptr<Stream> stream(new Stream());
  ECPHORY_ASSIGN_OR_RETURN(stream->device_, DescribeDevice(ordinal));
  const cudaError_t error = cudaStreamCreateWithFlags(&stream->handles_->stream,
                                                      cudaStreamNonBlocking);
  if (error != cudaSuccess) return DeviceError(error, Name(ordinal));
  stream->handles_->multiprocessors = stream->device_.multiprocessors;
  stream->handles_->code_version = stream->device_.code_version;
  stream->handles_->wgmma_code = stream->device_.wgmma_code;
  return std::move(stream);
}

Stream::~Stream() {
  if (handles_->stream == nullptr) return;
  // A lost device refuses all of these; there is nothing left to be done then.
  (void)cudaSetDevice(device_.ordinal);
  (void)cudaStreamSynchronize(handles_->stream);
  for (auto& [purpose, buffer] : handles_->scratch) {
    (void)GiveBackMemory(device_.ordinal, buffer.data);
  }
  for (void* memory : handles_->retired) {
    (void)GiveBackMemory(device_.ordinal, memory);
  }
  (void)cudaStreamDestroy(handles_->stream);
}

Stream::Scope::Scope(Stream& stream) : outer_(std::exchange(current, &stream)) {
  Note(cudaSetDevice(stream.device().ordinal), "cudaSetDevice");
}

Stream::Scope::~Scope() { current = outer_; }

Status Stream::Synchronize() {
  const cudaError_t ran = cudaStreamSynchronize(handles_->stream);
  for (void* memory : std::exchange(handles_->retired, {})) {
    (void)GiveBackMemory(device_.ordinal, memory);
  }
  const cudaError_t noted = std::exchange(handles_->error, cudaSuccess);
  if (noted != cudaSuccess) {
    return DeviceError(noted, Name(device_.ordinal) + ", " + handles_->where);
  }
  if (ran != cudaSuccess) return DeviceError(ran, Name(device_.ordinal));
  return {};
}

Status SynchronizeThread() {
  ECPHORY_CHECK(current != nullptr);
  return current->Synchronize();
}

Stream::Handles& Current() {
  ECPHORY_CHECK(current != nullptr);
  return current->handles();
}

void Note(cudaError_t error, const char* where) {
  if (error == cudaSuccess) return;
  Stream::Handles& handles = Current();
  if (handles.error != cudaSuccess) return;
  handles.error = error;
  handles.where = where;
}

void AllowSharedMemory(const void* kernel, size_t bytes, const char* where) {
  static std::mutex mutex;
  static std::map<std::pair<int, const void*>, size_t> allowed;
  int device = 0;
  Note(cudaGetDevice(&device), where);
  const std::lock_guard lock(mutex);
  size_t& most = allowed[{device, kernel}];
  if (bytes <= most) return;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(bytes));
  if (error == cudaSuccess) most = bytes;
  Note(error, where);
}

Status Stream::ReserveScratch(const void* purpose, size_t bytes) {
  Handles::Buffer& buffer = handles_->scratch[purpose];
  if (buffer.bytes >= bytes) return {};
  if (buffer.data != nullptr) handles_->retired.push_back(buffer.data);
  buffer = {};
  ++handles_->scratch_changes;
  cudaError_t error = cudaSetDevice(device_.ordinal);
  if (error == cudaSuccess) {
    error = TakeMemory(device_.ordinal, bytes, &buffer.data);
  }
  if (error == cudaSuccess) {
    buffer.bytes = bytes;
    return {};
  }
  (void)cudaGetLastError();
  return DeviceError(
      error, Name(device_.ordinal) + ", " + SizeText(bytes) + " of scratch");
}

void* ScratchBytes(const void* purpose, size_t bytes) {
  Stream::Handles& handles = Current();
  if (handles.rehearsed != nullptr) {
    size_t& most = (*handles.rehearsed)[purpose];
    most = std::max(most, bytes);
    return reinterpret_cast<void*>(uintptr_t{1} << 40);  // not followed
  }
  Stream::Handles::Buffer& buffer = handles.scratch[purpose];
  if (buffer.bytes >= bytes) return buffer.data;
  // What grows with the context grows often: by a quarter then.
  if (buffer.data != nullptr) {
    bytes = std::max(bytes, buffer.bytes + buffer.bytes / 4);
    handles.retired.push_back(buffer.data);  // work under way may still use it
    ++handles.scratch_changes;
  }
  buffer = {};
  const cudaError_t error =
      TakeMemory(current->device().ordinal, bytes, &buffer.data);
  Note(error, "scratch");
  if (error == cudaSuccess) buffer.bytes = bytes;
  return buffer.data;
}

}  // namespace ecphory::cuda
