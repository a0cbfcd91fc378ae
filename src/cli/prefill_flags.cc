#include "prefill_flags.h"

#include <cctype>
#include <string>

#include "flags.h"

namespace ecphory::cli {

namespace {

constexpr Prefill kModes[] = {Prefill::kSkip, Prefill::kFull, Prefill::kReplay};

bool IsNumber(const std::string& text) {
  return !text.empty() && std::isdigit(static_cast<unsigned char>(text[0]));
}

void SetMode(const std::string& text, bool first_pass, PrefillFlags* flags) {
  for (const Prefill mode : kModes) {
    if (text != PrefillName(mode)) continue;
    flags->mode = mode;
    return;
  }
  internal::ThrowBadValue(
      "--prefill", text,
      std::string("skip (same logits, faster), full, replay (the vendor's "
                  "approximation)") +
          (first_pass ? ", or the tokens of a first pass" : ""));
}

}  // namespace

const char* PrefillName(Prefill prefill) {
  switch (prefill) {
    case Prefill::kSkip: return "skip";
    case Prefill::kFull: return "full";
    case Prefill::kReplay: return "replay";
  }
  return "unknown";
}

Result<Prefill> PrefillFlags::Mode() const {
  if (full && mode.value_or(Prefill::kFull) != Prefill::kFull) {
    return InvalidArgument(
        "--full-prefill and --prefill %s are given, expected one of them",
        PrefillName(*mode));
  }
  return full ? Prefill::kFull : mode.value_or(Prefill::kSkip);
}

void AddPrefillFlags(CLI::App& app, PrefillFlags* flags, bool first_pass) {
  const auto set = [=](const std::string& text) {
    if (first_pass && IsNumber(text)) {
      flags->first_pass = ParseInteger("--prefill", text, 1, kMaxChunk);
    } else {
      SetMode(text, first_pass, flags);
    }
  };
  std::string help =
      "Layers that a long prompt passes: those that the result needs (skip, "
      "the default), all (full), or the vendor's approximation (replay)";
  if (first_pass) {
    help += "; N: tokens of a first pass, before those of --chunk";
  }
  app.add_option_function<std::string>("--prefill", set, help)
      ->type_name(first_pass ? "skip|full|replay|N" : "skip|full|replay");
  app.add_flag("--full-prefill", flags->full, "The same as --prefill full");
}

void AddActivationsFlag(CLI::App& app, Activations* activations) {
  AddChoice<Activations>(
      app, "--activations", activations,
      {{"f32", Activations::kF32},
       {"bf16", Activations::kBF16},
       {"int8", Activations::kInt8}},
      "f32; bf16: rounded where the release rounds; int8: as f32, but inputs "
      "of products with Q8_0, MXFP4, FP4, Q4_K, Q2_K and IQ2_XXS weights "
      "rounded to int8, faster and approximate (default: f32)");
}

}  // namespace ecphory::cli
