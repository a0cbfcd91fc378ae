#include "format/json_keys.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace ecphory {

namespace {

using nlohmann::json;

// A value as an error message shows it: short and on one line. Lists and
// objects are only named, as their depth is the file's choice.
std::string Shown(const json& value) {
  if (value.is_array()) return "a list";
  if (value.is_object()) return "an object";
  constexpr size_t kMaxShown = 60;
  const std::string text =
      value.dump(-1, ' ', true, json::error_handler_t::replace);
  return text.size() <= kMaxShown ? text : text.substr(0, kMaxShown) + "...";
}

class JsonKeySource : public KeySource {
 public:
  explicit JsonKeySource(json root) : root_(std::move(root)) {
    const auto text = root_.find("text_config");
    if (text != root_.end() && text->is_object()) text_ = &*text;
  }

  bool Has(const std::string& key) const override {
    return Find(key) != nullptr;
  }

  std::string Spelling(const std::string& key) const override {
    const bool in_text =
        SearchesText(key) && (Lookup(*text_, key) != nullptr || !Has(key));
    return in_text ? "text_config." + key : key;
  }

  Result<uint64_t> Uint(const std::string& key) const override {
    return ToUint(*Find(key), Spelling(key));
  }

  Result<int64_t> Int(const std::string& key) const override {
    const json& value = *Find(key);
    const bool fits =
        value.is_number_integer() &&
        (!value.is_number_unsigned() ||
         value.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX));
    if (fits) return value.get<int64_t>();
    return Wrong(value, Spelling(key), "an integer");
  }

  Result<double> Float(const std::string& key) const override {
    const json& value = *Find(key);
    if (value.is_number()) return value.get<double>();
    return Wrong(value, Spelling(key), "a number");
  }

  Result<bool> Bool(const std::string& key) const override {
    const json& value = *Find(key);
    if (value.is_boolean()) return value.get<bool>();
    return Wrong(value, Spelling(key), "true or false");
  }

  Result<std::string> String(const std::string& key) const override {
    const json& value = *Find(key);
    if (value.is_string()) return value.get<std::string>();
    return Wrong(value, Spelling(key), "a string");
  }

  Result<std::vector<uint64_t>> UintArray(
      const std::string& key) const override {
    const json& value = *Find(key);
    if (!value.is_array()) return Wrong(value, Spelling(key), "a list");
    std::vector<uint64_t> out;
    out.reserve(value.size());
    for (size_t i = 0; i < value.size(); ++i) {
      const std::string element = Spelling(key) + "[" + std::to_string(i) + "]";
      ECPHORY_ASSIGN_OR_RETURN(const uint64_t item, ToUint(value[i], element));
      out.push_back(item);
    }
    return out;
  }

 private:
  // The member or, for a number, the element that `name` picks.
  static const json* Step(const json& from, const std::string& name) {
    if (from.is_object()) {
      const auto it = from.find(name);
      return it == from.end() ? nullptr : &*it;
    }
    const bool first = from.is_array() && name == "0" && !from.empty();
    return first ? &from[0] : nullptr;
  }

  // Dots step inwards: "rope_scaling.factor", "architectures.0".
  static const json* Lookup(const json& root, const std::string& key) {
    const json* at = &root;
    for (size_t begin = 0; at != nullptr;) {
      const size_t dot = key.find('.', begin);
      at = Step(*at, key.substr(begin, dot - begin));
      if (dot == std::string::npos) break;
      begin = dot + 1;
    }
    return at != nullptr && at->is_null() ? nullptr : at;
  }

  // Each part has a model_type of its own; the whole's is at the top.
  bool SearchesText(const std::string& key) const {
    return text_ != nullptr && key != "model_type";
  }

  const json* Find(const std::string& key) const {
    const json* found = SearchesText(key) ? Lookup(*text_, key) : nullptr;
    return found ? found : Lookup(root_, key);
  }

  static Status Wrong(const json& value, const std::string& key,
                      const char* expected) {
    return Corrupt("%s: found %s, expected %s", key.c_str(),
                   Shown(value).c_str(), expected);
  }

  static Result<uint64_t> ToUint(const json& value, const std::string& key) {
    if (value.is_number_unsigned()) return value.get<uint64_t>();
    return Wrong(value, key, "an integer of 0 or more");
  }

  json root_;
  const json* text_ = nullptr;  // into root_
};

}  // namespace

Result<std::unique_ptr<KeySource>> ParseJsonKeys(const std::string& text,
                                                 const std::string& where) {
  json root;
  try {
    root = json::parse(text);
  } catch (const json::parse_error& error) {
    return Corrupt("%s: not valid JSON at byte %zu", where.c_str(), error.byte);
  } catch (const json::exception&) {  // the only other: a number overflows
    return Corrupt("%s: a number is too large, expected finite values",
                   where.c_str());
  }
  if (!root.is_object()) {
    return Corrupt("%s: found %s, expected a JSON object", where.c_str(),
                   Shown(root).c_str());
  }
  std::unique_ptr<KeySource> source =
      std::make_unique<JsonKeySource>(std::move(root));
  return source;
}

}  // namespace ecphory
