#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"
#include "base/checked_math.h"
#include "base/little_endian.h"
#include "base/quote.h"
#include "format/gguf.h"
#include "format/tensor_stream.h"
#include "io/disk_room.h"

namespace ecphory {

namespace {

void AppendString(const std::string& text, std::string* out) {
  AppendLE(static_cast<uint64_t>(text.size()), out);
  *out += text;
}

std::string EncodeType(GgufType type) {
  std::string out;
  AppendLE(static_cast<uint32_t>(type), &out);
  return out;
}

template <typename T>
std::string EncodeScalar(GgufType type, T value) {
  std::string out = EncodeType(type);
  AppendLE(value, &out);
  return out;
}

std::string EncodeArrayStart(GgufType element, uint64_t count) {
  std::string out = EncodeType(GgufType::kArray);
  out += EncodeType(element);
  AppendLE(count, &out);
  return out;
}

template <typename T>
std::string EncodeArray(GgufType element, const std::vector<T>& values) {
  std::string out = EncodeArrayStart(element, values.size());
  for (const T value : values) AppendLE(value, &out);
  return out;
}

std::span<const uint8_t> AsBytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

}  // namespace

GgufWriter::GgufWriter(uint64_t alignment) : alignment_(alignment) {
  ECPHORY_CHECK(std::has_single_bit(alignment) && alignment <= UINT32_MAX);
  AddUint32("general.alignment", static_cast<uint32_t>(alignment));
}

void GgufWriter::AddUint32(const std::string& key, uint32_t value) {
  AddEncoded(key, EncodeScalar(GgufType::kU32, value));
}

void GgufWriter::AddInt32(const std::string& key, int32_t value) {
  AddEncoded(key, EncodeScalar(GgufType::kI32, value));
}

void GgufWriter::AddUint64(const std::string& key, uint64_t value) {
  AddEncoded(key, EncodeScalar(GgufType::kU64, value));
}

void GgufWriter::AddFloat32(const std::string& key, float value) {
  AddEncoded(key, EncodeScalar(GgufType::kF32, value));
}

void GgufWriter::AddBool(const std::string& key, bool value) {
  AddEncoded(key, EncodeScalar<uint8_t>(GgufType::kBool, value ? 1 : 0));
}

void GgufWriter::AddString(const std::string& key, const std::string& value) {
  std::string encoded = EncodeType(GgufType::kString);
  AppendString(value, &encoded);
  AddEncoded(key, std::move(encoded));
}

void GgufWriter::AddUint32Array(const std::string& key,
                                const std::vector<uint32_t>& v) {
  AddEncoded(key, EncodeArray(GgufType::kU32, v));
}

void GgufWriter::AddInt32Array(const std::string& key,
                               const std::vector<int32_t>& v) {
  AddEncoded(key, EncodeArray(GgufType::kI32, v));
}

void GgufWriter::AddUint64Array(const std::string& key,
                                const std::vector<uint64_t>& v) {
  AddEncoded(key, EncodeArray(GgufType::kU64, v));
}

void GgufWriter::AddFloat32Array(const std::string& key,
                                 const std::vector<float>& v) {
  AddEncoded(key, EncodeArray(GgufType::kF32, v));
}

void GgufWriter::AddStringArray(const std::string& key,
                                const std::vector<std::string>& v) {
  std::string encoded = EncodeArrayStart(GgufType::kString, v.size());
  for (const std::string& text : v) AppendString(text, &encoded);
  AddEncoded(key, std::move(encoded));
}

void GgufWriter::AddEncoded(const std::string& key, std::string encoded) {
  ECPHORY_CHECK(!key.empty() && keys_.insert(key).second);
  metadata_.emplace_back(key, std::move(encoded));
}

Status GgufWriter::AddTensor(const std::string& name, DType dtype,
                             std::vector<uint64_t> shape, Producer producer) {
  const std::string context = "tensor " + Quoted(name);
  if (shape.empty() || shape.size() > 4 ||
      std::count(shape.begin(), shape.end(), 0) > 0) {
    return InvalidArgument("%s: shape %s, expected 1 to 4 dimensions above 0",
                           context.c_str(), ShapeString(shape).c_str());
  }
  const auto type = DTypeToGgml(dtype);
  if (!type.ok()) return type.status().WithContext(context);
  const auto bytes = TensorBytes(dtype, shape);
  if (!bytes.ok()) return bytes.status().WithContext(context);
  uint64_t padded = 0;
  uint64_t end = 0;
  if (!CheckedAlignUp(*bytes, alignment_, &padded) ||
      !CheckedAdd(data_bytes_, padded, &end)) {
    return OutOfRange("%s: the file would exceed 2^64 bytes", context.c_str());
  }
  if (name.empty() || !tensor_names_.insert(name).second) {
    return InvalidArgument("%s: the name is empty or already taken",
                           context.c_str());
  }
  tensors_.push_back({name, *type, std::move(shape), *bytes, data_bytes_,
                      std::move(producer)});
  data_bytes_ = end;
  return Status::Ok();
}

std::string GgufWriter::EncodeHeader() const {
  std::string out = "GGUF";
  AppendLE(uint32_t{3}, &out);
  AppendLE(static_cast<uint64_t>(tensors_.size()), &out);
  AppendLE(static_cast<uint64_t>(metadata_.size()), &out);
  for (const auto& [key, encoded] : metadata_) {
    AppendString(key, &out);
    out += encoded;
  }
  for (const Tensor& tensor : tensors_) {
    AppendString(tensor.name, &out);
    AppendLE(static_cast<uint32_t>(tensor.shape.size()), &out);
    for (auto dim = tensor.shape.rbegin(); dim != tensor.shape.rend(); ++dim) {
      AppendLE(*dim, &out);
    }
    AppendLE(tensor.type, &out);
    AppendLE(tensor.offset, &out);
  }
  uint64_t padded = 0;
  ECPHORY_CHECK(CheckedAlignUp(out.size(), alignment_, &padded));
  out.resize(static_cast<size_t>(padded), '\0');
  return out;
}

uint64_t GgufWriter::FileBytes() const {
  return EncodeHeader().size() + data_bytes_;
}

Status GgufWriter::WriteTo(const std::string& path,
                           const Progress& progress) const {
  const std::string header = EncodeHeader();
  const uint64_t total = header.size() + data_bytes_;
  ECPHORY_RETURN_IF_ERROR(CheckDiskRoom(path, total));
  ECPHORY_ASSIGN_OR_RETURN(const auto file, AtomicFileWriter::Create(path));
  ECPHORY_RETURN_IF_ERROR(file->Write(AsBytes(header)));
  TensorStream stream(file.get(), path, total, progress);
  for (const Tensor& tensor : tensors_) {
    ECPHORY_RETURN_IF_ERROR(
        stream.WriteTensor(tensor.name, tensor.bytes, tensor.producer));
    const uint64_t rest = file->size() % alignment_;
    ECPHORY_RETURN_IF_ERROR(
        file->WriteZeros(rest == 0 ? 0 : alignment_ - rest));
  }
  ECPHORY_RETURN_IF_ERROR(stream.Report());
  return file->Commit();
}

}  // namespace ecphory
