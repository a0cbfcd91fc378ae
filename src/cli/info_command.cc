// ecphory info: what a model file holds and what running it will take.
#include <memory>
#include <optional>

#include "commands.h"
#include "flags.h"
#include "info_json.h"
#include "info_text.h"
#include "output.h"

namespace ecphory::cli {

namespace {

constexpr char kFooter[] = R"(
Reads headers only: nothing large is touched, so that it is quick for any model.

Examples:
  ecphory info -m model.gguf
  ecphory info -m DIR --ctx 100000 --tensors --json
  ecphory info -m model.gguf --ctx 8192 --sequences 32)";

struct InfoFlags {
  ModelFlags model;
  uint32_t context = 0;
  uint32_t chunk = 0;
  uint32_t sequences = 1;
  bool tensors = false;
  bool json = false;
};

Status RunInfo(const InfoFlags& flags) {
  ECPHORY_RETURN_IF_ERROR(CheckModelFlags(flags.model));
  ECPHORY_ASSIGN_OR_RETURN(
      const ModelInfo info,
      InspectModel(flags.model.path, flags.context, flags.chunk,
                   flags.model.options, flags.sequences));
  const bool on_device = flags.model.options.backend.compare(0, 4, "cuda") == 0;
  std::optional<DevicePlan> device;
  if (on_device) {
    ECPHORY_ASSIGN_OR_RETURN(
        device, PlanDevice(flags.model.path, flags.context, flags.chunk,
                           flags.model.options, flags.sequences));
  }
  if (flags.json) {
    Json json = InfoJson(info, flags.tensors);
    if (device) json["device"] = DevicePlanJson(*device);
    return PrintJson(json);
  }
  return Print(InfoText(info, flags.tensors) +
               (device ? DevicePlanText(*device) : ""));
}

}  // namespace

void AddInfoCommand(CLI::App& app, Action* action) {
  auto flags = std::make_shared<InfoFlags>();
  CLI::App* command = app.add_subcommand(
      "info", "Show what a model holds and what running it takes");
  command->footer(kFooter);
  AddModelFlags(*command, &flags->model, /*run_flags=*/false);
  AddComputeFlags(*command, &flags->model.options);
  AddEngramPlace(*command, &flags->model.options);
  AddInteger(*command, "--ctx", &flags->context, 1, UINT32_MAX,
             "Tokens of context to plan memory for (default: 4096, or the "
             "model's maximum where that is less)");
  AddInteger(*command, "--chunk", &flags->chunk, 1, kMaxChunk,
             "Prompt tokens per forward pass to plan for (default: 256)");
  AddInteger(*command, "--sequences", &flags->sequences, 1, kMaxSequences,
             "Sequences continued together to plan for (default: 1)");
  command->add_flag("--tensors", flags->tensors, "List every tensor");
  command->add_flag("--json", flags->json, "Print JSON");
  command->callback([=] { *action = [=] { return RunInfo(*flags); }; });
}

}  // namespace ecphory::cli
