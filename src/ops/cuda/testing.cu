#include "ops/cuda/testing.h"

#include <cuda_runtime.h>
#include <malloc.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>

#include "base/check.h"
#include "ops/cuda/stream.h"

namespace ecphory {

namespace {

constexpr size_t kHeap = size_t{512} << 20;
constexpr size_t kStack = size_t{1} << 20;

std::string Probe() {
  // Read when CUDA starts: launches return when the kernel has ended.
  setenv("CUDA_LAUNCH_BLOCKING", "1", /*overwrite=*/1);
  const Result<cuda::DeviceFacts> facts = cuda::DescribeDevice(0);
  return facts.ok() ? "" : facts.status().message();
}

void Share(uintptr_t begin, uintptr_t end) {
  const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  begin = begin / page * page;
  end = (end + page - 1) / page * page;
  const cudaError_t error =
      cudaHostRegister(reinterpret_cast<void*>(begin), end - begin,
                       cudaHostRegisterMapped | cudaHostRegisterPortable);
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "cudaHostRegister: %s\n", cudaGetErrorString(error));
  std::abort();
}

// malloc takes everything from one heap, which is made large enough now.
void ShareHeap() {
  ECPHORY_CHECK(mallopt(M_MMAP_MAX, 0) == 1);
  ECPHORY_CHECK(mallopt(M_TRIM_THRESHOLD, INT32_MAX) == 1);
  ECPHORY_CHECK(mallopt(M_TOP_PAD, static_cast<int>(kHeap)) == 1);
  void* volatile top = std::malloc(kHeap / 2);  // volatile: or it is left out
  std::free(top);
  std::FILE* const maps = std::fopen("/proc/self/maps", "re");
  ECPHORY_CHECK(maps != nullptr);
  char line[512];
  unsigned long begin = 0;
  while (begin == 0 && std::fgets(line, sizeof(line), maps) != nullptr) {
    if (std::strstr(line, "[heap]") != nullptr)
      std::sscanf(line, "%lx", &begin);
  }
  std::fclose(maps);
  ECPHORY_CHECK(begin != 0);
  Share(begin, reinterpret_cast<uintptr_t>(sbrk(0)));
}

// The pages below the caller's frame, which the tests are going to use.
__attribute__((noinline)) void ShareStack() {
  volatile char frame[kStack];
  for (size_t i = 0; i < kStack; i += 1024) frame[i] = 0;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(&frame[0]);
  Share(begin, begin + kStack);
}

}  // namespace

const std::string& CudaUnavailableForTest() {
  static const std::string reason = Probe();
  return reason;
}

void EnterCudaForTest() {
  static const bool shared = [] {
    ShareHeap();
    ShareStack();
    return true;
  }();
  (void)shared;
  static const auto stream = cuda::Stream::Create(0).value();
  thread_local const cuda::Stream::Scope scope(*stream);
}

void ShareWithCudaForTest(void* pages, size_t bytes) {
  if (bytes == 0 || !CudaUnavailableForTest().empty()) return;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(pages);
  Share(begin, begin + bytes);
}

void UnshareWithCudaForTest(void* pages) {
  if (CudaUnavailableForTest().empty()) (void)cudaHostUnregister(pages);
}

std::string CudaErrorForTest() {
  const Status status = cuda::SynchronizeThread();
  return status.ok() ? "" : status.message();
}

}  // namespace ecphory
