#include "tables/pack_source.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>

#include "engram/source_numbers.h"
#include "format/json_keys.h"
#include "format/safetensors.h"
#include "io/file.h"
#include "io/path.h"
#include "tables/row_scan.h"
#include "tables/table_set.h"
#include "tables/table_writer.h"
#include "text/tokenizer_file.h"

namespace ecphory::tables {

namespace {

using engram::TableSource;
using Ull = unsigned long long;

bool IsSafetensors(const std::string& path) {
  return HasExtension(path, ".safetensors");
}

// Where one part of a table lies.
struct Part {
  std::shared_ptr<RandomAccessFile> file;
  uint64_t offset = 0;
};

// The part's tensor in a safetensors file, or the whole of a plain file.
// `row_bytes` of each of `rows`; `name` is the tensor's, where there are names.
Result<Part> OpenPart(const std::string& path, const std::string& name,
                      uint64_t rows, uint64_t row_bytes) {
  Part part;
  ECPHORY_ASSIGN_OR_RETURN(part.file, OpenFile(path));
  uint64_t bytes = part.file->size();
  if (IsSafetensors(path)) {
    TensorIndex index;
    index.AddFile({path, part.file->size()});
    ECPHORY_RETURN_IF_ERROR(ParseSafetensors(*part.file, 0, &index));
    const TensorInfo* tensor = index.Find(name);
    if (tensor == nullptr) {
      return NotFound("%s: missing tensor '%s'", path.c_str(), name.c_str());
    }
    part.offset = tensor->offset;
    bytes = tensor->bytes;
  }
  if (bytes == rows * row_bytes) return part;
  return Corrupt(
      "%s: found %llu bytes, expected %llu rows of %llu bytes as the layout "
      "gives",
      path.c_str(), static_cast<Ull>(bytes), static_cast<Ull>(rows),
      static_cast<Ull>(row_bytes));
}

// Numbers from a config.json or the directory it lies in, with the token map
// that lies there as well.
Result<TableNumbers> NumbersOf(const std::string& config_path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const bool directory = fs::is_directory(config_path, ignored);
  const std::string file =
      directory ? config_path + "/config.json" : config_path;
  const std::string folder =
      directory ? config_path : fs::path(config_path).parent_path().string();
  ECPHORY_ASSIGN_OR_RETURN(const std::string text,
                           ReadWholeFile(file, kMaxConfigBytes));
  ECPHORY_ASSIGN_OR_RETURN(const engram::Numbers n,
                           engram::ReadJsonNumbers(text, file));
  TableNumbers numbers;
  numbers.width = n.config.head_dim;
  const std::string tokenizer = folder + "/tokenizer.json";
  if (fs::exists(tokenizer, ignored)) {
    ECPHORY_ASSIGN_OR_RETURN(numbers.tokenizer, ReadTokenizerFile(tokenizer));
  }
  ECPHORY_ASSIGN_OR_RETURN(
      numbers.token_map,
      engram::DirectoryTokenMap(
          folder.empty() ? "." : folder, n.config, n.vocab_size,
          numbers.tokenizer ? &*numbers.tokenizer : nullptr));
  const auto vocab = static_cast<uint32_t>(numbers.token_map.size());
  ECPHORY_ASSIGN_OR_RETURN(
      const engram::Hasher hasher,
      engram::MakeHasher(n.config, vocab, numbers.token_map, file));
  numbers.layout = hasher.layout();
  numbers.pad_id = hasher.pad_id();
  numbers.image_token_id = n.image_token_id;
  return numbers;
}

void Interleave(const uint8_t* codes, size_t code_bytes, const uint8_t* scales,
                size_t scale_bytes, std::span<uint8_t> out) {
  for (size_t at = 0; at < out.size(); at += code_bytes + scale_bytes) {
    std::memcpy(out.data() + at, codes, code_bytes);
    std::memcpy(out.data() + at + code_bytes, scales, scale_bytes);
    codes += code_bytes;
    scales += scale_bytes;
  }
}

}  // namespace

Result<std::unique_ptr<PackSource>> PackSource::Open(const PackOptions& options,
                                                     size_t workers) {
  std::unique_ptr<PackSource> source(new PackSource());
  if (options.tables.empty() && options.scales.empty()) {
    ECPHORY_RETURN_IF_ERROR(source->OpenInput(options.input));
  } else {
    ECPHORY_RETURN_IF_ERROR(source->OpenFiles(options));
  }
  ECPHORY_RETURN_IF_ERROR(source->OpenReaders(workers));
  return source;
}

Status PackSource::OpenInput(const TableInput& input) {
  ECPHORY_ASSIGN_OR_RETURN(TableSet set, OpenTableSet(input));
  if (set.per_layer) {
    return Unsupported(
        "%s: a per-layer n-gram table in GGUF is packed already, expected its "
        "released directory",
        input.path.c_str());
  }
  ECPHORY_ASSIGN_OR_RETURN(const engram::Hasher hasher,
                           engram::MakeHasher(set.source));
  for (const TableSource& table : set.tables) {
    if (table.codec == TableCodec::kReleasedPair ||
        table.codec == TableCodec::kRow264) {
      continue;
    }
    return Unsupported(
        "%s: table '%s' has %s rows, which row264 cannot hold bit for bit",
        input.path.c_str(), table.name.c_str(), TableCodecName(table.codec));
  }
  numbers_.layout = hasher.layout();
  numbers_.width = set.source.config.head_dim;
  numbers_.token_map = hasher.token_map();
  numbers_.pad_id = hasher.pad_id();
  numbers_.image_token_id = set.source.image_token_id;
  numbers_.tokenizer = set.source.tokenizer;
  tables_ = std::move(set.tables);
  return {};
}

Status PackSource::OpenFiles(const PackOptions& options) {
  ECPHORY_ASSIGN_OR_RETURN(numbers_, NumbersOf(options.input.config));
  const auto& layers = numbers_.layout.layers;
  if (options.tables.size() != layers.size() ||
      options.scales.size() != layers.size()) {
    return InvalidArgument(
        "%zu files of codes and %zu of scales, expected one of each for every "
        "of the %zu Engram layers",
        options.tables.size(), options.scales.size(), layers.size());
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    const std::string name =
        "layers." + std::to_string(layers[i].layer_id) + ".engram.embed.";
    TableSource table;
    table.name = RangeName(layers[i].layer_id, RangeKind::kRows);
    table.codec = TableCodec::kReleasedPair;
    table.rows = layers[i].rows;
    table.width = numbers_.width;
    ECPHORY_ASSIGN_OR_RETURN(
        const Part codes,
        OpenPart(options.tables[i], name + "weight", table.rows, table.width));
    ECPHORY_ASSIGN_OR_RETURN(const Part scales,
                             OpenPart(options.scales[i], name + "scale",
                                      table.rows, table.width / 32));
    table.file = codes.file;
    table.offset = codes.offset;
    table.scale_file = scales.file;
    table.scale_offset = scales.offset;
    tables_.push_back(std::move(table));
  }
  return {};
}

Status PackSource::OpenReaders(size_t workers) {
  for (const std::string& path : files()) {
    ECPHORY_ASSIGN_OR_RETURN(readers_[path], DirectReader::Open(path));
  }
  // Rows longer than kFillBytes are asked for one at a time.
  const size_t row = TableRowBytes(TableCodec::kRow264, numbers_.width);
  const size_t bytes = DirectReader::BufferBytes(std::max(kFillBytes, row));
  for (size_t i = 0; i < workers; ++i) {
    buffers_.push_back(std::make_unique<Buffers>(
        Buffers{AlignedBuffer(bytes), AlignedBuffer(bytes)}));
  }
  return {};
}

std::vector<std::string> PackSource::files() const {
  std::vector<std::string> paths;
  for (const TableSource& table : tables_) {
    paths.push_back(table.file->path());
    if (table.scale_file) paths.push_back(table.scale_file->path());
  }
  std::sort(paths.begin(), paths.end());
  paths.erase(std::unique(paths.begin(), paths.end()), paths.end());
  return paths;
}

std::string PackSource::identity() const {
  std::string text;
  for (const std::string& path : files()) text += FileIdentity(path) + " ";
  for (const TableSource& table : tables_) {
    text += std::to_string(table.offset) + " " +
            std::to_string(table.scale_offset) + " ";
  }
  return text;
}

Status PackSource::ReadRows(size_t number, uint64_t row, std::span<uint8_t> out,
                            size_t worker) const {
  const TableSource& table = tables_[number];
  const Buffers& buffers = *buffers_[worker];
  const size_t main_bytes = TableRowBytes(table.codec, table.width);
  const size_t scale_bytes = TableScaleBytes(table.codec, table.width);
  const size_t rows = out.size() / (main_bytes + scale_bytes);
  ECPHORY_ASSIGN_OR_RETURN(const auto codes,
                           readers_.at(table.file->path())
                               ->Read(table.offset + row * main_bytes,
                                      rows * main_bytes, buffers.codes));
  if (scale_bytes == 0) {
    std::memcpy(out.data(), codes.data(), out.size());
    return CheckRows(number, row, out);
  }
  ECPHORY_ASSIGN_OR_RETURN(const auto scales,
                           readers_.at(table.scale_file->path())
                               ->Read(table.scale_offset + row * scale_bytes,
                                      rows * scale_bytes, buffers.scales));
  Interleave(codes.data(), main_bytes, scales.data(), scale_bytes, out);
  return CheckRows(number, row, out);
}

Status PackSource::CheckRows(size_t number, uint64_t row,
                             std::span<const uint8_t> rows) const {
  const TableSource& table = tables_[number];
  RowScanner scanner(TableCodec::kRow264, table.width, /*scales=*/false);
  scanner.Begin(row);
  scanner.Add(rows);
  const RowScan scan = scanner.Finish();
  if (scan.listed.empty()) return {};
  const FaultyRow& fault = scan.listed[0];
  return Corrupt(
      "%s: table '%s', row %llu at offset %llu: %s; fetch the file again "
      "('verify' counts all such rows)",
      table.file->path().c_str(), table.name.c_str(),
      static_cast<Ull>(fault.row),
      static_cast<Ull>(table.offset +
                       fault.row * TableRowBytes(table.codec, table.width)),
      RowFaultName(fault.fault));
}

}  // namespace ecphory::tables
