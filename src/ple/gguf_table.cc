#include "ple/gguf_table.h"

#include <cinttypes>
#include <utility>
#include <vector>

#include "base/quote.h"
#include "ple/gguf_keys.h"

namespace ecphory::ple {

namespace {

constexpr char kTensorName[] = "per_layer_token_embd.weight";

struct File {
  std::shared_ptr<RandomAccessFile> file;
  GgufFile gguf;
};

Result<std::vector<File>> ParseAll(
    std::span<const std::shared_ptr<RandomAccessFile>> files) {
  std::vector<File> parsed;
  for (const auto& file : files) {
    ECPHORY_ASSIGN_OR_RETURN(GgufFile gguf, GgufFile::Parse(file));
    parsed.push_back({file, std::move(gguf)});
  }
  return parsed;
}

Result<const File*> FindTable(const std::vector<File>& files) {
  const File* found = nullptr;
  for (const File& file : files) {
    if (file.gguf.index().Find(kTensorName) == nullptr) continue;
    if (found != nullptr) {
      return Corrupt("tensor %s is in %s and in %s, expected one of them",
                     Quoted(kTensorName).c_str(), found->gguf.path().c_str(),
                     file.gguf.path().c_str());
    }
    found = &file;
  }
  if (found != nullptr) return found;
  return NotFound("tensor %s is in none of the %zu files given",
                  Quoted(kTensorName).c_str(), files.size());
}

Result<TableCodec> CodecOf(DType dtype) {
  switch (dtype) {
    case DType::kBF16: return TableCodec::kBf16;
    case DType::kQ8_0: return TableCodec::kQ8_0;
    case DType::kQ4_0: return TableCodec::kQ4_0;
    case DType::kQ4_1: return TableCodec::kQ4_1;
    default:
      return Unsupported("type %s, expected BF16, Q8_0, Q4_0 or Q4_1",
                         DTypeName(dtype));
  }
}

Status CheckTensor(const TensorInfo& tensor, const Layout& layout) {
  if (tensor.shape.size() != 2 || tensor.shape[1] != layout.width) {
    return Corrupt("shape %s, expected rows of %u values",
                   tensor.ShapeString().c_str(), layout.width);
  }
  if (tensor.shape[0] >= layout.rows()) return {};
  return Corrupt("%" PRIu64 " rows, the heads address %" PRIu64,
                 tensor.shape[0], layout.rows());
}

Result<engram::TableSource> SourceOf(const File& file, const Layout& layout) {
  const TensorInfo& tensor = *file.gguf.index().Find(kTensorName);
  const std::string context =
      file.gguf.path() + ": tensor " + Quoted(kTensorName);
  const Status status = CheckTensor(tensor, layout);
  if (!status.ok()) return status.WithContext(context);
  const auto codec = CodecOf(tensor.dtype);
  if (!codec.ok()) return codec.status().WithContext(context);
  engram::TableSource source;
  source.name = kTensorName;
  source.codec = *codec;
  source.rows = tensor.shape[0];
  source.width = layout.width;
  source.file = file.file;
  source.offset = tensor.offset;
  return source;
}

// The table's file first, so that its own constants go before others'.
std::vector<const GgufFile*> InOrder(const std::vector<File>& files,
                                     const File* first) {
  std::vector<const GgufFile*> ordered = {&first->gguf};
  for (const File& file : files) {
    if (&file != first) ordered.push_back(&file.gguf);
  }
  return ordered;
}

}  // namespace

bool IsTableFile(const GgufFile& file) {
  return HasConstants(file) || (file.index().Find(kTensorName) != nullptr &&
                                !file.Has("general.architecture"));
}

Result<Table> OpenTable(
    std::span<const std::shared_ptr<RandomAccessFile>> files,
    const TableOptions& options) {
  ECPHORY_ASSIGN_OR_RETURN(const std::vector<File> parsed, ParseAll(files));
  ECPHORY_ASSIGN_OR_RETURN(const File* file, FindTable(parsed));
  ECPHORY_ASSIGN_OR_RETURN(Constants constants,
                           ReadConstants(InOrder(parsed, file), options));
  Table table;
  table.layout = std::move(constants.layout);
  table.layer = constants.layer;
  ECPHORY_ASSIGN_OR_RETURN(table.source, SourceOf(*file, table.layout));
  if (constants.table_rows && *constants.table_rows != table.source.rows) {
    return Corrupt("%s: table_rows is %" PRIu64 ", tensor %s has %" PRIu64
                   " rows",
                   file->gguf.path().c_str(), *constants.table_rows,
                   Quoted(kTensorName).c_str(), table.source.rows);
  }
  return table;
}

}  // namespace ecphory::ple
