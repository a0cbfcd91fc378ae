#include "flags.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "interrupt.h"
#include "output.h"
#include "progress.h"

namespace ecphory::cli {

namespace {

// As the store's own limits.
constexpr uint32_t kMaxIoThreads = 256;
constexpr uint32_t kMaxDepth = 4096;
constexpr uint64_t kMaxCache = uint64_t{1} << 40;

// Headings of --help, below the options of the command itself.
constexpr char kMachineGroup[] = "Machine";
constexpr char kEngramGroup[] = "Engram tables";

// Far more threads than any machine has; a typing error, not a wish.
constexpr uint32_t kMaxThreads = 1024;

template <typename T>
bool ParseWhole(const std::string& text, T* value) {
  const char* const end = text.data() + text.size();
  const auto [next, error] = std::from_chars(text.data(), end, *value);
  return error == std::errc() && next == end;
}

// "64M": a whole number, then K, M, G, T or nothing.
bool ParseBytes(std::string text, uint64_t* value) {
  static constexpr std::string_view kUnits = "KMGT";
  int shift = 0;
  if (!text.empty()) {
    const size_t unit = kUnits.find(text.back());
    if (unit != kUnits.npos) {
      shift = 10 * (static_cast<int>(unit) + 1);
      text.pop_back();
    }
  }
  if (!ParseWhole(text, value) || *value > (UINT64_MAX >> shift)) return false;
  *value <<= shift;
  return true;
}

bool ParseReal(const std::string& text, float* value) {
  char* end = nullptr;
  *value = std::strtof(text.c_str(), &end);
  return !text.empty() && *end == '\0' && std::isfinite(*value);
}

// CLI11 calls this for each value; its errors are exceptions.
using Setter = std::function<void(const std::string&)>;
CLI::Option* AddSetter(CLI::App& app, const std::string& flag,
                       const Setter& set, const std::string& type,
                       const std::string& help) {
  return app.add_option_function<std::string>(flag, set, help)->type_name(type);
}

}  // namespace

void internal::ThrowBadValue(const std::string& flag, const std::string& value,
                             const std::string& expected) {
  throw CLI::ValidationError(flag + ": '" + value + "', expected " + expected,
                             CLI::ExitCodes::ValidationError);
}

uint32_t ParseInteger(const std::string& flag, const std::string& text,
                      uint32_t min, uint32_t max) {
  uint32_t value = 0;
  if (!ParseWhole(text, &value) || value < min || value > max) {
    internal::ThrowBadValue(flag, text,
                            Format("a whole number from %u to %u", min, max));
  }
  return value;
}

CLI::Option* AddInteger(CLI::App& app, const std::string& flag, uint32_t* value,
                        uint32_t min, uint32_t max, const std::string& help) {
  const auto set = [=](const std::string& text) {
    *value = ParseInteger(flag, text, min, max);
  };
  return AddSetter(app, flag, set, "N", help);
}

CLI::Option* AddBytes(CLI::App& app, const std::string& flag,
                      std::optional<uint64_t>* value, uint64_t max,
                      const std::string& help) {
  const auto set = [=](const std::string& text) {
    uint64_t bytes = 0;
    if (!ParseBytes(text, &bytes) || bytes > max) {
      internal::ThrowBadValue(
          flag, text,
          Format("bytes from 0 to %lluG, as 1000000, 64K, 64M or 2G",
                 static_cast<unsigned long long>(max >> 30)));
    }
    *value = bytes;
  };
  return AddSetter(app, flag, set, "SIZE", help);
}

CLI::Option* AddSeed(CLI::App& app, const std::string& flag, uint64_t* value,
                     const std::string& help) {
  const auto set = [=](const std::string& text) {
    if (!ParseWhole(text, value)) {
      internal::ThrowBadValue(flag, text, "a whole number from 0 to 2^64 - 1");
    }
  };
  return AddSetter(app, flag, set, "N", help);
}

CLI::Option* AddReal(CLI::App& app, const std::string& flag, float* value,
                     bool (*valid)(float), const std::string& expected,
                     const std::string& help) {
  const auto set = [=](const std::string& text) {
    if (!ParseReal(text, value) || !valid(*value)) {
      internal::ThrowBadValue(flag, text, expected);
    }
  };
  return AddSetter(app, flag, set, "X", help);
}

CLI::Option* AddList(
    CLI::App& app, const std::string& flag,
    const std::function<void(const std::vector<std::string>&)>& set,
    const std::string& type, const std::string& help) {
  const auto split = [=](const std::string& text) {
    std::vector<std::string> items;
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find(',', begin), text.size());
      if (end == begin) {
        internal::ThrowBadValue(flag, text, "values between commas");
      }
      items.push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
    set(items);
  };
  return AddSetter(app, flag, split, type, help);
}

CLI::Option* AddText(CLI::App& app, const std::string& flag, std::string* value,
                     const std::string& type, const std::string& help) {
  return app.add_option(flag, *value, help)->type_name(type);
}

CLI::Option* AddPath(CLI::App& app, const std::string& flag, std::string* value,
                     const std::string& type, const std::string& help) {
  const auto set = [=](const std::string& text) {
    if (text.empty()) internal::ThrowBadValue(flag, text, "a name");
    *value = text;
  };
  return AddSetter(app, flag, set, type, help);
}

void AddEngramPlace(CLI::App& app, ModelOptions* options) {
  AddChoice<std::string>(
      app, "--engram-place", &options->engram_place,
      {{"disk", "disk"}, {"host", "host"}, {"gpu", "gpu"}},
      "Where the tables lie: on disk, from which rows are read as they are "
      "needed; whole in memory of the host; with --device cuda whole in the "
      "GPU's (default: disk)")
      ->group(kEngramGroup);
}

namespace {

void AddEngramFlags(CLI::App& app, ModelOptions* options) {
  AddEngramPlace(app, options);
  AddChoice<std::string>(app, "--engram-io", &options->engram_io,
                         {{"auto", "auto"},
                          {"uring", "uring"},
                          {"pread", "pread"},
                          {"buffered", "buffered"},
                          {"mmap", "mmap"}},
                         "How rows come from disk: asynchronous or blocking "
                         "reads past the page cache (uring, pread), through "
                         "it (buffered), or mapped (default: auto, by what is "
                         "allowed and fast)")
      ->group(kEngramGroup);
  AddBytes(app, "--engram-cache", &options->engram_cache_bytes, kMaxCache,
           "Memory for recently used rows, in bytes or as 64K, 64M, 2G of "
           "1024s; 0 is off (default: 64M, or 0 for tables that the page "
           "cache holds)")
      ->group(kEngramGroup);
  AddInteger(app, "--engram-io-threads", &options->engram_io_threads, 1,
             kMaxIoThreads, "Threads that read rows with pread (default: 16)")
      ->group(kEngramGroup);
  AddInteger(app, "--engram-depth", &options->engram_queue_depth, 1, kMaxDepth,
             "Reads in flight at most (default: 256)")
      ->group(kEngramGroup);
}

// Less is read in a moment.
constexpr uint64_t kProgressBytes = uint64_t{256} << 20;

bool IsDevice(const std::string& text) {
  uint32_t number = 0;
  const std::string prefix = "cuda:";
  return text == "cpu" || text == "cuda" ||
         (text.compare(0, prefix.size(), prefix) == 0 &&
          ParseWhole(text.substr(prefix.size()), &number));
}

}  // namespace

void AddComputeFlags(CLI::App& app, ModelOptions* options) {
  const auto set_device = [=](const std::string& text) {
    if (!IsDevice(text)) {
      internal::ThrowBadValue("--device", text, "cpu, cuda or cuda:N");
    }
    options->backend = text;
  };
  AddSetter(app, "--device", set_device, "cpu|cuda[:N]",
            "What computes: the processor, or an NVIDIA GPU (default: cpu)")
      ->group(kMachineGroup);
  AddInteger(app, "--threads", &options->threads, 1, kMaxThreads,
             "Threads to compute on (default: the processors available, or "
             "those of --cpu-affinity)")
      ->group(kMachineGroup);
  AddText(app, "--cpu-affinity", &options->cpu_affinity, "LIST",
          "Processors to bind threads to, one each: a list such as 0-7,16-23; "
          "auto, cores before their second threads; or none (default: none)")
      ->group(kMachineGroup);
  AddChoice<std::string>(app, "--weights", &options->weights,
                         {{"map", "map"}, {"copy", "copy"}},
                         "map: pages of the mapped files; copy: read into "
                         "memory, in large pages (default: map)")
      ->group(kMachineGroup);
}

void AddModelFlags(CLI::App& app, ModelFlags* flags, bool run_flags) {
  AddPath(app, "-m,--model", &flags->path, "MODEL",
          "A .gguf file (of several parts the first), or a directory with "
          "config.json and safetensors");
  if (!run_flags) return;
  AddComputeFlags(app, &flags->options);
  AddChoice<std::string>(
      app, "--backend", &flags->options.backend,
      {{"auto", "auto"}, {"cpu", "cpu"}, {"ref", "ref"}},
      "Operators on the processor: vectorised (cpu, or auto), or the plain "
      "reference (default: auto)")
      ->group(kMachineGroup)
      // Of the processor; both say what computes.
      ->excludes(app.get_option("--device"));
  AddEngramFlags(app, &flags->options);
}

Status CheckModelFlags(const ModelFlags& flags) {
  if (!flags.path.empty()) return {};
  return InvalidArgument(
      "-m is missing, expected a .gguf file or a model directory");
}

Result<std::shared_ptr<const Model>> OpenModel(const ModelFlags& flags) {
  ECPHORY_RETURN_IF_ERROR(CheckModelFlags(flags));
  Progress progress("reading " + flags.path, kProgressBytes);
  ModelOptions options = flags.options;
  options.on_load = [&](uint64_t done, uint64_t total) {
    progress.Show(done, total);
    return !Interrupted();
  };
  ECPHORY_ASSIGN_OR_RETURN(std::shared_ptr<const Model> model,
                           Model::Open(flags.path, options));
  progress.Erase();
  const EngramIoFacts& io = model->engram_io();
  if (io.fallback) std::fprintf(stderr, "[Engram: %s]\n", io.reason.c_str());
  return model;
}

}  // namespace ecphory::cli
