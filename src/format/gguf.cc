#include "format/gguf.h"

#include <cstdint>
#include <optional>
#include <utility>

#include "base/quote.h"
#include "format/gguf_parser.h"

namespace ecphory {

namespace {

const char* TypeName(GgufType type) {
  switch (type) {
    case GgufType::kU8: return "u8";
    case GgufType::kI8: return "i8";
    case GgufType::kU16: return "u16";
    case GgufType::kI16: return "i16";
    case GgufType::kU32: return "u32";
    case GgufType::kI32: return "i32";
    case GgufType::kF32: return "f32";
    case GgufType::kBool: return "bool";
    case GgufType::kString: return "string";
    case GgufType::kArray: return "array";
    case GgufType::kU64: return "u64";
    case GgufType::kI64: return "i64";
    case GgufType::kF64: return "f64";
  }
  return "unknown";
}

std::string Describe(const GgufValue& value) {
  std::string out = TypeName(value.type);
  return value.is_array ? out + " array" : out;
}

Status WrongType(const std::string& path, const std::string& key,
                 const GgufValue& value, const char* expected) {
  return Corrupt("%s: key %s is of type %s, expected %s", path.c_str(),
                 Quoted(key).c_str(), Describe(value).c_str(), expected);
}

Status DoesNotFit(const std::string& path, const std::string& key,
                  const std::string& value, const char* expected) {
  return Corrupt("%s: key %s holds %s, expected %s", path.c_str(),
                 Quoted(key).c_str(), value.c_str(), expected);
}

// The integer as another integer type; nothing when it does not fit.
template <typename To, typename From>
std::optional<To> Fit(From value) {
  if (!std::in_range<To>(value)) return std::nullopt;
  return static_cast<To>(value);
}

constexpr const char* kUnsignedScalar = "an integer from 0 to 2^64 - 1";
constexpr const char* kSignedScalar = "an integer from -2^63 to 2^63 - 1";

}  // namespace

Result<GgufFile> GgufFile::Parse(std::shared_ptr<RandomAccessFile> file,
                                 const GgufLimits& limits) {
  return GgufParser(*file, limits).Parse();
}

bool GgufFile::Has(const std::string& key) const {
  return Find(key) != nullptr;
}

const GgufValue* GgufFile::Find(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

std::vector<std::string> GgufFile::Keys() const { return key_order_; }

Result<const GgufValue*> GgufFile::Require(const std::string& key) const {
  if (const GgufValue* value = Find(key)) return value;
  return NotFound("%s: key %s is missing", path_.c_str(), Quoted(key).c_str());
}

// Any integer scalar as Int.
template <typename Int>
Result<Int> GgufFile::GetInteger(const std::string& key,
                                 const char* expected) const {
  ECPHORY_ASSIGN_OR_RETURN(const GgufValue* value, Require(key));
  std::optional<Int> out;
  std::string text;
  if (const auto* u = std::get_if<uint64_t>(&value->value)) {
    out = Fit<Int>(*u);
    text = std::to_string(*u);
  } else if (const auto* i = std::get_if<int64_t>(&value->value)) {
    out = Fit<Int>(*i);
    text = std::to_string(*i);
  } else {
    return WrongType(path_, key, *value, expected);
  }
  if (!out) return DoesNotFit(path_, key, text, expected);
  return *out;
}

// Any integer array as Int; bools, kept in the same vector type, are refused.
template <typename Int>
Result<std::vector<Int>> GgufFile::GetIntegerArray(const std::string& key,
                                                   const char* expected) const {
  ECPHORY_ASSIGN_OR_RETURN(const GgufValue* value, Require(key));
  std::vector<Int> out;
  const auto convert = [&](const auto& stored) -> Status {
    out.reserve(stored.size());
    for (const auto element : stored) {
      const auto fitted = Fit<Int>(element);
      if (!fitted) {
        return DoesNotFit(path_, key, std::to_string(element), expected);
      }
      out.push_back(*fitted);
    }
    return Status::Ok();
  };
  const auto* u = std::get_if<std::vector<uint64_t>>(&value->value);
  const auto* i = std::get_if<std::vector<int64_t>>(&value->value);
  if (u != nullptr && value->type != GgufType::kBool) {
    ECPHORY_RETURN_IF_ERROR(convert(*u));
  } else if (i != nullptr) {
    ECPHORY_RETURN_IF_ERROR(convert(*i));
  } else {
    return WrongType(path_, key, *value, expected);
  }
  return out;
}

template <typename T>
Result<T> GgufFile::GetExactly(const std::string& key,
                               const char* expected) const {
  ECPHORY_ASSIGN_OR_RETURN(const GgufValue* value, Require(key));
  if (const T* held = std::get_if<T>(&value->value)) return *held;
  return WrongType(path_, key, *value, expected);
}

Result<uint64_t> GgufFile::GetUint(const std::string& key) const {
  return GetInteger<uint64_t>(key, kUnsignedScalar);
}

Result<int64_t> GgufFile::GetInt(const std::string& key) const {
  return GetInteger<int64_t>(key, kSignedScalar);
}

Result<double> GgufFile::GetFloat(const std::string& key) const {
  ECPHORY_ASSIGN_OR_RETURN(const GgufValue* value, Require(key));
  if (const auto* u = std::get_if<uint64_t>(&value->value)) {
    return static_cast<double>(*u);
  }
  if (const auto* i = std::get_if<int64_t>(&value->value)) {
    return static_cast<double>(*i);
  }
  return GetExactly<double>(key, "a number");
}

Result<bool> GgufFile::GetBool(const std::string& key) const {
  return GetExactly<bool>(key, "a bool");
}

Result<std::string> GgufFile::GetString(const std::string& key) const {
  return GetExactly<std::string>(key, "a string");
}

Result<std::vector<uint64_t>> GgufFile::GetUintArray(
    const std::string& key) const {
  return GetIntegerArray<uint64_t>(key, "an array of integers >= 0");
}

Result<std::vector<int64_t>> GgufFile::GetIntArray(
    const std::string& key) const {
  return GetIntegerArray<int64_t>(key, "an array of integers below 2^63");
}

Result<std::vector<std::string>> GgufFile::GetStringArray(
    const std::string& key) const {
  return GetExactly<std::vector<std::string>>(key, "an array of strings");
}

}  // namespace ecphory
