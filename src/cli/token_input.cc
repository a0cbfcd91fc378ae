#include "token_input.h"

#include <charconv>
#include <limits>

#include "file_text.h"
#include "npy.h"
#include "output.h"

namespace ecphory::cli {

namespace {

constexpr size_t kMaxJsonBytes = size_t{1} << 28;

bool EndsWith(const std::string& text, const std::string& end) {
  return text.size() >= end.size() &&
         text.compare(text.size() - end.size(), end.size(), end) == 0;
}

Result<std::vector<int32_t>> Narrow(const std::vector<int64_t>& values,
                                    const std::string& where) {
  std::vector<int32_t> ids;
  ids.reserve(values.size());
  for (const int64_t value : values) {
    if (value != static_cast<int32_t>(value)) {
      return OutOfRange("%s: item %zu is %lld, expected a 32-bit token id",
                        where.c_str(), ids.size(),
                        static_cast<long long>(value));
    }
    ids.push_back(static_cast<int32_t>(value));
  }
  return ids;
}

Result<std::vector<int32_t>> ReadJsonTokens(const std::string& path) {
  ECPHORY_ASSIGN_OR_RETURN(const std::string text,
                           ReadFileText(path, kMaxJsonBytes));
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_array()) {
    return Corrupt("%s: expected one JSON array of token ids, e.g. [1, 2, 3]",
                   path.c_str());
  }
  std::vector<int64_t> values;
  for (const Json& item : json) {
    if (!item.is_number_integer()) {
      return Corrupt("%s: item %zu is of type %s, expected an integer",
                     path.c_str(), values.size(), item.type_name());
    }
    // Above INT64_MAX only a uint64 can be: any value out of range will do.
    const bool huge =
        item.is_number_unsigned() && item.get<uint64_t>() > uint64_t{INT64_MAX};
    values.push_back(huge ? INT64_MAX : item.get<int64_t>());
  }
  return Narrow(values, path);
}

}  // namespace

Result<std::vector<int32_t>> ParseTokenList(const std::string& text) {
  std::vector<int64_t> values;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (bool more = true; more;) {
    while (at != end && *at == ' ') ++at;
    int64_t value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    more = next != end && *next == ',';
    if (error == std::errc::result_out_of_range) {
      return OutOfRange("--tokens: item %zu is %.*s, expected a 32-bit id",
                        values.size(), static_cast<int>(next - at), at);
    }
    if (error != std::errc() || (next != end && !more)) {
      return InvalidArgument(
          "--tokens: item %zu is no integer in '%.60s', expected ids between "
          "commas, e.g. 1,2,3",
          values.size(), text.c_str());
    }
    values.push_back(value);
    at = more ? next + 1 : next;
  }
  return Narrow(values, "--tokens");
}

Result<std::vector<int32_t>> ReadTokensFile(const std::string& path) {
  if (EndsWith(path, ".json")) return ReadJsonTokens(path);
  if (!EndsWith(path, ".npy")) {
    return InvalidArgument(
        "--tokens-file: '%s', expected a name that ends in .json or .npy",
        path.c_str());
  }
  ECPHORY_ASSIGN_OR_RETURN(const std::vector<int64_t> values,
                           ReadNpyInts(path));
  return Narrow(values, path);
}

Result<std::vector<uint8_t>> ReadImageMask(const std::string& path,
                                           size_t tokens) {
  ECPHORY_ASSIGN_OR_RETURN(const std::vector<int64_t> values,
                           ReadNpyInts(path));
  if (values.size() != tokens) {
    return InvalidArgument(
        "--image-mask-file: %s has %zu values, expected one per token: %zu",
        path.c_str(), values.size(), tokens);
  }
  std::vector<uint8_t> mask;
  mask.reserve(tokens);
  for (const int64_t value : values) mask.push_back(value != 0);
  return mask;
}

}  // namespace ecphory::cli
