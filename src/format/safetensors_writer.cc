#include "format/safetensors_writer.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/checked_math.h"
#include "base/little_endian.h"
#include "base/quote.h"
#include "format/tensor_index.h"

namespace ecphory {

namespace {

constexpr uint64_t kAlignment = 4096;

}  // namespace

Status SafetensorsWriter::AddTensor(const std::string& name, DType dtype,
                                    std::vector<uint64_t> shape,
                                    TensorStream::Producer producer) {
  const std::string context = "tensor " + Quoted(name);
  if (!DTypeFromSafetensors(DTypeName(dtype)).ok()) {
    return Unsupported("%s: safetensors cannot hold type %s", context.c_str(),
                       DTypeName(dtype));
  }
  const auto bytes = TensorBytes(dtype, shape);
  if (!bytes.ok()) return bytes.status().WithContext(context);
  uint64_t end = 0;
  if (!CheckedAdd(data_bytes_, *bytes, &end)) {
    return OutOfRange("%s: the shard would exceed 2^64 bytes", context.c_str());
  }
  if (name.empty() || !names_.insert(name).second) {
    return InvalidArgument("%s: the name is empty or already taken",
                           context.c_str());
  }
  tensors_.push_back(
      {name, dtype, std::move(shape), *bytes, std::move(producer)});
  data_bytes_ = end;
  return {};
}

std::string SafetensorsWriter::EncodeHeader() const {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  uint64_t begin = 0;
  for (const Tensor& tensor : tensors_) {
    header[tensor.name] = {{"dtype", DTypeName(tensor.dtype)},
                           {"shape", tensor.shape},
                           {"data_offsets", {begin, begin + tensor.bytes}}};
    begin += tensor.bytes;
  }
  std::string json = header.dump();
  uint64_t end = 0;
  (void)CheckedAlignUp(8 + json.size(), kAlignment, &end);
  json.resize(end - 8, ' ');
  std::string text;
  AppendLE(static_cast<uint64_t>(json.size()), &text);
  return text + json;
}

uint64_t SafetensorsWriter::FileBytes() const {
  return EncodeHeader().size() + data_bytes_;
}

Status SafetensorsWriter::WriteTo(
    const std::string& path, const TensorStream::Progress& progress) const {
  const std::string header = EncodeHeader();
  ECPHORY_ASSIGN_OR_RETURN(const auto file, AtomicFileWriter::Create(path));
  ECPHORY_RETURN_IF_ERROR(file->Write(
      {reinterpret_cast<const uint8_t*>(header.data()), header.size()}));
  TensorStream stream(file.get(), path, header.size() + data_bytes_, progress);
  for (const Tensor& tensor : tensors_) {
    ECPHORY_RETURN_IF_ERROR(
        stream.WriteTensor(tensor.name, tensor.bytes, tensor.producer));
  }
  ECPHORY_RETURN_IF_ERROR(stream.Report());
  return file->Commit();
}

}  // namespace ecphory
