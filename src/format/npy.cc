#include "format/npy.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include "base/checked_math.h"
#include "base/little_endian.h"
#include "base/quote.h"
#include "format/tensor_index.h"
#include "io/file.h"

namespace ecphory {

namespace {

using ull = unsigned long long;

constexpr std::string_view kMagic = "\x93NUMPY";
// NumPy pads the header so that data starts at a multiple of 64.
constexpr size_t kAlignment = 64;
constexpr size_t kMaxRank = 32;  // NumPy's

// Bytes per value of a dtype such as "<f4"; 0 when it is none that we read.
size_t ItemBytes(std::string_view dtype) {
  if (dtype.size() != 3) return 0;
  const size_t bytes = static_cast<size_t>(dtype[2] - '0');
  const bool is_byte = dtype[0] == '|' && bytes == 1;
  const bool is_wide =
      dtype[0] == '<' && (bytes == 2 || bytes == 4 || bytes == 8);
  switch (dtype[1]) {
    case 'i':
    case 'u': return is_byte || is_wide ? bytes : 0;
    case 'f': return is_wide ? bytes : 0;
    case 'b': return is_byte ? bytes : 0;
    default: return 0;
  }
}

// The header's Python literal: {'descr': '<f4', 'fortran_order': False,
// 'shape': (2, 3), } with its keys in any order.
class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : text_(text) {}

  Status Parse(NpyArray* out) {
    if (!Take('{')) return Bad("'{'");
    while (!Take('}')) {
      std::string key;
      if (!TakeQuoted(&key) || !Take(':')) return Bad("a key and ':'");
      ECPHORY_RETURN_IF_ERROR(ParseValue(key, out));
      if (!Take(',') && Peek() != '}') return Bad("',' or '}'");
    }
    SkipSpace();
    if (at_ < text_.size()) return Bad("nothing more");
    if (seen_ != kAll) return Corrupt("header lacks descr, order or shape");
    return Status::Ok();
  }

 private:
  enum Field : unsigned { kDescr = 1, kOrder = 2, kShape = 4, kAll = 7 };

  Status ParseValue(const std::string& key, NpyArray* out) {
    Field field = kShape;
    if (key == "descr") {
      field = kDescr;
      if (!TakeQuoted(&out->dtype)) return Bad("a dtype string");
    } else if (key == "fortran_order") {
      field = kOrder;
      if (TakeWord("True")) {
        return Unsupported(
            "fortran_order True is not supported; save the "
            "array in C order");
      }
      if (!TakeWord("False")) return Bad("False");
    } else if (key == "shape") {
      if (!TakeShape(&out->shape)) return Bad("a tuple of sizes");
    } else {
      return Corrupt("header has the unknown key %s", Quoted(key).c_str());
    }
    if ((seen_ & field) != 0) {
      return Corrupt("header key %s appears twice", Quoted(key).c_str());
    }
    seen_ |= field;
    return Status::Ok();
  }

  void SkipSpace() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) {
      ++at_;
    }
  }
  // The next character that is no white space; NUL at the end.
  char Peek() {
    SkipSpace();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool Take(char c) {
    if (Peek() != c) return false;
    ++at_;
    return true;
  }
  bool TakeWord(std::string_view word) {
    SkipSpace();
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }
  bool TakeQuoted(std::string* out) {
    const char quote = Peek();
    if (quote != '\'' && quote != '"') return false;
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) return false;
    *out = std::string(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return true;
  }
  bool TakeNumber(uint64_t* out) {
    SkipSpace();
    const size_t begin = at_;
    *out = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9';
         ++at_) {
      const uint64_t digit = static_cast<uint64_t>(text_[at_] - '0');
      if (!CheckedMul(*out, 10, out) || !CheckedAdd(*out, digit, out)) {
        return false;
      }
    }
    return at_ > begin;
  }
  bool TakeShape(std::vector<uint64_t>* out) {
    if (!Take('(')) return false;
    while (!Take(')')) {
      uint64_t size = 0;
      if (out->size() == kMaxRank || !TakeNumber(&size)) return false;
      out->push_back(size);
      if (!Take(',') && Peek() != ')') return false;
    }
    return true;
  }

  Status Bad(const char* expected) const {
    return Corrupt("header, byte %zu: expected %s", at_, expected);
  }

  const std::string_view text_;
  size_t at_ = 0;
  unsigned seen_ = 0;
};

// Splits the file into the header's text and the data.
Result<std::pair<std::string_view, std::span<const uint8_t>>> SplitHeader(
    std::span<const uint8_t> bytes) {
  // Magic, major, minor, then the length: 2 bytes in version 1, else 4.
  const size_t prefix = kMagic.size() + 2;
  if (bytes.size() < prefix + 4 ||
      std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
    return Corrupt("not an .npy file");
  }
  const unsigned version = bytes[kMagic.size()];
  if (version < 1 || version > 2) {
    return Unsupported(".npy version %u, expected 1 or 2", version);
  }
  const uint8_t* length_at = bytes.data() + prefix;
  const size_t length_bytes = version == 1 ? 2 : 4;
  const size_t length =
      version == 1 ? LoadLE<uint16_t>(length_at) : LoadLE<uint32_t>(length_at);
  const auto body = bytes.subspan(prefix + length_bytes);
  if (length > body.size()) {
    return Corrupt("header of %zu bytes, only %zu follow", length, body.size());
  }
  return std::pair(
      std::string_view(reinterpret_cast<const char*>(body.data()), length),
      body.subspan(length));
}

Status ParseInto(std::span<const uint8_t> bytes, NpyArray* out) {
  ECPHORY_ASSIGN_OR_RETURN(const auto parts, SplitHeader(bytes));
  const auto& [header, data] = parts;
  ECPHORY_RETURN_IF_ERROR(HeaderParser(header).Parse(out));
  uint64_t needed = ItemBytes(out->dtype);
  if (needed == 0) {
    return Unsupported(
        "dtype %s is not supported; expected a little-endian "
        "integer, float or bool",
        Quoted(out->dtype).c_str());
  }
  for (const uint64_t dim : out->shape) {
    if (!CheckedMul(needed, dim, &needed)) {
      return Corrupt("shape %s is too large", ShapeString(out->shape).c_str());
    }
  }
  if (needed != data.size()) {
    return Corrupt("%s %s takes %llu bytes, %zu are stored", out->dtype.c_str(),
                   ShapeString(out->shape).c_str(), static_cast<ull>(needed),
                   data.size());
  }
  out->bytes.assign(data.begin(), data.end());
  return Status::Ok();
}

// Every value of `array`, stored as Stored, as To.
template <typename Stored, typename To>
std::vector<To> Convert(const NpyArray& array) {
  std::vector<To> out(static_cast<size_t>(array.count()));
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<To>(
        LoadLE<Stored>(array.bytes.data() + i * sizeof(Stored)));
  }
  return out;
}

Status WriteNpy(const std::string& path, const char* dtype,
                std::span<const uint8_t> data, size_t values,
                const std::vector<uint64_t>& shape) {
  uint64_t count = 1;
  std::string tuple = "(";
  for (const uint64_t dim : shape) {
    tuple += std::to_string(dim) + ", ";
    if (!CheckedMul(count, dim, &count)) count = UINT64_MAX;
  }
  if (count != values) {
    return InvalidArgument("%s: shape %s does not hold %zu values",
                           path.c_str(), ShapeString(shape).c_str(), values);
  }
  std::string header = std::string("{'descr': '") + dtype +
                       "', 'fortran_order': False, 'shape': " + tuple + "), }";
  const size_t prefix = kMagic.size() + 2 + sizeof(uint16_t);
  const size_t unpadded = prefix + header.size() + 1;
  header.append((kAlignment - unpadded % kAlignment) % kAlignment, ' ');
  header += '\n';

  std::string start(kMagic);
  start += '\x01';
  start += '\0';
  AppendLE(static_cast<uint16_t>(header.size()), &start);
  start += header;
  ECPHORY_ASSIGN_OR_RETURN(auto writer, AtomicFileWriter::Create(path));
  ECPHORY_RETURN_IF_ERROR(writer->Write(
      {reinterpret_cast<const uint8_t*>(start.data()), start.size()}));
  ECPHORY_RETURN_IF_ERROR(writer->Write(data));
  return writer->Commit();
}

template <typename T>
std::span<const uint8_t> BytesOf(std::span<const T> values) {
  return {reinterpret_cast<const uint8_t*>(values.data()),
          values.size() * sizeof(T)};
}

}  // namespace

uint64_t NpyArray::count() const {
  const size_t item = ItemBytes(dtype);
  return item == 0 ? 0 : bytes.size() / item;
}

Result<std::vector<float>> NpyArray::AsFloat() const {
  if (dtype == "<f4") return Convert<float, float>(*this);
  if (dtype == "<f8") return Convert<double, float>(*this);
  return InvalidArgument("array of dtype %s, expected <f4 or <f8",
                         Quoted(dtype).c_str());
}

Result<std::vector<int64_t>> NpyArray::AsInt64() const {
  if (dtype == "|i1") return Convert<int8_t, int64_t>(*this);
  if (dtype == "|u1" || dtype == "|b1") return Convert<uint8_t, int64_t>(*this);
  if (dtype == "<i2") return Convert<int16_t, int64_t>(*this);
  if (dtype == "<u2") return Convert<uint16_t, int64_t>(*this);
  if (dtype == "<i4") return Convert<int32_t, int64_t>(*this);
  if (dtype == "<u4") return Convert<uint32_t, int64_t>(*this);
  if (dtype == "<i8") return Convert<int64_t, int64_t>(*this);
  if (dtype != "<u8") {
    return InvalidArgument("array of dtype %s, expected integers or bools",
                           Quoted(dtype).c_str());
  }
  const auto values = Convert<uint64_t, uint64_t>(*this);
  for (const uint64_t value : values) {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return InvalidArgument("array holds %llu, expected at most 2^63 - 1",
                             static_cast<ull>(value));
    }
  }
  return std::vector<int64_t>(values.begin(), values.end());
}

Result<NpyArray> ParseNpy(std::span<const uint8_t> bytes,
                          const std::string& where) {
  NpyArray array;
  const Status status = ParseInto(bytes, &array);
  if (!status.ok()) return status.WithContext(where);
  return array;
}

Result<NpyArray> ReadNpy(const std::string& path, uint64_t max_bytes) {
  ECPHORY_ASSIGN_OR_RETURN(const std::string text,
                           ReadWholeFile(path, max_bytes));
  return ParseNpy({reinterpret_cast<const uint8_t*>(text.data()), text.size()},
                  path);
}

Status WriteNpyF32(const std::string& path, std::span<const float> values,
                   const std::vector<uint64_t>& shape) {
  return WriteNpy(path, "<f4", BytesOf(values), values.size(), shape);
}

Status WriteNpyI32(const std::string& path, std::span<const int32_t> values,
                   const std::vector<uint64_t>& shape) {
  return WriteNpy(path, "<i4", BytesOf(values), values.size(), shape);
}

Status WriteNpyU8(const std::string& path, std::span<const uint8_t> values,
                  const std::vector<uint64_t>& shape) {
  return WriteNpy(path, "|u1", values, values.size(), shape);
}

}  // namespace ecphory
