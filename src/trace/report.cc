// Puts a report together: what the texts ask of the tables, and what the
// model makes of it.
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "ecphory/engram_report.h"
#include "ecphory/version.h"
#include "model/model_impl.h"
#include "trace/conditions.h"
#include "trace/report_passes.h"
#include "trace/report_rows.h"

namespace ecphory {

namespace {

// Tokens of context that a helped or hurt token is shown with.
constexpr size_t kContextTokens = 8;

constexpr uint32_t kDefaultContext = 2048;

// The texts of one kind, cut to the tokens that are used.
struct Kind {
  std::string name;
  std::vector<std::vector<int32_t>> texts;
  std::vector<int32_t> tokens;  // of all texts
};

Status CheckOptions(const Model& model,
                    const std::vector<EngramReportText>& texts,
                    EngramReportOptions* options) {
  const ModelConfig& config = model.config();
  if (!config.engram.enabled()) {
    return InvalidArgument("%s: the model has no Engram memory",
                           model.info().path.c_str());
  }
  if (options->context == 0) {
    options->context = std::min(config.max_positions, kDefaultContext);
  }
  if (options->context < 2 || options->context > config.max_positions) {
    return InvalidArgument("context of %u tokens: expected 2 to %u",
                           options->context, config.max_positions);
  }
  options->chunk = std::min(options->chunk, options->context);
  for (const uint32_t window : options->windows) {
    if (window == 0) return InvalidArgument("a window of 0 tokens");
  }
  std::sort(options->cache_bytes.begin(), options->cache_bytes.end());
  uint64_t tokens = 0;
  for (const EngramReportText& text : texts) {
    tokens += text.tokens.size();
    for (size_t i = 0; i < text.tokens.size(); ++i) {
      if (text.tokens[i] >= 0 &&
          static_cast<uint32_t>(text.tokens[i]) < config.vocab_size) {
        continue;
      }
      return OutOfRange("%s: token %zu is %d, expected 0 to %u",
                        text.kind.c_str(), i, text.tokens[i],
                        config.vocab_size - 1);
    }
  }
  if (tokens == 0) {
    return InvalidArgument("no text to report on, expected at least a token");
  }
  return {};
}

std::vector<Kind> GatherKinds(const std::vector<EngramReportText>& texts,
                              uint32_t max_tokens,
                              std::vector<EngramKindReport>* reports) {
  std::vector<Kind> kinds;
  for (const EngramReportText& text : texts) {
    const auto at =
        std::find_if(kinds.begin(), kinds.end(),
                     [&](const Kind& k) { return k.name == text.kind; });
    const auto index = static_cast<size_t>(at - kinds.begin());
    if (at == kinds.end()) {
      kinds.push_back({text.kind, {}, {}});
      reports->emplace_back().kind = text.kind;
    }
    Kind& kind = kinds[index];
    const size_t count =
        std::min<size_t>(text.tokens.size(), max_tokens - kind.tokens.size());
    kind.texts.emplace_back(
        text.tokens.begin(),
        text.tokens.begin() + static_cast<ptrdiff_t>(count));
    kind.tokens.insert(kind.tokens.end(), kind.texts.back().begin(),
                       kind.texts.back().end());
    (*reports)[index].texts += 1;
    (*reports)[index].tokens_given += text.tokens.size();
    (*reports)[index].tokens = kind.tokens.size();
  }
  return kinds;
}

// --- Passes -----------------------------------------------------------------

std::string_view Piece(const Model& model, int32_t id) {
  const Tokenizer* tokenizer = model.tokenizer();
  return tokenizer == nullptr ? std::string_view() : tokenizer->TokenBytes(id);
}

void SumLoss(const Model& model, const Kind& kind, const std::vector<float>& on,
             const std::vector<float>& off, EngramLoss* loss) {
  for (size_t t = 0; t < kind.tokens.size(); ++t) {
    if (std::isnan(on[t])) continue;
    ++loss->tokens;
    loss->bytes += Piece(model, kind.tokens[t]).size();
    loss->bits_on += static_cast<double>(on[t]);
    loss->bits_off += static_cast<double>(off[t]);
  }
}

EngramTokenEffect Effect(const Model& model, const Kind& kind, size_t at,
                         float on, float off) {
  EngramTokenEffect effect;
  effect.position = at;
  effect.id = kind.tokens[at];
  for (size_t i = at - std::min(at, kContextTokens); i < at; ++i) {
    effect.before += Piece(model, kind.tokens[i]);
  }
  effect.piece = Piece(model, kind.tokens[at]);
  effect.bits_on = static_cast<double>(on);
  effect.bits_off = static_cast<double>(off);
  return effect;
}

// The tokens with the largest gain and loss; ties go to the earlier.
void FindEffects(const Model& model, const Kind& kind,
                 const std::vector<float>& on, const std::vector<float>& off,
                 uint32_t top, EngramKindReport* report) {
  std::vector<size_t> order;
  for (size_t t = 0; t < on.size(); ++t) {
    if (!std::isnan(on[t])) order.push_back(t);
  }
  const size_t count = std::min<size_t>(top, order.size());
  const auto take = [&](bool helped, std::vector<EngramTokenEffect>* list) {
    const auto gain = [&](size_t t) {
      return helped ? off[t] - on[t] : on[t] - off[t];
    };
    std::partial_sort(order.begin(),
                      order.begin() + static_cast<ptrdiff_t>(count),
                      order.end(), [&](size_t a, size_t b) {
                        return gain(a) != gain(b) ? gain(a) > gain(b) : a < b;
                      });
    for (size_t i = 0; i < count && gain(order[i]) > 0; ++i) {
      list->push_back(
          Effect(model, kind, order[i], on[order[i]], off[order[i]]));
    }
  };
  take(true, &report->helped);
  take(false, &report->hurt);
}

Status RunKind(const std::shared_ptr<const Model>& model, const Kind& kind,
               const EngramReportOptions& options, EngramKindReport* report) {
  const Tokenizer* tokenizer = model->tokenizer();
  const int32_t bos = tokenizer != nullptr && tokenizer->data().add_bos
                          ? tokenizer->bos_id()
                          : -1;
  std::vector<trace::Windows> texts;
  uint64_t total = 0;
  for (const std::vector<int32_t>& text : kind.texts) {
    texts.push_back(trace::CutText(text, bos, options.context));
    for (const auto& sequence : texts.back().sequences) {
      total += sequence.size();
    }
  }
  trace::PassControl control{kind.name + ", Engram on", &options, 0, total};
  ECPHORY_ASSIGN_OR_RETURN(trace::PassResult on,
                           trace::RunPass(model, texts, true, &control));
  control = {kind.name + ", Engram off", &options, 0, total};
  ECPHORY_ASSIGN_OR_RETURN(const trace::PassResult off,
                           trace::RunPass(model, texts, false, &control));
  ECPHORY_CHECK(on.bits.size() == kind.tokens.size());
  ECPHORY_CHECK(off.bits.size() == kind.tokens.size());
  report->gates = std::move(on.gates);
  report->store = on.store;
  SumLoss(*model, kind, on.bits, off.bits, &report->loss);
  FindEffects(*model, kind, on.bits, off.bits, options.top, report);
  control = {kind.name + ", speed", &options, 0, 0};
  ECPHORY_ASSIGN_OR_RETURN(const trace::DecodeResult speeds,
                           trace::MeasureSpeeds(model, kind.tokens, &control));
  report->speed = speeds.speed;
  report->read = speeds.read;
  report->wait = speeds.wait;
  return {};
}

// --- Conditions -------------------------------------------------------------

// 0 where the system does not say.
uint64_t Resident(const std::string& file, uint64_t offset, uint64_t bytes) {
  const auto resident = trace::ResidentBytes(file, offset, bytes);
  return resident.ok() ? *resident : 0;
}

uint64_t TableResidency(const EngramTableFacts& table) {
  if (table.scale_file.empty()) {
    return Resident(table.file, table.offset, table.bytes);
  }
  const uint64_t scales = table.bytes / 33;  // one for each 32 codes
  return Resident(table.file, table.offset, table.bytes - scales) +
         Resident(table.scale_file, table.scale_offset, scales);
}

EngramReportConditions Conditions(const Model& model,
                                  const EngramReportOptions& options) {
  EngramReportConditions c;
  c.path = model.info().path;
  c.name = model.config().name;
  c.version = Version();
  c.backend = model.backend();
  c.threads = model.threads();
  c.processor = trace::ProcessorName();
  c.memory_bytes = trace::MemoryBytes();
  c.system = trace::SystemName();
  c.io = model.engram_io();
  c.cache_bytes = c.io.cache_bytes;
  c.context = options.context;
  c.chunk = options.chunk;
  for (const EngramTableFacts& table : model.info().engram_tables) {
    c.tables.push_back({table.layer, table.bytes, TableResidency(table), 0});
  }
  return c;
}

}  // namespace

Result<EngramReport> ReportEngram(const std::shared_ptr<const Model>& model,
                                  const std::vector<EngramReportText>& texts,
                                  const EngramReportOptions& given) {
  EngramReportOptions options = given;
  ECPHORY_RETURN_IF_ERROR(CheckOptions(*model, texts, &options));
  const engram::Hasher& hasher = *model->impl().hasher;
  const engram::Layout& layout = hasher.layout();
  EngramReport report;
  report.conditions = Conditions(*model, options);
  report.max_ngram = layout.max_ngram;
  report.rows_per_token =
      layout.columns() * static_cast<uint32_t>(layout.layers.size());
  const std::vector<Kind> kinds =
      GatherKinds(texts, options.max_tokens, &report.kinds);
  const uint64_t row_bytes = model->info().engram_tables[0].row_bytes;
  for (size_t k = 0; k < kinds.size(); ++k) {
    if (kinds[k].tokens.empty()) continue;
    ECPHORY_ASSIGN_OR_RETURN(const auto rows,
                             trace::HashTexts(hasher, kinds[k].texts));
    trace::CountKindReuse(rows, layout, options.windows, &report.kinds[k]);
    trace::SimulateCache(rows, layout, row_bytes, options.cache_bytes,
                         &report.kinds[k]);
    ECPHORY_RETURN_IF_ERROR(
        RunKind(model, kinds[k], options, &report.kinds[k]));
  }
  std::erase_if(report.kinds,
                [](const EngramKindReport& k) { return k.tokens == 0; });
  const auto& tables = model->info().engram_tables;
  for (size_t i = 0; i < tables.size(); ++i) {
    report.conditions.tables[i].resident_after = TableResidency(tables[i]);
  }
  return report;
}

}  // namespace ecphory
