#include <chrono>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "ops/cpu/scratch_plan.h"
#include "ops/cpu_instructions.h"
#include "ops/device.h"
#include "ops/ops.h"

namespace ecphory {

namespace {

thread_local Queue* current_queue = nullptr;

// Operators have finished when they return.
class HostQueue : public Queue {
 public:
  void Send(void* to, const void* from, size_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  void Fill(void* to, uint8_t byte, size_t bytes) override {
    if (bytes > 0) std::memset(to, byte, bytes);
  }
  void Copy(void* to, const void* from, size_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  void Fetch(void* to, const void* from, size_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  Status Receive(void* to, const void* from, size_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return {};
  }
  Status Finish() override { return {}; }
  bool records() const override { return false; }
  Status BeginRecording() override { return NoRecording(); }
  Status EndRecording(std::unique_ptr<Recording>*) override {
    return NoRecording();
  }
  bool Replay(Recording&) override { return false; }
  void Await(HostFlag* flag) override { ECPHORY_CHECK(flag->raised == 1); }
  void Mark() override {
    before_ = last_;
    last_ = Clock::now();
  }
  double SecondsBetweenMarks() override {
    return std::chrono::duration<double>(last_ - before_).count();
  }
  // They keep it a thread, and the processor's plan counts it.
  uint64_t scratch_bytes() const override { return 0; }
  Status Reserve(const ScratchShape&) override { return {}; }

 protected:
  void Enter() override {}
  void Leave() override {}

 private:
  using Clock = std::chrono::steady_clock;
  static Status NoRecording() {
    return Unsupported("operators of the host are not recorded");
  }
  Clock::time_point before_, last_;
};

class ProcessMemory : public Device {
 public:
  explicit ProcessMemory(const Ops& ops) : ops_(ops), name_(ops.name) {
    if (&ops == &CpuOps()) {
      name_ += " (" + CpuInstructions() + ")";
    }
  }

  const std::string& name() const override { return name_; }
  const Ops& ops() const override { return ops_; }
  bool is_host() const override { return true; }
  bool takes_int8() const override { return true; }

  Result<void*> Allocate(size_t bytes, MemoryKind) override {
    if (bytes == 0) return static_cast<void*>(nullptr);
    void* const memory = std::calloc(bytes, 1);
    if (memory != nullptr) return memory;
    return ResourceExhausted("%zu bytes do not fit in memory", bytes);
  }
  void Free(void* memory, MemoryKind) override { std::free(memory); }
  Status Upload(void* to, const void* from, size_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return {};
  }
  Status Download(void* to, const void* from, size_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return {};
  }
  Result<std::unique_ptr<Queue>> NewQueue() override {
    return std::unique_ptr<Queue>(std::make_unique<HostQueue>());
  }

  Result<DeviceMemory> memory() const override {
    return Unsupported("%s: its memory is the system's", name_.c_str());
  }
  Result<uint64_t> ScratchBytes(const ScratchShape& shape) const override {
    return &ops_ == &CpuOps() ? CpuScratchBytes(shape) : 0;
  }

 private:
  const Ops& ops_;
  std::string name_;
};

}  // namespace

Queue::Scope::Scope(Queue& queue)
    : queue_(queue), outer_(std::exchange(current_queue, &queue)) {
  queue_.Enter();
}

Queue::Scope::~Scope() {
  queue_.Leave();
  current_queue = outer_;
}

Queue* Queue::Current() { return current_queue; }

std::shared_ptr<Device> MakeHostDevice(const Ops& ops) {
  return std::make_shared<ProcessMemory>(ops);
}

Device& HostDevice() {
  static ProcessMemory device(CpuOps());
  return device;
}

}  // namespace ecphory
