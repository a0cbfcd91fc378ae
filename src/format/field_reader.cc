#include "format/field_reader.h"

#include <cmath>
#include <limits>
#include <utility>

#include "base/quote.h"

namespace ecphory {

namespace {

using Ull = unsigned long long;

// `value` as a T, or an error that names the range.
template <typename T, typename Wide>
Status Narrow(const std::string& key, Wide value, T* out) {
  if (std::in_range<T>(value)) {
    *out = static_cast<T>(value);
    return {};
  }
  return Corrupt("%s: found %s, expected an integer of %lld..%llu", key.c_str(),
                 std::to_string(value).c_str(),
                 static_cast<long long>(std::numeric_limits<T>::min()),
                 static_cast<Ull>(std::numeric_limits<T>::max()));
}

}  // namespace

void FieldReader::ExpectIfPresent(const std::string& key,
                                  const std::string& expected) {
  std::string found = expected;
  Optional(key, &found);
  if (found == expected) return;
  Keep(Unsupported("%s: found %s, expected '%s'", source_.Spelling(key).c_str(),
                   Quoted(found).c_str(), expected.c_str()));
}

void FieldReader::Missing(const std::string& key) {
  missing_.push_back(source_.Spelling(key));
}

void FieldReader::Keep(Status status) {
  if (first_error_.ok()) first_error_ = std::move(status);
}

Status FieldReader::status() const {
  if (missing_.empty()) return first_error_;
  return NotFound("missing %s %s", missing_.size() == 1 ? "key" : "keys",
                  JoinNames(missing_).c_str());
}

Status FieldReader::Read(const std::string& key, uint32_t* out) const {
  ECPHORY_ASSIGN_OR_RETURN(const uint64_t value, source_.Uint(key));
  return Narrow(source_.Spelling(key), value, out);
}

Status FieldReader::Read(const std::string& key, int32_t* out) const {
  ECPHORY_ASSIGN_OR_RETURN(const int64_t value, source_.Int(key));
  return Narrow(source_.Spelling(key), value, out);
}

Status FieldReader::Read(const std::string& key, uint64_t* out) const {
  ECPHORY_ASSIGN_OR_RETURN(*out, source_.Uint(key));
  return {};
}

Status FieldReader::Read(const std::string& key, float* out) const {
  ECPHORY_ASSIGN_OR_RETURN(const double value, source_.Float(key));
  const double largest = std::numeric_limits<float>::max();
  if (!(std::fabs(value) <= largest)) {
    return Corrupt("%s: found %g, expected a finite fp32 number",
                   source_.Spelling(key).c_str(), value);
  }
  *out = static_cast<float>(value);
  return {};
}

Status FieldReader::Read(const std::string& key, bool* out) const {
  ECPHORY_ASSIGN_OR_RETURN(*out, source_.Bool(key));
  return {};
}

Status FieldReader::Read(const std::string& key, std::string* out) const {
  ECPHORY_ASSIGN_OR_RETURN(*out, source_.String(key));
  return {};
}

Status FieldReader::Read(const std::string& key,
                         std::vector<uint32_t>* out) const {
  ECPHORY_ASSIGN_OR_RETURN(const std::vector<uint64_t> values,
                           source_.UintArray(key));
  out->resize(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const std::string element =
        source_.Spelling(key) + "[" + std::to_string(i) + "]";
    ECPHORY_RETURN_IF_ERROR(Narrow(element, values[i], &(*out)[i]));
  }
  return {};
}

Status FieldReader::Read(const std::string& key,
                         std::vector<uint64_t>* out) const {
  ECPHORY_ASSIGN_OR_RETURN(*out, source_.UintArray(key));
  return {};
}

std::string JoinNames(const std::vector<std::string>& names) {
  std::string joined;
  for (const std::string& name : names) {
    if (!joined.empty()) joined += ", ";
    joined += name;
  }
  return joined;
}

Status CheckRange(const char* key, uint64_t value, uint64_t low,
                  uint64_t high) {
  if (value >= low && value <= high) return {};
  return Corrupt("%s: found %llu, expected %llu..%llu", key,
                 static_cast<Ull>(value), static_cast<Ull>(low),
                 static_cast<Ull>(high));
}

Status CheckMultiple(const char* key, uint64_t value, uint64_t unit,
                     const char* why) {
  if (value % unit == 0) return {};
  return Unsupported("%s: found %llu, expected a multiple of %llu (%s)", key,
                     static_cast<Ull>(value), static_cast<Ull>(unit), why);
}

Status CheckLayerIds(const char* key, const std::vector<uint32_t>& ids,
                     uint32_t n_layers) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= n_layers) {
      return Corrupt(
          "%s: found layer %u, expected ids below "
          "num_hidden_layers (%u)",
          key, ids[i], n_layers);
    }
    if (i > 0 && ids[i] <= ids[i - 1]) {
      return Corrupt("%s: found %u after %u, expected ascending ids", key,
                     ids[i], ids[i - 1]);
    }
  }
  return {};
}

}  // namespace ecphory
