// Which backends this build has. No other file asks.
#include <cstring>

#include "ops/device.h"
#include "ops/ops.h"
#ifdef ECPHORY_CUDA
#include "ops/cuda/cuda_device.h"
#endif

namespace ecphory {

namespace {

constexpr char kCuda[] = "cuda";

// N of "cuda:N", 0 of "cuda", -1 of anything else.
int CudaOrdinal(const std::string& name) {
  if (name == kCuda) return 0;
  const std::string prefix = std::string(kCuda) + ":";
  if (name.compare(0, prefix.size(), prefix) != 0) return -1;
  const std::string digits = name.substr(prefix.size());
  if (digits.empty() || digits.size() > 4 ||
      digits.find_first_not_of("0123456789") != std::string::npos) {
    return -1;
  }
  return std::stoi(digits);
}

#ifndef ECPHORY_CUDA
Result<std::shared_ptr<Device>> OpenCudaDevice(int) {
  return Unsupported(
      "CUDA: this build has no CUDA backend: build it where nvcc (12.0 or "
      "later) is found, or use the cpu");
}
#endif

}  // namespace

Result<const Ops*> FindOps(const char* name) {
  if (std::strcmp(name, "ref") == 0) return &RefOps();
  if (std::strcmp(name, "cpu") == 0) return &CpuOps();
  if (std::strcmp(name, "auto") == 0) return &CpuOps();
  return InvalidArgument(
      "backend \"%.32s\" does not exist: use auto, cpu or ref", name);
}

Result<std::shared_ptr<Device>> OpenDevice(const std::string& name) {
  const int ordinal = CudaOrdinal(name);
  if (ordinal >= 0) return OpenCudaDevice(ordinal);
  if (name.compare(0, sizeof(kCuda) - 1, kCuda) == 0) {
    return InvalidArgument("device \"%.32s\": expected cuda or cuda:N",
                           name.c_str());
  }
  const Result<const Ops*> ops = FindOps(name.c_str());
  if (ops.ok()) return MakeHostDevice(**ops);
  return InvalidArgument(
      "device \"%.32s\" does not exist: use auto, cpu, ref, cuda or cuda:N",
      name.c_str());
}

bool BuiltWithCuda() {
#ifdef ECPHORY_CUDA
  return true;
#else
  return false;
#endif
}

}  // namespace ecphory
