// ecphory engram report: what the memory costs and gives over whole texts.
#include <filesystem>
#include <memory>

#include "ecphory/engram_report.h"
#include "ecphory/engram_trace.h"
#include "engram_commands.h"
#include "file_text.h"
#include "flags.h"
#include "interrupt.h"
#include "output.h"
#include "progress.h"

namespace ecphory::cli {

namespace {

constexpr char kFooter[] = R"(
Each file is a kind of text, named after it; --kind NAME=FILE names it
otherwise, and files of one name are one kind. Reported, by kind: bits a token
and a byte and speeds with Engram on and off, gates by layer and stream, how
often rows come back, what caches of rows would answer, time for rows and time
that layers waited for them, and the tokens that the memory helps and hurts.

Examples:
  ecphory engram report -m model.gguf -f prose.txt -f code.txt --html report.html
  ecphory engram report -m model.gguf --kind chat=a.txt --kind chat=b.txt --json)";

constexpr size_t kMaxTextBytes = size_t{1} << 28;

// Rows of so many tokens of a released model are 400 MB to count.
constexpr uint32_t kMaxTokens = uint32_t{1} << 20;

struct ReportFlags {
  ModelFlags model;
  std::vector<std::string> files;
  std::vector<std::string> kinds;
  EngramReportOptions options;
  std::string html;
  bool json = false;
};

struct KindFile {
  std::string kind;
  std::string path;
};

Result<std::vector<KindFile>> Files(const ReportFlags& flags) {
  std::vector<KindFile> files;
  for (const std::string& path : flags.files) {
    files.push_back({std::filesystem::path(path).stem().string(), path});
  }
  for (const std::string& kind : flags.kinds) {
    const size_t at = kind.find('=');
    if (at == kind.npos || at == 0 || at + 1 == kind.size()) {
      return InvalidArgument("--kind: '%s', expected NAME=FILE", kind.c_str());
    }
    files.push_back({kind.substr(0, at), kind.substr(at + 1)});
  }
  if (files.empty()) {
    return InvalidArgument("no text, expected -f FILE or --kind NAME=FILE");
  }
  if (flags.html.empty()) return files;
  std::vector<std::string> inputs = {flags.model.path};
  for (const KindFile& file : files) inputs.push_back(file.path);
  ECPHORY_RETURN_IF_ERROR(
      CheckTextFile(flags.html, inputs).WithContext("--html"));
  return files;
}

Result<std::vector<EngramReportText>> ReadTexts(
    const std::vector<KindFile>& files, const Model& model) {
  const Tokenizer* tokenizer = model.tokenizer();
  if (tokenizer == nullptr) {
    return Unsupported(
        "%s: the model has no tokenizer; put tokenizer.json "
        "beside config.json",
        model.info().path.c_str());
  }
  std::vector<EngramReportText> texts;
  for (const KindFile& file : files) {
    ECPHORY_ASSIGN_OR_RETURN(const std::string text,
                             ReadFileText(file.path, kMaxTextBytes));
    ECPHORY_ASSIGN_OR_RETURN(std::vector<int32_t> ids, tokenizer->Encode(text));
    texts.push_back({file.kind, std::move(ids)});
  }
  return texts;
}

Status RunReport(const ReportFlags& flags) {
  ECPHORY_RETURN_IF_ERROR(CheckModelFlags(flags.model));
  ECPHORY_ASSIGN_OR_RETURN(const std::vector<KindFile> files, Files(flags));
  ECPHORY_ASSIGN_OR_RETURN(const auto model, OpenModel(flags.model));
  ECPHORY_ASSIGN_OR_RETURN(const std::vector<EngramReportText> texts,
                           ReadTexts(files, *model));
  EngramReportOptions options = flags.options;
  options.cancel = InterruptFlag();
  std::unique_ptr<Progress> progress;
  std::string shown;
  options.progress = [&](const std::string& phase, uint64_t done,
                         uint64_t total) {
    if (phase != shown) {
      progress.reset();
      progress = std::make_unique<Progress>(phase);
    }
    shown = phase;
    progress->Show(done, total);
  };
  ECPHORY_ASSIGN_OR_RETURN(const EngramReport report,
                           ReportEngram(model, texts, options));
  progress.reset();
  if (!flags.html.empty()) {
    ECPHORY_RETURN_IF_ERROR(
        WriteTextFile(flags.html, EngramReportHtml(report)));
  }
  if (flags.json) return Print(EngramReportJson(report));
  if (!flags.html.empty()) {
    return PrintLines(Format("wrote %s\n", flags.html.c_str()));
  }
  return Print(EngramReportTextPage(report));
}

}  // namespace

void AddEngramReportCommand(CLI::App& group, Action* action) {
  auto flags = std::make_shared<ReportFlags>();
  CLI::App* command = group.add_subcommand(
      "report", "Report what the memory costs and gives over texts");
  command->footer(kFooter);
  AddModelFlags(*command, &flags->model);
  command->add_option("-f,--file", flags->files, "A text; may be given again")
      ->type_name("FILE")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command
      ->add_option("--kind", flags->kinds,
                   "A text of that kind; may be given again")
      ->type_name("NAME=FILE")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  EngramReportOptions& options = flags->options;
  AddInteger(*command, "--limit", &options.max_tokens, 1, kMaxTokens,
             "Use the first so many tokens of a kind (default: 65536)");
  AddInteger(*command, "--ctx", &options.context, 2, UINT32_MAX,
             "Tokens of a window (default: 2048, or the model's maximum)");
  AddInteger(*command, "--chunk", &options.chunk, 1, kMaxChunk,
             "Tokens per forward pass (default: 256)");
  AddInteger(*command, "--decode", &options.decode_tokens, 0, 65536,
             "Tokens to time one at a time (default: 256)");
  AddInteger(*command, "--top", &options.top, 0, 1000,
             "Tokens helped and hurt to show (default: 12)");
  AddPath(*command, "--html", &flags->html, "FILE", "Write the page");
  command->add_flag("--json", flags->json, "Print JSON");
  command->callback([=] { *action = [=] { return RunReport(*flags); }; });
}

}  // namespace ecphory::cli
