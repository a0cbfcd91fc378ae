#include "tables/fio.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "io/unique_fd.h"

extern char** environ;

namespace ecphory::tables {

namespace {

// fio's report of one job takes about 20 kB.
constexpr size_t kMaxOutput = size_t{4} << 20;

// fio takes a colon for the end of a file's name.
std::string Escaped(const std::string& path) {
  std::string out;
  for (const char c : path) {
    if (c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string ReadAll(int fd) {
  std::string text;
  char buffer[4096];
  while (text.size() < kMaxOutput) {
    const ssize_t got = ::read(fd, buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(buffer, static_cast<size_t>(got));
  }
  return text;
}

// Standard output of a program found in PATH; no shell in between.
Result<std::string> OutputOf(std::vector<std::string> arguments) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return ErrnoError(errno, "a pipe");
  UniqueFd read_end(ends[0]), write_end(ends[1]);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, write_end.get(), STDOUT_FILENO);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null",
                                     O_WRONLY, 0);
  pid_t child = 0;
  const int error =
      ::posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return ErrnoError(error, "cannot start %s", argv[0]);
  write_end.Reset();
  std::string text = ReadAll(read_end.get());
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return text;
  return IoError("%s failed", argv[0]);
}

}  // namespace

Result<ReadRate> RunFio(const TableFile& file, const ProbeRange& range,
                        uint32_t read_bytes, uint32_t depth, double seconds) {
  // fio counts whole seconds; offsets and sizes are whole pages.
  const auto runtime = static_cast<int>(std::max(1.0, std::ceil(seconds)));
  const uint64_t offset = range.offset / read_bytes * read_bytes;
  const uint64_t size = range.bytes / read_bytes * read_bytes;
  ECPHORY_ASSIGN_OR_RETURN(
      const std::string json,
      OutputOf({"fio", "--name=tables", "--readonly", "--rw=randread",
                "--filename=" + Escaped(file.path()),
                "--direct=" + std::string(file.direct() >= 0 ? "1" : "0"),
                "--ioengine=io_uring", "--bs=" + std::to_string(read_bytes),
                "--iodepth=" + std::to_string(depth),
                "--offset=" + std::to_string(offset),
                "--size=" + std::to_string(size), "--norandommap",
                "--time_based", "--runtime=" + std::to_string(runtime),
                "--allow_file_create=0", "--output-format=json"}));
  ECPHORY_ASSIGN_OR_RETURN(ReadRate rate, ParseFio(json));
  rate.depth = depth;
  rate.read_bytes = read_bytes;
  return rate;
}

Result<ReadRate> ParseFio(const std::string& text) {
  try {
    const nlohmann::json report = nlohmann::json::parse(
        text.substr(std::min(text.find('{'), text.size())));
    const nlohmann::json& job = report.at("jobs").at(0);
    const nlohmann::json& read = job.at("read");
    ReadRate rate;
    rate.way = "fio";
    rate.reads = read.at("total_ios");
    rate.reads_per_second = read.at("iops");
    const nlohmann::json& percentile = read.at("clat_ns").at("percentile");
    rate.p50_us = percentile.at("50.000000").get<double>() / 1000;
    rate.p95_us = percentile.at("95.000000").get<double>() / 1000;
    rate.p99_us = percentile.at("99.000000").get<double>() / 1000;
    const double cpu =
        job.at("usr_cpu").get<double>() + job.at("sys_cpu").get<double>();
    if (rate.reads_per_second > 0) {
      rate.cpu_us_per_read = 1e6 * cpu / 100 / rate.reads_per_second;
    }
    return rate;
  } catch (const nlohmann::json::exception& error) {
    return Corrupt("fio's report: %s", error.what());
  }
}

}  // namespace ecphory::tables
