#include "run_prompts.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "ecphory/batch.h"
#include "file_text.h"
#include "interrupt.h"
#include "output.h"
#include "prompt.h"
#include "run_facts.h"
#include "sizes.h"

namespace ecphory::cli {

namespace {

constexpr size_t kMaxFileBytes = size_t{1} << 28;

// The string of a line: itself in JSON, or the "prompt" of an object.
Result<std::string> JsonPrompt(const std::string& line) {
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) {
    return InvalidArgument(
        "no valid JSON in UTF-8, expected a string or an object with a string "
        "\"prompt\"");
  }
  if (json.is_string()) return json.get<std::string>();
  if (json.is_object() && json.contains("prompt") &&
      json["prompt"].is_string()) {
    return json["prompt"].get<std::string>();
  }
  return InvalidArgument(
      "expected a JSON string or an object with a string \"prompt\"");
}

bool HoldsJson(const std::string& path) {
  constexpr std::string_view kEnding = ".jsonl";
  return path.size() >= kEnding.size() &&
         path.compare(path.size() - kEnding.size(), kEnding.size(), kEnding) ==
             0;
}

struct Prompt {
  std::string place;  // "FILE, line N"
  std::string text;
};

// One a line; empty lines are none.
Result<std::vector<Prompt>> ReadPrompts(const std::string& path) {
  ECPHORY_ASSIGN_OR_RETURN(const std::string text,
                           ReadFileText(path, kMaxFileBytes));
  std::vector<Prompt> prompts;
  for (size_t begin = 0, number = 1; begin < text.size(); ++number) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty()) continue;
    std::string place = path + ", line " + std::to_string(number);
    if (HoldsJson(path)) {
      Result<std::string> prompt = JsonPrompt(line);
      if (!prompt.ok()) return prompt.status().WithContext(place);
      line = std::move(prompt).value();
    }
    prompts.push_back({std::move(place), std::move(line)});
  }
  if (!prompts.empty()) return prompts;
  return InvalidArgument("%s: no prompt in it, expected one a line",
                         path.c_str());
}

// What a run of several prompts reports.
struct PromptsFacts {
  const Model* model = nullptr;
  uint32_t sequences = 0;
  std::vector<GenerateResult> results;
  double seconds = 0;  // prompts included
  SessionStats stats;
  uint64_t seed = 0;

  uint64_t Sum(uint64_t (*count)(const GenerateResult&)) const {
    uint64_t sum = 0;
    for (const GenerateResult& result : results) sum += count(result);
    return sum;
  }
  uint64_t Prompts() const {
    return Sum([](const GenerateResult& r) { return r.prompt_tokens; });
  }
  uint64_t Generated() const {
    return Sum(
        [](const GenerateResult& r) -> uint64_t { return r.tokens.size(); });
  }
  double PerSecond() const {
    return seconds > 0 ? static_cast<double>(Generated()) / seconds : 0;
  }
  bool Cancelled() const {
    return Sum([](const GenerateResult& r) -> uint64_t {
             return r.reason == StopReason::kCancelled ? 1 : 0;
           }) > 0;
  }

  std::string ToLine() const;
  Json ToJson() const;
};

std::string PromptsFacts::ToLine() const {
  return Format("[%zu prompts of %s tokens, %u at a time; %s generated in ",
                results.size(), Grouped(Prompts()).c_str(), sequences,
                Grouped(Generated()).c_str()) +
         Format("%.2f s, prompts included: %s tokens/s; Engram: ", seconds,
                HumanRate(PerSecond()).c_str()) +
         Grouped(stats.engram_rows) + " rows, " +
         Grouped(stats.engram_rows_read) + " read, " +
         Format("%.1f ms exposed]", 1e3 * stats.engram_wait_seconds);
}

Json PromptsFacts::ToJson() const {
  Json texts = Json::array();
  for (const GenerateResult& result : results) {
    texts.push_back(Json{{"text", result.text},
                         {"tokens", result.tokens},
                         {"stop_reason", StopReasonName(result.reason)},
                         {"prompt_tokens", result.prompt_tokens}});
  }
  return Json{{"results", std::move(texts)},
              {"model", model->info().path},
              {"backend", model->backend()},
              {"threads", model->threads()},
              {"seed", seed},
              {"sequences", sequences},
              {"prompt_tokens", Prompts()},
              {"generated_tokens", Generated()},
              {"seconds", seconds},
              {"tokens_per_second", PerSecond()},
              {"engram",
               {{"rows", stats.engram_rows},
                {"rows_read", stats.engram_rows_read},
                {"wait_seconds", stats.engram_wait_seconds},
                {"io", EngramIoJson(*model)}}}};
}

Status Show(const PromptsRun& run, const PromptsFacts& facts) {
  if (run.json) {
    ECPHORY_RETURN_IF_ERROR(PrintJson(facts.ToJson()));
  } else {
    for (size_t i = 0; i < facts.results.size(); ++i) {
      ECPHORY_RETURN_IF_ERROR(
          Print(Format("== prompt %zu: %s\n", i,
                       StopReasonName(facts.results[i].reason)) +
                facts.results[i].text + "\n"));
    }
    if (!run.quiet) std::fprintf(stderr, "%s\n", facts.ToLine().c_str());
  }
  // No message: the facts have said it.
  return facts.Cancelled() ? Status(StatusCode::kCancelled, "") : Status();
}

}  // namespace

Result<std::vector<int32_t>> PromptIds(const Model& model,
                                       const std::string& text) {
  ECPHORY_ASSIGN_OR_RETURN(std::vector<int32_t> ids, EncodePrompt(model, text));
  if (ids.empty() && model.tokenizer()->bos_id() >= 0) {
    ids.push_back(model.tokenizer()->bos_id());
  }
  if (!ids.empty()) return ids;
  return InvalidArgument("the prompt is empty, expected some text to continue");
}

Status CheckContext(size_t tokens, uint64_t context) {
  if (tokens <= context) return {};
  return OutOfRange(
      "the prompt has %zu tokens, more than the context of %llu; give a larger "
      "--ctx or a shorter prompt",
      tokens, static_cast<unsigned long long>(context));
}

Status RunPrompts(const PromptsRun& run) {
  ECPHORY_ASSIGN_OR_RETURN(const std::vector<Prompt> prompts,
                           ReadPrompts(run.file));
  ECPHORY_ASSIGN_OR_RETURN(const auto model, OpenModel(run.model));
  PromptsFacts facts;
  facts.model = model.get();
  facts.seed = run.generate.sampler.seed;
  facts.sequences =
      static_cast<uint32_t>(std::min<size_t>(run.sequences, prompts.size()));
  ECPHORY_ASSIGN_OR_RETURN(const auto batch,
                           Batch::Create(model, run.session, facts.sequences));
  std::vector<std::vector<int32_t>> ids;
  std::vector<GenerateRequest> requests;
  for (const Prompt& prompt : prompts) {
    Result<std::vector<int32_t>> of_prompt = PromptIds(*model, prompt.text);
    if (!of_prompt.ok()) return of_prompt.status().WithContext(prompt.place);
    const Status fits =
        CheckContext(of_prompt->size(), batch->options().context);
    if (!fits.ok()) return fits.WithContext(prompt.place);
    ids.push_back(std::move(of_prompt).value());
    requests.push_back({ids.back(), run.generate});
    requests.back().options.cancel = InterruptFlag();
  }
  const auto start = std::chrono::steady_clock::now();
  ECPHORY_ASSIGN_OR_RETURN(facts.results,
                           Generate(*batch, *model->tokenizer(), requests));
  facts.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
          .count();
  facts.stats = batch->stats();
  return Show(run, facts);
}

}  // namespace ecphory::cli
