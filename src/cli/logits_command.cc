// ecphory logits: the model's answer to a list of ids, for conformance work.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <span>

#include "commands.h"
#include "dump.h"
#include "ecphory/output_path.h"
#include "ecphory/session.h"
#include "flags.h"
#include "interrupt.h"
#include "npy.h"
#include "output.h"
#include "prefill_flags.h"
#include "run_facts.h"
#include "token_input.h"

namespace ecphory::cli {

namespace {

constexpr char kFooter[] = R"(
Writes float32 [T, vocab] (--all, the default) or [1, vocab] (--last). Image
positions are those of --image-mask-file and every image token id. How tokens
are cut into passes changes nothing, except with --index-keys vendor: there
--prefill 24 --chunk 1 is a prompt of 24 tokens, then one token at a time.
Layers are skipped with --last only: the logits of a token need every layer.

Examples:
  ecphory logits -m model.gguf --tokens 1,2,3 -o out.npy
  ecphory logits -m DIR --tokens-file ids.json --chunk 1 --activations bf16 \
      --dump 2 layer2 -o out.npy)";

struct LogitsFlags {
  ModelFlags model;
  SessionOptions session;
  std::string tokens;
  std::string tokens_file;
  std::string image_mask_file;
  std::string output;
  PrefillFlags prefill;
  bool dump = false;
  uint32_t dump_layer = 0;
  std::string dump_directory;
  bool no_state_rounding = false;
  bool no_engram = false;
  bool last = false;
  bool all = false;
  bool json = false;
};

Status CheckFlags(const LogitsFlags& flags) {
  ECPHORY_RETURN_IF_ERROR(CheckModelFlags(flags.model));
  if (flags.tokens.empty() == flags.tokens_file.empty()) {
    return InvalidArgument("expected one of --tokens and --tokens-file");
  }
  if (flags.last && flags.all) {
    return InvalidArgument("--last and --all are given, expected one of them");
  }
  if (flags.prefill.mode == Prefill::kReplay && (!flags.last || flags.dump)) {
    return InvalidArgument(
        "--prefill replay: logits or --dump of every token need every layer, "
        "expected --last and no --dump with it");
  }
  if (flags.output.empty()) {
    return InvalidArgument("-o is missing, expected the .npy file to write");
  }
  if (flags.dump && flags.dump_directory.empty()) {
    return InvalidArgument("--dump: no directory, expected LAYER DIR");
  }
  const std::string inputs[] = {flags.model.path, flags.tokens_file,
                                flags.image_mask_file};
  return CheckOutputPath(flags.output, inputs);
}

Result<std::vector<int32_t>> Tokens(const LogitsFlags& flags) {
  const bool list = !flags.tokens.empty();
  ECPHORY_ASSIGN_OR_RETURN(
      const std::vector<int32_t> tokens,
      list ? ParseTokenList(flags.tokens) : ReadTokensFile(flags.tokens_file));
  if (tokens.empty()) {
    return InvalidArgument("%s: no token, expected at least one",
                           list ? "--tokens" : flags.tokens_file.c_str());
  }
  return tokens;
}

Result<std::unique_ptr<DumpObserver>> MakeDump(const LogitsFlags& flags,
                                               const Model& model) {
  if (!flags.dump) return std::unique_ptr<DumpObserver>();
  const uint32_t layers = model.config().n_layers;
  if (flags.dump_layer >= layers) {
    return OutOfRange("--dump: layer %u, expected 0 to %u", flags.dump_layer,
                      layers - 1);
  }
  return DumpObserver::Create(flags.dump_layer, flags.dump_directory);
}

Status PrintFacts(const LogitsFlags& flags, const Model& model,
                  const NpyWriter& writer, const SessionStats& stats,
                  double seconds) {
  const uint64_t rows = writer.rows(), vocab = writer.row_shape()[0];
  if (flags.json) {
    return PrintJson(Json{{"output", flags.output},
                          {"shape", {rows, vocab}},
                          {"tokens", stats.tokens},
                          {"skipped_tokens", stats.skipped_tokens},
                          {"seconds", seconds},
                          {"backend", model.backend()},
                          {"threads", model.threads()},
                          {"engram_io", EngramIoJson(model)}});
  }
  return Print(
      Format("wrote %s, float32 [%llu, %llu], %.3f s on %s\n",
             flags.output.c_str(), static_cast<unsigned long long>(rows),
             static_cast<unsigned long long>(vocab), seconds, model.backend()));
}

// Tokens of one Append: all, which the session cuts into chunks, or those of
// one pass where --prefill sets the first apart.
size_t TokensOfCall(const LogitsFlags& flags, size_t first, size_t tokens) {
  const size_t first_pass = flags.prefill.first_pass;
  if (first_pass == 0) return tokens;
  return std::min<size_t>(first == 0 ? first_pass : flags.session.chunk,
                          tokens - first);
}

// A NaN that is written would be taken for an answer.
Status WriteRows(size_t first, size_t count, std::span<const float> logits,
                 NpyWriter& writer) {
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isfinite(logits[i])) continue;
    const size_t vocab = logits.size() / count;
    return Corrupt(
        "logit of id %zu at token %zu is %f, expected a finite number: the "
        "model's weights are damaged, or its activations overflow",
        i % vocab, first + i / vocab, static_cast<double>(logits[i]));
  }
  return writer.AppendRows(logits.data(), count);
}

// Runs the tokens through a fresh session and writes rows as they come.
Status WriteLogits(const LogitsFlags& flags, Session& session,
                   const std::vector<int32_t>& tokens, TensorObserver* observer,
                   NpyWriter& writer) {
  AppendOptions append;
  std::vector<uint8_t> mask;
  if (!flags.image_mask_file.empty()) {
    ECPHORY_ASSIGN_OR_RETURN(
        mask, ReadImageMask(flags.image_mask_file, tokens.size()));
  }
  append.observer = observer;
  append.cancel = InterruptFlag();
  append.logits = flags.last ? LogitsWanted::kLast : LogitsWanted::kAll;
  append.on_logits = [&](size_t, size_t count, std::span<const float> rows) {
    return WriteRows(writer.rows(), count, rows, writer);
  };
  const std::span<const int32_t> ids(tokens);
  for (size_t first = 0, count = 0; first < ids.size(); first += count) {
    count = TokensOfCall(flags, first, ids.size());
    if (!mask.empty()) append.image_mask = {mask.data() + first, count};
    ECPHORY_RETURN_IF_ERROR(session.Append(ids.subspan(first, count), append));
  }
  if (!flags.last) return {};
  return WriteRows(tokens.size() - 1, 1, session.logits(), writer);
}

Status RunLogits(const LogitsFlags& flags) {
  ECPHORY_RETURN_IF_ERROR(CheckFlags(flags));
  ECPHORY_ASSIGN_OR_RETURN(const std::vector<int32_t> tokens, Tokens(flags));
  ECPHORY_ASSIGN_OR_RETURN(const auto model, OpenModel(flags.model));
  ECPHORY_ASSIGN_OR_RETURN(const auto dump, MakeDump(flags, *model));
  SessionOptions options = flags.session;
  options.context = static_cast<uint32_t>(tokens.size());
  options.chunk = std::max(flags.session.chunk, flags.prefill.first_pass);
  ECPHORY_ASSIGN_OR_RETURN(options.prefill, flags.prefill.Mode());
  options.state_rounding = !flags.no_state_rounding;
  options.engram = !flags.no_engram;
  ECPHORY_ASSIGN_OR_RETURN(const auto session, Session::Create(model, options));
  ECPHORY_ASSIGN_OR_RETURN(const auto writer,
                           NpyWriter::Create(flags.output, NpyType::kF32,
                                             {model->config().vocab_size}));
  const auto start = std::chrono::steady_clock::now();
  ECPHORY_RETURN_IF_ERROR(
      WriteLogits(flags, *session, tokens, dump.get(), *writer));
  const std::chrono::duration<double> seconds =
      std::chrono::steady_clock::now() - start;
  if (dump != nullptr) ECPHORY_RETURN_IF_ERROR(dump->Commit());
  ECPHORY_RETURN_IF_ERROR(writer->Commit());
  return PrintFacts(flags, *model, *writer, session->stats(), seconds.count());
}

void AddInputFlags(CLI::App& command, LogitsFlags* flags) {
  AddText(command, "--tokens", &flags->tokens, "IDS",
          "Token ids between commas");
  AddPath(command, "--tokens-file", &flags->tokens_file, "FILE",
          "Token ids: a .json array, or a .npy array of integers");
  AddPath(command, "--image-mask-file", &flags->image_mask_file, "FILE",
          "A .npy array, one value a token: non-zero = image position");
}

void AddModeFlags(CLI::App& command, LogitsFlags* flags) {
  SessionOptions& session = flags->session;
  AddActivationsFlag(command, &session.activations);
  command.add_flag("--no-state-rounding", flags->no_state_rounding,
                   "Keep caches and indexer in fp32");
  AddChoice<IndexKeys>(
      command, "--index-keys", &session.index_keys,
      {{"own", IndexKeys::kOwn}, {"vendor", IndexKeys::kVendor}},
      "Index keys between completed groups: the source's own, or those "
      "published last (default: own)");
  command.add_flag("--no-engram", flags->no_engram, "Shut every Engram gate");
  AddInteger(command, "--chunk", &session.chunk, 1, kMaxChunk,
             "Tokens per forward pass (default: 256)");
  AddPrefillFlags(command, &flags->prefill, /*first_pass=*/true);
}

void AddOutputFlags(CLI::App& command, LogitsFlags* flags) {
  command.add_flag("--last", flags->last, "Logits of the last token only");
  command.add_flag("--all", flags->all, "Logits of every token (default)");
  AddPath(command, "-o,--output", &flags->output, "FILE",
          "The .npy file to write");
  const auto set_dump = [flags](const std::vector<std::string>& values) {
    flags->dump = true;
    flags->dump_layer = ParseInteger("--dump", values[0], 0, UINT32_MAX);
    flags->dump_directory = values[1];
  };
  command
      .add_option_function<std::vector<std::string>>(
          "--dump", set_dump, "Write that layer's intermediates into DIR")
      ->type_name("LAYER DIR")
      ->expected(2);
  command.add_flag("--json", flags->json, "Print the facts as JSON");
}

}  // namespace

void AddLogitsCommand(CLI::App& app, Action* action) {
  auto flags = std::make_shared<LogitsFlags>();
  CLI::App* command = app.add_subcommand(
      "logits", "Write the logits of token ids as a NumPy file");
  command->footer(kFooter);
  AddModelFlags(*command, &flags->model);
  AddInputFlags(*command, flags.get());
  AddModeFlags(*command, flags.get());
  AddOutputFlags(*command, flags.get());
  command->callback([=] { *action = [=] { return RunLogits(*flags); }; });
}

}  // namespace ecphory::cli
