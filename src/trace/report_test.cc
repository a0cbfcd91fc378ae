// A report of a golden model, held to plain loops over its own passes.
#include "ecphory/engram_report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>

#include "ecphory/session.h"
#include "io/file.h"
#include "io/test_directory.h"
#include "trace/conditions.h"
#include "trace/report_passes.h"
#include "trace/svg_plot.h"

namespace ecphory {
namespace {

using Json = nlohmann::json;

const char kModel[] = ECPHORY_TEST_DATA "/golden/v41/A";

std::shared_ptr<const Model> ModelOrDie() {
  ModelOptions options;
  options.threads = 1;
  auto model = Model::Open(kModel, options);
  EXPECT_TRUE(model.ok()) << model.status().ToString();
  return *model;
}

std::vector<int32_t> SomeTokens(size_t count, int32_t seed) {
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < count; ++i) {
    tokens.push_back((static_cast<int32_t>(i * i) * 7 + seed) % 100);
  }
  return tokens;
}

EngramReportOptions SmallOptions() {
  EngramReportOptions options;
  options.windows = {8, 32};
  options.cache_bytes = {1 << 10, 1 << 14};
  options.context = 40;
  options.decode_tokens = 5;
  options.top = 4;
  return options;
}

EngramReport ReportOrDie(const EngramReportOptions& options) {
  const std::vector<EngramReportText> texts = {{"a", SomeTokens(70, 1)},
                                               {"<b>", SomeTokens(30, 2)},
                                               {"a", SomeTokens(20, 3)}};
  auto report = ReportEngram(ModelOrDie(), texts, options);
  EXPECT_TRUE(report.ok()) << report.status().ToString();
  return std::move(report).value();
}

// Bits of every token but the first of each window of 40, by hand.
double BitsByHand(const std::vector<int32_t>& tokens, bool engram) {
  SessionOptions session_options;
  session_options.context = 40;
  session_options.engram = engram;
  const auto session = Session::Create(ModelOrDie(), session_options);
  double bits = 0;
  for (size_t t = 0; t + 1 < tokens.size(); ++t) {
    EXPECT_TRUE((*session)->Append({&tokens[t], 1}, {}).ok());
    double sum = 0;
    for (const float x : (*session)->logits()) sum += std::exp(double{x});
    bits += std::log2(sum) -
            (*session)->logits()[static_cast<size_t>(tokens[t + 1])] /
                std::log(2.0);
  }
  return bits;
}

TEST(ReportTest, LossIsThatOfTheModelWithEngramOnAndOff) {
  const EngramReport report = ReportOrDie(SmallOptions());
  ASSERT_EQ(report.kinds.size(), 2u);
  const EngramKindReport& b = report.kinds[1];
  EXPECT_EQ(b.kind, "<b>");
  EXPECT_EQ(b.loss.tokens, 29u);
  EXPECT_NEAR(b.loss.bits_on, BitsByHand(SomeTokens(30, 2), true), 1e-3);
  EXPECT_NEAR(b.loss.bits_off, BitsByHand(SomeTokens(30, 2), false), 1e-3);
  EXPECT_NE(b.loss.bits_on, b.loss.bits_off);
  // Texts of 70 and 20 tokens: windows of 40, 30 and 20.
  EXPECT_EQ(report.kinds[0].texts, 2u);
  EXPECT_EQ(report.kinds[0].tokens, 90u);
  EXPECT_EQ(report.kinds[0].loss.tokens, 87u);
}

TEST(ReportTest, EveryGateIsCountedOnce) {
  const EngramReport report = ReportOrDie(SmallOptions());
  const auto model = ModelOrDie();
  const ModelConfig& config = model->config();
  for (const EngramKindReport& kind : report.kinds) {
    ASSERT_EQ(kind.gates.size(),
              config.engram.layer_ids.size() * config.hc_mult);
    for (const EngramGateHistogram& gate : kind.gates) {
      ASSERT_EQ(gate.bins.size(), kGateBins);
      uint64_t count = 0;
      double low = 0, high = 0;
      for (size_t i = 0; i < gate.bins.size(); ++i) {
        count += gate.bins[i];
        low += static_cast<double>(gate.bins[i] * i) / kGateBins;
        high += static_cast<double>(gate.bins[i] * (i + 1)) / kGateBins;
      }
      EXPECT_EQ(count, kind.tokens);
      EXPECT_GE(gate.mean_gate, low / static_cast<double>(count));
      EXPECT_LE(gate.mean_gate, high / static_cast<double>(count));
    }
  }
}

TEST(ReportTest, EffectsAreInOrderAndBounded) {
  const EngramReport report = ReportOrDie(SmallOptions());
  for (const EngramKindReport& kind : report.kinds) {
    EXPECT_LE(kind.helped.size(), 4u);
    double last = INFINITY;
    for (const EngramTokenEffect& e : kind.helped) {
      const double gain = e.bits_off - e.bits_on;
      EXPECT_GT(gain, 0);
      EXPECT_LE(gain, last);
      last = gain;
    }
    for (const EngramTokenEffect& e : kind.hurt)
      EXPECT_LT(e.bits_off, e.bits_on);
  }
}

// The parts of a report that no clock has touched.
std::string Untimed(const EngramReport& report) {
  Json json = Json::parse(EngramReportJson(report));
  json.erase("conditions");
  for (Json& kind : json["kinds"]) {
    for (const char* key :
         {"speed", "store", "decode_read_seconds", "decode_wait_seconds"}) {
      kind.erase(key);
    }
  }
  return json.dump();
}

TEST(ReportTest, IsDeterministicButForClocks) {
  EXPECT_EQ(Untimed(ReportOrDie(SmallOptions())),
            Untimed(ReportOrDie(SmallOptions())));
}

TEST(ReportTest, JsonHasTheDocumentedShape) {
  const Json json = Json::parse(EngramReportJson(ReportOrDie(SmallOptions())));
  const Json& kind = json["kinds"][0];
  EXPECT_EQ(kind["reuse"][1]["window"], 32);
  EXPECT_TRUE(kind["reuse"][1]["within"].contains("all"));
  EXPECT_TRUE(kind["reuse"][1]["across"].contains("2"));
  EXPECT_EQ(kind["lru_cache"][0]["bytes"], 1 << 10);
  EXPECT_LE(kind["lru_cache"][1]["hit_rate"], kind["unbounded_cache_hit_rate"]);
  EXPECT_EQ(kind["speed"]["decode"]["tokens"], 5);
  EXPECT_EQ(kind["decode_wait_seconds"]["count"], 5);
  EXPECT_GT(kind["loss"]["on"]["bits_per_token"], 0.0);
  const Json& conditions = json["conditions"];
  for (const char* key : {"path", "version", "backend", "processor", "system",
                          "engram_io", "context", "batch", "tables"}) {
    EXPECT_TRUE(conditions.contains(key)) << key;
  }
  EXPECT_EQ(conditions["context"], 40);
}

TEST(ReportTest, PageIsSelfContainedAndEscaped) {
  const std::string html = EngramReportHtml(ReportOrDie(SmallOptions()));
  EXPECT_FALSE(std::regex_search(
      html,
      std::regex("https?:|\\bsrc=|\\bhref=|@import|url\\(|<link|<script")));
  EXPECT_EQ(html.find("<b>:"), std::string::npos);
  EXPECT_NE(html.find("&lt;b&gt;"), std::string::npos);
  EXPECT_NE(html.find("<svg"), std::string::npos);
}

TEST(ReportTest, RefusesWhatCannotBeReported) {
  const auto model = ModelOrDie();
  const auto code = [&](const std::vector<EngramReportText>& texts,
                        const EngramReportOptions& options) {
    return ReportEngram(model, texts, options).status().code();
  };
  EXPECT_EQ(code({}, {}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({{"a", {}}}, {}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({{"a", {1, 512}}}, {}), StatusCode::kOutOfRange);
  EngramReportOptions options;
  options.context = 1;
  EXPECT_EQ(code({{"a", {1, 2}}}, options), StatusCode::kInvalidArgument);
  options = {};
  options.windows = {0};
  EXPECT_EQ(code({{"a", {1, 2}}}, options), StatusCode::kInvalidArgument);
  std::atomic<bool> cancel{true};
  options = SmallOptions();
  options.cancel = &cancel;
  EXPECT_EQ(code({{"a", SomeTokens(10, 1)}}, options), StatusCode::kCancelled);
}

TEST(ReportTest, OneTokenIsATextToo) {
  const auto report = ReportEngram(ModelOrDie(), {{"a", {7}}}, SmallOptions());
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report->kinds[0].loss.tokens, 0u);
  EXPECT_FALSE(EngramReportTextPage(*report).empty());
  EXPECT_FALSE(EngramReportHtml(*report).empty());
}

TEST(ReportTest, TextsAreCutIntoWindows) {
  const std::vector<int32_t> tokens = {1, 2, 3, 4, 5};
  const trace::Windows plain = trace::CutText(tokens, -1, 2);
  EXPECT_EQ(plain.sequences,
            (std::vector<std::vector<int32_t>>{{1, 2}, {3, 4}, {5}}));
  const trace::Windows with_bos = trace::CutText(tokens, 0, 4);
  EXPECT_EQ(with_bos.sequences,
            (std::vector<std::vector<int32_t>>{{0, 1, 2, 3}, {0, 4, 5}}));
}

TEST(ReportTest, BitsOfAToken) {
  const std::vector<float> logits = {0, 0, 0, 0};
  EXPECT_NEAR(trace::TokenBits(logits, 2), 2, 1e-12);
  const std::vector<float> large = {1000, 1000};
  EXPECT_NEAR(trace::TokenBits(large, 0), 1, 1e-12);
}

TEST(ReportTest, ResidencyOfAFileJustWritten) {
  TestDirectory directory;
  const std::string path = directory / "bytes";
  auto file = AtomicFileWriter::Create(path);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE((*file)->WriteZeros(100000).ok());
  ASSERT_TRUE((*file)->Commit().ok());
  const auto resident = trace::ResidentBytes(path, 5000, 90000);
  ASSERT_TRUE(resident.ok());
  EXPECT_LE(*resident, 90000u);
  EXPECT_FALSE(trace::ResidentBytes(path, 5000, 100000).ok());
  EXPECT_FALSE(trace::ResidentBytes(directory / "no", 0, 1).ok());
}

TEST(SvgPlotTest, LabelsAreEscaped) {
  const std::string svg =
      trace::RenderLines({.label = "\"><script>",
                          .ticks = {"<a>"},
                          .series = {{"<s>", {.5}, 0, false}}});
  EXPECT_EQ(svg.find("<script"), std::string::npos);
  EXPECT_EQ(svg.find("<s>"), std::string::npos);
  EXPECT_EQ(svg.find("<a>"), std::string::npos);
}

}  // namespace
}  // namespace ecphory
