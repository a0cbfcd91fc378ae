#include "flags.h"

#include <charconv>
#include <cmath>
#include <cstdlib>

#include "output.h"

namespace ecphory::cli {

namespace {

// Far more threads than any machine has; a typing error, not a wish.
constexpr uint32_t kMaxThreads = 1024;

template <typename T>
bool ParseWhole(const std::string& text, T* value) {
  const char* const end = text.data() + text.size();
  const auto [next, error] = std::from_chars(text.data(), end, *value);
  return error == std::errc() && next == end;
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

CLI::Option* AddText(CLI::App& app, const std::string& flag, std::string* value,
                     const std::string& type, const std::string& help) {
  return app.add_option(flag, *value, help)->type_name(type);
}

void AddModelFlags(CLI::App& app, ModelFlags* flags, bool run_flags) {
  AddText(app, "-m,--model", &flags->path, "MODEL",
          "A .gguf file, or a directory with config.json and safetensors");
  if (!run_flags) return;
  AddInteger(app, "--threads", &flags->options.threads, 1, kMaxThreads,
             "Threads to compute on (default: the processors available)");
  AddChoice<std::string>(
      app, "--backend", &flags->options.backend,
      {{"auto", "auto"}, {"cpu", "cpu"}, {"ref", "ref"}},
      "Operators: vectorised, or the plain reference (default: auto)");
}

Status CheckModelFlags(const ModelFlags& flags) {
  if (!flags.path.empty()) return {};
  return InvalidArgument(
      "-m is missing, expected a .gguf file or a model directory");
}

Result<std::shared_ptr<const Model>> OpenModel(const ModelFlags& flags) {
  ECPHORY_RETURN_IF_ERROR(CheckModelFlags(flags));
  return Model::Open(flags.path, flags.options);
}

}  // namespace ecphory::cli
