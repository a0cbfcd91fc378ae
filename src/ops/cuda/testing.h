// Test hooks: the operators on memory of the host, one after another.
#pragma once

#include <cstddef>
#include <string>

namespace ecphory {

// Empty when CudaOps() can run here, else why it cannot. From the first call
// on, every operator has finished when it returns.
const std::string& CudaUnavailableForTest();
// Enters a stream of device 0 for good, on the calling thread, and lets the
// device reach what that thread allocates and keeps on its stack. Only where
// it is available; once for each process.
void EnterCudaForTest();
// Lets the device reach mapped pages, until they are given back. Nothing where
// there is no device.
void ShareWithCudaForTest(void* pages, size_t bytes);
void UnshareWithCudaForTest(void* pages);
// What went wrong since the last call, or an empty string.
std::string CudaErrorForTest();

}  // namespace ecphory
