#include "format/gguf_parser.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "base/checked_math.h"
#include "base/little_endian.h"
#include "base/quote.h"

namespace ecphory {

namespace {

using ull = unsigned long long;

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint32_t kVersion = 3;
constexpr uint32_t kMaxRank = 4;  // ggml's
// The format's limit for keys; tensor names get the same.
constexpr uint64_t kMaxNameBytes = 65535;
// The least that a key (length, one byte, type, u8 value) and a tensor (length,
// one byte, rank, one dimension, type, offset) take.
constexpr uint64_t kMinKeyBytes = 8 + 1 + 4 + 1;
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;
// Memory that a decoded string takes besides its text.
constexpr uint64_t kStringBytes = sizeof(std::string);

}  // namespace

Result<GgufFile> GgufParser::Parse() {
  out_.path_ = file_.path();
  out_.index_.AddFile({file_.path(), file_.size()});
  ECPHORY_RETURN_IF_ERROR(ParseVersion());
  ECPHORY_RETURN_IF_ERROR(ParseCounts());
  ECPHORY_RETURN_IF_ERROR(ParseMetadata());
  ECPHORY_RETURN_IF_ERROR(ParseAlignment());
  ECPHORY_RETURN_IF_ERROR(ParseTensors());
  return std::move(out_);
}

Status GgufParser::ParseVersion() {
  uint32_t magic = 0;
  uint32_t version = 0;
  ECPHORY_RETURN_IF_ERROR(Read("the magic number", &magic));
  if (magic != kMagic) {
    return Error(
        Corrupt("not a GGUF file: starts with %08x, expected %08x ('GGUF')",
                __builtin_bswap32(magic), __builtin_bswap32(kMagic)));
  }
  ECPHORY_RETURN_IF_ERROR(Read("the version", &version));
  if (version == kVersion) return Status::Ok();
  if (version != 0 && (version & 0xffff) == 0) {
    return Error(Unsupported(
        "big-endian GGUF file (version %u read byte-swapped); convert it to "
        "little-endian",
        __builtin_bswap32(version)));
  }
  return Error(
      Unsupported("GGUF version %u, expected version %u; convert the "
                  "model again with a current tool",
                  version, kVersion));
}

Status GgufParser::ParseCounts() {
  ECPHORY_RETURN_IF_ERROR(Read("the tensor count", &tensor_count_));
  ECPHORY_RETURN_IF_ERROR(Read("the key count", &key_count_));
  ECPHORY_RETURN_IF_ERROR(CheckRoom("keys", key_count_, kMinKeyBytes));
  ECPHORY_RETURN_IF_ERROR(CheckRoom("tensors", tensor_count_, kMinTensorBytes));
  if (key_count_ > limits_.max_keys) {
    return Error(Unsupported("%llu keys, at most %llu are supported",
                             static_cast<ull>(key_count_),
                             static_cast<ull>(limits_.max_keys)));
  }
  if (tensor_count_ > limits_.max_tensors) {
    return Error(Unsupported("%llu tensors, at most %llu are supported",
                             static_cast<ull>(tensor_count_),
                             static_cast<ull>(limits_.max_tensors)));
  }
  return Status::Ok();
}

Status GgufParser::ParseMetadata() {
  for (uint64_t i = 0; i < key_count_; ++i) {
    Enter("key", i);
    ECPHORY_RETURN_IF_ERROR(ReadName("a key", &item_name_));
    GgufValue value;
    ECPHORY_RETURN_IF_ERROR(ParseValue(&value));
    if (!out_.values_.emplace(item_name_, std::move(value)).second) {
      return Error(Corrupt("appears twice"));
    }
    out_.key_order_.push_back(item_name_);
  }
  return Status::Ok();
}

Status GgufParser::ParseValue(GgufValue* out) {
  ECPHORY_RETURN_IF_ERROR(ReadType("a value type", &out->type));
  if (out->type != GgufType::kArray) return ParseElements(1, out);
  out->is_array = true;
  uint64_t count = 0;
  ECPHORY_RETURN_IF_ERROR(ReadType("an array's element type", &out->type));
  ECPHORY_RETURN_IF_ERROR(Read("an array's count", &count));
  return ParseElements(count, out);
}

Status GgufParser::ParseElements(uint64_t count, GgufValue* out) {
  switch (out->type) {
    case GgufType::kU8: return ReadNumbers<uint8_t, uint64_t>(count, out);
    case GgufType::kU16: return ReadNumbers<uint16_t, uint64_t>(count, out);
    case GgufType::kU32: return ReadNumbers<uint32_t, uint64_t>(count, out);
    case GgufType::kU64: return ReadNumbers<uint64_t, uint64_t>(count, out);
    case GgufType::kI8: return ReadNumbers<int8_t, int64_t>(count, out);
    case GgufType::kI16: return ReadNumbers<int16_t, int64_t>(count, out);
    case GgufType::kI32: return ReadNumbers<int32_t, int64_t>(count, out);
    case GgufType::kI64: return ReadNumbers<int64_t, int64_t>(count, out);
    case GgufType::kF32: return ReadNumbers<float, double>(count, out);
    case GgufType::kF64: return ReadNumbers<double, double>(count, out);
    case GgufType::kBool: return ReadBools(count, out);
    case GgufType::kString: return ReadStrings(count, out);
    case GgufType::kArray: break;
  }
  return Error(Unsupported("arrays of arrays are not supported"));
}

Status GgufParser::ParseAlignment() {
  const char* const kKey = "general.alignment";
  item_kind_ = nullptr;
  if (!out_.Has(kKey)) return Status::Ok();
  ECPHORY_ASSIGN_OR_RETURN(out_.alignment_, out_.GetUint(kKey));
  if (std::has_single_bit(out_.alignment_)) return Status::Ok();
  return Error(Corrupt("key '%s' is %llu, expected a power of two", kKey,
                       static_cast<ull>(out_.alignment_)));
}

Status GgufParser::ParseTensors() {
  std::vector<TensorEntry> entries(static_cast<size_t>(tensor_count_));
  for (uint64_t i = 0; i < tensor_count_; ++i) {
    Enter("tensor", i);
    ECPHORY_RETURN_IF_ERROR(ParseTensor(&entries[i]));
  }
  item_kind_ = nullptr;
  ECPHORY_RETURN_IF_ERROR(FindDataOffset());
  for (uint64_t i = 0; i < tensor_count_; ++i) {
    Enter("tensor", i);
    item_name_ = entries[i].name;
    ECPHORY_RETURN_IF_ERROR(PlaceTensor(std::move(entries[i])));
  }
  return out_.index_.Finish();
}

Status GgufParser::ParseTensor(TensorEntry* out) {
  ECPHORY_RETURN_IF_ERROR(ReadName("a tensor name", &out->name));
  item_name_ = out->name;
  uint32_t rank = 0;
  ECPHORY_RETURN_IF_ERROR(Read("the rank", &rank));
  if (rank < 1 || rank > kMaxRank) {
    return Error(Corrupt("%u dimensions, expected 1 to %u", rank, kMaxRank));
  }
  out->dims.resize(rank);
  for (uint64_t& dim : out->dims) {
    ECPHORY_RETURN_IF_ERROR(Read("the dimensions", &dim));
    if (dim == 0) return Error(Corrupt("a dimension is 0"));
  }
  ECPHORY_RETURN_IF_ERROR(Read("the tensor type", &out->type));
  return Read("the data offset", &out->offset);
}

Status GgufParser::FindDataOffset() {
  if (CheckedAlignUp(reader_.position(), out_.alignment_, &out_.data_offset_)) {
    return Status::Ok();
  }
  return Error(Corrupt("no file can hold data aligned to %llu bytes",
                       static_cast<ull>(out_.alignment_)));
}

Status GgufParser::PlaceTensor(TensorEntry entry) {
  const auto dtype = DTypeFromGgml(entry.type);
  if (!dtype.ok()) return Error(dtype.status());
  if (entry.offset % out_.alignment_ != 0) {
    return Error(Corrupt(
        "data offset %llu is not a multiple of the alignment "
        "%llu",
        static_cast<ull>(entry.offset), static_cast<ull>(out_.alignment_)));
  }
  TensorInfo tensor;
  if (!CheckedAdd(out_.data_offset_, entry.offset, &tensor.offset)) {
    return Error(Corrupt("data offset %llu is outside any file",
                         static_cast<ull>(entry.offset)));
  }
  tensor.name = std::move(entry.name);
  tensor.dtype = *dtype;
  tensor.shape.assign(entry.dims.rbegin(), entry.dims.rend());
  const auto bytes = TensorBytes(tensor.dtype, tensor.shape);
  if (!bytes.ok()) return Error(bytes.status());
  tensor.bytes = *bytes;
  return out_.index_.Add(std::move(tensor));
}

template <typename T>
Status GgufParser::Read(const char* what, T* out) {
  ECPHORY_RETURN_IF_ERROR(CheckRoom(what, 1, sizeof(T)));
  return reader_.Read({reinterpret_cast<uint8_t*>(out), sizeof(T)});
}

Status GgufParser::ReadString(const char* what, uint64_t max_bytes,
                              std::string* out) {
  uint64_t length = 0;
  ECPHORY_RETURN_IF_ERROR(Read(what, &length));
  ECPHORY_RETURN_IF_ERROR(CheckRoom(what, length, 1));
  if (length > max_bytes) {
    return Error(Corrupt("%s has %llu bytes, at most %llu are allowed", what,
                         static_cast<ull>(length),
                         static_cast<ull>(max_bytes)));
  }
  ECPHORY_RETURN_IF_ERROR(Charge(1, kStringBytes + length));
  out->resize(static_cast<size_t>(length));
  return reader_.Read({reinterpret_cast<uint8_t*>(out->data()), out->size()});
}

Status GgufParser::ReadName(const char* what, std::string* out) {
  ECPHORY_RETURN_IF_ERROR(ReadString(what, kMaxNameBytes, out));
  if (out->empty()) return Error(Corrupt("%s is empty", what));
  return Status::Ok();
}

Status GgufParser::ReadType(const char* what, GgufType* out) {
  uint32_t id = 0;
  ECPHORY_RETURN_IF_ERROR(Read(what, &id));
  if (id > static_cast<uint32_t>(GgufType::kF64)) {
    return Error(Corrupt("%s is %u, expected 0 to 12", what, id));
  }
  *out = static_cast<GgufType>(id);
  return Status::Ok();
}

template <typename Stored, typename Wide>
Status GgufParser::ReadVector(uint64_t count, std::vector<Wide>* out) {
  ECPHORY_RETURN_IF_ERROR(CheckRoom("a value", count, sizeof(Stored)));
  ECPHORY_RETURN_IF_ERROR(Charge(count, sizeof(Wide)));
  out->resize(static_cast<size_t>(count));
  std::array<Stored, 1024> stored;
  for (size_t done = 0; done < out->size();) {
    const size_t piece = std::min(stored.size(), out->size() - done);
    ECPHORY_RETURN_IF_ERROR(reader_.Read(
        {reinterpret_cast<uint8_t*>(stored.data()), piece * sizeof(Stored)}));
    std::copy_n(stored.begin(), piece, out->begin() + done);
    done += piece;
  }
  return Status::Ok();
}

template <typename Stored, typename Wide>
Status GgufParser::ReadNumbers(uint64_t count, GgufValue* out) {
  std::vector<Wide> values;
  ECPHORY_RETURN_IF_ERROR((ReadVector<Stored, Wide>(count, &values)));
  if (out->is_array) {
    out->value = std::move(values);
  } else {
    out->value = values[0];
  }
  return Status::Ok();
}

Status GgufParser::ReadBools(uint64_t count, GgufValue* out) {
  std::vector<uint64_t> values;
  ECPHORY_RETURN_IF_ERROR((ReadVector<uint8_t, uint64_t>(count, &values)));
  for (const uint64_t value : values) {
    if (value > 1) {
      return Error(Corrupt("a bool is stored as %u, expected 0 or 1",
                           static_cast<unsigned>(value)));
    }
  }
  if (out->is_array) {
    out->value = std::move(values);
  } else {
    out->value = values[0] != 0;
  }
  return Status::Ok();
}

Status GgufParser::ReadStrings(uint64_t count, GgufValue* out) {
  const uint64_t max_bytes = limits_.max_string_bytes;
  if (!out->is_array) {
    return ReadString("a string", max_bytes,
                      &out->value.emplace<std::string>());
  }
  ECPHORY_RETURN_IF_ERROR(CheckRoom("an array of strings", count, 8));
  ECPHORY_RETURN_IF_ERROR(Charge(count, kStringBytes));
  std::vector<std::string> values(static_cast<size_t>(count));
  for (std::string& value : values) {
    ECPHORY_RETURN_IF_ERROR(ReadString("a string", max_bytes, &value));
  }
  out->value = std::move(values);
  return Status::Ok();
}

Status GgufParser::CheckRoom(const char* what, uint64_t count,
                             uint64_t min_bytes) const {
  uint64_t needed = 0;
  const bool countable = CheckedMul(count, min_bytes, &needed);
  if (countable && needed <= reader_.remaining()) return Status::Ok();
  const uint64_t left_in_file = file_.size() - reader_.position();
  if (countable && needed <= left_in_file) {
    return Error(Unsupported("metadata reaches past the limit of %llu bytes",
                             static_cast<ull>(limits_.max_metadata_bytes)));
  }
  return Error(Corrupt(
      "the file ends inside %s: %llu x %llu bytes expected at offset %llu, "
      "%llu left",
      what, static_cast<ull>(count), static_cast<ull>(min_bytes),
      static_cast<ull>(reader_.position()), static_cast<ull>(left_in_file)));
}

Status GgufParser::Charge(uint64_t count, uint64_t item_bytes) {
  uint64_t bytes = 0;
  if (CheckedMul(count, item_bytes, &bytes) &&
      CheckedAdd(decoded_bytes_, bytes, &decoded_bytes_) &&
      decoded_bytes_ <= limits_.max_metadata_bytes) {
    return Status::Ok();
  }
  return Error(Unsupported("metadata takes more than %llu bytes of memory",
                           static_cast<ull>(limits_.max_metadata_bytes)));
}

void GgufParser::Enter(const char* kind, uint64_t index) {
  item_kind_ = kind;
  item_index_ = index;
  item_name_.clear();
}

Status GgufParser::Error(const Status& status) const {
  std::string where = file_.path();
  if (item_kind_ != nullptr) {
    where += std::string(": ") + item_kind_ + " ";
    where +=
        item_name_.empty() ? std::to_string(item_index_) : Quoted(item_name_);
  }
  return status.WithContext(where);
}

}  // namespace ecphory
