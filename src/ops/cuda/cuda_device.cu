#include "ops/cuda/cuda_device.h"

#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "base/size_text.h"
#include "ops/aside.h"
#include "ops/cuda/memory.cuh"
#include "ops/cuda/scratch_plan.h"
#include "ops/cuda/stream.cuh"
#include "ops/ops.h"

namespace ecphory {

namespace {

using cuda::Stream;

std::string NameOf(const cuda::DeviceFacts& facts) {
  return "cuda:" + std::to_string(facts.ordinal) + " (" + facts.name + ")";
}

// Kernels and copies with their arguments, as a graph.
class CudaRecording : public Recording {
 public:
  ~CudaRecording() override {
    if (exec != nullptr) (void)cudaGraphExecDestroy(exec);
  }
  cudaGraphExec_t exec = nullptr;
  uint64_t scratch_changes = 0;  // when it was begun
};

bool LaunchesBlock() {
  static const bool block = [] {
    const char* const value = std::getenv("CUDA_LAUNCH_BLOCKING");
    return value != nullptr && std::strcmp(value, "0") != 0;
  }();
  return block;
}

__device__ uint64_t NanosecondsNow() {
  uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

__device__ bool IsRaised(const HostFlag* flag) {
  uint32_t raised;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];"
               : "=r"(raised)
               : "l"(&flag->raised)
               : "memory");
  return raised != 0;
}

// A node that waits by itself (cuStreamWaitValue32) neither gives up nor knows
// how long it waited. A look at the host's memory takes about as long as the
// pause between two.
__global__ void AwaitKernel(HostFlag* flag) {
  constexpr unsigned kPauseNs = 200;
  if (IsRaised(flag)) return;
  const uint64_t begin = NanosecondsNow();
  uint64_t waited = 0;
  while (!IsRaised(flag)) {
    waited = NanosecondsNow() - begin;
    if (waited > HostFlag::kPatienceNs) {
      flag->given_up = 1;
      break;
    }
    __nanosleep(kPauseNs);
  }
  flag->waited_ns = NanosecondsNow() - begin;
}

// A few small pieces of pinned memory, each by a block: the first kernel of a
// step, where each copy would be a node of its own that takes 3 us.
struct SmallSends {
  static constexpr size_t kMost = 4, kMostBytes = 1024;
  uint8_t* to[kMost];
  const uint8_t* from[kMost];
  unsigned bytes[kMost];
};
__global__ void SendKernel(SmallSends sends) {
  uint8_t* const to = sends.to[blockIdx.x];
  const uint8_t* const from = sends.from[blockIdx.x];
  const unsigned bytes = sends.bytes[blockIdx.x];
  for (unsigned i = threadIdx.x; i < bytes; i += blockDim.x) {
    to[i] = *static_cast<const volatile uint8_t*>(from + i);
  }
}

class CudaQueue : public Queue, public AsideQueue {
 public:
  explicit CudaQueue(std::unique_ptr<Stream> stream)
      : stream_(std::move(stream)) {}
  ~CudaQueue() override {
    for (cudaEvent_t event : {marks_[0], marks_[1], forks_[0], forks_[1],
                              ahead_[0], ahead_[1], milestone_}) {
      if (event != nullptr) (void)cudaEventDestroy(event);
    }
  }

  void Send(void* to, const void* from, size_t bytes) override {
    if (bytes == 0) return;
    cuda::Note(
        cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, handle()),
        "copy to the device");
  }
  void SendAll(std::span<const Transfer> transfers) override {
    SmallSends sends{};
    unsigned count = 0;
    for (const Transfer& t : transfers) {
      if (t.bytes == 0) continue;
      if (t.bytes > SmallSends::kMostBytes || count == SmallSends::kMost) {
        Send(t.to, t.from, t.bytes);
        continue;
      }
      sends.to[count] = static_cast<uint8_t*>(t.to);
      sends.from[count] = static_cast<const uint8_t*>(t.from);
      sends.bytes[count++] = static_cast<unsigned>(t.bytes);
    }
    if (count == 0) return;
    // A byte each, or two: a look at the host's memory takes a microsecond.
    SendKernel<<<count, 512, 0, handle()>>>(sends);
    cuda::NoteLaunch("copies to the device");
  }
  // By the engine that copies, which the second stream keeps busy while kernels
  // run.
  void SendAhead(void* to, const void* from, size_t bytes) override {
    if (bytes == 0) return;
    if (recording_ || no_ahead_ || !NeedAside().ok()) {
      return Send(to, from, bytes);
    }
    const cudaStream_t aside = aside_->handles().stream;
    if (marked_ahead_) {
      cuda::Note(cudaStreamWaitEvent(aside, ahead_[0]), "copy ahead");
    }
    cuda::Note(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, aside),
               "copy ahead");
    cuda::Note(cudaEventRecord(ahead_[1], aside), "copy ahead");
    sent_ahead_ = true;
  }
  void MarkAhead() override {
    if (recording_) return;
    no_ahead_ = no_ahead_ || !NeedAside().ok();
    if (no_ahead_) return;
    cuda::Note(cudaEventRecord(ahead_[0], handle()), "copy ahead");
    marked_ahead_ = true;
  }
  void JoinAhead() override {
    if (!std::exchange(sent_ahead_, false)) return;
    cuda::Note(cudaStreamWaitEvent(handle(), ahead_[1]), "copy ahead");
  }
  void Fill(void* to, uint8_t byte, size_t bytes) override {
    if (bytes == 0) return;
    cuda::Note(cudaMemsetAsync(to, byte, bytes, handle()), "fill");
  }
  void Copy(void* to, const void* from, size_t bytes) override {
    if (bytes == 0) return;
    cuda::Note(
        cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, handle()),
        "copy");
  }
  void Fetch(void* to, const void* from, size_t bytes) override {
    if (bytes == 0) return;
    cuda::Note(
        cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, handle()),
        "copy from the device");
  }
  Status Receive(void* to, const void* from, size_t bytes) override {
    Fetch(to, from, bytes);
    Synchronize();
    return failure_;
  }
  Status Finish() override {
    Synchronize();
    return std::exchange(failure_, Status());
  }
  void SetMilestone() override {
    if (milestone_ == nullptr) {
      cuda::Note(cudaEventCreateWithFlags(&milestone_, cudaEventDisableTiming),
                 "event");
    }
    cuda::Note(cudaEventRecord(milestone_, handle()), "milestone");
  }
  Status FinishMilestone() override {
    cuda::Note(cudaEventSynchronize(milestone_), "work");
    Stream::Handles& handles = stream_->handles();
    const cudaError_t error = std::exchange(handles.error, cudaSuccess);
    if (error != cudaSuccess && failure_.ok()) {
      failure_ = GraphError(error, handles.where);
    }
    return std::exchange(failure_, Status());
  }

  // Where launches block, nobody could raise a flag behind one.
  bool records() const override { return !LaunchesBlock(); }
  // Relaxed: operators may take memory meanwhile.
  Status BeginRecording() override {
    ECPHORY_RETURN_IF_ERROR(NeedAside());
    begun_at_ = ScratchChanges();
    const cudaError_t error =
        cudaStreamBeginCapture(handle(), cudaStreamCaptureModeRelaxed);
    recording_ = error == cudaSuccess;
    return recording_ ? Status() : GraphError(error, "recording");
  }
  Status EndRecording(std::unique_ptr<Recording>* recording) override {
    cudaGraph_t graph = nullptr;
    recording_ = false;
    const cudaError_t error = cudaStreamEndCapture(handle(), &graph);
    if (error != cudaSuccess) return GraphError(error, "end of recording");
    if (*recording == nullptr) *recording = std::make_unique<CudaRecording>();
    auto& kept = static_cast<CudaRecording&>(**recording);
    kept.scratch_changes = begun_at_;
    const cudaError_t made = Make(graph, &kept.exec);
    (void)cudaGraphDestroy(graph);
    if (made != cudaSuccess) return GraphError(made, "graph");
    // Now, beside the step under way, rather than when it is launched.
    const cudaError_t uploaded =
        cudaGraphUpload(kept.exec, aside_->handles().stream);
    return uploaded == cudaSuccess ? Status() : GraphError(uploaded, "graph");
  }
  bool Replay(Recording& recording) override {
    const auto& kept = static_cast<const CudaRecording&>(recording);
    if (kept.scratch_changes != ScratchChanges()) return false;
    cuda::Note(cudaGraphLaunch(kept.exec, handle()), "replay");
    return true;
  }
  void Await(HostFlag* flag) override {
    AwaitKernel<<<1, 1, 0, handle()>>>(flag);
    cuda::NoteLaunch("await");
  }
  // A second stream, which joins the recording at the first event and leaves it
  // at the second.
  void BeginAside() override {
    if (!recording_) return;
    const cudaStream_t aside = aside_->handles().stream;
    cuda::Note(cudaEventRecord(forks_[0], handle()), "aside");
    cuda::Note(cudaStreamWaitEvent(aside, forks_[0]), "aside");
    aside_scope_.emplace(*aside_);
  }
  void EndAside() override {
    if (!recording_) return;
    aside_scope_.reset();
    cuda::Stream::Handles& handles = aside_->handles();
    cuda::Note(std::exchange(handles.error, cudaSuccess), handles.where);
    cuda::Note(cudaEventRecord(forks_[1], handles.stream), "aside");
  }
  void JoinAside() override {
    if (!recording_) return;
    cuda::Note(cudaStreamWaitEvent(handle(), forks_[1]), "aside");
  }

  Status Reserve(const ScratchShape& shape) override {
    ECPHORY_ASSIGN_OR_RETURN(const auto kept,
                             cuda::RehearseScratch(shape, *stream_));
    for (const auto& [purpose, bytes] : kept) {
      ECPHORY_RETURN_IF_ERROR(stream_->ReserveScratch(purpose, bytes));
    }
    return {};
  }
  void Mark() override {
    std::swap(marks_[0], marks_[1]);
    if (marks_[1] == nullptr) {
      cuda::Note(cudaEventCreate(&marks_[1]), "event");
    }
    cuda::Note(cudaEventRecord(marks_[1], handle()), "event");
  }
  double SecondsBetweenMarks() override {
    float milliseconds = 0;
    cuda::Note(cudaEventSynchronize(marks_[1]), "event");
    cuda::Note(cudaEventElapsedTime(&milliseconds, marks_[0], marks_[1]),
               "event");
    return milliseconds / 1e3;
  }
  uint64_t scratch_bytes() const override {
    uint64_t bytes = 0;
    for (Stream* stream : {stream_.get(), aside_.get()}) {
      if (stream == nullptr) continue;
      for (const auto& [purpose, buffer] : stream->handles().scratch) {
        bytes += buffer.bytes;
      }
    }
    return bytes;
  }

 protected:
  void Enter() override { scope_.emplace(*stream_); }
  void Leave() override { scope_.reset(); }

 private:
  // An earlier graph takes the new arguments where both have the same kernels.
  static cudaError_t Make(cudaGraph_t graph, cudaGraphExec_t* exec) {
    if (*exec != nullptr) {
      cudaGraphExecUpdateResultInfo info;
      if (cudaGraphExecUpdate(*exec, graph, &info) == cudaSuccess) {
        return cudaSuccess;
      }
      (void)cudaGetLastError();
      (void)cudaGraphExecDestroy(std::exchange(*exec, nullptr));
    }
    return cudaGraphInstantiate(exec, graph, 0);
  }
  static Status GraphError(cudaError_t error, const char* what) {
    (void)cudaGetLastError();
    return {StatusCode::kDeviceError,
            std::string("CUDA: ") + what + ": " + cudaGetErrorString(error)};
  }

  cudaStream_t handle() const { return stream_->handles().stream; }
  void Synchronize() {
    const Status status = stream_->Synchronize();
    if (failure_.ok()) failure_ = status;
    if (aside_ == nullptr) return;
    const Status aside = aside_->Synchronize();
    if (failure_.ok()) failure_ = aside;
  }

  // Made when it is first needed.
  Status NeedAside() {
    if (aside_ != nullptr) return {};
    ECPHORY_ASSIGN_OR_RETURN(std::unique_ptr<Stream> aside,
                             Stream::Create(stream_->device().ordinal));
    for (cudaEvent_t* const event :
         {&forks_[0], &forks_[1], &ahead_[0], &ahead_[1]}) {
      if (*event != nullptr) continue;
      const cudaError_t error =
          cudaEventCreateWithFlags(event, cudaEventDisableTiming);
      if (error != cudaSuccess) return GraphError(error, "event");
    }
    aside_ = std::move(aside);
    return {};
  }
  uint64_t ScratchChanges() const {
    return stream_->handles().scratch_changes +
           (aside_ != nullptr ? aside_->handles().scratch_changes : 0);
  }

  std::unique_ptr<Stream> stream_;
  std::optional<Stream::Scope> scope_;
  Status failure_;         // the first one since Finish()
  uint64_t begun_at_ = 0;  // scratch_changes at BeginRecording()
  cudaEvent_t marks_[2] = {};
  bool recording_ = false;
  std::unique_ptr<Stream> aside_;  // null before it is first needed
  std::optional<Stream::Scope> aside_scope_;
  cudaEvent_t forks_[2] = {};
  cudaEvent_t ahead_[2] = {};  // of MarkAhead(), of the last copy
  cudaEvent_t milestone_ = nullptr;
  bool marked_ahead_ = false;
  bool no_ahead_ = false;    // there is no second stream to be had
  bool sent_ahead_ = false;  // since JoinAhead()
};

class CudaDevice : public Device {
 public:
  explicit CudaDevice(const cuda::DeviceFacts& facts)
      : ordinal_(facts.ordinal),
        name_(NameOf(facts)),
        in_use_at_first_(facts.memory_bytes - facts.free_bytes) {}

  const std::string& name() const override { return name_; }
  const Ops& ops() const override { return CudaOps(); }
  bool is_host() const override { return false; }
  bool takes_int8() const override { return false; }

  Result<void*> Allocate(size_t bytes, MemoryKind kind) override {
    void* memory = nullptr;
    if (bytes == 0) return memory;
    cudaError_t error = cudaSetDevice(ordinal_);
    if (error == cudaSuccess) {
      error = kind == MemoryKind::kDevice
                  ? cuda::TakeMemory(ordinal_, bytes, &memory)
                  : cudaHostAlloc(&memory, bytes, cudaHostAllocDefault);
    }
    if (error != cudaSuccess) return NoMemory(error, bytes, kind);
    if (kind == MemoryKind::kShared) {
      std::memset(memory, 0, bytes);
      return memory;
    }
    error = cudaMemset(memory, 0, bytes);
    if (error == cudaSuccess) error = cudaStreamSynchronize(nullptr);
    if (error == cudaSuccess) return memory;
    Free(memory, kind);
    return Error(error, "clearing memory");
  }

  // A lost device refuses; there is nothing left to be done then.
  void Free(void* memory, MemoryKind kind) override {
    (void)cudaSetDevice(ordinal_);
    if (kind == MemoryKind::kDevice) {
      (void)cuda::GiveBackMemory(ordinal_, memory);
    } else {
      (void)cudaFreeHost(memory);
    }
    (void)cudaGetLastError();
  }

  Status Upload(void* to, const void* from, size_t bytes) override {
    return Copy(to, from, bytes, cudaMemcpyHostToDevice);
  }
  Status Download(void* to, const void* from, size_t bytes) override {
    return Copy(to, from, bytes, cudaMemcpyDeviceToHost);
  }

  Result<std::unique_ptr<Queue>> NewQueue() override {
    ECPHORY_ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream,
                             Stream::Create(ordinal_));
    return std::unique_ptr<Queue>(
        std::make_unique<CudaQueue>(std::move(stream)));
  }

  Result<DeviceMemory> memory() const override {
    size_t free = 0, total = 0;
    cudaError_t error = cudaSetDevice(ordinal_);
    if (error == cudaSuccess) error = cudaMemGetInfo(&free, &total);
    if (error != cudaSuccess) return Error(error, "looking at its memory");
    return DeviceMemory{.total = total,
                        .free = free,
                        .in_use_at_first = in_use_at_first_,
                        .taken = cuda::TakenMemory(ordinal_)};
  }
  Result<uint64_t> ScratchBytes(const ScratchShape& shape) const override {
    ECPHORY_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream,
                             Stream::Create(ordinal_));
    ECPHORY_ASSIGN_OR_RETURN(const auto kept,
                             cuda::RehearseScratch(shape, *stream));
    uint64_t sum = 0;
    for (const auto& [purpose, bytes] : kept) sum += bytes;
    return sum;
  }

 private:
  // Copies from pageable memory may return before the last bytes have arrived.
  Status Copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    if (bytes == 0) return {};
    cudaError_t error = cudaSetDevice(ordinal_);
    if (error == cudaSuccess) error = cudaMemcpy(to, from, bytes, kind);
    if (error == cudaSuccess) error = cudaStreamSynchronize(nullptr);
    return error == cudaSuccess ? Status() : Error(error, "copying");
  }

  Status Error(cudaError_t error, const char* what) const {
    (void)cudaGetLastError();  // or the next launch would find it
    return {StatusCode::kDeviceError,
            name_ + ": " + what + ": " + cudaGetErrorString(error)};
  }

  Status NoMemory(cudaError_t error, size_t bytes, MemoryKind kind) const {
    if (error != cudaErrorMemoryAllocation) return Error(error, "memory");
    (void)cudaGetLastError();
    if (kind == MemoryKind::kShared) {
      return ResourceExhausted(
          "%s: %s of host memory that it shares are not to be had",
          name_.c_str(), SizeText(bytes).c_str());
    }
    size_t free = 0, total = 0;
    (void)cudaMemGetInfo(&free, &total);
    return ResourceExhausted("%s: %s wanted, %s are free", name_.c_str(),
                             SizeText(bytes).c_str(), SizeText(free).c_str());
  }

  const int ordinal_;
  const std::string name_;
  const uint64_t in_use_at_first_;
};

}  // namespace

Result<std::shared_ptr<Device>> OpenCudaDevice(int ordinal) {
  ECPHORY_ASSIGN_OR_RETURN(const cuda::DeviceFacts facts,
                           cuda::DescribeDevice(ordinal));
  return std::shared_ptr<Device>(std::make_shared<CudaDevice>(facts));
}

}  // namespace ecphory
