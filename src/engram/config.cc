#include "engram/config.h"

#include <algorithm>
#include <charconv>
#include <system_error>
#include <vector>

#include "base/quote.h"
#include "engram/layout.h"
#include "tensor/table_codec.h"

namespace ecphory {

int EngramConfig::IndexOfLayer(uint32_t layer) const {
  const auto it = std::find(layer_ids.begin(), layer_ids.end(), layer);
  return it == layer_ids.end() ? -1 : static_cast<int>(it - layer_ids.begin());
}

namespace engram {

namespace {

// Rows times bytes per row must stay a file offset.
constexpr uint64_t kMaxTableRows = uint64_t{1} << 40;

void ReadPadToken(FieldReader* f, EngramConfig* e) {
  const KeySource& keys = f->source();
  f->Required(
      keys.Has("engram_pad_token_id") ? "engram_pad_token_id" : "engram_pad_id",
      &e->pad_token_id);
  uint32_t other = e->pad_token_id;
  f->Optional("engram_pad_id", &other);
  if (other == e->pad_token_id) return;
  f->Keep(Corrupt("%s: found %u, expected %u as in engram_pad_token_id",
                  keys.Spelling("engram_pad_id").c_str(), other,
                  e->pad_token_id));
}

// Without layers the other keys may be there, but not as if tables existed.
void ReadJsonAbsence(FieldReader* f) {
  const KeySource& keys = f->source();
  std::vector<uint64_t> rows;
  uint64_t compressed = 0;
  f->Optional("engram_num_embeddings", &rows);
  f->Optional("engram_compressed_vocab_size", &compressed);
  if (rows.empty() && compressed == 0) return;
  if (!keys.Has("engram_layer_ids")) return f->Missing("engram_layer_ids");
  f->Keep(
      Corrupt("%s: empty, but engram_num_embeddings or "
              "engram_compressed_vocab_size describe tables",
              keys.Spelling("engram_layer_ids").c_str()));
}

// Values of a row from the encoding's name, "e4m3_e8m0_32_row264": 33 bytes for
// every 32 values.
Result<uint32_t> RowWidth(const std::string& encoding) {
  const std::string prefix = "e4m3_e8m0_32_row";
  uint32_t bytes = 0;
  if (encoding.rfind(prefix, 0) == 0) {
    const char* end = encoding.data() + encoding.size();
    const auto parsed =
        std::from_chars(encoding.data() + prefix.size(), end, bytes);
    if (parsed.ec != std::errc() || parsed.ptr != end) bytes = 0;
  }
  if (bytes == 0 || bytes % 33 != 0) {
    return Unsupported(
        "deepseek41.engram.encoding: found %s, expected "
        "'e4m3_e8m0_32_rowN', N a multiple of 33",
        Quoted(encoding).c_str());
  }
  return bytes / 33 * 32;
}

// N-gram and head counts, which the numbers' lengths imply.
Status ShapeFromNumbers(EngramConfig* e) {
  const size_t layers = e->layer_ids.size();
  if (e->multipliers.empty() || e->multipliers.size() % layers != 0) {
    return Corrupt(
        "deepseek41.engram.multipliers: found %zu, expected as many "
        "for each of %zu layers",
        e->multipliers.size(), layers);
  }
  const size_t max_ngram = e->multipliers.size() / layers;
  const size_t columns = e->primes.size() / layers;
  if (max_ngram < 2 || columns == 0 || e->primes.size() % layers != 0 ||
      columns % (max_ngram - 1) != 0) {
    return Corrupt(
        "deepseek41.engram.primes: found %zu, expected as many for "
        "each of %zu layers and n-gram sizes 2..%zu",
        e->primes.size(), layers, max_ngram);
  }
  e->max_ngram = static_cast<uint32_t>(max_ngram);
  e->heads = static_cast<uint32_t>(columns / (max_ngram - 1));
  return {};
}

constexpr const char* kEngramKeys[] = {
    "engram.encoding", "engram.rows",   "engram.compressed_vocab_size",
    "engram.pad_id",   "engram.primes", "engram.multipliers",
    "engram.token_map"};

// Numbers that GGUF stores and config.json leaves to be derived.
Status CheckStoredNumbers(const EngramConfig& e) {
  const size_t layers = e.layer_ids.size();
  if (!e.primes.empty() && e.primes.size() != layers * e.columns()) {
    return Corrupt("engram.primes: found %zu, expected %zu (%zu layers x %u)",
                   e.primes.size(), layers * e.columns(), layers, e.columns());
  }
  if (!e.multipliers.empty() && e.multipliers.size() != layers * e.max_ngram) {
    return Corrupt(
        "engram.multipliers: found %zu, expected %zu (%zu layers x %u)",
        e.multipliers.size(), layers * e.max_ngram, layers, e.max_ngram);
  }
  if (e.pad_compressed_id < -1 ||
      e.pad_compressed_id >= static_cast<int64_t>(e.compressed_vocab_size)) {
    return Corrupt(
        "engram.pad_id: found %lld, expected an id below "
        "engram.compressed_vocab_size (%u)",
        static_cast<long long>(e.pad_compressed_id), e.compressed_vocab_size);
  }
  return {};
}

}  // namespace

void ReadJsonConfig(FieldReader* f, EngramConfig* e) {
  f->Optional("engram_layer_ids", &e->layer_ids);
  if (!e->enabled()) return ReadJsonAbsence(f);
  f->Required("engram_num_embeddings", &e->rows);
  f->Required("engram_max_ngram_size", &e->max_ngram);
  f->Required("engram_n_heads", &e->heads);
  f->Required("engram_head_dim", &e->head_dim);
  f->Required("engram_vocab_size", &e->vocab_size);
  f->Required("engram_compressed_vocab_size", &e->compressed_vocab_size);
  ReadPadToken(f, e);
}

void ReadGgufConfig(FieldReader* f, EngramConfig* e) {
  bool mentioned = f->source().Has("engram.layer_ids");
  for (const char* key : kEngramKeys) {
    mentioned = mentioned || f->source().Has(key);
  }
  if (!mentioned) return;
  f->Required("engram.layer_ids", &e->layer_ids);
  f->Required("engram.rows", &e->rows);
  f->Required("engram.compressed_vocab_size", &e->compressed_vocab_size);
  uint32_t pad = 0;
  f->Required("engram.pad_id", &pad);
  e->pad_compressed_id = pad;
  f->Required("engram.primes", &e->primes);
  f->Required("engram.multipliers", &e->multipliers);
  if (!f->source().Has("engram.token_map")) f->Missing("engram.token_map");
  std::string encoding;
  f->Required("engram.encoding", &encoding);
  if (!f->status().ok()) return;
  if (!e->enabled()) {
    return f->Keep(
        Corrupt("deepseek41.engram.layer_ids: empty, but other "
                "deepseek41.engram keys are given"));
  }
  f->Keep(ShapeFromNumbers(e));
  const Result<uint32_t> width = RowWidth(encoding);
  f->Keep(width.status());
  if (width.ok()) e->head_dim = *width;
}

void ReadEmbeddedConfig(FieldReader* f, EngramConfig* e) {
  if (e->enabled()) f->Optional("engram_vocab_size", &e->vocab_size);
}

Status CheckConfig(const EngramConfig& e, uint32_t vocab_size,
                   uint32_t n_layers) {
  if (!e.enabled()) {
    if (e.rows.empty() && e.primes.empty() && e.multipliers.empty()) return {};
    return Corrupt(
        "engram_layer_ids: empty, but Engram row counts, primes or "
        "multipliers are given");
  }
  ECPHORY_RETURN_IF_ERROR(
      CheckLayerIds("engram_layer_ids", e.layer_ids, n_layers));
  if (e.rows.size() != e.layer_ids.size()) {
    return Corrupt(
        "engram_num_embeddings: found %zu entries, expected %zu, "
        "one for each of engram_layer_ids",
        e.rows.size(), e.layer_ids.size());
  }
  for (const uint64_t rows : e.rows) {
    ECPHORY_RETURN_IF_ERROR(
        CheckRange("engram_num_embeddings", rows, 1, kMaxTableRows));
  }
  ECPHORY_RETURN_IF_ERROR(
      CheckRange("engram_max_ngram_size", e.max_ngram, 2, kMaxNgram));
  ECPHORY_RETURN_IF_ERROR(CheckRange("engram_n_heads", e.heads, 1, 256));
  ECPHORY_RETURN_IF_ERROR(CheckRange("engram_head_dim", e.head_dim, 32, 65536));
  ECPHORY_RETURN_IF_ERROR(CheckMultiple("engram_head_dim", e.head_dim, 32,
                                        "row scales cover 32 values"));
  ECPHORY_RETURN_IF_ERROR(CheckRange("engram_compressed_vocab_size",
                                     e.compressed_vocab_size, 1, vocab_size));
  ECPHORY_RETURN_IF_ERROR(
      CheckRange("engram_pad_token_id", e.pad_token_id, 0, vocab_size - 1));
  return CheckStoredNumbers(e);
}

std::string RowEncodingName(uint32_t width) {
  return "e4m3_e8m0_32_row" +
         std::to_string(TableRowBytes(TableCodec::kRow264, width));
}

std::string RowEncodingName(TableCodec codec, uint32_t width) {
  return codec == TableCodec::kRow264 ? RowEncodingName(width)
                                      : TableCodecName(codec);
}

}  // namespace engram

}  // namespace ecphory
