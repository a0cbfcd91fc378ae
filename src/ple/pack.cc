#include "ple/pack.h"

#include "format/gguf.h"

namespace ecphory::ple {

namespace {

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

}  // namespace

Result<std::string> SidecarHeader(const ShardedTable& table, DType type) {
  ECPHORY_RETURN_IF_ERROR(table.RowBytes(type).status());
  GgufWriter writer(kSidecarAlignment);
  AddKeys(table, &writer);
  ECPHORY_RETURN_IF_ERROR(writer.AddTensor("per_layer_token_embd.weight", type,
                                           {table.rows(), table.layout().width},
                                           nullptr));
  return writer.EncodeHeader();
}

}  // namespace ecphory::ple
