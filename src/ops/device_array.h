// Memory of a device with an owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "ops/device.h"

namespace ecphory {

// `size` values of T in a device's memory; zero at first. On a host device the
// pages come on first touch, so that an unused part costs no memory. Moves, and
// must not outlive the device.
template <typename T>
class DeviceArray {
 public:
  DeviceArray() = default;
  DeviceArray(DeviceArray&& other) noexcept { *this = std::move(other); }
  DeviceArray& operator=(DeviceArray&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(kind_, other.kind_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~DeviceArray() {
    if (data_ != nullptr) device_->Free(data_, kind_);
  }

  // kResourceExhausted when there is not so much memory.
  static Result<DeviceArray> Allocate(Device& device, uint64_t size,
                                      MemoryKind kind = MemoryKind::kDevice) {
    // A size that overflows is left to the allocation to refuse.
    constexpr size_t kMost = std::numeric_limits<size_t>::max();
    const size_t bytes = size > kMost / sizeof(T)
                             ? kMost
                             : static_cast<size_t>(size) * sizeof(T);
    ECPHORY_ASSIGN_OR_RETURN(void* const data, device.Allocate(bytes, kind));
    DeviceArray array;
    array.device_ = &device;
    array.kind_ = kind;
    array.data_ = static_cast<T*>(data);
    array.size_ = static_cast<size_t>(size);
    return array;
  }
  static Result<DeviceArray> Of(Device& device, std::span<const T> values) {
    ECPHORY_ASSIGN_OR_RETURN(DeviceArray array,
                             Allocate(device, values.size()));
    ECPHORY_RETURN_IF_ERROR(
        device.Upload(array.data(), values.data(), values.size_bytes()));
    return array;
  }

  // The host may follow these on a host device, and in kShared memory.
  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

  // Copies of values [first, first + values.size()), while no queue uses them.
  Status Read(size_t first, std::span<T> values) const {
    if (values.empty()) return {};
    return device_->Download(values.data(), data_ + first, values.size_bytes());
  }
  Status Write(size_t first, std::span<const T> values) {
    if (values.empty()) return {};
    return device_->Upload(data_ + first, values.data(), values.size_bytes());
  }
  Result<std::vector<T>> ReadAll() const {
    std::vector<T> values(size_);
    ECPHORY_RETURN_IF_ERROR(Read(0, values));
    return values;
  }

 private:
  Device* device_ = nullptr;
  MemoryKind kind_ = MemoryKind::kDevice;
  T* data_ = nullptr;
  size_t size_ = 0;
};

// Values that the host writes for the operators, or reads from them: an array
// on each side, and one and the same on a host device.
template <typename T>
class MirroredArray {
 public:
  static Result<MirroredArray> Allocate(Device& device, uint64_t size) {
    MirroredArray array;
    ECPHORY_ASSIGN_OR_RETURN(array.device_,
                             DeviceArray<T>::Allocate(device, size));
    if (device.is_host()) return array;
    ECPHORY_ASSIGN_OR_RETURN(
        array.host_,
        DeviceArray<T>::Allocate(device, size, MemoryKind::kShared));
    return array;
  }

  T* data() { return device_.data(); }  // for operators
  const T* data() const { return device_.data(); }
  T* host() { return host_.empty() ? device_.data() : host_.data(); }
  size_t size() const { return device_.size(); }

  // Waits for [first, first + count) and gives it.
  Result<const T*> Receive(Queue& queue, size_t first, size_t count) {
    if (!host_.empty()) {
      ECPHORY_RETURN_IF_ERROR(
          queue.Receive(host() + first, data() + first, count * sizeof(T)));
    }
    return static_cast<const T*>(host() + first);
  }

 private:
  DeviceArray<T> device_;
  DeviceArray<T> host_;  // empty on a host device
};

}  // namespace ecphory
