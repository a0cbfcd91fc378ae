// Flags of the command line: declared in one line each, checked in one place,
// errors that name the flag, the value and what was expected.
#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ecphory/model.h"

namespace ecphory::cli {

// The most that a session takes.
inline constexpr uint32_t kMaxChunk = 8192;
// The most that a batch takes.
inline constexpr uint32_t kMaxSequences = 8192;

// Whole number in [min, max]; throws CLI::ValidationError that names `flag`.
uint32_t ParseInteger(const std::string& flag, const std::string& text,
                      uint32_t min, uint32_t max);

// Whole number in [min, max].
CLI::Option* AddInteger(CLI::App& app, const std::string& flag, uint32_t* value,
                        uint32_t min, uint32_t max, const std::string& help);
// Bytes: a whole number with K, M, G or T (powers of 1024) behind it or
// nothing, at most `max`.
CLI::Option* AddBytes(CLI::App& app, const std::string& flag,
                      std::optional<uint64_t>* value, uint64_t max,
                      const std::string& help);
CLI::Option* AddSeed(CLI::App& app, const std::string& flag, uint64_t* value,
                     const std::string& help);
// `expected` ends the error: "0 (greedy) to 100". `valid` decides.
CLI::Option* AddReal(CLI::App& app, const std::string& flag, float* value,
                     bool (*valid)(float), const std::string& expected,
                     const std::string& help);
CLI::Option* AddText(CLI::App& app, const std::string& flag, std::string* value,
                     const std::string& type, const std::string& help);
// A name of a file or a directory; "" is an error, since commands take an empty
// one for a flag that was not given.
CLI::Option* AddPath(CLI::App& app, const std::string& flag, std::string* value,
                     const std::string& type, const std::string& help);

// Values between commas, as "1024,65536"; an empty one is an error. `set` gets
// all of them. The type's name has to say that there may be several: "N,...".
CLI::Option* AddList(
    CLI::App& app, const std::string& flag,
    const std::function<void(const std::vector<std::string>&)>& set,
    const std::string& type, const std::string& help);

// One of the map's names.
template <typename T>
CLI::Option* AddChoice(CLI::App& app, const std::string& flag, T* value,
                       const std::map<std::string, T>& choices,
                       const std::string& help);

// --threads, --cpu-affinity and --weights.
void AddComputeFlags(CLI::App& app, ModelOptions* options);
// --engram-place.
void AddEngramPlace(CLI::App& app, ModelOptions* options);

// -m and how to run it. `run_flags`: also those of
// AddComputeFlags, --backend and --engram-*.
struct ModelFlags {
  std::string path;
  ModelOptions options;
};
void AddModelFlags(CLI::App& app, ModelFlags* flags, bool run_flags = true);
// kInvalidArgument when -m is missing.
Status CheckModelFlags(const ModelFlags& flags);
// One line on standard error when Engram rows cannot be read as they should.
Result<std::shared_ptr<const Model>> OpenModel(const ModelFlags& flags);

namespace internal {
[[noreturn]] void ThrowBadValue(const std::string& flag,
                                const std::string& value,
                                const std::string& expected);
}  // namespace internal

template <typename T>
CLI::Option* AddChoice(CLI::App& app, const std::string& flag, T* value,
                       const std::map<std::string, T>& choices,
                       const std::string& help) {
  std::string names;
  for (const auto& [name, unused] : choices) {
    names += (names.empty() ? "" : "|") + name;
  }
  const auto set = [=](const std::string& text) {
    const auto found = choices.find(text);
    if (found == choices.end()) internal::ThrowBadValue(flag, text, names);
    *value = found->second;
  };
  return app.add_option_function<std::string>(flag, set, help)
      ->type_name(names);
}

}  // namespace ecphory::cli
