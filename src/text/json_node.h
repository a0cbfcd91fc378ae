// A JSON value that knows its path, for errors that name the key.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "ecphory/status.h"

namespace ecphory {

// A view: the document and `where` (the file's name) must outlive it.
class JsonNode {
 public:
  using Json = nlohmann::json;

  JsonNode(const Json* value, std::string path, const std::string& where)
      : value_(value), path_(std::move(path)), where_(&where) {}

  const Json& value() const { return *value_; }

  // A member of an object; a null node when there is none.
  JsonNode operator[](const char* key) const;
  // An element of an array, which must have it.
  JsonNode operator[](size_t index) const;

  bool Is(const char* text) const;
  // Null, false, or an empty string, array or object.
  bool IsUnset() const;

  // "file: key 'a.b[2]': found X, expected Y": the file contradicts itself.
  Status Malformed(const std::string& expected) const;
  // The same about a value that is valid elsewhere but cannot be used here.
  Status Unusable(const std::string& expected) const;

  Status RequireUnset() const;
  Status RequireObject() const;
  Status RequireArray() const;
  // An object whose "type" is `type`.
  Status RequireType(const char* type) const;

  Result<std::string> String() const;
  // false when null.
  Result<bool> Flag() const;
  // A whole number in [0, end).
  Result<size_t> Index(size_t end) const;

 private:
  std::string Describe(const std::string& expected) const;

  const Json* value_;
  std::string path_;
  const std::string* where_;
};

}  // namespace ecphory
