#include "engram/source_tables.h"

#include <memory>
#include <optional>
#include <utility>

#include "base/quote.h"
#include "format/layer_name.h"
#include "io/file.h"

namespace ecphory::engram {

namespace {

std::string Label(const TableDirectory& d, const TensorInfo& tensor) {
  return d.index->files()[tensor.file].path + ": tensor " + Quoted(tensor.name);
}

// Released tensors carry ".weight" or not.
const TensorInfo* Find(const TableDirectory& d, const std::string& name) {
  const TensorInfo* weight = d.naming == TensorNaming::kReleased
                                 ? d.index->Find(name + ".weight")
                                 : nullptr;
  return weight != nullptr ? weight : d.index->Find(name);
}

Result<const TensorInfo*> Require(const TableDirectory& d,
                                  const std::string& name) {
  const TensorInfo* tensor = Find(d, name);
  if (tensor != nullptr) return tensor;
  return NotFound("%s: missing tensor %s", d.path.c_str(),
                  Quoted(name).c_str());
}

Status CheckTable(const TableDirectory& d, const TensorInfo& tensor,
                  DType dtype, const std::vector<uint64_t>& shape) {
  if (tensor.dtype == dtype && tensor.shape == shape) return {};
  return Corrupt("%s: found %s %s, expected %s %s", Label(d, tensor).c_str(),
                 DTypeName(tensor.dtype), tensor.ShapeString().c_str(),
                 DTypeName(dtype), ShapeString(shape).c_str());
}

// In GGUF codes and scales of a row lie together, as bytes.
Status CheckRowTable(const TableDirectory& d, StoredTable* table) {
  table->codec = TableCodec::kRow264;
  const uint64_t row_bytes = TableRowBytes(table->codec, table->width);
  return CheckTable(d, *table->data, DType::kI8, {table->rows, row_bytes});
}

Status CheckReleasedTable(const TableDirectory& d, const std::string& name,
                          StoredTable* table) {
  if (table->data->dtype == DType::kBF16) {
    table->codec = TableCodec::kBf16;
    return CheckTable(d, *table->data, DType::kBF16,
                      {table->rows, table->width});
  }
  table->codec = TableCodec::kReleasedPair;
  ECPHORY_RETURN_IF_ERROR(
      CheckTable(d, *table->data, DType::kF8E4M3, {table->rows, table->width}));
  ECPHORY_ASSIGN_OR_RETURN(table->scales, Require(d, name + ".scale"));
  return CheckTable(d, *table->scales, DType::kF8E8M0,
                    {table->rows, table->width / 32});
}

bool IsEngramSuffix(const std::string& suffix) {
  return suffix.rfind("engram.", 0) == 0 || suffix.rfind("engram_", 0) == 0;
}

// Opens each file of an index when it is first asked for.
class OpenFiles {
 public:
  explicit OpenFiles(const TensorIndex& index)
      : index_(index), files_(index.files().size()) {}

  Result<std::shared_ptr<RandomAccessFile>> Of(const TensorInfo& tensor) {
    std::shared_ptr<RandomAccessFile>& file = files_[tensor.file];
    if (file == nullptr) {
      ECPHORY_ASSIGN_OR_RETURN(file,
                               OpenFile(index_.files()[tensor.file].path));
    }
    return file;
  }

 private:
  const TensorIndex& index_;
  std::vector<std::shared_ptr<RandomAccessFile>> files_;
};

Result<TableSource> OpenTable(const StoredTable& stored, OpenFiles* files) {
  TableSource table;
  table.name = stored.data->name;
  table.codec = stored.codec;
  table.rows = stored.rows;
  table.width = stored.width;
  table.offset = stored.data->offset;
  ECPHORY_ASSIGN_OR_RETURN(table.file, files->Of(*stored.data));
  if (stored.scales != nullptr) {
    table.scale_offset = stored.scales->offset;
    ECPHORY_ASSIGN_OR_RETURN(table.scale_file, files->Of(*stored.scales));
  }
  return table;
}

}  // namespace

std::string TableTensorName(TensorNaming naming, uint32_t layer) {
  return naming == TensorNaming::kGguf
             ? "blk." + std::to_string(layer) + ".engram_embd.weight"
             : LayerTensor(layer, "engram.embed");
}

Result<StoredTable> FindTable(const TableDirectory& d, size_t table) {
  const std::string name =
      TableTensorName(d.naming, d.config->layer_ids[table]);
  StoredTable stored;
  stored.rows = d.config->rows[table];
  stored.width = d.config->head_dim;
  ECPHORY_ASSIGN_OR_RETURN(stored.data, Require(d, name));
  ECPHORY_RETURN_IF_ERROR(d.naming == TensorNaming::kGguf
                              ? CheckRowTable(d, &stored)
                              : CheckReleasedTable(d, name, &stored));
  return stored;
}

std::vector<const TensorInfo*> TableTensors(const TableDirectory& d) {
  std::vector<const TensorInfo*> tensors;
  for (const uint32_t layer : d.config->layer_ids) {
    const std::string name = TableTensorName(d.naming, layer);
    for (const char* part : {"", ".scale"}) {
      const TensorInfo* found = Find(d, name + part);
      if (found != nullptr) tensors.push_back(found);
    }
  }
  return tensors;
}

Status RefuseUnmentionedTensors(const TableDirectory& d) {
  for (const TensorInfo& tensor : d.index->tensors()) {
    const std::optional<LayerName> name = SplitLayerName(tensor.name);
    if (!name || !IsEngramSuffix(name->suffix)) continue;
    if (d.config->IndexOfLayer(name->layer) >= 0) continue;
    return Corrupt(
        "%s: the configuration names no Engram in layer %u, "
        "expected the layer in engram_layer_ids or no such tensor",
        Label(d, tensor).c_str(), name->layer);
  }
  return {};
}

Result<std::vector<TableSource>> OpenTables(const TableDirectory& d) {
  OpenFiles files(*d.index);
  std::vector<TableSource> tables(d.config->layer_ids.size());
  for (size_t i = 0; i < tables.size(); ++i) {
    ECPHORY_ASSIGN_OR_RETURN(const StoredTable stored, FindTable(d, i));
    ECPHORY_ASSIGN_OR_RETURN(tables[i], OpenTable(stored, &files));
  }
  return tables;
}

}  // namespace ecphory::engram
