#include "format/tensor_index.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/checked_math.h"
#include "base/quote.h"

namespace ecphory {

namespace {

using ull = unsigned long long;

}  // namespace

std::string ShapeString(std::span<const uint64_t> shape) {
  std::string out = "[";
  for (const uint64_t dim : shape) {
    if (out.size() > 1) out += ", ";
    out += std::to_string(dim);
  }
  return out + "]";
}

Result<uint64_t> TensorBytes(DType dtype, std::span<const uint64_t> shape) {
  const DTypeInfo& info = GetDTypeInfo(dtype);
  uint64_t values = 1;
  for (const uint64_t dim : shape) {
    if (!CheckedMul(values, dim, &values)) {
      return Corrupt("shape %s has more than 2^64 values",
                     ShapeString(shape).c_str());
    }
  }
  const uint64_t row = shape.empty() ? 1 : shape.back();
  if (row % info.block_values != 0) {
    return Corrupt(
        "shape %s: rows of %llu values are no whole blocks of %s (%u)",
        ShapeString(shape).c_str(), static_cast<ull>(row), info.name,
        info.block_values);
  }
  const auto bytes = DTypeBytes(dtype, values);
  if (!bytes.ok()) return Corrupt("%s", bytes.status().message().c_str());
  return bytes;
}

uint64_t TensorInfo::values() const {
  return std::accumulate(shape.begin(), shape.end(), uint64_t{1},
                         std::multiplies<>());
}

std::string TensorInfo::ShapeString() const {
  return ecphory::ShapeString(shape);
}

const TensorInfo* TensorIndex::Find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

size_t TensorIndex::AddFile(ModelFile file) {
  files_.push_back(std::move(file));
  return files_.size() - 1;
}

Status TensorIndex::Add(TensorInfo tensor) {
  ECPHORY_CHECK(tensor.file < files_.size());
  const ModelFile& file = files_[tensor.file];
  const auto error = [&](const Status& status) {
    return status.WithContext(file.path + ": tensor " + Quoted(tensor.name));
  };
  const auto bytes = TensorBytes(tensor.dtype, tensor.shape);
  if (!bytes.ok()) return error(bytes.status());
  if (*bytes != tensor.bytes) {
    return error(Corrupt("%s %s takes %llu bytes, %llu are stored",
                         DTypeName(tensor.dtype), tensor.ShapeString().c_str(),
                         static_cast<ull>(*bytes),
                         static_cast<ull>(tensor.bytes)));
  }
  uint64_t end = 0;
  if (!CheckedAdd(tensor.offset, tensor.bytes, &end) || end > file.size) {
    return error(Corrupt(
        "%llu bytes at offset %llu reach past the end of the file (%llu "
        "bytes); is the file complete?",
        static_cast<ull>(tensor.bytes), static_cast<ull>(tensor.offset),
        static_cast<ull>(file.size)));
  }
  const auto [place, is_new] = by_name_.emplace(tensor.name, tensors_.size());
  if (!is_new) {
    const TensorInfo& first = tensors_[place->second];
    return error(Corrupt("appears twice (first in %s)",
                         files_[first.file].path.c_str()));
  }
  tensors_.push_back(std::move(tensor));
  return Status::Ok();
}

Status TensorIndex::Finish() {
  std::vector<const TensorInfo*> order;
  for (const TensorInfo& tensor : tensors_) {
    if (tensor.bytes > 0) order.push_back(&tensor);
  }
  std::sort(
      order.begin(), order.end(), [](const TensorInfo* a, const TensorInfo* b) {
        return std::pair(a->file, a->offset) < std::pair(b->file, b->offset);
      });
  for (size_t i = 1; i < order.size(); ++i) {
    const TensorInfo& a = *order[i - 1];
    const TensorInfo& b = *order[i];
    if (a.file == b.file && b.offset < a.offset + a.bytes) {
      return Corrupt(
          "%s: tensors %s (%llu bytes at %llu) and %s (at %llu) overlap",
          files_[a.file].path.c_str(), Quoted(a.name).c_str(),
          static_cast<ull>(a.bytes), static_cast<ull>(a.offset),
          Quoted(b.name).c_str(), static_cast<ull>(b.offset));
    }
  }
  return Status::Ok();
}

}  // namespace ecphory
