#include "io/uring_ring.h"

#include <sys/resource.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <string>

#include "io/small_text.h"

namespace ecphory {

namespace {

// Linux 6.6: who may use io_uring. Empty where the kernel has no such switch.
std::string DisabledSwitch() {
  const auto text = ReadSmallText("/proc/sys/kernel/io_uring_disabled");
  return text.value_or("");
}

Status Denied() {
  const std::string disabled = DisabledSwitch();
  if (disabled == "1" || disabled == "2") {
    return Unsupported("io_uring is denied: kernel.io_uring_disabled is %s%s",
                       disabled.c_str(),
                       disabled == "1" ? " (for unprivileged users)" : "");
  }
  return Unsupported(
      "io_uring is denied (%s), as the system call filters of containers do",
      std::strerror(EPERM));
}

Status SetupError(int error) {
  rlimit limit{};
  switch (error) {
    case EPERM:
    case EACCES: return Denied();
    case ENOSYS:
      return Unsupported("this kernel has no io_uring, or a filter hides it");
    case ENOMEM:
      ::getrlimit(RLIMIT_MEMLOCK, &limit);
      return ResourceExhausted(
          "no memory for an io_uring (locked memory limit: %llu KiB)",
          static_cast<unsigned long long>(limit.rlim_cur / 1024));
    case EMFILE:
    case ENFILE:
      return ResourceExhausted(
          "no descriptor left for an io_uring (raise 'ulimit -n')");
    default: return ErrnoError(error, "cannot set up an io_uring");
  }
}

}  // namespace

UringRing::~UringRing() {
  if (open_) io_uring_queue_exit(&ring_);
}

Status UringRing::Open(uint32_t depth) {
  const uint32_t entries = std::bit_ceil(depth);
  // One bad submission must not hold up those behind it (Linux 5.18). No flag
  // of those that save interrupts: a completion is finished by the thread that
  // submitted the read, which may be computing while another one waits for it,
  // and any thread may submit.
  io_uring_params params{};
  params.flags = IORING_SETUP_SUBMIT_ALL;
  int error = io_uring_queue_init_params(entries, &ring_, &params);
  if (error == -EINVAL) {
    params = {};
    error = io_uring_queue_init_params(entries, &ring_, &params);
  }
  if (error < 0) return SetupError(-error);
  open_ = true;
  // Submissions are used in ring order: slot i always holds submission i.
  for (uint32_t i = 0; i < *ring_.sq.kring_entries; ++i) ring_.sq.array[i] = i;
  return CheckReadSupported();
}

Status UringRing::CheckReadSupported() {
  io_uring_probe* probe = io_uring_get_probe_ring(&ring_);
  const bool supported =
      probe != nullptr && io_uring_opcode_supported(probe, IORING_OP_READ);
  if (probe != nullptr) io_uring_free_probe(probe);
  if (supported) return Status::Ok();
  return Unsupported("this kernel's io_uring has no plain read (Linux 5.6)");
}

bool UringRing::RegisterFiles(std::span<const int> descriptors) {
  return io_uring_register_files(&ring_, descriptors.data(),
                                 static_cast<unsigned>(descriptors.size())) ==
         0;
}

bool UringRing::RegisterMemory(std::span<uint8_t> memory) {
  const iovec region{memory.data(), memory.size()};
  return io_uring_register_buffers(&ring_, &region, 1) == 0;
}

io_uring_sqe* UringRing::Next(uint32_t ahead) {
  const uint32_t place = *ring_.sq.ktail + ahead;
  return &ring_.sq.sqes[place & *ring_.sq.kring_mask];
}

void UringRing::Publish(uint32_t count) {
  io_uring_smp_store_release(ring_.sq.ktail, *ring_.sq.ktail + count);
}

void UringRing::Withdraw() {
  // The kernel moves the head only inside a submitting call of this thread.
  *ring_.sq.ktail = io_uring_smp_load_acquire(ring_.sq.khead);
}

}  // namespace ecphory
