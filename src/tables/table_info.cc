// Where tables are, what lies under them, and how fast it reads.
#include <algorithm>
#include <optional>
#include <utility>

#include "ecphory/engram_measure.h"
#include "engram/config.h"
#include "io/device_facts.h"
#include "io/io_choice.h"
#include "io/make_queue.h"
#include "io/table_file.h"
#include "io/uring_queue.h"
#include "tables/conditions.h"
#include "tables/read_probe.h"
#include "tables/residency.h"
#include "tables/table_files.h"
#include "tables/table_set.h"

namespace ecphory::tables {

namespace {

using engram::TableSource;

// A page: what a row costs at the least on most disks, and what their makers
// count in.
constexpr uint32_t kProbeBytes = 4096;
constexpr uint32_t kProbeDepths[] = {1, 64};

const char* KindName(engram::SourceKind kind) {
  switch (kind) {
    case engram::SourceKind::kGguf: return "GGUF";
    case engram::SourceKind::kReleased: return "released directory";
    case engram::SourceKind::kRawRows: return "raw rows";
  }
  return "unknown";
}

TableInfo Describe(const TableSource& table, std::optional<uint32_t> layer) {
  TableInfo info;
  info.layer = layer;
  info.name = table.name;
  info.file = table.file->path();
  info.offset = table.offset;
  info.codec = engram::RowEncodingName(table.codec, table.width);
  info.rows = table.rows;
  info.width = table.width;
  const uint64_t main = TableRowBytes(table.codec, table.width);
  const uint64_t scales = TableScaleBytes(table.codec, table.width);
  info.row_bytes = main + scales;
  info.bytes = table.rows * info.row_bytes;
  info.resident_bytes =
      ResidentBytes(info.file, table.offset, table.rows * main).value_or(0);
  if (table.scale_file) {
    info.scale_file = table.scale_file->path();
    info.scale_offset = table.scale_offset;
    info.resident_bytes +=
        ResidentBytes(info.scale_file, table.scale_offset, table.rows * scales)
            .value_or(0);
  }
  return info;
}

// What a token asks for.
void DescribeHash(const TableSet& set, TablesInfo* info) {
  if (!set.per_layer) {
    info->kind = KindName(set.source.kind);
    info->columns = set.source.config.columns();
    info->max_ngram = set.source.config.max_ngram;
    info->compressed_vocab = set.source.config.compressed_vocab_size;
    return;
  }
  const ple::Layout& layout = set.per_layer->layout;
  info->kind = "GGUF";
  info->columns = layout.heads();
  info->max_ngram = layout.ngram_size;
  info->per_layer =
      PerLayerInfo{layout.sizes, layout.rows(), layout.eos_id, layout.image_id};
}

void AddWarnings(const TableSet& set, const TableFiles& files,
                 TablesInfo* info) {
  if (set.tables[0].codec == TableCodec::kReleasedPair) {
    info->warnings.push_back(
        "codes and scales lie apart: two reads a row; 'ecphory engram pack' "
        "makes it one");
  }
  for (const auto& file : files.files) {
    const DeviceKind kind = DeviceFactsOf(*file).kind;
    if (kind == DeviceKind::kNetwork) {
      info->warnings.push_back(file->path() +
                               ": on a network, where every row takes a round "
                               "trip; copy it to a local SSD");
    } else if (kind == DeviceKind::kSpinning) {
      info->warnings.push_back(
          file->path() +
          ": on a spinning disk, where a token's rows take "
          "tenths of a second; copy it to an SSD");
    }
  }
}

Status Measure(const TableFiles& files, uint32_t row_bytes, double seconds,
               TablesInfo* info) {
  ECPHORY_ASSIGN_OR_RETURN(const MadeQueue made,
                           MakeQueue(IoMode::kUring, files.files, {}));
  for (const uint32_t depth : kProbeDepths) {
    ECPHORY_ASSIGN_OR_RETURN(
        const ReadRate rate,
        MeasureReads(made.queue.get(), files.ranges, kProbeBytes, depth,
                     seconds / 3, depth));
    info->measured.push_back(rate);
  }
  IoRequest request;
  request.files = files.files;
  const std::vector<TableRange> ranges = files.TableRanges();
  request.tables = ranges;
  request.row_bytes = row_bytes;
  request.probe_seconds = seconds / 3;
  ECPHORY_ASSIGN_OR_RETURN(const IoChoice choice, ChooseIo(request));
  info->auto_mode = IoModeName(choice.mode);
  info->auto_reason = choice.reason;
  return {};
}

}  // namespace

}  // namespace ecphory::tables

namespace ecphory {

Result<TablesInfo> InspectTables(const TablesInfoOptions& options) {
  using namespace tables;
  ECPHORY_ASSIGN_OR_RETURN(const TableSet set, OpenTableSet(options.input));
  ECPHORY_ASSIGN_OR_RETURN(const TableFiles files, OpenTableFiles(set));
  TablesInfo info;
  info.path = options.input.path;
  DescribeHash(set, &info);
  for (size_t i = 0; i < set.tables.size(); ++i) {
    info.tables.push_back(Describe(set.tables[i], set.layer(i)));
    info.bytes += info.tables.back().bytes;
    info.reads_per_token += info.columns * (set.tables[i].scale_file ? 2u : 1u);
  }
  for (const auto& file : files.files)
    info.files.push_back(DescribeFile(*file));
  const Status uring = UringAllowed();
  info.uring = uring.ok();
  info.uring_refusal = uring.message();
  AddWarnings(set, files, &info);
  if (options.measure) {
    ECPHORY_RETURN_IF_ERROR(
        Measure(files, static_cast<uint32_t>(info.tables[0].row_bytes),
                options.seconds, &info));
  }
  return info;
}

}  // namespace ecphory
