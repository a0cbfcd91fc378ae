// ecphory convert: a released-layout directory to one GGUF file.
#include <memory>

#include "commands.h"
#include "ecphory/convert.h"
#include "flags.h"
#include "interrupt.h"
#include "output.h"
#include "progress.h"
#include "sizes.h"

namespace ecphory::cli {

namespace {

constexpr char kFooter[] = R"(
The Engram tables are copied byte for byte to the end of the file. The output
appears under its name only when it is whole; an existing file is replaced.

Example:
  ecphory convert DeepSeek-V4.1 deepseek-v4.1.gguf --experts mxfp4)";

struct ConvertFlags {
  std::string directory;
  std::string output;
  ConvertOptions options;
  bool json = false;
};

Status RunConvert(const ConvertFlags& flags) {
  Progress progress("writing " + flags.output);
  uint64_t bytes = 0;
  ConvertOptions options = flags.options;
  options.progress = [&](uint64_t done, uint64_t total) {
    bytes = total;
    progress.Show(done, total);
    return !Interrupted();
  };
  ECPHORY_RETURN_IF_ERROR(Convert(flags.directory, flags.output, options));
  progress.Erase();
  if (flags.json) {
    return PrintJson(Json{{"output", flags.output}, {"bytes", bytes}});
  }
  return Print(Format("wrote %s, %s (%s bytes)\n", flags.output.c_str(),
                      HumanBytes(bytes).c_str(), Grouped(bytes).c_str()));
}

}  // namespace

void AddConvertCommand(CLI::App& app, Action* action) {
  auto flags = std::make_shared<ConvertFlags>();
  CLI::App* command =
      app.add_subcommand("convert", "Write a model directory as one GGUF file");
  command->footer(kFooter);
  command->add_option("DIR", flags->directory,
                      "Directory with config.json and safetensors");
  command->add_option("OUTPUT", flags->output, "The .gguf file to write");
  using Experts = ConvertOptions::Experts;
  AddChoice<Experts>(*command, "--experts", &flags->options.experts,
                     {{"mxfp4", Experts::kMxfp4}, {"q8_0", Experts::kQ8_0}},
                     "Format of the routed experts; mxfp4 is exact for "
                     "released FP4 (default: mxfp4)");
  command->add_flag("--json", flags->json, "Print the result as JSON");
  command->callback([=] {
    *action = [=]() -> Status {
      if (flags->directory.empty() || flags->output.empty()) {
        return InvalidArgument(
            "convert needs two arguments: the model directory and the .gguf "
            "file to write");
      }
      return RunConvert(*flags);
    };
  });
}

}  // namespace ecphory::cli
