#include "engram_input.h"

#include "flags.h"

namespace ecphory::cli {

void AddTableInput(CLI::App& command, TableInput* input) {
  command.add_option("PATH", input->path,
                     "A GGUF file (of several parts the first), a released "
                     "directory, or raw rows");
  AddPath(command, "--config", &input->config, "PATH",
          "For raw rows: the GGUF file, directory or config.json that says how "
          "they are laid out");
  command
      .add_option("--more-tables", input->more_tables,
                  "For raw rows in several files: the tables after the first")
      ->type_name("FILE...");
  command
      .add_option_function<std::string>(
          "--eos",
          [input](const std::string& text) {
            input->eos_id =
                static_cast<int32_t>(ParseInteger("--eos", text, 0, INT32_MAX));
          },
          "For a per-layer table: the EOS token id, where its file lacks it")
      ->type_name("ID");
}

Status CheckTableInput(const TableInput& input) {
  if (!input.path.empty()) return {};
  return InvalidArgument(
      "PATH is missing, expected a .gguf file, a released directory or a file "
      "of raw rows");
}

}  // namespace ecphory::cli
