#include "text/tokenizer_json.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "text/testing.h"

namespace ecphory {
namespace {

using Json = nlohmann::json;

// What the DeepSeek files look like, with a vocabulary of bytes.
Json SmallDocument() {
  const TokenizerData data = ByteVocabulary();
  Json vocab;
  for (size_t id = 0; id < data.tokens.size(); ++id)
    vocab[data.tokens[id]] = id;
  vocab["he"] = 256;
  Json stages = Json::array();
  for (const std::string& pattern : data.split_patterns) {
    stages.push_back({{"type", "Split"},
                      {"pattern", {{"Regex", pattern}}},
                      {"behavior", "Isolated"},
                      {"invert", false}});
  }
  stages.push_back({{"type", "ByteLevel"},
                    {"add_prefix_space", false},
                    {"trim_offsets", true},
                    {"use_regex", false}});
  const auto added = [](int id, const char* content, bool special) {
    return Json{{"id", id},
                {"content", content},
                {"special", special},
                {"normalized", !special},
                {"single_word", false},
                {"lstrip", false},
                {"rstrip", false}};
  };
  return {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens",
       {added(257, "<｜begin▁of▁sentence｜>", true),
        added(258, "<｜end▁of▁sentence｜>", true),
        added(259, "<｜User｜>", false)}},
      {"normalizer", {{"type", "Sequence"}, {"normalizers", Json::array()}}},
      {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", stages}}},
      {"post_processor", {{"type", "ByteLevel"}}},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", nullptr},
        {"byte_fallback", false},
        {"vocab", vocab},
        {"merges", {"h e"}}}},
  };
}

Result<Tokenizer> Load(const Json& document) {
  return Tokenizer::FromJson(document.dump(), "tokenizer.json");
}

TEST(TokenizerJsonTest, ReadsTheDeepSeekForm) {
  const auto tokenizer = Load(SmallDocument());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  EXPECT_EQ(tokenizer->vocab_size(), 260u);
  EXPECT_EQ(tokenizer->bos_id(), 257);
  EXPECT_EQ(tokenizer->eos_id(), 258);
  EXPECT_TRUE(tokenizer->data().add_bos);
  EXPECT_EQ(tokenizer->data().split_patterns,
            Tokenizer::DeepSeekSplitPatterns());
  EXPECT_EQ(Pieces(*tokenizer, "he<｜User｜>"),
            (std::vector<std::string>{"he", "<｜User｜>"}));
}

TEST(TokenizerJsonTest, ReadsMergesAsPairs) {
  Json document = SmallDocument();
  document["model"]["merges"][0] = Json::array({"h", "e"});
  const auto tokenizer = Load(document);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  EXPECT_EQ(tokenizer->data().merges, (std::vector<std::string>{"h e"}));
}

TEST(TokenizerJsonTest, ReadsSparseFiles) {
  Json document = SmallDocument();
  for (const char* key : {"version", "truncation", "padding", "added_tokens",
                          "normalizer", "post_processor"}) {
    document.erase(key);
  }
  document["pre_tokenizer"] = {{"type", "ByteLevel"}, {"use_regex", false}};
  const auto tokenizer = Load(document);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  EXPECT_EQ(tokenizer->bos_id(), -1);
  EXPECT_FALSE(tokenizer->data().add_bos);
}

TEST(TokenizerJsonTest, AddedTokensMayBeInTheVocabulary) {
  Json document = SmallDocument();
  document["model"]["vocab"]["<｜User｜>"] = 259;
  EXPECT_TRUE(Load(document).ok());
}

TEST(TokenizerJsonTest, SurvivesAnyTruncation) {
  const std::string text = SmallDocument().dump();
  for (size_t length = 0; length < text.size(); length += 7) {
    const auto tokenizer = Tokenizer::FromJson(text.substr(0, length), "t");
    ASSERT_EQ(tokenizer.status().code(), StatusCode::kCorrupt) << length;
  }
}

struct BadDocument {
  const char* what;  // in the message
  std::function<void(Json*)> break_it;
};

Json& Stage(Json* document, size_t index) {
  return (*document)["pre_tokenizer"]["pretokenizers"][index];
}

std::vector<BadDocument> BadDocuments() {
  const auto set = [](const char* pointer, Json value) {
    return [pointer, value](Json* d) {
      (*d)[Json::json_pointer(pointer)] = value;
    };
  };
  const auto erase = [](const char* key) {
    return [key](Json* d) { d->erase(key); };
  };
  return {
      {"expected a JSON object, found array",
       [](Json* d) { *d = Json::array(); }},
      {"'truncation'", set("/truncation", {{"max_length", 512}})},
      {"'padding'", set("/padding", {{"strategy", "BatchLongest"}})},
      {"'normalizer.type': found '\"NFC\"'",
       set("/normalizer", {{"type", "NFC"}})},
      {"'normalizer.normalizers'",
       set("/normalizer/normalizers", {{{"type", "NFKC"}}})},
      {"'normalizer'", set("/normalizer", 7)},
      {"'pre_tokenizer'", erase("pre_tokenizer")},
      {"'pre_tokenizer.type': found '\"Whitespace\"'",
       set("/pre_tokenizer", {{"type", "Whitespace"}})},
      {"'pre_tokenizer.pretokenizers'", set("/pre_tokenizer/pretokenizers", 1)},
      {"'pre_tokenizer.pretokenizers'",
       set("/pre_tokenizer/pretokenizers", Json::array())},
      {"'pre_tokenizer.pretokenizers[0].type'",
       [](Json* d) { Stage(d, 0)["type"] = "Digits"; }},
      {"'pre_tokenizer.pretokenizers[1].behavior': found '\"Removed\"'",
       [](Json* d) { Stage(d, 1)["behavior"] = "Removed"; }},
      {"pretokenizers[1].invert'",
       [](Json* d) { Stage(d, 1)["invert"] = true; }},
      {"pretokenizers[1].pattern'",
       [](Json* d) {
         Stage(d, 1)["pattern"] = {{"String", "x"}};
       }},
      {"pretokenizers[1].pattern.Regex'",
       [](Json* d) { Stage(d, 1)["pattern"]["Regex"] = 3; }},
      {"split pattern 0: byte 0: escape",
       [](Json* d) { Stage(d, 0)["pattern"]["Regex"] = "\\w"; }},
      {"split pattern 0: '(a' is no regular expression",
       [](Json* d) { Stage(d, 0)["pattern"]["Regex"] = "(a"; }},
      {"pretokenizers[3].use_regex'",
       [](Json* d) { Stage(d, 3)["use_regex"] = true; }},
      {"pretokenizers[3].use_regex'",
       [](Json* d) { Stage(d, 3).erase("use_regex"); }},
      {"pretokenizers[3].add_prefix_space'",
       [](Json* d) { Stage(d, 3)["add_prefix_space"] = true; }},
      {"pretokenizers[2].type'",
       [](Json* d) { (*d)["pre_tokenizer"]["pretokenizers"].erase(3); }},
      {"'post_processor.type'",
       set("/post_processor", {{"type", "TemplateProcessing"}})},
      {"'decoder'", erase("decoder")},
      {"'decoder.type'", set("/decoder/type", "WordPiece")},
      {"'added_tokens'", set("/added_tokens", Json::object())},
      {"'added_tokens[1]'", set("/added_tokens/1", "x")},
      {"'added_tokens[1].id'", set("/added_tokens/1/id", -1)},
      {"'added_tokens[1].id'", set("/added_tokens/1/id", 1.5)},
      {"'added_tokens[1].id'", set("/added_tokens/1/id", 1ull << 40)},
      {"'added_tokens[1].content'", set("/added_tokens/1/content", nullptr)},
      {"'added_tokens[1].special'", set("/added_tokens/1/special", 1)},
      {"'added_tokens[1].lstrip'", set("/added_tokens/1/lstrip", true)},
      {"'added_tokens[1].rstrip'", set("/added_tokens/1/rstrip", true)},
      {"'added_tokens[1].single_word'",
       set("/added_tokens/1/single_word", true)},
      {"has id 300, but there are 260", set("/added_tokens/1/id", 300)},
      {"id 257 is both", set("/added_tokens/1/id", 257)},
      {"are both '<\\xef", set("/added_tokens/1/content", "<｜User｜>")},
      {"added token 66 'A': the vocabulary has 'B' there",
       set("/added_tokens/3", {{"id", 66}, {"content", "A"}})},
      {"'model'", erase("model")},
      {"'model.type': found '\"Unigram\"'", set("/model/type", "Unigram")},
      {"'model.dropout'", set("/model/dropout", 0.1)},
      {"'model.byte_fallback'", set("/model/byte_fallback", true)},
      {"'model.ignore_merges'", set("/model/ignore_merges", true)},
      {"'model.continuing_subword_prefix'",
       set("/model/continuing_subword_prefix", "##")},
      {"'model.end_of_word_suffix'", set("/model/end_of_word_suffix", "</w>")},
      {"'model.vocab'", set("/model/vocab", Json::array())},
      {"token 'he': expected a whole number", set("/model/vocab/he", "256")},
      {"token 'he': expected a whole number", set("/model/vocab/he", -2)},
      {"token 'he' has id 4294967296", set("/model/vocab/he", 1ull << 32)},
      {"id 65 is both", set("/model/vocab/he", 65)},
      {"no ordinary token for byte 0x41",
       [](Json* d) {
         (*d)["model"]["vocab"].erase("A");
         (*d)["model"]["vocab"]["AA"] = 65;
       }},
      {"'model.merges'", [](Json* d) { (*d)["model"].erase("merges"); }},
      {"'model.merges[0]'", set("/model/merges/0", 1)},
      {"'model.merges[0]'",
       set("/model/merges/0", Json::array({"h", "e", "r"}))},
      {"'model.merges[0][1]'", set("/model/merges/0", Json::array({"h", 5}))},
      {"merge 0 'he': expected two tokens", set("/model/merges/0", "he")},
      {"one space", set("/model/merges/0", Json::array({"h", "e e"}))},
      {"'hh' is not in the vocabulary", set("/model/merges/0", "h h")},
      {"the pair has a merge already", set("/model/merges/1", "h e")},
  };
}

TEST(TokenizerJsonTest, BadDocumentsAreRefusedByName) {
  for (const BadDocument& row : BadDocuments()) {
    Json document = SmallDocument();
    row.break_it(&document);
    const auto tokenizer = Load(document);
    ASSERT_FALSE(tokenizer.ok()) << row.what;
    const std::string message = tokenizer.status().message();
    EXPECT_TRUE(message.starts_with("tokenizer.json: ")) << message;
    EXPECT_NE(message.find(row.what), std::string::npos)
        << message << "\nshould name " << row.what;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST(TokenizerJsonTest, BadTextIsRefused) {
  const struct {
    const char* what;
    std::string text;
  } rows[] = {
      {"not JSON", ""},
      {"not JSON", "{"},
      {"not JSON", "{} {}"},
      {"not JSON", "\xff\xfe{}"},
      {"not JSON", R"({"a": "\ud800"})"},
      {"not JSON", "{\"a\": \"\x80\"}"},
      {"holds a number", R"({"a": 1e999})"},
      {"not JSON", std::string(1'000'000, '[')},
      {"nested deeper than 16",
       std::string(1000, '[') + std::string(1000, ']')},
      {"at most 67108864", std::string((1 << 26) + 1, ' ')},
  };
  for (const auto& row : rows) {
    const auto tokenizer = Tokenizer::FromJson(row.text, "t");
    ASSERT_FALSE(tokenizer.ok()) << row.what;
    const std::string message = tokenizer.status().message();
    EXPECT_NE(message.find(row.what), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace ecphory
