// A directory of its own for one test, removed afterwards.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/check.h"

namespace ecphory {

class TestDirectory {
 public:
  TestDirectory() {
    std::string name =
        (std::filesystem::temp_directory_path() / "ecphory-test-XXXXXX")
            .string();
    ECPHORY_CHECK(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~TestDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TestDirectory(const TestDirectory&) = delete;
  TestDirectory& operator=(const TestDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const {
    return path_ + "/" + name;
  }
  // File names inside, unsorted.
  std::vector<std::string> List() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }

 private:
  std::string path_;
};

}  // namespace ecphory
