// Several calls of an operator in one launch: their arguments are the kernel's,
// so that no memory has to be written before it starts or is read by it.
#pragma once

#include <algorithm>
#include <span>

#include "ops/calls.h"
#include "ops/cuda/stream.cuh"

namespace ecphory::cuda {

// Of one launch. A kernel's arguments are 4 KiB at most.
constexpr unsigned kMostCalls = 32;

// One call is a case of its own: its arguments are constants to the kernel.
template <typename Args, unsigned kMost>
struct KernelCalls {
  Args of[kMost];
  __device__ const Args& operator[](unsigned i) const {
    return of[kMost == 1 ? 0 : i];
  }
};

// launch(calls for the kernel, the same for the host).
template <typename Args, typename Launch>
void ForEachLaunch(const Calls<Args>& calls, const Launch& launch) {
  if (calls.size() == 1) {
    return launch(KernelCalls<Args, 1>{{calls[0]}},
                  std::span<const Args>(&calls[0], 1));
  }
  static_assert(kMostCalls * sizeof(Args) <= 4096 - 64);
  for (size_t first = 0; first < calls.size(); first += kMostCalls) {
    const std::span<const Args> some(
        &calls[first], std::min<size_t>(kMostCalls, calls.size() - first));
    KernelCalls<Args, kMostCalls> of_kernel{};
    std::copy(some.begin(), some.end(), of_kernel.of);
    launch(of_kernel, some);
  }
}

// The largest of a field.
template <typename Args>
size_t Most(std::span<const Args> calls, size_t Args::*field) {
  size_t most = 0;
  for (const Args& args : calls) most = std::max(most, args.*field);
  return most;
}

}  // namespace ecphory::cuda
