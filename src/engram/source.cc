#include "engram/source.h"

#include <array>
#include <filesystem>
#include <memory>
#include <utility>

#include "base/checked_math.h"
#include "engram/config.h"
#include "engram/source_numbers.h"
#include "format/gguf.h"
#include "format/gguf_keys.h"
#include "format/json_keys.h"
#include "format/safetensors.h"
#include "io/file.h"
#include "io/path.h"
#include "text/gguf_tokenizer.h"
#include "text/tokenizer_file.h"

namespace ecphory::engram {

namespace {

namespace fs = std::filesystem;
using Ull = unsigned long long;

// A path that was looked into: a directory, or a file with its header when it
// is GGUF.
struct Opened {
  std::string path;
  bool directory = false;
  std::shared_ptr<RandomAccessFile> file;
  std::optional<GgufFile> gguf;
};

bool HasGgufMagic(const RandomAccessFile& file) {
  std::array<uint8_t, 4> magic{};
  if (file.size() < magic.size()) return false;
  return file.ReadExact(0, magic).ok() &&
         magic == std::array<uint8_t, 4>{'G', 'G', 'U', 'F'};
}

Result<Opened> Look(const std::string& path) {
  if (!PathExists(path)) {
    return NotFound("%s: no such file or directory", path.c_str());
  }
  Opened opened;
  opened.path = path;
  opened.directory = IsDirectory(path);
  if (opened.directory) return opened;
  ECPHORY_ASSIGN_OR_RETURN(opened.file, OpenFile(path));
  if (!HasGgufMagic(*opened.file)) return opened;
  ECPHORY_ASSIGN_OR_RETURN(opened.gguf, GgufFile::Open(path));
  return opened;
}

// ---- numbers, tokenizer and map ----

// The directory that a config.json's companions lie in.
std::string FolderOf(const Opened& from) {
  if (from.directory) return from.path;
  const std::string folder = fs::path(from.path).parent_path().string();
  return folder.empty() ? "." : folder;
}

Result<Numbers> ReadNumbers(const Opened& from) {
  if (from.gguf) return ReadGgufNumbers(*from.gguf);
  const std::string path =
      from.directory ? from.path + "/config.json" : from.path;
  if (from.directory && !PathExists(path)) {
    return NotFound(
        "%s: missing, expected a released directory (config.json, "
        "*.safetensors)",
        path.c_str());
  }
  ECPHORY_ASSIGN_OR_RETURN(const std::string text,
                           ReadWholeFile(path, kMaxConfigBytes));
  return ReadJsonNumbers(text, path);
}

bool MapIsStored(const Opened& from, const SourceOptions& options) {
  if (!options.token_map.empty() || from.gguf) return true;
  return PathExists(FolderOf(from) + "/token_map.npy");
}

Status ReadTokenizer(const Opened& from, const SourceOptions& options,
                     Source* source) {
  const bool for_map =
      !options.tokenizer.empty() || !MapIsStored(from, options);
  if (!for_map && !options.read_tokenizer) return {};
  if (options.tokenizer.empty() && from.gguf) {
    ECPHORY_ASSIGN_OR_RETURN(source->tokenizer, ReadGgufTokenizer(*from.gguf));
    return {};
  }
  const std::string path = options.tokenizer.empty()
                               ? FolderOf(from) + "/tokenizer.json"
                               : options.tokenizer;
  if (options.tokenizer.empty() && !PathExists(path)) return {};
  ECPHORY_ASSIGN_OR_RETURN(source->tokenizer, ReadTokenizerFile(path));
  return {};
}

Result<std::vector<int32_t>> ReadTokenMap(const Opened& from,
                                          const SourceOptions& options,
                                          const Source& source,
                                          uint32_t vocab_size) {
  if (!options.token_map.empty()) {
    return ReadTokenMapFile(options.token_map, vocab_size);
  }
  if (!options.tokenizer.empty()) {
    return MapOfTokenizer(*source.tokenizer, source.config, options.tokenizer);
  }
  if (from.gguf) return ReadGgufTokenMap(*from.gguf);
  return DirectoryTokenMap(FolderOf(from), source.config, vocab_size,
                           source.tokenizer ? &*source.tokenizer : nullptr);
}

Status ReadConfiguration(const Opened& from, const SourceOptions& options,
                         Source* source) {
  ECPHORY_ASSIGN_OR_RETURN(Numbers numbers, ReadNumbers(from));
  source->config = std::move(numbers.config);
  source->image_token_id = numbers.image_token_id;
  ECPHORY_RETURN_IF_ERROR(ReadTokenizer(from, options, source));
  ECPHORY_ASSIGN_OR_RETURN(
      source->token_map,
      ReadTokenMap(from, options, *source, numbers.vocab_size));
  source->vocab_size = numbers.vocab_size != 0
                           ? numbers.vocab_size
                           : static_cast<uint32_t>(source->token_map.size());
  // Once more, now that the vocabulary is known for certain.
  const Status status =
      CheckConfig(source->config, source->vocab_size, kMaxLayers);
  return status.ok() ? status : status.WithContext(from.path);
}

// ---- raw rows ----

Status RawSizeError(const std::string& path, uint64_t found, uint64_t expected,
                    size_t tables) {
  return Corrupt(
      "%s: found %llu bytes, expected %llu: the rows of %zu %s and nothing "
      "else",
      path.c_str(), static_cast<Ull>(found), static_cast<Ull>(expected), tables,
      tables == 1 ? "table" : "tables");
}

// Tables [first, first + count) of the configuration, which fill one file.
Status AddRawFile(const std::string& path, uint64_t size, size_t first,
                  size_t count, Source* source) {
  const EngramConfig& e = source->config;
  const uint64_t row_bytes = TableRowBytes(TableCodec::kRow264, e.head_dim);
  const size_t number = source->index.AddFile({path, size});
  std::vector<TensorInfo> tensors;
  uint64_t end = 0;
  for (size_t i = first; i < first + count; ++i) {
    TensorInfo tensor;
    tensor.name = TableTensorName(TensorNaming::kGguf, e.layer_ids[i]);
    tensor.dtype = DType::kI8;
    tensor.shape = {e.rows[i], row_bytes};
    tensor.file = number;
    tensor.offset = end;
    if (!CheckedMul(e.rows[i], row_bytes, &tensor.bytes) ||
        !CheckedAdd(end, tensor.bytes, &end)) {
      return Corrupt("%s: the tables take more than 2^64 bytes", path.c_str());
    }
    tensors.push_back(std::move(tensor));
  }
  if (end != size) return RawSizeError(path, size, end, count);
  for (TensorInfo& tensor : tensors) {
    ECPHORY_RETURN_IF_ERROR(source->index.Add(std::move(tensor)));
  }
  return {};
}

Status AddRawRows(const Opened& rows, const SourceOptions& options,
                  Source* source) {
  source->kind = SourceKind::kRawRows;
  const size_t tables = source->config.layer_ids.size();
  const size_t files = 1 + options.more_tables.size();
  if (files != 1 && files != tables) {
    return InvalidArgument(
        "%s: %zu files of rows, expected 1 or one for each of %zu Engram "
        "layers",
        rows.path.c_str(), files, tables);
  }
  const size_t each = files == 1 ? tables : 1;
  ECPHORY_RETURN_IF_ERROR(
      AddRawFile(rows.path, rows.file->size(), 0, each, source));
  for (size_t i = 1; i < files; ++i) {
    const std::string& path = options.more_tables[i - 1];
    ECPHORY_ASSIGN_OR_RETURN(const auto file, OpenFile(path));
    ECPHORY_RETURN_IF_ERROR(AddRawFile(path, file->size(), i, 1, source));
  }
  return source->index.Finish();
}

Status AddTables(const Opened& rows, const SourceOptions& options,
                 Source* source) {
  const bool raw = !rows.directory && !rows.gguf;
  if (raw) return AddRawRows(rows, options, source);
  if (!options.more_tables.empty()) {
    return InvalidArgument(
        "%s: more files of rows were given, expected them only beside raw rows",
        rows.path.c_str());
  }
  source->kind = rows.gguf ? SourceKind::kGguf : SourceKind::kReleased;
  if (rows.gguf) {
    source->index = rows.gguf->index();
  } else {
    ECPHORY_ASSIGN_OR_RETURN(source->index,
                             OpenSafetensorsDirectory(rows.path));
  }
  return {};
}

Status CheckTables(const Source& source) {
  const TableDirectory tables = source.tables();
  ECPHORY_RETURN_IF_ERROR(RefuseUnmentionedTensors(tables));
  for (size_t i = 0; i < source.config.layer_ids.size(); ++i) {
    ECPHORY_RETURN_IF_ERROR(FindTable(tables, i).status());
  }
  return {};
}

Status CheckOptions(const Opened& rows, const SourceOptions& options) {
  if (!options.token_map.empty() && !options.tokenizer.empty()) {
    return InvalidArgument(
        "a token map (%s) and a tokenizer (%s) were given, expected one of "
        "them",
        options.token_map.c_str(), options.tokenizer.c_str());
  }
  const bool raw = !rows.directory && !rows.gguf;
  if (!raw || !options.tables || !options.config.empty()) return {};
  return InvalidArgument(
      "%s: neither a GGUF file nor a released directory; raw rows need a "
      "configuration beside them (a GGUF file, directory or config.json)",
      rows.path.c_str());
}

}  // namespace

TableDirectory Source::tables() const {
  return {.path = path,
          .naming = kind == SourceKind::kReleased ? TensorNaming::kReleased
                                                  : TensorNaming::kGguf,
          .index = &index,
          .config = &config};
}

Result<Source> OpenSource(const std::string& path,
                          const SourceOptions& options) {
  ECPHORY_ASSIGN_OR_RETURN(const Opened rows, Look(path));
  ECPHORY_RETURN_IF_ERROR(CheckOptions(rows, options));
  Source source;
  source.path = path;
  if (options.config.empty()) {
    ECPHORY_RETURN_IF_ERROR(ReadConfiguration(rows, options, &source));
  } else {
    ECPHORY_ASSIGN_OR_RETURN(const Opened numbers, Look(options.config));
    ECPHORY_RETURN_IF_ERROR(ReadConfiguration(numbers, options, &source));
  }
  if (!options.tables) return source;
  ECPHORY_RETURN_IF_ERROR(AddTables(rows, options, &source));
  ECPHORY_RETURN_IF_ERROR(CheckTables(source));
  return source;
}

Result<Hasher> MakeHasher(const Source& source) {
  return MakeHasher(source.config, source.vocab_size, source.token_map,
                    source.path);
}

Result<std::vector<TableSource>> OpenTables(const Source& source) {
  return OpenTables(source.tables());
}

}  // namespace ecphory::engram
