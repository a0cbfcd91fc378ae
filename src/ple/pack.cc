#include "ple/pack.h"

#include <algorithm>
#include <vector>

namespace ecphory::ple {

namespace {

constexpr uint64_t kAlignment = 32;  // that of other writers of this format
constexpr uint64_t kBatchBytes = 1 << 20;

void AddKeys(const ShardedTable& table, GgufWriter* writer) {
  const Layout& layout = table.layout();
  const std::string prefix = "qwen38-next.ple.";
  writer->AddString("general.architecture", "qwen38-next-ple");
  writer->AddUint32(prefix + "row_length", layout.width);
  writer->AddUint64(prefix + "total_rows", layout.rows());
  writer->AddUint64(prefix + "table_rows", table.rows());
  writer->AddUint32(prefix + "eos_token_id",
                    static_cast<uint32_t>(layout.eos_id));
  writer->AddUint64Array(prefix + "layer_multipliers", layout.multipliers);
  writer->AddUint64Array(prefix + "head_offsets", layout.offsets);
  writer->AddUint64Array(prefix + "head_vocab_sizes", layout.sizes);
}

Status ProduceRows(const ShardedTable& table, DType type, uint64_t row_bytes,
                   const GgufWriter::Sink& sink) {
  const uint64_t batch = std::max<uint64_t>(1, kBatchBytes / row_bytes);
  std::vector<uint8_t> bytes;
  for (uint64_t row = 0; row < table.rows();) {
    const uint64_t count = std::min(batch, table.rows() - row);
    bytes.resize(count * row_bytes);
    ECPHORY_RETURN_IF_ERROR(table.EncodeRows(row, count, type, bytes));
    ECPHORY_RETURN_IF_ERROR(sink(bytes));
    row += count;
  }
  return {};
}

}  // namespace

Status PackTable(const ShardedTable& table, const std::string& output,
                 const PackOptions& options) {
  ECPHORY_ASSIGN_OR_RETURN(const uint64_t row_bytes,
                           table.RowBytes(options.type));
  GgufWriter writer(kAlignment);
  AddKeys(table, &writer);
  ECPHORY_RETURN_IF_ERROR(writer.AddTensor(
      "per_layer_token_embd.weight", options.type,
      {table.rows(), table.layout().width}, [&](const GgufWriter::Sink& sink) {
        return ProduceRows(table, options.type, row_bytes, sink);
      }));
  return writer.WriteTo(output, options.progress);
}

}  // namespace ecphory::ple
