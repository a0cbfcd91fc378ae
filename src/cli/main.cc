// ecphory: the command line tool. Parses, runs one subcommand, and turns its
// Status into one line on standard error and an exit code.
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <new>
#include <sstream>
#include <string>
#include <vector>

#include "commands.h"
#include "ecphory/version.h"
#include "exit_code.h"
#include "help.h"
#include "interrupt.h"
#include "output.h"
#include "suggest.h"
#include "utf8.h"

namespace ecphory::cli {
namespace {

constexpr char kFooter[] = R"(
Examples:
  ecphory run -m models/ecphory-mini.gguf -p "remember:"
  echo "The river" | ecphory run -m models/ecphory-mini.gguf -n 50 --temp 0
  ecphory info -m models/ecphory-mini.gguf
  ecphory tokenize -m models/ecphory-mini.gguf --rows "two words"

'ecphory COMMAND --help' explains a command. Exit codes: docs/errors.md.)";

// Names that could have been meant in place of an unknown argument.
std::vector<std::string> KnownNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      names.push_back("--" + name);
    }
    for (const std::string& name : option->get_snames()) {
      names.push_back("-" + name);
    }
  }
  for (const CLI::App* command : app.get_subcommands({})) {
    names.push_back(command->get_name());
  }
  return names;
}

// The innermost command that was chosen; `app` when none was.
const CLI::App& ChosenCommand(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? app : ChosenCommand(*chosen.front());
}

// " engram info"; "" for the program itself.
std::string CommandWords(const CLI::App& command) {
  if (command.get_parent() == nullptr) return "";
  return CommandWords(*command.get_parent()) + " " + command.get_name();
}

// "run, info or convert".
std::string CommandNames(const CLI::App& app) {
  const auto commands = app.get_subcommands({});
  std::string names;
  for (size_t i = 0; i < commands.size(); ++i) {
    const char* separator = i + 1 < commands.size() ? ", " : " or ";
    names += (i == 0 ? "" : separator) + commands[i]->get_name();
  }
  return names;
}

Status UnknownArgument(const CLI::App& app, const std::string& argument) {
  const CLI::App& scope = ChosenCommand(app);
  const bool wants_command = !scope.get_subcommands({}).empty();
  const std::string name = argument.substr(0, argument.find('='));
  const bool flag = name[0] == '-';
  const char* kind = flag ? "flag" : wants_command ? "command" : "argument";
  const std::string nearest = Nearest(name, KnownNames(scope));
  if (!nearest.empty()) {
    return InvalidArgument("unknown %s '%s'; did you mean '%s'?", kind,
                           name.c_str(), nearest.c_str());
  }
  return InvalidArgument("unknown %s '%s'; see ecphory%s --help", kind,
                         name.c_str(), CommandWords(scope).c_str());
}

// CLI11 says "NAME: At Most 1 required but received 2" or "NAME: 1 required
// TYPE missing".
Status WrongCount(const CLI::App& app, const CLI::ArgumentMismatch& error) {
  const std::string message = error.what();
  const std::string name = message.substr(0, message.find(':'));
  const CLI::Option* option = ChosenCommand(app).get_option_no_throw(name);
  if (option == nullptr) return InvalidArgument("%s", message.c_str());
  const std::string type = option->get_type_name();
  if (message.ends_with(" missing")) {
    return InvalidArgument("%s: no value, expected %s", name.c_str(),
                           type.c_str());
  }
  const size_t count = option->count();
  return InvalidArgument("%s: %zu value%s, expected %s", name.c_str(), count,
                         count == 1 ? "" : "s", type.c_str());
}

Status UsageError(const CLI::App& app, const CLI::ParseError& error) {
  const bool no_command =
      dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  const bool extras = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
  const std::vector<std::string> unknown = app.remaining(/*recurse=*/true);
  if ((no_command || extras) && !unknown.empty()) {
    return UnknownArgument(app, unknown.front());
  }
  if (no_command) {
    const CLI::App& scope = ChosenCommand(app);
    return InvalidArgument("no command, expected %s; see ecphory%s --help",
                           CommandNames(scope).c_str(),
                           CommandWords(scope).c_str());
  }
  if (const auto* mismatch =
          dynamic_cast<const CLI::ArgumentMismatch*>(&error)) {
    return WrongCount(app, *mismatch);
  }
  return InvalidArgument("%s", error.what());
}

// The command that the first words name: one level, or two for a group.
const CLI::App* CommandOf(const CLI::App& app, int argc, char** argv) {
  const CLI::App* command = &app;
  for (int i = 1; i < argc; ++i) {
    const CLI::App* named = nullptr;
    for (const CLI::App* child : command->get_subcommands({})) {
      if (child->get_name() == argv[i]) named = child;
    }
    if (named == nullptr) break;
    command = named;
  }
  return command;
}

// The arguments for CLI11, last first, as it wants them. "--flag=" becomes
// "--flag" and "": CLI11 would take the next argument for the value.
std::vector<std::string> Arguments(const CLI::App& app, int argc, char** argv) {
  std::vector<std::string> arguments;
  const CLI::App* command = CommandOf(app, argc, argv);
  const auto takes_value = [&](const std::string& flag) {
    if (flag.empty() || flag[0] != '-') return false;
    const CLI::Option* option = command->get_option_no_throw(flag);
    return option != nullptr && option->get_items_expected() > 0;
  };
  bool is_value = false;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const bool cut = !is_value && argument.size() > 3 && argument.back() == '=';
    const std::string flag = argument.substr(0, argument.size() - 1);
    if (cut && takes_value(flag)) {
      arguments.insert(arguments.end(), {flag, ""});
      continue;
    }
    arguments.push_back(argument);
    is_value = !is_value && takes_value(argument);
  }
  std::reverse(arguments.begin(), arguments.end());
  return arguments;
}

int Report(const Status& status) {
  if (OutputClosed()) return kExitBrokenPipe;
  if (!status.message().empty()) {
    std::fprintf(stderr, "ecphory: %s\n", OneLine(status.ToString()).c_str());
  }
  return ExitCode(status.code());
}

// The exit code of --help and --version, or of a usage error; -1 to go on.
int Parse(CLI::App& app, int argc, char** argv, Status* status) {
  try {
    app.parse(Arguments(app, argc, argv));
  } catch (const CLI::Success& help_or_version) {
    // Not to std::cout, which says nothing of a disk that is full.
    std::ostringstream text;
    app.exit(help_or_version, text, text);
    *status = Print(text.str());
    return status->ok() ? 0 : Report(*status);
  } catch (const CLI::ParseError& error) {
    *status = UsageError(app, error);
  }
  return -1;
}

// Standard streams that the caller closed stay unusable: the first files we
// open must not take their numbers.
void ReserveStandardStreams() {
  while (true) {
    const int fd = open("/", O_PATH);
    if (fd > STDERR_FILENO) close(fd);
    if (fd < 0 || fd > STDERR_FILENO) return;
  }
}

// Everything large is planned and refused with its size; what is left is memory
// that runs out on small things.
Status Run(const Action& action) {
  try {
    return action();
  } catch (const std::bad_alloc&) {
    return ResourceExhausted(
        "out of memory; free some, or ask for a smaller --ctx or --chunk");
  }
}

int Main(int argc, char** argv) {
  ReserveStandardStreams();
  CLI::App app(
      "Runs language models with an Engram memory read from disk, and mHC "
      "residual streams.",
      "ecphory");
  app.footer(kFooter);
  app.require_subcommand(1);
  app.set_version_flag("--version", [] {
    return Format("ecphory %s\nbackends: %s", Version(), Backends().c_str());
  });
  app.formatter(std::make_shared<HelpFormatter>());
  Action action;
  AddRunCommand(app, &action);
  AddInfoCommand(app, &action);
  AddTokenizeCommand(app, &action);
  AddLogitsCommand(app, &action);
  AddConvertCommand(app, &action);
  AddBenchCommand(app, &action);
  AddSynthCommand(app, &action);
  AddEngramCommand(app, &action);

  CatchSignals();
  Status status;
  const int done = Parse(app, argc, argv, &status);
  if (done >= 0) return done;
  if (status.ok()) status = Run(action);
  return Report(status);
}

}  // namespace
}  // namespace ecphory::cli

int main(int argc, char** argv) { return ecphory::cli::Main(argc, argv); }
