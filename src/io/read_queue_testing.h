// The ways a read queue can be made, for tests that hold for each of them.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "io/page_cache_queue.h"
#include "io/pool_queue.h"
#include "io/queue_testing.h"
#include "io/test_directory.h"
#include "io/uring_queue.h"

namespace ecphory {

struct Way {
  const char* name;
  bool uring;
  bool direct;
  bool hits_at_once;
  bool in_memory;
  bool page_cache = false;  // copies known pages itself
};

inline constexpr Way kWays[] = {
    {"UringDirect", true, true, false, false},
    {"UringBuffered", true, false, false, false},
    {"PoolDirect", false, true, false, false},
    {"PoolBuffered", false, false, false, false},
    {"PoolHits", false, false, true, false},
    {"PoolMemory", false, false, false, true},
    {"PageCacheUring", true, false, false, false, true},
    {"PageCachePool", false, false, true, false, true},
    {"PageCacheMemory", false, false, true, true, true},
};

// Two files with different bytes, the second of odd size.
class ReadQueueTest : public ::testing::TestWithParam<Way> {
 protected:
  static constexpr uint64_t kSize[] = {1 << 20, (300 << 10) + 700};

  void SetUp() override {
    if (GetParam().uring && !UringAllowed().ok()) {
      GTEST_SKIP() << UringAllowed().ToString();
    }
    for (uint32_t i = 0; i < 2; ++i) {
      WriteFile(Path(i), FileBytes(i, kSize[i]));
      ::sync();
      files_.push_back(OpenOne(i));
    }
    if (GetParam().direct && files_[0]->direct() < 0) {
      GTEST_SKIP() << files_[0]->direct_refusal();
    }
  }

  std::string Path(uint32_t i) const { return dir_ / std::to_string(i); }

  std::shared_ptr<const TableFile> OpenOne(uint32_t i) const {
    if (!GetParam().in_memory) return OpenTable(Path(i));
    return *TableFile::Open(MakeMemoryFile(Path(i), FileBytes(i, kSize[i])));
  }

  std::unique_ptr<ReadQueue> Make(uint32_t depth) const {
    std::vector<QueueFile> files;
    for (const auto& file : files_) files.push_back({file, GetParam().direct});
    auto queue =
        GetParam().uring
            ? MakeUringQueue(files, {.depth = depth})
            : MakePoolQueue(files, {.depth = depth,
                                    .threads = 3,
                                    .hits_at_once = GetParam().hits_at_once});
    EXPECT_TRUE(queue.ok()) << queue.status().ToString();
    if (!GetParam().page_cache) return std::move(queue).value();
    return MakePageCacheQueue(files, std::move(queue).value());
  }

  TestDirectory dir_;
  std::vector<std::shared_ptr<const TableFile>> files_;
};

inline std::string WayName(const ::testing::TestParamInfo<Way>& way) {
  return way.param.name;
}

}  // namespace ecphory
