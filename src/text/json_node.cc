#include "text/json_node.h"

#include "base/quote.h"

namespace ecphory {

JsonNode JsonNode::operator[](const char* key) const {
  static const Json kNull;
  const auto found = value_->find(key);
  const Json* value = found == value_->end() ? &kNull : &*found;
  return {value, path_.empty() ? key : path_ + "." + key, *where_};
}

JsonNode JsonNode::operator[](size_t index) const {
  return {&(*value_)[index], path_ + "[" + std::to_string(index) + "]",
          *where_};
}

bool JsonNode::Is(const char* text) const {
  return value_->is_string() && value_->get_ref<const std::string&>() == text;
}

bool JsonNode::IsUnset() const {
  if (value_->is_boolean()) return !value_->get<bool>();
  if (value_->is_string()) return Is("");
  return value_->empty();
}

std::string JsonNode::Describe(const std::string& expected) const {
  const std::string found =
      value_->is_structured()
          ? value_->type_name()
          : Quoted(value_->dump(-1, ' ', true, Json::error_handler_t::replace));
  return *where_ + ": key '" + path_ + "': found " + found + ", expected " +
         expected;
}

Status JsonNode::Malformed(const std::string& expected) const {
  return {StatusCode::kCorrupt, Describe(expected)};
}

Status JsonNode::Unusable(const std::string& expected) const {
  return {StatusCode::kUnsupported, Describe(expected)};
}

Status JsonNode::RequireUnset() const {
  return IsUnset() ? Status::Ok() : Unusable("none");
}

Status JsonNode::RequireObject() const {
  return value_->is_object() ? Status::Ok() : Malformed("an object");
}

Status JsonNode::RequireArray() const {
  return value_->is_array() ? Status::Ok() : Malformed("an array");
}

Status JsonNode::RequireType(const char* type) const {
  ECPHORY_RETURN_IF_ERROR(RequireObject());
  const JsonNode found = (*this)["type"];
  if (found.Is(type)) return Status::Ok();
  return found.Unusable(Quoted(type));
}

Result<std::string> JsonNode::String() const {
  if (!value_->is_string()) return Malformed("a string");
  return value_->get<std::string>();
}

Result<bool> JsonNode::Flag() const {
  if (value_->is_null()) return false;
  if (!value_->is_boolean()) return Malformed("true or false");
  return value_->get<bool>();
}

Result<size_t> JsonNode::Index(size_t end) const {
  if (!value_->is_number_unsigned() || value_->get<uint64_t>() >= end) {
    return Malformed("a whole number below " + std::to_string(end));
  }
  return value_->get<size_t>();
}

}  // namespace ecphory
