#include "io/output_path.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <utility>

#include "ecphory/output_path.h"
#include "io/test_directory.h"

namespace ecphory {
namespace {

class OutputPathTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Write("in.gguf");
    std::filesystem::create_directory(directory_ / "model");
    Write("model/config.json");
  }
  void Write(const std::string& name) { std::ofstream(directory_ / name) << 1; }
  StatusCode Check(const std::string& output,
                   const std::vector<std::string>& inputs) {
    std::vector<std::string> paths;
    for (const std::string& input : inputs) {
      paths.push_back(input.empty() ? "" : directory_ / input);
    }
    return CheckOutputPath(directory_ / output, paths).code();
  }
  TestDirectory directory_;
};

TEST_F(OutputPathTest, AnInputUnderAnyNameIsRefused) {
  std::filesystem::create_symlink(directory_ / "in.gguf",
                                  directory_ / "link.gguf");
  std::filesystem::create_hard_link(directory_ / "in.gguf",
                                    directory_ / "hard.gguf");
  for (const char* name :
       {"in.gguf", "./in.gguf", "model/../in.gguf", "link.gguf", "hard.gguf"}) {
    EXPECT_EQ(Check(name, {"", "in.gguf"}), StatusCode::kInvalidArgument)
        << name;
  }
  EXPECT_EQ(Check("out", {"", "in.gguf", "missing"}), StatusCode::kOk);
}

TEST_F(OutputPathTest, SoAreTheFilesOfAModelsDirectory) {
  EXPECT_EQ(Check("model/config.json", {"model"}),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(Check("model", {"model"}), StatusCode::kInvalidArgument);
  Write("model/Old.GGUF");
  EXPECT_EQ(Check("model/Old.GGUF", {"model"}), StatusCode::kInvalidArgument);
  // What is not there, and what is no part of a model, can be written.
  EXPECT_EQ(Check("model/new.json", {"model"}), StatusCode::kOk);
  Write("model/old.xxh");
  EXPECT_EQ(Check("model/old.xxh", {"model"}), StatusCode::kOk);
}

TEST_F(OutputPathTest, OtherPartsOfAModelAreRefused) {
  const std::string first = "m-00001-of-00003.gguf";
  for (const char* part : {"m-00003-of-00003.gguf", "n-00003-of-00003.gguf",
                           "m-00003-of-00004.gguf"}) {
    Write(part);
  }
  EXPECT_EQ(Check("m-00003-of-00003.gguf", {first}),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(Check("./m-00003-of-00003.gguf", {first}),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(Check("m-00002-of-00003.gguf", {first}), StatusCode::kOk);
  EXPECT_EQ(Check("n-00003-of-00003.gguf", {first}), StatusCode::kOk);
  EXPECT_EQ(Check("m-00003-of-00004.gguf", {first}), StatusCode::kOk);
  EXPECT_EQ(Check("m-0000x-of-00003.gguf", {first}), StatusCode::kOk);
}

// As downloads keep them: names that lead to files called otherwise.
TEST_F(OutputPathTest, SoIsWhatTheNamesOfAModelsFilesLeadTo) {
  for (const char* blob : {"1", "2", "other"}) Write(blob);
  for (const auto& [name, blob] :
       {std::pair("m-00001-of-00002.gguf", "1"),
        std::pair("m-00002-of-00002.gguf", "2"),
        std::pair("model/model-00001-of-00001.safetensors", "2")}) {
    std::filesystem::create_symlink(directory_ / blob, directory_ / name);
  }
  EXPECT_EQ(Check("2", {"m-00001-of-00002.gguf"}),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(Check("2", {"model"}), StatusCode::kInvalidArgument);
  EXPECT_EQ(Check("1", {"model"}), StatusCode::kOk);
  EXPECT_EQ(Check("other", {"m-00001-of-00002.gguf", "model"}),
            StatusCode::kOk);
}

TEST_F(OutputPathTest, PlacesWhereNothingCanBeWrittenAreRefused) {
  EXPECT_EQ(Check("model", {}), StatusCode::kInvalidArgument);
  EXPECT_EQ(CheckOutputPath("/dev/null", {}).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(Check("missing/out", {}), StatusCode::kNotFound);
  EXPECT_EQ(Check("in.gguf/out", {}), StatusCode::kNotFound);
  if (::geteuid() == 0) GTEST_SKIP() << "root may write anywhere";
  std::filesystem::permissions(directory_ / "model",
                               std::filesystem::perms::owner_read);
  EXPECT_EQ(Check("model/out", {}), StatusCode::kIoError);
}

TEST_F(OutputPathTest, NamesThatAreNotThereYetAreCompared) {
  EXPECT_TRUE(SameFile(directory_ / "new", directory_ / "model/../new"));
  EXPECT_FALSE(SameFile(directory_ / "new", directory_ / "newer"));
  EXPECT_FALSE(SameFile("", ""));
}

}  // namespace
}  // namespace ecphory
