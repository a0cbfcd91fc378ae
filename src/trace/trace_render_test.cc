// The three renderings of a trace: what they hold, and what they never let out.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>

#include "ecphory/engram_trace.h"
#include "trace/testing.h"

namespace ecphory::trace {
namespace {

using ::ecphory::trace::testing::MakeTrace;
using Json = nlohmann::json;

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) {
    ++count;
  }
  return count;
}

const std::vector<std::string> kHostile = {"<script>alert(1)</script>",
                                           "</section>",
                                           "\"onload='x'",
                                           "&lt;",
                                           "]]>",
                                           "<!--",
                                           "\xe2\x82",
                                           "\xac",
                                           "\n\n",
                                           "\t",
                                           std::string("\0", 1),
                                           "\xe2\x80\xae"};

TEST(TraceHtmlTest, TextNeverBecomesMarkup) {
  EngramTrace trace = MakeTrace(kHostile);
  trace.name = "<img src=x onerror=alert(1)>";
  trace.path = "</title><script>";
  trace.classes = {{3, 2, {"</script><script>", "<b>"}}};
  const std::string html = EngramTraceHtml(trace);
  // The data and the code, and nothing that the text brought.
  EXPECT_EQ(Count(html, "<script"), 2u);
  EXPECT_EQ(Count(html, "</script"), 2u);
  EXPECT_EQ(Count(html, "<img"), 0u);
  EXPECT_EQ(Count(html, "</section"), 1u);
  EXPECT_EQ(Count(html, "</title"), 1u);
  EXPECT_EQ(Count(html, "<!--"), 0u);
  EXPECT_EQ(html.find('\0'), std::string::npos);
  EXPECT_NE(html.find("&lt;script&gt;alert(1)&lt;/script&gt;"),
            std::string::npos);
}

TEST(TraceHtmlTest, NothingIsLoadedFromAnywhere) {
  const std::string html = EngramTraceHtml(MakeTrace({"a", " b"}));
  EXPECT_FALSE(std::regex_search(
      html, std::regex("https?:|\\bsrc=|\\bhref=|@import|url\\(|<link|fetch\\("
                       "|XMLHttp|innerHTML|document\\.write")));
  EXPECT_NE(html.find("default-src 'none'"), std::string::npos);
}

TEST(TraceHtmlTest, DataIsWhatTheTraceSays) {
  const EngramTrace trace = MakeTrace(kHostile);
  const std::string html = EngramTraceHtml(trace);
  const std::string open = "id=\"data\">";
  const size_t begin = html.find(open) + open.size();
  const Json data =
      Json::parse(html.substr(begin, html.find("</script", begin) - begin));
  ASSERT_EQ(data["tokens"].size(), kHostile.size());
  EXPECT_EQ(data["tokens"][0]["piece"], kHostile[0]);
  EXPECT_EQ(data["tokens"][0]["layers"][0]["mixed"][0], "18446744073709551615");
  EXPECT_EQ(data["tokens"][6]["hex"], "e282");
  EXPECT_EQ(data["tokens"][6]["whole"], "\xe2\x82\xac");
  EXPECT_EQ(data["tokens"][7]["whole"], "\xe2\x82\xac");
  EXPECT_FALSE(data["tokens"][0].contains("hex"));
}

TEST(TraceHtmlTest, ShowsWhiteSpaceAndPartsOfCharacters) {
  const std::string html = EngramTraceHtml(MakeTrace(kHostile));
  EXPECT_NE(html.find("\xE2\x8F\x8E</span><span class=\"ws\">\xE2\x8F\x8E"),
            std::string::npos);
  EXPECT_NE(html.find("aria-label=\"&quot;\\n\\n&quot;\""), std::string::npos);
  EXPECT_NE(html.find(">e282</span>"), std::string::npos);
  EXPECT_NE(html.find(">ac<b>\xe2\x82\xac</b></span>"), std::string::npos);
}

TEST(TraceHtmlTest, SaysWhenTheTextWasCut) {
  EngramTrace trace = MakeTrace({"a"});
  EXPECT_EQ(EngramTraceHtml(trace).find("Cut:"), std::string::npos);
  trace.tokens_given = 12345;
  EXPECT_NE(EngramTraceHtml(trace).find("first 1 of 12,345 tokens"),
            std::string::npos);
  EXPECT_NE(EngramTraceText(trace, {}).find("first 1 of 12,345 tokens"),
            std::string::npos);
}

TEST(TraceHtmlTest, WithoutWeightsNoGateIsMentioned) {
  EngramTrace trace = MakeTrace({"a", "b"});
  trace.streams = 0;
  for (auto& token : trace.tokens) token.layers[0].streams.clear();
  const std::string html = EngramTraceHtml(trace);
  EXPECT_NE(html.find("addresses only"), std::string::npos);
  EXPECT_EQ(html.find("name=\"stream\""), std::string::npos);
}

TEST(TraceJsonTest, HasTheDocumentedShape) {
  const Json json = Json::parse(EngramTraceJson(MakeTrace(kHostile)));
  EXPECT_EQ(json["layers"][0]["multipliers"][1], "5");
  EXPECT_EQ(json["layers"][0]["columns"][1]["ngram"], 3);
  EXPECT_EQ(json["layers"][0]["columns"][1]["offset"], 11);
  const Json& token = json["tokens"][6];
  EXPECT_EQ(token["position"], 6);
  EXPECT_EQ(token["bytes"], "e282");
  EXPECT_EQ(token["compressed"], 6);
  EXPECT_EQ(token["dead"], false);
  EXPECT_EQ(token["ngrams"][0]["compressed"], Json({9, 6}));
  EXPECT_EQ(token["ngrams"][0]["pieces"][0], nullptr);
  EXPECT_EQ(token["layers"][0]["remainders"], Json({6, 7}));
  EXPECT_EQ(token["layers"][0]["streams"][1]["gate"], 0.75);
  EXPECT_EQ(json["tokens_traced"], kHostile.size());
}

TEST(TraceJsonTest, ADeadTokenHasNoCompressedId) {
  EngramTrace trace = MakeTrace({"a"});
  trace.tokens[0].compressed = -1;
  trace.tokens[0].reach = 0;
  const Json json = Json::parse(EngramTraceJson(trace));
  EXPECT_EQ(json["tokens"][0]["compressed"], nullptr);
  EXPECT_EQ(json["tokens"][0]["dead"], true);
  EXPECT_NE(EngramTraceText(trace, {}).find("dead: an image position"),
            std::string::npos);
}

TEST(TraceJsonTest, AnUnknownProductIsNull) {
  EngramTrace trace = MakeTrace({"a"});
  trace.tokens[0].layers[0].streams[0].dot = std::nanf("");
  const Json json = Json::parse(EngramTraceJson(trace));
  EXPECT_EQ(json["tokens"][0]["layers"][0]["streams"][0]["dot"], nullptr);
  EXPECT_NE(EngramTraceHtml(trace).find("[0.25,null,"), std::string::npos);
}

TEST(TraceTextTest, LinesStayWithinTheWidth) {
  EngramTrace trace = MakeTrace({"one", " two", " three"});
  for (const uint32_t width : {60u, 80u, 200u}) {
    const std::string text = EngramTraceText(trace, {.width = width});
    size_t begin = 0, end = 0;
    while ((end = text.find('\n', begin)) != std::string::npos) {
      EXPECT_LE(end - begin, width + 8) << text.substr(begin, end - begin);
      begin = end + 1;
    }
  }
}

TEST(TraceTextTest, EveryColumnShowsItsArithmetic) {
  const std::string text =
      EngramTraceText(MakeTrace({"a"}), {.every_column = true});
  EXPECT_NE(text.find("mixed 18446744073709551615"), std::string::npos);
  EXPECT_NE(text.find("head 0  mod 13 = 7, + 11 = row 18"), std::string::npos);
}

}  // namespace
}  // namespace ecphory::trace
