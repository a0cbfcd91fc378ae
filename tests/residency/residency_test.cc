// Where the page cache is passed by, a table never becomes resident: neither in
// the page cache nor in the process, however many rows are read.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "ecphory/session.h"
#include "engram/layout.h"
#include "io/unique_fd.h"
#include "model/test_models.h"
#include "model/testing.h"

namespace ecphory {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kColumnRows = 120'000;  // of each of six columns
constexpr const char* kWeightsFile = "model-00001-of-00002.safetensors";
constexpr const char* kTablesFile = "model-00002-of-00002.safetensors";
constexpr double kMaxShare = 0.001;

// Random codes that are numbers, or random scales that are ordinary.
std::string RandomBytes(size_t size, bool scales) {
  std::mt19937_64 rng(size);
  std::string bytes(size, '\0');
  for (char& byte : bytes) {
    const uint64_t bits = rng();
    byte = static_cast<char>(scales ? 100 + bits % 20 : bits & 0xbf);
  }
  return bytes;
}

// Golden A with tables of 47 MB each.
void GrowTables(testing::ModelDir* model) {
  auto& text = model->text();
  text["engram_vocab_size"] = kColumnRows;
  const auto layout = engram::DeriveLayout(
      {.layer_ids = text["engram_layer_ids"],
       .max_ngram = text["engram_max_ngram_size"],
       .heads = text["engram_n_heads"],
       .vocab_size = kColumnRows,
       .compressed_vocab_size = text["engram_compressed_vocab_size"]});
  ASSERT_TRUE(layout.ok()) << layout.status().ToString();
  text["engram_num_embeddings"] = nlohmann::json::array();
  for (const engram::LayerLayout& layer : layout->layers) {
    text["engram_num_embeddings"].push_back(layer.rows);
    const std::string prefix =
        "layers." + std::to_string(layer.layer_id) + ".engram.embed.";
    for (const bool scales : {false, true}) {
      auto& tensor = model->At(prefix + (scales ? "scale" : "weight"));
      tensor.shape[0] = layer.rows;
      tensor.bytes = RandomBytes(layer.rows * tensor.shape[1], scales);
    }
  }
}

// Writes the tables to a shard of their own, as they are released: pages of
// weights come with their neighbours as far as the device reads ahead, and here
// these are none of the tables.
std::string WriteShards(testing::ModelDir* model) {
  std::map<std::string, testing::TestTensor> tables;
  for (auto it = model->tensors.begin(); it != model->tensors.end();) {
    const auto next = std::next(it);
    if (it->first.find(".engram.embed.") != std::string::npos) {
      tables.insert(model->tensors.extract(it));
    }
    it = next;
  }
  nlohmann::json index;
  for (const auto& [name, tensor] : model->tensors) {
    index["weight_map"][name] = kWeightsFile;
  }
  for (const auto& [name, tensor] : tables) {
    index["weight_map"][name] = kTablesFile;
  }
  const std::string& path = model->Write();
  std::filesystem::rename(path + "/model.safetensors",
                          path + "/" + kWeightsFile);
  std::ofstream(path + "/model.safetensors.index.json") << index.dump();
  std::ofstream(path + "/" + kTablesFile, std::ios::binary)
      << testing::EncodeSafetensors(tables);
  model->tensors.clear();
  return path;
}

// Writes a file's pages to disk and drops them, as far as the file system lets.
void DropPages(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY));
  ASSERT_TRUE(file.valid());
  ASSERT_EQ(::fsync(file.get()), 0);
  ASSERT_EQ(::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED), 0);
}

struct Pages {
  uint64_t resident = 0;
  uint64_t all = 0;
};

// Whole pages of [offset, offset + bytes) that the page cache holds.
void CountPages(const std::string& path, uint64_t offset, uint64_t bytes,
                Pages* pages) {
  const uint64_t begin = (offset + kPage - 1) / kPage * kPage;
  const uint64_t size = (offset + bytes) / kPage * kPage - begin;
  const UniqueFd file(::open(path.c_str(), O_RDONLY));
  void* base = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(),
                      static_cast<off_t>(begin));
  ASSERT_NE(base, MAP_FAILED);
  std::vector<unsigned char> flags(size / kPage);
  ASSERT_EQ(::mincore(base, size, flags.data()), 0);
  ::munmap(base, size);
  pages->all += flags.size();
  pages->resident += static_cast<uint64_t>(std::count_if(
      flags.begin(), flags.end(), [](unsigned char f) { return f & 1; }));
}

Pages TablePages(const ModelInfo& info) {
  Pages pages;
  for (const EngramTableFacts& table : info.engram_tables) {
    const uint64_t scale_bytes = table.rows * table.row_bytes / 33;
    CountPages(table.file, table.offset, table.bytes - scale_bytes, &pages);
    CountPages(table.scale_file, table.scale_offset, scale_bytes, &pages);
  }
  return pages;
}

uint64_t ResidentBytes() {
  std::ifstream status("/proc/self/status");
  std::string key;
  uint64_t kilobytes = 0, total = 0;
  while (status >> key) {
    if (key != "RssAnon:" && key != "RssFile:") continue;
    status >> kilobytes;
    total += kilobytes * 1024;
  }
  return total;
}

void ExpectNoneStay(const Pages& pages, const char* when) {
  EXPECT_LT(static_cast<double>(pages.resident),
            kMaxShare * static_cast<double>(pages.all))
      << pages.resident << " of " << pages.all << " pages are resident "
      << when;
}

class ResidencyTest : public ::testing::TestWithParam<const char*> {
 protected:
  static void SetUpTestSuite() {
    files_ = new testing::ModelDir();
    GrowTables(files_);
    path_ = WriteShards(files_);
  }
  static void TearDownTestSuite() { delete files_; }

  static void Read(Session& session, size_t tokens, uint32_t seed) {
    std::mt19937 rng(seed);
    std::vector<int32_t> ids(tokens);
    for (auto& id : ids) id = static_cast<int32_t>(rng() % 500);
    ASSERT_TRUE(session.Truncate(0).ok());
    ASSERT_TRUE(session.Append(ids, {}).ok());
  }

  static testing::ModelDir* files_;
  static std::string path_;
};
testing::ModelDir* ResidencyTest::files_ = nullptr;
std::string ResidencyTest::path_;

TEST_P(ResidencyTest, TablesLeaveNothingBehind) {
  const auto info = InspectModel(path_, 0, 0);
  ASSERT_TRUE(info.ok()) << info.status().ToString();
  DropPages(path_ + "/" + kTablesFile);
  if (TablePages(*info).resident > 0) {
    GTEST_SKIP() << "this file system keeps what was written in memory";
  }
  ModelOptions options;
  options.threads = 2;
  options.engram_io = GetParam();
  options.engram_cache_bytes = 0;
  const auto opened = Model::Open(path_, options);
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  const Model& model = **opened;
  if (!model.engram_io().direct) {
    GTEST_SKIP() << "no direct reads here: " << model.engram_io().reason;
  }
  if (model.engram_io().mode != GetParam()) {
    GTEST_SKIP() << "not allowed here: " << model.engram_io().reason;
  }
  auto session = Session::Create(*opened, {});
  ASSERT_TRUE(session.ok());
  ExpectNoneStay(TablePages(model.info()), "after opening");
  Read(**session, 500, 0);  // weights, caches and buffers stand after this
  const uint64_t before = ResidentBytes();
  uint64_t rows = 0;
  for (uint32_t text = 1; text <= 8; ++text) {
    Read(**session, 1000, text);
    rows = (*session)->stats().engram_rows_read;
  }
  const Pages pages = TablePages(model.info());
  // Through the page cache this many rows would leave most pages behind.
  EXPECT_GT(rows, 2 * pages.all);
  ExpectNoneStay(pages, "after reading");
  EXPECT_LT(ResidentBytes(), before + pages.all * kPage / 16);
  std::printf("%s: %llu rows read, %llu of %llu pages resident\n", GetParam(),
              static_cast<unsigned long long>(rows),
              static_cast<unsigned long long>(pages.resident),
              static_cast<unsigned long long>(pages.all));
}

INSTANTIATE_TEST_SUITE_P(Direct, ResidencyTest,
                         ::testing::Values("uring", "pread"),
                         [](const auto& param_info) {
                           return std::string(param_info.param);
                         });

}  // namespace
}  // namespace ecphory

// A test that cannot look says so: ctest counts it as skipped.
int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const int failed = RUN_ALL_TESTS();
  constexpr int kSkipped = 77;
  const auto* unit_test = ::testing::UnitTest::GetInstance();
  return failed != 0 || unit_test->skipped_test_count() == 0 ? failed
                                                             : kSkipped;
}
