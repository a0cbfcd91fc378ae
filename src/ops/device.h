// Where a backend computes: its memory, and the order of its work.
//
// A host device works on the process's own memory, and its operators have
// finished when they return. Another device (an NVIDIA GPU) has memory that the
// host reaches by copying, and finishes what it was given later, in order. Code
// above the operators is written for the latter; on a host device the copies
// and the waiting are nothing.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "ecphory/status.h"

namespace ecphory {

struct Ops;
struct ScratchShape;

// Bytes of a device's memory, whoever uses it.
struct DeviceMemory {
  uint64_t total = 0;
  uint64_t free = 0;
  uint64_t in_use_at_first = 0;  // when the device was opened
  uint64_t taken = 0;            // by this program, as it was asked for
};

enum class MemoryKind : uint8_t {
  kDevice,  // where operators are fast; the host copies
  kShared,  // memory of the host that operators reach as well, by the same
            // pointer: for what passes between them
};

// By which the host tells work that stands in a queue that what it reads has
// been written: in kShared memory, zero at first.
struct HostFlag {
  // How long work waits for one before it goes on all the same: a GPU that
  // also drives a display stops kernels after a few seconds.
  static constexpr uint64_t kPatienceNs = 1'000'000'000;

  uint32_t raised = 0;     // by the host
  uint32_t given_up = 0;   // 1: the work went on without
  uint64_t waited_ns = 0;  // that the work stood still

  // For the next wait, while no work waits for it.
  void Lower() { *this = {}; }
  // What the calling thread has written so far is seen by work behind the wait.
  // Any thread.
  void Raise() {
    std::atomic_ref<uint32_t>(raised).store(1, std::memory_order_release);
  }
};

// A stretch of work that a queue has recorded.
class Recording {
 public:
  virtual ~Recording() = default;
};

// One order of work. Not thread-safe: one thread at a time, which has entered
// it (Scope) for as long as it calls operators.
class Queue {
 public:
  virtual ~Queue() = default;

  // The calling thread's operators belong to the queue while a scope lives.
  class Scope {
   public:
    explicit Scope(Queue& queue);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Queue& queue_;
    Queue* const outer_;
  };
  // The one that this thread has entered; null outside of all scopes.
  static Queue* Current();

  // In order with the operators. `from` is kShared memory and stays as it is
  // until Finish(). A failure is remembered for Finish().
  virtual void Send(void* to, const void* from, size_t bytes) = 0;
  // Several at once, of any order among each other.
  struct Transfer {
    void* to;
    const void* from;
    size_t bytes;
  };
  virtual void SendAll(std::span<const Transfer> transfers) {
    for (const Transfer& t : transfers) Send(t.to, t.from, t.bytes);
  }
  // The same beside the work that has come since MarkAhead(), which does not
  // use `to`, and beside what comes next, until JoinAhead(): what comes then
  // waits for all that was sent so. A queue that cannot does it in order.
  virtual void SendAhead(void* to, const void* from, size_t bytes) {
    Send(to, from, bytes);
  }
  virtual void MarkAhead() {}
  virtual void JoinAhead() {}
  // Sets kDevice memory, likewise.
  virtual void Fill(void* to, uint8_t byte, size_t bytes) = 0;
  // From kDevice memory to other such, likewise.
  virtual void Copy(void* to, const void* from, size_t bytes) = 0;
  // In order; `to` is kShared memory, which has the values after Finish().
  virtual void Fetch(void* to, const void* from, size_t bytes) = 0;
  // Waits for all work so far and copies.
  virtual Status Receive(void* to, const void* from, size_t bytes) = 0;
  // Waits for all work so far. The first failure since the last call.
  virtual Status Finish() = 0;
  // In order: a place, the last one, that FinishMilestone() waits for as
  // Finish() does, but not for the work behind it, which may wait for a flag.
  virtual void SetMilestone() {}
  virtual Status FinishMilestone() { return Finish(); }

  // Whether it can record: work from BeginRecording() on is not done but kept,
  // with its arguments, until EndRecording(). Nothing may wait meanwhile.
  // EndRecording takes a recording of like work, or null, and makes it this
  // one, which is cheaper than a new one. kUnsupported otherwise.
  virtual bool records() const = 0;
  virtual Status BeginRecording() = 0;
  virtual Status EndRecording(std::unique_ptr<Recording>* recording) = 0;
  // In order, what was recorded. False, and nothing is done, when memory that
  // operators keep has moved since: then it must be recorded anew.
  virtual bool Replay(Recording& recording) = 0;

  // In order: what comes after it waits until the host has raised the flag, or
  // goes on without after HostFlag::kPatienceNs; given_up and waited_ns are
  // there after Finish(). Between the call (or a Replay()) and Raise() nothing
  // of the device may be called that waits, Finish() above all. On a host
  // device the flag has been raised.
  virtual void Await(HostFlag* flag) = 0;

  // Notes the moment at which all work so far is done, and the seconds between
  // the last two moments noted (which waits for the second).
  virtual void Mark() = 0;
  virtual double SecondsBetweenMarks() = 0;
  // Memory that the operators keep for their own use.
  virtual uint64_t scratch_bytes() const = 0;
  // Takes now what they will want for such passes, where a device's memory is
  // theirs alone to take; no work may be under way. kResourceExhausted.
  virtual Status Reserve(const ScratchShape& shape) = 0;

 protected:
  virtual void Enter() = 0;
  virtual void Leave() = 0;
};

// Thread-safe. Outlives its memory and queues.
class Device {
 public:
  virtual ~Device() = default;

  virtual const std::string& name() const = 0;  // "cpu (AVX3_DL)", "cuda:0 ..."
  virtual const Ops& ops() const = 0;
  virtual bool is_host() const = 0;
  // Products that take their input rounded to int8 (MatmulInput::kInt8).
  virtual bool takes_int8() const = 0;

  // Zeroed, aligned for any type (256 bytes on a GPU). Null for 0 bytes.
  // kResourceExhausted names the bytes wanted and those that are free.
  virtual Result<void*> Allocate(size_t bytes, MemoryKind kind) = 0;
  virtual void Free(void* memory, MemoryKind kind) = 0;
  // Copies while no queue uses the memory; done when they return.
  virtual Status Upload(void* to, const void* from, size_t bytes) = 0;
  virtual Status Download(void* to, const void* from, size_t bytes) = 0;

  virtual Result<std::unique_ptr<Queue>> NewQueue() = 0;

  // kUnsupported on a host device (io/memory_facts.h has the system's).
  virtual Result<DeviceMemory> memory() const = 0;
  // What the operators of a queue keep for their own use, after such passes.
  virtual Result<uint64_t> ScratchBytes(const ScratchShape& shape) const = 0;
};

// A host device with these operators.
std::shared_ptr<Device> MakeHostDevice(const Ops& ops);
// One with CpuOps(), for the life of the process.
Device& HostDevice();

// By name: "auto" and "cpu" (the fast operators), "ref", "cuda" or "cuda:N". A
// name that is none, a device that is not there and one that this build has no
// code for are named in the error.
Result<std::shared_ptr<Device>> OpenDevice(const std::string& name);
bool BuiltWithCuda();

}  // namespace ecphory
