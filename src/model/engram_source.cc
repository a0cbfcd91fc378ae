#include "model/engram_source.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "io/file.h"
#include "model/names.h"
#include "model/stored_tensor.h"

namespace ecphory {

namespace {

using engram::Layout;
using engram::LayoutSpec;
using engram::TableCodec;
using Ull = unsigned long long;

std::string TableName(uint32_t layer) {
  return LayerTensor(layer, "engram.embed");
}

Status WrongTable(const ModelSource& source, const TensorInfo& tensor,
                  DType dtype, const std::vector<uint64_t>& shape) {
  return Corrupt("%s: found %s %s, expected %s %s",
                 TensorLabel(source, tensor).c_str(), DTypeName(tensor.dtype),
                 tensor.ShapeString().c_str(), DTypeName(dtype),
                 ShapeString(shape).c_str());
}

Status CheckTable(const ModelSource& source, const TensorInfo& tensor,
                  DType dtype, const std::vector<uint64_t>& shape) {
  if (tensor.dtype == dtype && tensor.shape == shape) return {};
  return WrongTable(source, tensor, dtype, shape);
}

// In GGUF codes and scales of a row lie together, as bytes.
Status CheckRowTable(const ModelSource& source, StoredTable* table) {
  table->codec = TableCodec::kRow264;
  const uint64_t row_bytes = engram::TableRowBytes(table->codec, table->width);
  return CheckTable(source, *table->data, DType::kI8, {table->rows, row_bytes});
}

Status CheckReleasedTable(const ModelSource& source, uint32_t layer,
                          StoredTable* table) {
  if (table->data->dtype == DType::kBF16) {
    table->codec = TableCodec::kBf16;
    return CheckTable(source, *table->data, DType::kBF16,
                      {table->rows, table->width});
  }
  table->codec = TableCodec::kReleasedPair;
  ECPHORY_RETURN_IF_ERROR(CheckTable(source, *table->data, DType::kF8E4M3,
                                     {table->rows, table->width}));
  ECPHORY_ASSIGN_OR_RETURN(table->scales,
                           RequireTensor(source, TableName(layer) + ".scale"));
  return CheckTable(source, *table->scales, DType::kF8E8M0,
                    {table->rows, table->width / 32});
}

LayoutSpec SpecOf(const EngramConfig& e) {
  return {.layer_ids = e.layer_ids,
          .max_ngram = e.max_ngram,
          .heads = e.heads,
          .vocab_size = e.vocab_size,
          .compressed_vocab_size = e.compressed_vocab_size};
}

Status CompareLayouts(const Layout& stored, const Layout& derived) {
  for (size_t i = 0; i < stored.layers.size(); ++i) {
    const uint32_t layer = stored.layers[i].layer_id;
    if (stored.layers[i].primes != derived.layers[i].primes) {
      return Corrupt(
          "engram.primes of layer %u: not those that "
          "engram_vocab_size gives",
          layer);
    }
    if (stored.layers[i].multipliers != derived.layers[i].multipliers) {
      return Corrupt(
          "engram.multipliers of layer %u: not those that "
          "engram_compressed_vocab_size gives",
          layer);
    }
  }
  return {};
}

// The stored numbers where there are any, else the derived ones; both, when
// both are known, must agree.
Result<Layout> MakeLayout(const EngramConfig& e) {
  const LayoutSpec spec = SpecOf(e);
  if (e.primes.empty()) return engram::DeriveLayout(spec);
  ECPHORY_ASSIGN_OR_RETURN(
      Layout stored, engram::LayoutFromNumbers(spec, e.primes, e.multipliers));
  if (e.vocab_size != 0) {
    ECPHORY_ASSIGN_OR_RETURN(const Layout derived, engram::DeriveLayout(spec));
    ECPHORY_RETURN_IF_ERROR(CompareLayouts(stored, derived));
  }
  return stored;
}

Status CheckRowCounts(const EngramConfig& e, const Layout& layout) {
  for (size_t i = 0; i < e.rows.size(); ++i) {
    if (layout.layers[i].rows == e.rows[i]) continue;
    return Corrupt(
        "Engram layer %u: primes give %llu rows, expected %llu as "
        "in engram_num_embeddings",
        e.layer_ids[i], static_cast<Ull>(layout.layers[i].rows),
        static_cast<Ull>(e.rows[i]));
  }
  return {};
}

Status CheckTokenMap(const ModelConfig& c, const std::vector<int32_t>& map) {
  if (map.size() != c.vocab_size) {
    return Corrupt("token map: found %zu entries, expected %u (vocab_size)",
                   map.size(), c.vocab_size);
  }
  const uint32_t classes = c.engram.compressed_vocab_size;
  for (size_t id = 0; id < map.size(); ++id) {
    if (map[id] >= 0 && static_cast<uint32_t>(map[id]) < classes) continue;
    return Corrupt(
        "token map: token %zu has compressed id %d, expected "
        "0..%u (engram_compressed_vocab_size - 1)",
        id, map[id], classes - 1);
  }
  return {};
}

int32_t PadId(const ModelSource& source) {
  const EngramConfig& e = source.config.engram;
  return e.pad_compressed_id >= 0 ? static_cast<int32_t>(e.pad_compressed_id)
                                  : source.token_map[e.pad_token_id];
}

Result<std::shared_ptr<RandomAccessFile>> OpenOf(const ModelSource& source,
                                                 const TensorInfo& tensor) {
  return OpenFile(source.index.files()[tensor.file].path);
}

bool IsEngramSuffix(const std::string& suffix) {
  return suffix.rfind("engram.", 0) == 0 || suffix.rfind("engram_", 0) == 0;
}

// A model whose memory is there but not mentioned would run as another model.
Status RefuseUnmentionedTensors(const ModelSource& source) {
  for (const TensorInfo& tensor : source.index.tensors()) {
    const std::optional<LayerName> name = SplitLayerName(tensor.name);
    if (!name || !IsEngramSuffix(name->suffix)) continue;
    if (source.config.engram.IndexOfLayer(name->layer) >= 0) continue;
    return Corrupt(
        "%s: the configuration names no Engram in layer %u, "
        "expected the layer in engram_layer_ids or no such tensor",
        TensorLabel(source, tensor).c_str(), name->layer);
  }
  return {};
}

}  // namespace

Result<StoredTable> FindTable(const ModelSource& source, size_t index) {
  const EngramConfig& e = source.config.engram;
  const uint32_t layer = e.layer_ids[index];
  StoredTable table;
  table.rows = e.rows[index];
  table.width = e.head_dim;
  ECPHORY_ASSIGN_OR_RETURN(table.data, RequireTensor(source, TableName(layer)));
  ECPHORY_RETURN_IF_ERROR(source.format == "gguf"
                              ? CheckRowTable(source, &table)
                              : CheckReleasedTable(source, layer, &table));
  return table;
}

std::string RowEncodingName(uint32_t width) {
  return "e4m3_e8m0_32_row" +
         std::to_string(engram::TableRowBytes(TableCodec::kRow264, width));
}

std::vector<const TensorInfo*> EngramTableTensors(const ModelSource& source) {
  std::vector<const TensorInfo*> tensors;
  for (const uint32_t layer : source.config.engram.layer_ids) {
    for (const char* part : {"", ".scale"}) {
      const TensorInfo* found = source.Find(TableName(layer) + part);
      if (found != nullptr) tensors.push_back(found);
    }
  }
  return tensors;
}

Status CheckEngram(const ModelSource& source) {
  ECPHORY_RETURN_IF_ERROR(RefuseUnmentionedTensors(source));
  const EngramConfig& e = source.config.engram;
  if (!e.enabled()) return {};
  for (size_t i = 0; i < e.layer_ids.size(); ++i) {
    ECPHORY_RETURN_IF_ERROR(FindTable(source, i).status());
  }
  return MakeHasher(source).status();
}

Result<engram::Hasher> MakeHasher(const ModelSource& source) {
  const EngramConfig& e = source.config.engram;
  if (!e.enabled()) {
    return InvalidArgument("%s: the model has no Engram", source.path.c_str());
  }
  Status checked = CheckTokenMap(source.config, source.token_map);
  if (!checked.ok()) return checked.WithContext(source.path);
  Result<Layout> layout = MakeLayout(e);
  if (!layout.ok()) return layout.status().WithContext(source.path);
  checked = CheckRowCounts(e, *layout);
  if (!checked.ok()) return checked.WithContext(source.path);
  Result<engram::Hasher> hasher = engram::Hasher::Create(
      std::move(layout).value(), source.token_map, PadId(source));
  if (!hasher.ok()) return hasher.status().WithContext(source.path);
  return hasher;
}

Result<std::vector<engram::TableSource>> EngramTables(
    const ModelSource& source) {
  const EngramConfig& e = source.config.engram;
  std::vector<engram::TableSource> tables(e.layer_ids.size());
  for (size_t i = 0; i < tables.size(); ++i) {
    ECPHORY_ASSIGN_OR_RETURN(const StoredTable stored, FindTable(source, i));
    engram::TableSource& table = tables[i];
    table.name = stored.data->name;
    table.codec = stored.codec;
    table.rows = stored.rows;
    table.width = stored.width;
    table.offset = stored.data->offset;
    ECPHORY_ASSIGN_OR_RETURN(table.file, OpenOf(source, *stored.data));
    if (stored.scales == nullptr) continue;
    table.scale_offset = stored.scales->offset;
    ECPHORY_ASSIGN_OR_RETURN(table.scale_file, OpenOf(source, *stored.scales));
  }
  return tables;
}

}  // namespace ecphory
