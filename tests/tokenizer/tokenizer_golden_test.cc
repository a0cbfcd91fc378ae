// The public DeepSeek-V3 tokenizer: its token map and its traps.
#include <gtest/gtest.h>
#include <lzma.h>
#include <zlib.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "ecphory/tokenizer.h"
#include "text/token_map.h"

namespace ecphory {
namespace {

constexpr size_t kTokens = 128'815;
constexpr int32_t kBos = 0;
constexpr int32_t kUser = 128'803;

std::string ReadGolden(const std::string& name) {
  std::ifstream file(ECPHORY_TEST_DATA "/golden/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string UnpackXz(const std::string& packed) {
  std::string text(16 << 20, '\0');
  uint64_t memory_limit = UINT64_MAX;
  size_t in = 0;
  size_t out = 0;
  const lzma_ret code = lzma_stream_buffer_decode(
      &memory_limit, 0, nullptr,
      reinterpret_cast<const uint8_t*>(packed.data()), &in, packed.size(),
      reinterpret_cast<uint8_t*>(text.data()), &out, text.size());
  EXPECT_EQ(code, LZMA_OK);
  text.resize(out);
  return text;
}

std::vector<int32_t> ReadTokenMap() {
  const std::string packed = ReadGolden("engram_release/v3_token_map.i32.zlib");
  std::vector<int32_t> map(kTokens);
  uLongf size = map.size() * sizeof(int32_t);
  const int code =
      uncompress(reinterpret_cast<Bytef*>(map.data()), &size,
                 reinterpret_cast<const Bytef*>(packed.data()), packed.size());
  EXPECT_EQ(code, Z_OK);
  EXPECT_EQ(size, kTokens * sizeof(int32_t));
  return map;
}

const std::string& V3Json() {
  static const std::string json =
      UnpackXz(ReadGolden("tokenizer/deepseek_v3_tokenizer.json.xz"));
  return json;
}

const Tokenizer& V3() {
  static const Result<Tokenizer> tokenizer =
      Tokenizer::FromJson(V3Json(), "deepseek_v3_tokenizer.json");
  if (!tokenizer.ok()) {
    ADD_FAILURE() << tokenizer.status().ToString();
    std::abort();
  }
  return *tokenizer;
}

std::vector<int32_t> Encode(std::string_view text,
                            const EncodeOptions& options = {}) {
  const auto ids = V3().Encode(text, options);
  EXPECT_TRUE(ids.ok()) << ids.status().ToString();
  return ids.ok() ? *ids : std::vector<int32_t>{};
}

using Ids = std::vector<int32_t>;

bool RoundTrips(const std::string& text) {
  const auto back = V3().Decode(Encode(text));
  return back.ok() && *back == text;
}

TEST(DeepSeekV3Test, Loads) {
  EXPECT_EQ(V3().vocab_size(), kTokens);
  EXPECT_EQ(V3().bos_id(), kBos);
  EXPECT_EQ(V3().eos_id(), 1);
  EXPECT_EQ(V3().data().split_patterns, Tokenizer::DeepSeekSplitPatterns());
  EXPECT_TRUE(V3().IsSpecial(kBos));
  EXPECT_FALSE(V3().IsSpecial(kUser));
}

TEST(DeepSeekV3Test, TokenMapEqualsGolden) {
  const auto map = BuildTokenMap(V3());
  ASSERT_TRUE(map.ok()) << map.status().ToString();
  const std::vector<int32_t> golden = ReadTokenMap();
  ASSERT_EQ(map->size(), golden.size());
  for (size_t id = 0; id < golden.size(); ++id) {
    ASSERT_EQ((*map)[id], golden[id])
        << "token " << id << " '" << V3().TokenString(id) << "'";
  }
  EXPECT_EQ(*std::max_element(map->begin(), map->end()), 98'626);
}

TEST(DeepSeekV3Test, KnownIds) {
  EXPECT_EQ(Encode("The the  the The THE"),
            (Ids{671, 270, 223, 270, 455, 6367}));
  EXPECT_EQ(Encode("<｜User｜>The"), (Ids{kUser, 671}));
}

TEST(DeepSeekV3Test, SpecialTokensInUserTextStayOrdinary) {
  const std::string text = "<｜begin▁of▁sentence｜>";
  const Ids ordinary = Encode(text);
  EXPECT_GT(ordinary.size(), 1u);
  for (const int32_t id : ordinary) EXPECT_FALSE(V3().IsSpecial(id));
  EXPECT_TRUE(RoundTrips(text));
  EXPECT_EQ(Encode(text, {.parse_special = true}), (Ids{kBos}));
}

// Every token's bytes come back from encoding them, whatever ids that takes.
TEST(DeepSeekV3Test, RoundTripOfEveryToken) {
  for (int32_t id = 0; id < static_cast<int32_t>(kTokens); ++id) {
    const std::string bytes(V3().TokenBytes(id));
    ASSERT_FALSE(bytes.empty()) << id;
    if (id % 16 != 0) continue;  // quick enough with sanitizers
    ASSERT_TRUE(RoundTrips(bytes)) << id;
  }
}

TEST(DeepSeekV3Test, RoundTripOfLongRuns) {
  for (const char* unit : {"a", " ", "\n", "\r\n ", "7", "\xe4\xb8\xad", "é ",
                           "\xff", "<", "<｜User｜>"}) {
    std::string text;
    while (text.size() < 1 << 20) text += unit;
    EXPECT_TRUE(RoundTrips(text)) << unit;
  }
  EXPECT_TRUE(RoundTrips(std::string(200'000, '\n')));
}

TEST(DeepSeekV3Test, StreamDecodingEqualsDecoding) {
  const std::string text =
      "👩‍👩‍👧‍👦 naïve 汉字 🫨 हिन्दी "
      "<｜User｜> "
      "done";
  StreamDecoder decoder(V3());
  std::string streamed;
  for (const int32_t id : Encode(text)) streamed += decoder.Push(id);
  EXPECT_EQ(streamed + decoder.Finish(), text);
}

// A GGUF keeps tokens, merges and types only.
TEST(DeepSeekV3Test, AddedTokensSurviveTokenTypes) {
  const TokenizerData& data = V3().data();
  std::vector<int32_t> types(kTokens, 1);
  for (const auto& token : data.added) {
    if (token.special) types[token.id] = 3;
  }
  const auto added = AddedTokensFromTypes(data.tokens, data.merges, types);
  std::vector<bool> special(kTokens);
  for (const auto& token : data.added) special[token.id] = token.special;
  ASSERT_EQ(added.size(), data.added.size());
  for (const auto& token : added) {
    EXPECT_EQ(token.special, special[token.id]) << token.content;
  }
}

}  // namespace
}  // namespace ecphory
