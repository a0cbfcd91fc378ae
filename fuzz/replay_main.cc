// Runs a fuzz target on the files and directories given as arguments, after a
// few inputs that need no file. Also replays a crash that libFuzzer found.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

void Run(const std::vector<uint8_t>& bytes) {
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

bool RunFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<uint8_t> bytes{std::istreambuf_iterator<char>(file), {}};
  if (!file.is_open() || file.bad()) {
    std::fprintf(stderr, "cannot read %s\n", path.c_str());
    return false;
  }
  std::printf("%s (%zu bytes)\n", path.c_str(), bytes.size());
  std::fflush(stdout);  // names the input if the target dies in it
  Run(bytes);
  return true;
}

// The files below `path`, or `path` itself, in a stable order.
std::vector<std::filesystem::path> FilesOf(const std::filesystem::path& path) {
  if (!std::filesystem::is_directory(path)) return {path};
  std::vector<std::filesystem::path> files;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(path)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

int main(int argc, char** argv) {
  for (const size_t size : {0, 1, 7, 64, 4096}) {
    Run(std::vector<uint8_t>(size, 0x00));
    Run(std::vector<uint8_t>(size, 0xff));
  }
  bool ok = true;
  size_t files = 0;
  for (int i = 1; i < argc; ++i) {
    for (const auto& path : FilesOf(argv[i])) {
      ok = RunFile(path) && ok;
      ++files;
    }
  }
  std::printf("%zu files replayed\n", files);
  // Arguments without a single file are a mistake, not a success.
  return ok && (argc == 1 || files > 0) ? 0 : 1;
}
