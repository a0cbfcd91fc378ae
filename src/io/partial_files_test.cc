#include "ecphory/partial_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "io/atomic_directory.h"
#include "io/file.h"
#include "io/test_directory.h"

namespace ecphory {
namespace {

using Names = std::vector<std::string>;

void EndProcess() {
  RemovePartialFiles();
  _exit(7);
}

// Removing is for a process that ends: `body` is run in one of its own, which
// exits with 7.
void InItsOwnProcess(const std::function<void()>& body) {
  EXPECT_EXIT(body(), testing::ExitedWithCode(7), "");
}

void WriteEmpty(const std::string& path) {
  auto writer = AtomicFileWriter::Create(path);
  if (!writer.ok() || !(*writer)->Commit().ok()) _exit(1);
}

TEST(PartialFilesDeathTest, WhatIsNotFinishedIsRemovedAtOnce) {
  TestDirectory dir;
  InItsOwnProcess([&] {
    auto one = AtomicFileWriter::Create(dir / "one");
    auto two = AtomicFileWriter::Create(dir / "two");
    auto three = AtomicFileWriter::Create(dir / "three");
    if (!(*one)->Commit().ok()) _exit(1);
    two->reset();
    EndProcess();
  });
  EXPECT_EQ(dir.List(), Names{"one"});
}

// With finished and unfinished files in them, more than one getdents64 returns.
TEST(PartialFilesDeathTest, DirectoriesAreRemovedWithWhatIsInThem) {
  TestDirectory dir;
  InItsOwnProcess([&] {
    auto kept = AtomicDirectory::Create(dir / "kept");
    WriteEmpty((*kept)->path() + "/file");
    if (!(*kept)->Commit().ok()) _exit(1);
    auto gone = AtomicDirectory::Create(dir / "gone");
    for (int i = 0; i < 500; ++i) {
      std::ofstream((*gone)->path() + "/a file with a name of its own " +
                    std::to_string(i));
    }
    auto half = AtomicFileWriter::Create((*gone)->path() + "/half");
    EndProcess();
  });
  EXPECT_EQ(dir.List(), Names{"kept"});
  EXPECT_TRUE(ReadWholeFile(dir / "kept/file", 1).ok());
}

TEST(PartialFilesDeathTest, NothingIsMadeOrFinishedAfterwards) {
  TestDirectory dir;
  InItsOwnProcess([&] {
    auto file = AtomicFileWriter::Create(dir / "file");
    auto directory = AtomicDirectory::Create(dir / "directory");
    RemovePartialFiles();
    const StatusCode codes[] = {
        (*file)->Commit().code(),
        (*directory)->Commit().code(),
        AtomicFileWriter::Create(dir / "next").status().code(),
        AtomicDirectory::Create(dir / "last").status().code(),
    };
    for (const StatusCode code : codes) {
      if (code != StatusCode::kCancelled) _exit(1);
    }
    _exit(7);
  });
  EXPECT_EQ(dir.List(), Names{});
}

// Signals at any moment of threads that make, finish and give up files and
// directories of files.
TEST(PartialFilesDeathTest, ASignalAtAnyMomentLeavesNoPart) {
  const auto work = [](const std::string& stem) {
    for (int i = 0;; ++i) {
      const std::string name = stem + std::to_string(i);
      auto directory = AtomicDirectory::Create(name);
      if (!directory.ok()) return;
      for (const char* file : {"/one", "/two"}) {
        auto writer = AtomicFileWriter::Create((*directory)->path() + file);
        if (writer.ok() && i % 3 != 0) (void)(*writer)->Commit();
      }
      if (i % 2 == 0) (void)(*directory)->Commit();
    }
  };
  for (int round = 0; round < 40; ++round) {
    TestDirectory dir;
    InItsOwnProcess([&] {
      std::signal(SIGTERM, [](int) { EndProcess(); });
      std::thread one(work, dir / "one");
      std::thread two([] {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        ::kill(::getpid(), SIGTERM);
      });
      std::this_thread::sleep_for(std::chrono::microseconds(97 * round));
      work(dir / "main");
      one.join();
      two.join();
    });
    for (const std::string& name : dir.List()) {
      EXPECT_EQ(name.find(".partial-"), std::string::npos) << name;
      // Directories that have their name have all that they had then.
      const bool committed =
          std::atoi(name.substr(name.find_first_of("0123456789")).c_str()) %
              3 !=
          0;
      EXPECT_EQ(ReadWholeFile(dir / (name + "/one"), 1).ok(), committed)
          << name;
      EXPECT_EQ(ReadWholeFile(dir / (name + "/two"), 1).ok(), committed)
          << name;
    }
  }
}

}  // namespace
}  // namespace ecphory
