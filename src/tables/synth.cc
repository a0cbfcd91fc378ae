// Tables of valid rows that follow from a seed.

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <numeric>
#include <utility>

#include "base/quote.h"
#include "ecphory/engram_tables.h"
#include "engram/config.h"
#include "engram/synth_rows.h"
#include "io/file.h"
#include "io/path.h"
#include "tables/digest.h"
#include "tables/layouts.h"
#include "tables/resumable_file.h"
#include "tables/sparse_file.h"
#include "tables/table_set.h"
#include "tables/table_writer.h"
#include "text/token_map.h"
#include "text/tokenizer_file.h"

namespace ecphory::tables {

namespace {

using engram::SynthCodec;
using engram::SynthTable;

// What each region of the plan is filled with.
struct SynthPlan {
  TableNumbers numbers;
  TableCodec codec = TableCodec::kRow264;
  TableFilePlan file;
  std::vector<SynthTable> regions;
};

Result<TableCodec> ParseCodec(const std::string& name) {
  if (name == "row264") return TableCodec::kRow264;
  if (name == "pair") return TableCodec::kReleasedPair;
  if (name == "bf16") return TableCodec::kBf16;
  if (name == "q8_0") return TableCodec::kQ8_0;
  return InvalidArgument("codec %s, expected row264, pair, bf16 or q8_0",
                         Quoted(name).c_str());
}

SynthCodec MainPart(TableCodec codec) {
  switch (codec) {
    case TableCodec::kReleasedPair: return SynthCodec::kE4M3Codes;
    case TableCodec::kBf16: return SynthCodec::kBf16;
    case TableCodec::kQ8_0: return SynthCodec::kQ8_0;
    default: return SynthCodec::kRow264;
  }
}

TableContainer ContainerOf(const SynthOptions& options) {
  if (options.container != TableContainer::kByName) return options.container;
  if (HasExtension(options.output, ".gguf")) return TableContainer::kGguf;
  if (HasExtension(options.output, ".safetensors")) {
    return TableContainer::kSafetensors;
  }
  return TableContainer::kRaw;
}

Status CheckContainer(TableContainer container, TableCodec codec) {
  const bool pair = codec == TableCodec::kReleasedPair;
  if (container == TableContainer::kGguf && codec != TableCodec::kRow264) {
    return Unsupported("a GGUF file of tables holds row264 rows, not %s",
                       TableCodecName(codec));
  }
  if (container == TableContainer::kSafetensors && !pair &&
      codec != TableCodec::kBf16) {
    return Unsupported("safetensors hold pair or bf16 rows, not %s",
                       TableCodecName(codec));
  }
  if (container == TableContainer::kRaw && pair) {
    return Unsupported(
        "a pair is two tensors; give an output that ends in .safetensors");
  }
  return {};
}

Result<engram::LayoutSpec> SpecOf(const SynthOptions& options,
                                  const EngramConfig& e) {
  engram::LayoutSpec spec{e.layer_ids, e.max_ngram, e.heads, e.vocab_size,
                          e.compressed_vocab_size};
  if (options.rows != 0 && options.vocab_size != 0) {
    return InvalidArgument(
        "rows and vocab-size both decide about the primes, expected one");
  }
  if (options.rows != 0) spec.vocab_size = options.rows / e.columns();
  if (options.vocab_size != 0) spec.vocab_size = options.vocab_size;
  if (spec.vocab_size == 0) {
    return InvalidArgument("%llu rows a layer, expected at least %u (columns)",
                           static_cast<unsigned long long>(options.rows),
                           e.columns());
  }
  return spec;
}

// The tokenizer and its map, or ids that stand for themselves.
Status FillTokenMap(const SynthOptions& options, uint32_t pad_token_id,
                    engram::LayoutSpec* spec, TableNumbers* numbers) {
  if (options.tokenizer.empty()) {
    numbers->token_map.resize(spec->compressed_vocab_size);
    std::iota(numbers->token_map.begin(), numbers->token_map.end(), 0);
  } else {
    ECPHORY_ASSIGN_OR_RETURN(numbers->tokenizer,
                             ReadTokenizerFile(options.tokenizer));
    ECPHORY_ASSIGN_OR_RETURN(numbers->token_map,
                             BuildTokenMap(*numbers->tokenizer));
    const auto largest =
        std::max_element(numbers->token_map.begin(), numbers->token_map.end());
    if (largest == numbers->token_map.end()) {
      return Corrupt("%s: has no tokens", options.tokenizer.c_str());
    }
    spec->compressed_vocab_size = static_cast<uint32_t>(*largest) + 1;
  }
  if (pad_token_id >= numbers->token_map.size()) {
    return OutOfRange("pad token %u, the vocabulary has %zu tokens",
                      pad_token_id, numbers->token_map.size());
  }
  numbers->pad_id = numbers->token_map[pad_token_id];
  return {};
}

Result<TableNumbers> MakeNumbers(const SynthOptions& options) {
  ECPHORY_ASSIGN_OR_RETURN(const EngramConfig config,
                           NamedLayout(options.layout));
  ECPHORY_ASSIGN_OR_RETURN(engram::LayoutSpec spec, SpecOf(options, config));
  TableNumbers numbers;
  numbers.width = options.width == 0 ? config.head_dim : options.width;
  if (numbers.width == 0 || numbers.width % 32 != 0 ||
      numbers.width > engram::kMaxSynthWidth) {
    return InvalidArgument("width %u, expected a multiple of 32 up to %u",
                           numbers.width, engram::kMaxSynthWidth);
  }
  ECPHORY_RETURN_IF_ERROR(
      FillTokenMap(options, config.pad_token_id, &spec, &numbers));
  ECPHORY_ASSIGN_OR_RETURN(numbers.layout, engram::DeriveLayout(spec));
  return numbers;
}

Result<TableFilePlan> PlanFile(const SynthOptions& options,
                               const TableNumbers& numbers, TableCodec codec) {
  const TableContainer container = ContainerOf(options);
  ECPHORY_RETURN_IF_ERROR(CheckContainer(container, codec));
  switch (container) {
    case TableContainer::kGguf: return PlanGguf(numbers);
    case TableContainer::kSafetensors: return PlanSafetensors(numbers, codec);
    default: return PlanRaw(numbers, codec);
  }
}

Result<SynthPlan> MakePlan(const SynthOptions& options) {
  SynthPlan plan;
  ECPHORY_ASSIGN_OR_RETURN(plan.codec, ParseCodec(options.codec));
  ECPHORY_ASSIGN_OR_RETURN(plan.numbers, MakeNumbers(options));
  ECPHORY_ASSIGN_OR_RETURN(plan.file,
                           PlanFile(options, plan.numbers, plan.codec));
  for (uint32_t i = 0; i < plan.numbers.layout.layers.size(); ++i) {
    SynthTable table{options.seed, i, MainPart(plan.codec), plan.numbers.width};
    plan.regions.push_back(table);
    if (plan.codec != TableCodec::kReleasedPair) continue;
    table.codec = SynthCodec::kScales;
    plan.regions.push_back(table);
  }
  return plan;
}

Status FillSynth(const SynthPlan& plan, size_t region, uint64_t begin,
                 std::span<uint8_t> out) {
  const uint64_t row = begin / plan.file.regions[region].row_bytes;
  SynthRows(plan.regions[region], row, out);
  return {};
}

// Everything that decides about the bytes of the rows; sizes are in the header
// or follow from these.
std::string SignatureOf(const SynthOptions& options, const SynthPlan& plan) {
  std::string text = "synth seed " + std::to_string(options.seed) + " codec " +
                     options.codec + " width " +
                     std::to_string(plan.numbers.width) + " header " +
                     Hex(Digest::Of(plan.file.header));
  for (const Region& region : plan.file.regions) {
    text += " " + std::to_string(region.bytes);
  }
  return text;
}

WrittenTables Describe(const SynthOptions& options, const SynthPlan& plan) {
  WrittenTables written;
  written.output = options.output;
  written.bytes = plan.file.total_bytes;
  written.codec = engram::RowEncodingName(plan.codec, plan.numbers.width);
  written.width = plan.numbers.width;
  const size_t step = plan.codec == TableCodec::kReleasedPair ? 2 : 1;
  for (size_t i = 0; i < plan.numbers.layout.layers.size(); ++i) {
    const engram::LayerLayout& layer = plan.numbers.layout.layers[i];
    const Region& region = plan.file.regions[i * step];
    written.tables.push_back(
        {layer.layer_id, layer.rows, region.offset, region.row_bytes});
  }
  return written;
}

}  // namespace

}  // namespace ecphory::tables

namespace ecphory {

Result<WrittenTables> SynthTables(const SynthOptions& options) {
  using namespace tables;
  const auto start = std::chrono::steady_clock::now();
  ECPHORY_ASSIGN_OR_RETURN(const SynthPlan plan, MakePlan(options));
  ECPHORY_RETURN_IF_ERROR(CheckNoInput(
      options.output,
      std::array<std::string, 2>{options.layout, options.tokenizer}));
  WrittenTables written = Describe(options, plan);
  const RegionFill fill = [&plan](size_t region, uint64_t begin,
                                  std::span<uint8_t> out, size_t) {
    return FillSynth(plan, region, begin, out);
  };
  const WriteOptions write{.path = options.output,
                           .signature = SignatureOf(options, plan),
                           .overwrite = options.overwrite,
                           .threads = ThreadCount(options.threads),
                           .progress = options.progress};
  if (options.sparse_bytes != 0) {
    ECPHORY_RETURN_IF_ERROR(
        WriteSparseFile(plan.file, fill, options.sparse_bytes, write));
  } else {
    ECPHORY_ASSIGN_OR_RETURN(const WrittenFile file,
                             WriteTableFile(plan.file, fill, write));
    written.resumed_bytes = file.resumed_bytes;
    written.verified = true;
  }
  written.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
          .count();
  return written;
}

}  // namespace ecphory
