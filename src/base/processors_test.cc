#include "base/processors.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include "base/thread_pool.h"

namespace ecphory {
namespace {

using List = std::vector<int>;

const List kAllowed = {0, 1, 2, 3, 8, 9};

TEST(Processors, ListsAreNumbersAndRanges) {
  EXPECT_EQ(*ParseProcessorList("0", kAllowed), List{0});
  EXPECT_EQ(*ParseProcessorList("2-3,0", kAllowed), (List{2, 3, 0}));
  EXPECT_EQ(*ParseProcessorList("0-3,8-9", kAllowed), kAllowed);
}

std::string ErrorOf(const std::string& list) {
  const auto parsed = ParseProcessorList(list, kAllowed);
  return parsed.ok() ? "parsed" : parsed.status().message();
}

TEST(Processors, BadListsNameWhatIsWrong) {
  EXPECT_NE(ErrorOf("").find("such as 0-3,8"), std::string::npos);
  EXPECT_NE(ErrorOf("1,").find("such as"), std::string::npos);
  EXPECT_NE(ErrorOf("1,x").find("'x'"), std::string::npos);
  EXPECT_NE(ErrorOf("-1").find("'-1'"), std::string::npos);
  EXPECT_NE(ErrorOf("1-").find("'1-'"), std::string::npos);
  EXPECT_NE(ErrorOf("1--2").find("'1--2'"), std::string::npos);
  EXPECT_NE(ErrorOf("3-1").find("expected 1-3"), std::string::npos);
  EXPECT_NE(ErrorOf("1,0-2").find("processor 1 is given twice"),
            std::string::npos);
  EXPECT_NE(ErrorOf("0-4").find("processor 4: this process may run on 0-3,8-9"),
            std::string::npos);
  EXPECT_NE(ErrorOf("99999999999").find("such as"), std::string::npos);
  EXPECT_NE(ErrorOf("0-2000000000").find("such as"), std::string::npos);
}

TEST(Processors, AllowedOnesAreCounted) {
  const List allowed = AllowedProcessors();
  ASSERT_FALSE(allowed.empty());
  EXPECT_EQ(AvailableProcessors(), allowed.size());
  EXPECT_TRUE(ParseProcessorList(std::to_string(allowed[0]), allowed).ok());
}

TEST(Processors, BindingToNoProcessorFails) {
  EXPECT_FALSE(BindThread(pthread_self(), -1).ok());
}

// Two threads a core, numbered as servers do: 0 and 4 share one.
TEST(Processors, EveryCoreComesBeforeAnySecondThread) {
  const auto root = std::filesystem::temp_directory_path() /
                    ("processors_test." + std::to_string(::getpid()));
  for (int i = 0; i < 8; ++i) {
    const auto folder = root / "sys/devices/system/cpu" /
                        ("cpu" + std::to_string(i)) / "topology";
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "thread_siblings_list") << i % 4 << "," << i % 4 + 4;
  }
  EXPECT_EQ(CoresFirst({0, 1, 2, 3, 4, 5}, root), (List{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(CoresFirst({1, 4, 5, 6}, root), (List{1, 4, 6, 5}));
  std::filesystem::remove_all(root);
  EXPECT_EQ(CoresFirst({3, 4}, root), (List{3, 4}));  // unknown: as they are
}

// Threads run where they were bound.
TEST(Processors, WorkersRunWhereTheyAreBound) {
  const List allowed = AllowedProcessors();
  const List processors = {allowed.front(), allowed.back()};
  auto pool = ThreadPool::Create(2, processors);
  ASSERT_TRUE(pool.ok()) << pool.status().ToString();
  const pthread_t caller = pthread_self();
  std::atomic<int> seen{-1};
  for (int tries = 0; tries < 1000 && seen < 0; ++tries) {
    (*pool)->ParallelFor(2, 1, [&](size_t, size_t, size_t) {
      if (pthread_equal(caller, pthread_self()) == 0)
        seen = sched_getcpu();
      else
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
  }
  EXPECT_EQ(seen, allowed.back());
  EXPECT_FALSE(ThreadPool::Create(2, List{0, CPU_SETSIZE}).ok());
}

TEST(ThreadBinding, LastsAsLongAsItLives) {
  const List allowed = AllowedProcessors();
  {
    auto binding = ThreadBinding::Bind(allowed.back());
    ASSERT_TRUE(binding.ok()) << binding.status().ToString();
    EXPECT_EQ(AllowedProcessors(), List{allowed.back()});
    const ThreadBinding moved = std::move(*binding);
    *binding = ThreadBinding();
    EXPECT_EQ(AllowedProcessors(), List{allowed.back()});
  }
  EXPECT_EQ(AllowedProcessors(), allowed);
  EXPECT_FALSE(ThreadBinding::Bind(CPU_SETSIZE).ok());
  EXPECT_EQ(AllowedProcessors(), allowed);
}

}  // namespace
}  // namespace ecphory
