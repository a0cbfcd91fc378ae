#include "tables/layouts.h"

#include <utility>

#include "base/checked_math.h"
#include "base/quote.h"
#include "engram/config.h"
#include "engram/source_numbers.h"
#include "engram/source_tables.h"
#include "format/gguf.h"
#include "format/json_keys.h"
#include "io/file.h"
#include "model/convert_metadata.h"
#include "tables/table_set.h"

namespace ecphory::tables {

namespace {

const std::string kPrefix = engram::kGgufPrefix;
// Tables begin on a page of every common system.
constexpr uint64_t kGgufAlignment = 16384;
// So do those of a safetensors file, whose header may be padded.
constexpr uint64_t kSafetensorsAlignment = 4096;

EngramConfig ReleasedConfig() {
  EngramConfig e;
  e.layer_ids = {1, 14};
  e.max_ngram = 4;
  e.heads = 8;
  e.head_dim = 256;
  e.vocab_size = 16'000'000;
  e.compressed_vocab_size = 99'092;
  e.pad_token_id = 2;
  return e;
}

EngramConfig MiniConfig() {
  EngramConfig e;
  e.layer_ids = {1, 4};
  e.max_ngram = 4;
  e.heads = 4;
  e.head_dim = 64;
  e.vocab_size = 14'500;
  e.compressed_vocab_size = 6'950;
  e.pad_token_id = 2;
  return e;
}

// u32 when every value fits, else u64.
void AddWideArray(const std::string& key, const std::vector<uint64_t>& values,
                  GgufWriter* w) {
  std::vector<uint32_t> narrow;
  for (const uint64_t value : values) {
    if (value > UINT32_MAX) return w->AddUint64Array(key, values);
    narrow.push_back(static_cast<uint32_t>(value));
  }
  w->AddUint32Array(key, narrow);
}

void AddTokenId(const std::string& key, int32_t id, GgufWriter* w) {
  if (id >= 0) w->AddUint32(key, static_cast<uint32_t>(id));
}

void AddNumbers(const TableNumbers& numbers, GgufWriter* w) {
  std::vector<uint32_t> layer_ids;
  std::vector<uint64_t> rows, primes, multipliers;
  for (const engram::LayerLayout& layer : numbers.layout.layers) {
    layer_ids.push_back(layer.layer_id);
    rows.push_back(layer.rows);
    primes.insert(primes.end(), layer.primes.begin(), layer.primes.end());
    multipliers.insert(multipliers.end(), layer.multipliers.begin(),
                       layer.multipliers.end());
  }
  w->AddString("general.architecture", "deepseek41");
  w->AddString(kPrefix + "engram.encoding",
               engram::RowEncodingName(numbers.width));
  w->AddUint32Array(kPrefix + "engram.layer_ids", layer_ids);
  AddWideArray(kPrefix + "engram.rows", rows, w);
  w->AddUint32(kPrefix + "engram.compressed_vocab_size",
               numbers.layout.compressed_vocab_size);
  w->AddUint32(kPrefix + "engram.pad_id",
               static_cast<uint32_t>(numbers.pad_id));
  w->AddUint32Array(kPrefix + "engram.token_map",
                    {numbers.token_map.begin(), numbers.token_map.end()});
  AddWideArray(kPrefix + "engram.primes", primes, w);
  w->AddUint64Array(kPrefix + "engram.multipliers", multipliers);
  w->AddUint32(kPrefix + "vocab_size",
               static_cast<uint32_t>(numbers.token_map.size()));
  AddTokenId(kPrefix + "image_token_id", numbers.image_token_id, w);
  if (!numbers.tokenizer) return;
  AddTokenizerKeys(*numbers.tokenizer, w);
  AddTokenId("tokenizer.ggml.bos_token_id", numbers.tokenizer->bos_id(), w);
  AddTokenId("tokenizer.ggml.eos_token_id", numbers.tokenizer->eos_id(), w);
}

// Appends a region of whole rows; kOutOfRange when no file could hold it.
Status Append(std::string name, uint64_t rows, size_t row_bytes,
              TableFilePlan* plan) {
  Region region{std::move(name), plan->total_bytes, 0,
                static_cast<uint32_t>(row_bytes)};
  uint64_t end = 0;
  if (!CheckedMul(rows, row_bytes, &region.bytes) ||
      !CheckedAdd(region.offset, region.bytes, &end) ||
      end > static_cast<uint64_t>(INT64_MAX)) {
    return OutOfRange("%s: %llu rows of %zu bytes are more than a file holds",
                      region.name.c_str(),
                      static_cast<unsigned long long>(rows), row_bytes);
  }
  plan->total_bytes = end;
  plan->regions.push_back(std::move(region));
  return {};
}

struct SafetensorsTensor {
  std::string name;
  const char* dtype;
  uint64_t rows;
  uint64_t cols;
  uint64_t row_bytes;
};

std::vector<SafetensorsTensor> SafetensorsTensors(const TableNumbers& numbers,
                                                  TableCodec codec) {
  std::vector<SafetensorsTensor> tensors;
  const uint64_t width = numbers.width;
  for (const engram::LayerLayout& layer : numbers.layout.layers) {
    const std::string name =
        "layers." + std::to_string(layer.layer_id) + ".engram.embed";
    if (codec == TableCodec::kBf16) {
      tensors.push_back(
          {name + ".weight", "BF16", layer.rows, width, 2 * width});
      continue;
    }
    tensors.push_back({name + ".weight", "F8_E4M3", layer.rows, width, width});
    tensors.push_back(
        {name + ".scale", "F8_E8M0", layer.rows, width / 32, width / 32});
  }
  return tensors;
}

}  // namespace

Result<EngramConfig> NamedLayout(const std::string& name) {
  if (name == "released") return ReleasedConfig();
  if (name == "mini") return MiniConfig();
  const auto text = ReadWholeFile(name, kMaxConfigBytes);
  if (!text.ok()) {
    return text.status().WithContext(
        "layout " + Quoted(name) +
        ", expected released, mini or the path of a config.json");
  }
  ECPHORY_ASSIGN_OR_RETURN(engram::Numbers numbers,
                           engram::ReadJsonNumbers(*text, name));
  return std::move(numbers.config);
}

Result<TableFilePlan> PlanGguf(const TableNumbers& numbers) {
  GgufWriter writer(kGgufAlignment);
  AddNumbers(numbers, &writer);
  const uint64_t row_bytes = TableRowBytes(TableCodec::kRow264, numbers.width);
  for (const engram::LayerLayout& layer : numbers.layout.layers) {
    ECPHORY_RETURN_IF_ERROR(writer.AddTensor(
        engram::TableTensorName(engram::TensorNaming::kGguf, layer.layer_id),
        DType::kI8, {layer.rows, row_bytes}, nullptr));
  }
  TableFilePlan plan;
  plan.header = writer.EncodeHeader();
  plan.total_bytes = plan.header.size();
  for (const engram::LayerLayout& layer : numbers.layout.layers) {
    ECPHORY_RETURN_IF_ERROR(Append(RangeName(layer.layer_id, RangeKind::kRows),
                                   layer.rows, row_bytes, &plan));
    if (!CheckedAlignUp(plan.total_bytes, kGgufAlignment, &plan.total_bytes)) {
      return OutOfRange("the tables are more than a file holds");
    }
  }
  return plan;
}

Result<TableFilePlan> PlanRaw(const TableNumbers& numbers, TableCodec codec) {
  TableFilePlan plan;
  const size_t row_bytes = TableRowBytes(codec, numbers.width);
  for (const engram::LayerLayout& layer : numbers.layout.layers) {
    ECPHORY_RETURN_IF_ERROR(Append(RangeName(layer.layer_id, RangeKind::kRows),
                                   layer.rows, row_bytes, &plan));
  }
  return plan;
}

Result<TableFilePlan> PlanSafetensors(const TableNumbers& numbers,
                                      TableCodec codec) {
  TableFilePlan plan;
  std::string json;
  for (const SafetensorsTensor& tensor : SafetensorsTensors(numbers, codec)) {
    const uint64_t begin = plan.total_bytes;
    ECPHORY_RETURN_IF_ERROR(
        Append(tensor.name, tensor.rows, tensor.row_bytes, &plan));
    json += (json.empty() ? "{\"" : ",\"") + tensor.name + "\":{\"dtype\":\"" +
            tensor.dtype + "\",\"shape\":[" + std::to_string(tensor.rows) +
            "," + std::to_string(tensor.cols) + "],\"data_offsets\":[" +
            std::to_string(begin) + "," + std::to_string(plan.total_bytes) +
            "]}";
  }
  json += "}";
  const uint64_t used = 8 + json.size();
  uint64_t padded = used;
  (void)CheckedAlignUp(used, kSafetensorsAlignment, &padded);
  json.append(padded - used, ' ');
  const uint64_t length = json.size();
  plan.header.assign(reinterpret_cast<const char*>(&length), 8);
  plan.header += json;
  for (Region& region : plan.regions) region.offset += plan.header.size();
  plan.total_bytes += plan.header.size();
  return plan;
}

}  // namespace ecphory::tables
