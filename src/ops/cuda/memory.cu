#include "ops/cuda/memory.cuh"

#include <map>
#include <mutex>

namespace ecphory::cuda {

namespace {

struct Ledger {
  std::mutex mutex;
  std::map<void*, size_t> blocks;
  std::map<int, uint64_t> taken;  // by ordinal
};

// Never destroyed: memory may be given back until the program ends.
Ledger& TheLedger() {
  static Ledger* const ledger = new Ledger;
  return *ledger;
}

}  // namespace

cudaError_t TakeMemory(int ordinal, size_t bytes, void** memory) {
  const cudaError_t error = cudaMalloc(memory, bytes);
  if (error != cudaSuccess) return error;
  Ledger& ledger = TheLedger();
  const std::lock_guard<std::mutex> lock(ledger.mutex);
  ledger.blocks[*memory] = bytes;
  ledger.taken[ordinal] += bytes;
  return cudaSuccess;
}

cudaError_t GiveBackMemory(int ordinal, void* memory) {
  {
    Ledger& ledger = TheLedger();
    const std::lock_guard<std::mutex> lock(ledger.mutex);
    const auto block = ledger.blocks.find(memory);
    if (block != ledger.blocks.end()) {
      ledger.taken[ordinal] -= block->second;
      ledger.blocks.erase(block);
    }
  }
  return cudaFree(memory);
}

uint64_t TakenMemory(int ordinal) {
  Ledger& ledger = TheLedger();
  const std::lock_guard<std::mutex> lock(ledger.mutex);
  return ledger.taken[ordinal];
}

}  // namespace ecphory::cuda
