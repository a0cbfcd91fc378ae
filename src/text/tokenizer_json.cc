#include "text/tokenizer_json.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/quote.h"
#include "text/json_node.h"

namespace ecphory {

namespace {

using Json = nlohmann::json;
using Node = JsonNode;

constexpr size_t kMaxJsonBytes = size_t{1} << 26;  // 8 times the released file
constexpr int kMaxDepth = 16;

constexpr std::string_view kDeepSeekBos = "<｜begin▁of▁sentence｜>";
constexpr std::string_view kDeepSeekEos = "<｜end▁of▁sentence｜>";

Result<Json> ParseDocument(std::string_view text, const std::string& where) {
  if (text.size() > kMaxJsonBytes) {
    return Unsupported("%s: %zu bytes, at most %zu can be read", where.c_str(),
                       text.size(), kMaxJsonBytes);
  }
  bool too_deep = false;
  const auto bound_depth = [&too_deep](int depth, Json::parse_event_t, Json&) {
    too_deep |= depth > kMaxDepth;
    return depth <= kMaxDepth;  // false: keeps nothing of it
  };
  try {
    Json document = Json::parse(text, bound_depth);
    if (!too_deep) return document;
  } catch (const Json::parse_error& error) {
    return Corrupt("%s: byte %zu: not JSON", where.c_str(), error.byte);
  } catch (const Json::exception&) {
    return Corrupt("%s: holds a number that no JSON reader can represent",
                   where.c_str());
  }
  return Corrupt("%s: nested deeper than %d levels", where.c_str(), kMaxDepth);
}

// --- the vocabulary -------------------------------------------------------

Result<TokenizerData::AddedToken> ReadAddedToken(const Node& node) {
  ECPHORY_RETURN_IF_ERROR(node.RequireObject());
  for (const char* flag : {"single_word", "lstrip", "rstrip"}) {
    ECPHORY_RETURN_IF_ERROR(node[flag].RequireUnset());
  }
  TokenizerData::AddedToken token;
  ECPHORY_ASSIGN_OR_RETURN(const size_t id, node["id"].Index(INT32_MAX));
  token.id = static_cast<int32_t>(id);
  ECPHORY_ASSIGN_OR_RETURN(token.content, node["content"].String());
  ECPHORY_ASSIGN_OR_RETURN(token.special, node["special"].Flag());
  ECPHORY_ASSIGN_OR_RETURN(token.normalized, node["normalized"].Flag());
  return token;
}

Status ReadAddedTokens(const Node& list, TokenizerData* data) {
  if (list.value().is_null()) return Status::Ok();
  ECPHORY_RETURN_IF_ERROR(list.RequireArray());
  for (size_t i = 0; i < list.value().size(); ++i) {
    ECPHORY_ASSIGN_OR_RETURN(TokenizerData::AddedToken token,
                             ReadAddedToken(list[i]));
    data->added.push_back(std::move(token));
  }
  return Status::Ok();
}

// Fills data->tokens, one slot per id, from the vocabulary and the added
// tokens. Ids must be exactly 0 ... n-1.
class TokenSlots {
 public:
  TokenSlots(size_t count, TokenizerData* data, const std::string& where)
      : data_(data), taken_(count, false), where_(where) {
    data->tokens.resize(count);
  }

  Status Put(size_t id, const std::string& token) {
    if (id >= taken_.size()) {
      return Corrupt("%s: token %s has id %zu, but there are %zu tokens",
                     where_.c_str(), Quoted(token).c_str(), id, taken_.size());
    }
    if (taken_[id]) {
      return Corrupt("%s: id %zu is both %s and %s", where_.c_str(), id,
                     Quoted(data_->tokens[id]).c_str(), Quoted(token).c_str());
    }
    data_->tokens[id] = token;
    taken_[id] = true;
    return Status::Ok();
  }

 private:
  TokenizerData* data_;
  std::vector<bool> taken_;
  const std::string& where_;
};

// As many distinct tokens as ids 0 ... n-1 and no id twice: so no hole either.
Status ReadVocabulary(const Node& vocab, const std::string& where,
                      TokenizerData* data) {
  ECPHORY_RETURN_IF_ERROR(vocab.RequireObject());
  std::vector<const TokenizerData::AddedToken*> beyond;
  for (const TokenizerData::AddedToken& token : data->added) {
    if (!vocab.value().contains(token.content)) beyond.push_back(&token);
  }
  const size_t count = vocab.value().size() + beyond.size();
  TokenSlots slots(count, data, where);
  for (const auto& [token, id] : vocab.value().items()) {
    if (!id.is_number_unsigned()) {
      return Corrupt("%s: key 'model.vocab': token %s: expected a whole number",
                     where.c_str(), Quoted(token).c_str());
    }
    ECPHORY_RETURN_IF_ERROR(slots.Put(id.get<size_t>(), token));
  }
  for (const TokenizerData::AddedToken* token : beyond) {
    ECPHORY_RETURN_IF_ERROR(
        slots.Put(static_cast<size_t>(token->id), token->content));
  }
  return Status::Ok();
}

// "left right", or ["left", "right"] in newer files.
Result<std::string> ReadMerge(const Node& node) {
  if (node.value().is_string()) return node.String();
  if (!node.value().is_array() || node.value().size() != 2) {
    return node.Malformed("\"left right\" or [\"left\", \"right\"]");
  }
  ECPHORY_ASSIGN_OR_RETURN(std::string left, node[size_t{0}].String());
  ECPHORY_ASSIGN_OR_RETURN(std::string right, node[size_t{1}].String());
  return left + " " + right;
}

Status ReadMerges(const Node& merges, TokenizerData* data) {
  ECPHORY_RETURN_IF_ERROR(merges.RequireArray());
  data->merges.reserve(merges.value().size());
  for (size_t i = 0; i < merges.value().size(); ++i) {
    ECPHORY_ASSIGN_OR_RETURN(std::string merge, ReadMerge(merges[i]));
    data->merges.push_back(std::move(merge));
  }
  return Status::Ok();
}

Status ReadModel(const Node& model, const std::string& where,
                 TokenizerData* data) {
  ECPHORY_RETURN_IF_ERROR(model.RequireType("BPE"));
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix",
                          "byte_fallback", "ignore_merges"}) {
    ECPHORY_RETURN_IF_ERROR(model[key].RequireUnset());
  }
  const Json& dropout = model["dropout"].value();
  if (!dropout.is_null() && dropout != 0) {
    return model["dropout"].Unusable("none");
  }
  ECPHORY_RETURN_IF_ERROR(ReadVocabulary(model["vocab"], where, data));
  return ReadMerges(model["merges"], data);
}

// --- the pipeline around it -----------------------------------------------

Status ReadSplit(const Node& split, TokenizerData* data) {
  ECPHORY_RETURN_IF_ERROR(split.RequireType("Split"));
  if (!split["behavior"].Is("Isolated")) {
    return split["behavior"].Unusable("'Isolated'");
  }
  ECPHORY_RETURN_IF_ERROR(split["invert"].RequireUnset());
  const Node pattern = split["pattern"];
  if (!pattern.value().is_object() || !pattern.value().contains("Regex")) {
    return pattern.Unusable("{\"Regex\": ...}");
  }
  ECPHORY_ASSIGN_OR_RETURN(std::string regex, pattern["Regex"].String());
  data->split_patterns.push_back(std::move(regex));
  return Status::Ok();
}

Status CheckByteLevel(const Node& stage) {
  ECPHORY_RETURN_IF_ERROR(stage.RequireType("ByteLevel"));
  ECPHORY_RETURN_IF_ERROR(stage["add_prefix_space"].RequireUnset());
  // Absent means true in the reference.
  const Json& use_regex = stage["use_regex"].value();
  return use_regex.is_boolean() && !use_regex.get<bool>()
             ? Status::Ok()
             : stage["use_regex"].Unusable("false");
}

// Splits, then ByteLevel; a lone ByteLevel need not be in a Sequence.
Status ReadPreTokenizer(const Node& node, TokenizerData* data) {
  ECPHORY_RETURN_IF_ERROR(node.RequireObject());
  if (node["type"].Is("ByteLevel")) return CheckByteLevel(node);
  ECPHORY_RETURN_IF_ERROR(node.RequireType("Sequence"));
  const Node stages = node["pretokenizers"];
  ECPHORY_RETURN_IF_ERROR(stages.RequireArray());
  const size_t count = stages.value().size();
  if (count == 0) return stages.Unusable("a ByteLevel stage at the end");
  for (size_t i = 0; i + 1 < count; ++i) {
    ECPHORY_RETURN_IF_ERROR(ReadSplit(stages[i], data));
  }
  return CheckByteLevel(stages[count - 1]);
}

Status CheckNormalizer(const Node& node) {
  if (node.value().is_null()) return Status::Ok();
  ECPHORY_RETURN_IF_ERROR(node.RequireType("Sequence"));
  return node["normalizers"].RequireUnset();
}

// A ByteLevel post-processor changes offsets only, never ids.
Status CheckPostProcessor(const Node& node) {
  if (node.value().is_null()) return Status::Ok();
  return node.RequireType("ByteLevel");
}

void FindSentenceMarks(TokenizerData* data) {
  for (const TokenizerData::AddedToken& token : data->added) {
    if (token.content == kDeepSeekBos) data->bos_id = token.id;
    if (token.content == kDeepSeekEos) data->eos_id = token.id;
  }
  data->add_bos = data->bos_id >= 0;
}

}  // namespace

Result<TokenizerData> ParseTokenizerJson(std::string_view text,
                                         const std::string& where) {
  ECPHORY_ASSIGN_OR_RETURN(const Json document, ParseDocument(text, where));
  if (!document.is_object()) {
    return Corrupt("%s: expected a JSON object, found %s", where.c_str(),
                   document.type_name());
  }
  const Node root(&document, "", where);
  TokenizerData data;
  ECPHORY_RETURN_IF_ERROR(root["truncation"].RequireUnset());
  ECPHORY_RETURN_IF_ERROR(root["padding"].RequireUnset());
  ECPHORY_RETURN_IF_ERROR(CheckNormalizer(root["normalizer"]));
  ECPHORY_RETURN_IF_ERROR(ReadPreTokenizer(root["pre_tokenizer"], &data));
  ECPHORY_RETURN_IF_ERROR(CheckPostProcessor(root["post_processor"]));
  ECPHORY_RETURN_IF_ERROR(root["decoder"].RequireType("ByteLevel"));
  ECPHORY_RETURN_IF_ERROR(ReadAddedTokens(root["added_tokens"], &data));
  ECPHORY_RETURN_IF_ERROR(ReadModel(root["model"], where, &data));
  FindSentenceMarks(&data);
  return data;
}

}  // namespace ecphory
