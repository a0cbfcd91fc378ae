// The shards of a released directory's per-layer table as a GGUF sidecar.
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "base/checked_math.h"
#include "base/quote.h"
#include "format/json_keys.h"
#include "io/file.h"
#include "ple/pack.h"
#include "ple/shards.h"
#include "tables/digest.h"
#include "tables/pack_job.h"
#include "tables/per_layer.h"
#include "tables/table_set.h"
#include "tensor/table_codec.h"

namespace ecphory::tables {

namespace {

Result<DType> TypeOf(const PackOptions& options) {
  const std::string& codec = options.codec;
  if (codec.empty() || codec == "q8_0") return DType::kQ8_0;
  if (codec == "bf16") return DType::kBF16;
  return Unsupported("%s: a per-layer table as %s, expected bf16 or q8_0",
                     options.input.path.c_str(), Quoted(codec).c_str());
}

// The config.json that the table's EOS id may be in; "" for none.
std::string ConfigPath(const TableInput& input) {
  if (!input.config.empty()) return input.config;
  const std::string path = input.path + "/config.json";
  std::error_code ignored;
  return std::filesystem::exists(path, ignored) ? path : "";
}

Result<int32_t> EosOf(const TableInput& input, const std::string& config) {
  std::optional<uint64_t> eos;
  if (!config.empty()) {
    ECPHORY_ASSIGN_OR_RETURN(const std::string text,
                             ReadWholeFile(config, kMaxConfigBytes));
    ECPHORY_ASSIGN_OR_RETURN(const auto keys, ParseJsonKeys(text, config));
    const char* const key = "eos_token_id";
    if (keys->Has(key) && keys->Uint(key).ok()) eos = *keys->Uint(key);
  }
  const auto given = input.eos_id;
  if (!eos && !given) {
    return NotFound(
        "%s: no config.json with one eos_token_id: give the model's EOS token "
        "id (--eos), which cuts the look-back",
        input.path.c_str());
  }
  if (eos &&
      (*eos > INT32_MAX || (given && static_cast<uint64_t>(*given) != *eos))) {
    return InvalidArgument(
        "%s: eos_token_id is %llu, expected %s", config.c_str(),
        static_cast<unsigned long long>(*eos),
        given ? std::to_string(*given).c_str() : "a token id");
  }
  return given ? *given : static_cast<int32_t>(*eos);
}

Result<TableFilePlan> PlanOf(const ple::ShardedTable& table, DType type) {
  TableFilePlan plan;
  ECPHORY_ASSIGN_OR_RETURN(plan.header, ple::SidecarHeader(table, type));
  ECPHORY_ASSIGN_OR_RETURN(const uint64_t row_bytes, table.RowBytes(type));
  plan.regions = PerLayerRegions(table.layout(), table.rows(), row_bytes,
                                 plan.header.size());
  const Region& last = plan.regions.back();
  if (CheckedAlignUp(last.offset + last.bytes, ple::kSidecarAlignment,
                     &plan.total_bytes)) {
    return plan;
  }
  return OutOfRange("the table is more than a file holds");
}

}  // namespace

Result<PackJob> PerLayerPackJob(const PackOptions& options) {
  if (!WritesGguf(options)) {
    return Unsupported(
        "%s: a per-layer table is packed as GGUF; give an output that ends in "
        ".gguf",
        options.output.c_str());
  }
  ECPHORY_ASSIGN_OR_RETURN(const DType type, TypeOf(options));
  const std::string config = ConfigPath(options.input);
  ECPHORY_ASSIGN_OR_RETURN(const int32_t eos, EosOf(options.input, config));
  ECPHORY_ASSIGN_OR_RETURN(ple::ShardedTable opened,
                           ple::ShardedTable::Open(options.input.path, eos));
  const auto table =
      std::make_shared<const ple::ShardedTable>(std::move(opened));
  PackJob job;
  ECPHORY_ASSIGN_OR_RETURN(job.plan, PlanOf(*table, type));
  job.inputs = table->files();
  job.signature = "pack per_layer";
  for (const std::string& path : job.inputs) {
    job.signature += " " + FileIdentity(path);
  }
  job.signature += " header " + Hex(Digest::Of(job.plan.header));
  if (!config.empty()) job.inputs.push_back(config);
  const uint64_t row_bytes = job.plan.regions[0].row_bytes;
  job.fill = [table, type, row_bytes](size_t region, uint64_t begin,
                                      std::span<uint8_t> out, size_t) {
    const uint64_t first = region == 0 ? 0 : table->layout().rows();
    return table->EncodeRows(first + begin / row_bytes, out.size() / row_bytes,
                             type, out);
  };
  job.codec = TableCodecName(type == DType::kBF16 ? TableCodec::kBf16
                                                  : TableCodec::kQ8_0);
  job.width = table->layout().width;
  job.tables.push_back(
      {{}, table->rows(), job.plan.regions[0].offset, row_bytes});
  return job;
}

}  // namespace ecphory::tables
