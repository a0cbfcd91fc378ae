// That a benchmark measures what it says; its figures are not tested.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "ecphory/engram_measure.h"
#include "ecphory/engram_tables.h"
#include "io/make_queue.h"
#include "io/test_directory.h"
#include "tables/fio.h"
#include "tables/read_probe.h"
#include "tables/residency.h"
#include "tables/testing.h"

namespace ecphory {
namespace {

using tables::Percentile;

class BenchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SynthOptions synth;
    synth.output = directory_ / "t.gguf";
    synth.layout = "mini";
    synth.rows = 20000;
    ASSERT_TRUE(SynthTables(synth).ok());
    options_.input.path = synth.output;
    options_.seconds = 0.01;
    options_.depths = {2, 8};
    options_.modes = {"pread", "mmap"};
  }
  TestDirectory directory_;
  TablesBenchOptions options_;
};

TEST_F(BenchTest, EveryWayStateAndDepthHasAPoint) {
  const auto bench = BenchTables(options_);
  ASSERT_TRUE(bench.ok()) << bench.status().ToString();
  // pread cold, mmap cold and warm; a token and two depths.
  EXPECT_EQ(bench->points.size(), 9u);
  EXPECT_EQ(bench->ceiling.size(), 3u);  // 48 for the token
  EXPECT_EQ(bench->rows_per_token, 24u);
  for (const BenchPoint& point : bench->points) {
    EXPECT_GT(point.rows, 0u);
    EXPECT_EQ(point.rows, point.tokens * 24);
    EXPECT_GT(point.rows_per_second, 0);
    EXPECT_LE(point.p50_us, point.p99_us);
    EXPECT_EQ(point.of_ceiling > 0, point.state == "cold");
  }
  EXPECT_NE(bench->pattern.find("uniform random"), std::string::npos);
}

TEST_F(BenchTest, PictureIsWholeAndNamesItsConditions) {
  auto bench = BenchTables(options_);
  ASSERT_TRUE(bench.ok());
  bench->path = "a<b>&\"c\"";
  const std::string svg = BenchPicture(*bench);
  EXPECT_EQ(svg.rfind("<svg", 0), 0u);
  EXPECT_NE(svg.find("</svg>"), std::string::npos);
  EXPECT_NE(svg.find("a&lt;b&gt;&amp;&quot;c&quot;"), std::string::npos);
  EXPECT_NE(svg.find(bench->date), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  // One line for the device and for each way and state.
  size_t lines = 0;
  for (size_t at = 0; (at = svg.find("<polyline", at)) != std::string::npos;
       ++at) {
    ++lines;
  }
  EXPECT_EQ(lines, 4u);
}

TEST_F(BenchTest, RefusesWhatMeansNothing) {
  options_.depths = {0};
  EXPECT_EQ(BenchTables(options_).status().code(),
            StatusCode::kInvalidArgument);
  options_.depths = {1};
  options_.modes = {"fast"};
  EXPECT_EQ(BenchTables(options_).status().code(),
            StatusCode::kInvalidArgument);
  options_.modes = {};
  options_.pattern = TablesBenchOptions::Pattern::kText;
  EXPECT_EQ(BenchTables(options_).status().code(),
            StatusCode::kInvalidArgument);
  options_.text = "no tokenizer here";
  EXPECT_EQ(BenchTables(options_).status().code(), StatusCode::kUnsupported);
}

TEST_F(BenchTest, CancelEndsIt) {
  options_.progress = [](const std::string&, uint64_t done, uint64_t total) {
    EXPECT_LE(done, total);
    return done < 3;
  };
  EXPECT_EQ(BenchTables(options_).status().code(), StatusCode::kCancelled);
}

TEST_F(BenchTest, InfoTellsPlacesAndRates) {
  TablesInfoOptions options;
  options.input = options_.input;
  options.seconds = 0.03;
  const auto info = InspectTables(options);
  ASSERT_TRUE(info.ok()) << info.status().ToString();
  EXPECT_EQ(info->kind, "GGUF");
  EXPECT_EQ(info->reads_per_token, 24u);
  ASSERT_EQ(info->tables.size(), 2u);
  EXPECT_EQ(info->tables[0].row_bytes, 66u);
  EXPECT_EQ(info->tables[0].layer, 1u);
  ASSERT_EQ(info->files.size(), 1u);
  ASSERT_EQ(info->measured.size(), 2u);
  EXPECT_EQ(info->measured[1].depth, 64u);
  EXPECT_GT(info->measured[0].p50_us, 0);
  EXPECT_FALSE(info->auto_mode.empty());
  options.measure = false;
  EXPECT_TRUE(InspectTables(options)->measured.empty());
}

TEST_F(BenchTest, ResidencyIsSeenAndDropped) {
  const std::string path = options_.input.path;
  const uint64_t size = std::filesystem::file_size(path);
  (void)tables::ReadFile(path);
  const auto read = tables::ResidentBytes(path, 0, size);
  ASSERT_TRUE(read.has_value());
  EXPECT_GE(*read, size / 4096 * 4096);
  // Of a page, the part that was asked about.
  const auto inside = tables::ResidentBytes(path, 100, 50);
  if (inside) {
    EXPECT_EQ(*inside, 50u);
  }
  ASSERT_TRUE(tables::DropResident(path, 0, size).ok());
  const auto dropped = tables::ResidentBytes(path, 0, size);
  // tmpfs cannot forget.
  EXPECT_TRUE(*dropped == 0 || *dropped == *read);
}

TEST(Percentiles, AreThoseOfTheSortedList) {
  std::vector<double> values(100);
  for (size_t i = 0; i < 100; ++i) values[i] = static_cast<double>(100 - i);
  EXPECT_EQ(Percentile(values, 50), 50);
  EXPECT_EQ(Percentile(values, 99), 99);
  EXPECT_EQ(Percentile(values, 100), 100);
  EXPECT_EQ(Percentile({7}, 50), 7);
  EXPECT_EQ(Percentile({}, 50), 0);
}

TEST(FioReport, FiguresAreRead) {
  const auto rate = tables::ParseFio(R"(note: hello
{"jobs": [{"usr_cpu": 5.0, "sys_cpu": 15.0, "read": {"total_ios": 1000,
  "iops": 50000.0, "clat_ns": {"percentile": {"50.000000": 20000,
  "95.000000": 30000, "99.000000": 45000}}}}]})");
  ASSERT_TRUE(rate.ok()) << rate.status().ToString();
  EXPECT_EQ(rate->reads_per_second, 50000);
  EXPECT_EQ(rate->p99_us, 45);
  EXPECT_DOUBLE_EQ(rate->cpu_us_per_read, 4);
  EXPECT_EQ(tables::ParseFio("").status().code(), StatusCode::kCorrupt);
  EXPECT_EQ(tables::ParseFio("{}").status().code(), StatusCode::kCorrupt);
}

}  // namespace
}  // namespace ecphory
