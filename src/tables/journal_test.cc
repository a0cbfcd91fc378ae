#include "tables/journal.h"

#include <gtest/gtest.h>

#include <string>

#include "io/test_directory.h"
#include "tables/testing.h"

namespace ecphory::tables {
namespace {

class JournalTest : public ::testing::Test {
 protected:
  // A journal of job "job" with records "one" and "two".
  void MakeTwoRecords() {
    auto journal = Journal::Create(path_, "job");
    ASSERT_TRUE(journal.ok()) << journal.status().ToString();
    ASSERT_TRUE((*journal)->Append("one").ok());
    ASSERT_TRUE((*journal)->Append("two").ok());
  }
  std::vector<std::string> Records() {
    auto journal = Journal::Open(path_, "job");
    EXPECT_TRUE(journal.ok()) << journal.status().ToString();
    return journal.ok() ? (*journal)->records() : std::vector<std::string>();
  }

  TestDirectory directory_;
  std::string path_ = directory_ / "journal";
};

using Texts = std::vector<std::string>;

TEST_F(JournalTest, KeepsRecordsAcrossOpening) {
  MakeTwoRecords();
  EXPECT_EQ(Records(), (Texts{"one", "two"}));
  auto journal = Journal::Open(path_, "job");
  ASSERT_TRUE(journal.ok());
  ASSERT_TRUE((*journal)->Append("three").ok());
  EXPECT_EQ(Records(), (Texts{"one", "two", "three"}));
}

TEST_F(JournalTest, CutAtEveryByteKeepsTheWholeRecordsBeforeIt) {
  MakeTwoRecords();
  const std::string whole = ReadFile(path_);
  const size_t header = whole.find('\n') + 1;
  const size_t one = whole.find('\n', header) + 1;
  for (size_t size = header; size < whole.size(); ++size) {
    WriteFile(path_, whole.substr(0, size));
    EXPECT_EQ(Records(), size < one ? Texts{} : Texts{"one"}) << size;
  }
}

TEST_F(JournalTest, GoesOnBehindATornRecord) {
  MakeTwoRecords();
  const std::string whole = ReadFile(path_);
  WriteFile(path_, whole.substr(0, whole.size() - 2));
  auto journal = Journal::Open(path_, "job");
  ASSERT_TRUE(journal.ok());
  ASSERT_TRUE((*journal)->Append("again").ok());
  EXPECT_EQ(Records(), (Texts{"one", "again"}));
}

TEST_F(JournalTest, DropsAnAlteredRecordAndWhatFollows) {
  MakeTwoRecords();
  std::string bytes = ReadFile(path_);
  bytes[bytes.find("one")] = 'O';
  WriteFile(path_, bytes);
  EXPECT_EQ(Records(), Texts{});
}

// A job is named by its files, whatever these are called.
TEST_F(JournalTest, JobsMayHaveNewlinesInTheirNames) {
  ASSERT_TRUE(Journal::Create(path_, "a\nb").ok());
  EXPECT_TRUE(Journal::IsOne(path_));
  EXPECT_TRUE(Journal::Open(path_, "a\nb").ok());
  EXPECT_FALSE(Journal::Open(path_, "a\nc").ok());
}

TEST_F(JournalTest, RefusesAnotherJobAndOtherFiles) {
  MakeTwoRecords();
  auto other = Journal::Open(path_, "another job");
  EXPECT_EQ(other.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(other.status().message().find("another source"), std::string::npos);
  WriteFile(path_, "my diary\n");
  EXPECT_EQ(Journal::Open(path_, "job").status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadFile(path_), "my diary\n");
  EXPECT_EQ(Journal::Open(directory_ / "none", "job").status().code(),
            StatusCode::kNotFound);
}

}  // namespace
}  // namespace ecphory::tables
