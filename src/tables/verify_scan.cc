#include "tables/verify_scan.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "tables/digest.h"
#include "tensor/table_codec.h"

namespace ecphory::tables {

namespace {

using engram::TableSource;

// Large reads, a few in flight, keep a disk at its sequential speed.
constexpr size_t kReadBytes = size_t{4} << 20;

// Chunk numbers and results as the journal's records.
std::string RecordOf(size_t chunk, const ChunkResult& result) {
  return std::to_string(chunk) + " " + Hex(result.digest) + " " +
         EncodeScan(result.scan);
}

Status ReadRecord(const std::string& record,
                  std::map<size_t, ChunkResult>* results) {
  const size_t space = record.find(' ');
  const auto digest =
      space == std::string::npos
          ? std::nullopt
          : ParseHex(std::string_view(record).substr(space + 1, 16));
  if (!digest || record.size() < space + 19) {
    return Corrupt("a record of a verification: '%s'", record.c_str());
  }
  ChunkResult result;
  result.digest = *digest;
  ECPHORY_ASSIGN_OR_RETURN(result.scan, DecodeScan(record.substr(space + 18)));
  (*results)[std::strtoull(record.c_str(), nullptr, 10)] = std::move(result);
  return {};
}

}  // namespace

Verifier::Verifier(const TableSet& set, std::vector<SourceRange> ranges,
                   const VerifyOptions& options)
    : set_(set), ranges_(std::move(ranges)), options_(options) {
  for (const SourceRange& range : ranges_) {
    regions_.push_back(range.region);
    bytes_ += range.region.bytes;
  }
  chunks_ = ChunksOf(regions_);
}

Status Verifier::Run() {
  ECPHORY_RETURN_IF_ERROR(OpenFiles());
  ECPHORY_RETURN_IF_ERROR(OpenState());
  return Scan();
}

Status Verifier::OpenFiles() {
  for (const SourceRange& range : ranges_) {
    if (files_.count(range.file) != 0) continue;
    ECPHORY_ASSIGN_OR_RETURN(auto reader, DirectReader::Open(range.file));
    files_[range.file] = std::move(reader);
  }
  return {};
}

std::string Verifier::Signature() const {
  std::string text = "verify";
  for (const auto& [path, reader] : files_) text += " " + FileIdentity(path);
  for (const Region& region : regions_) {
    text += " " + region.name + " " + std::to_string(region.offset) + " " +
            std::to_string(region.bytes);
  }
  return text;
}

Status Verifier::OpenState() {
  if (options_.state.empty()) return {};
  const std::string signature = Signature();
  auto opened = Journal::Open(options_.state, signature);
  if (!opened.ok() && opened.status().code() == StatusCode::kNotFound) {
    opened = Journal::Create(options_.state, signature);
  }
  if (!opened.ok()) {
    // Nothing else that lies there is to be removed.
    if (!Journal::IsOne(options_.state)) return opened.status();
    return opened.status().WithContext(
        "the state of an unfinished verification; remove it to begin again");
  }
  state_ = std::move(opened).value();
  for (const std::string& record : state_->records()) {
    ECPHORY_RETURN_IF_ERROR(ReadRecord(record, &results_));
  }
  return {};
}

Status Verifier::Scan() {
  std::vector<size_t> missing;
  for (size_t i = 0; i < chunks_.size(); ++i) {
    if (results_.count(i) == 0) {
      missing.push_back(i);
    } else {
      resumed_bytes_ += chunks_[i].bytes;
    }
  }
  ProgressMeter meter(options_.progress, "verifying", bytes_);
  ECPHORY_RETURN_IF_ERROR(meter.Add(resumed_bytes_));
  const size_t threads = ThreadCount(options_.threads);
  std::vector<std::unique_ptr<AlignedBuffer>> buffers(threads);
  return ForEachChunk(
      missing.size(), threads, [&](size_t i, size_t worker) -> Status {
        if (!buffers[worker]) {
          buffers[worker] = std::make_unique<AlignedBuffer>(
              DirectReader::BufferBytes(kReadBytes));
        }
        ECPHORY_ASSIGN_OR_RETURN(
            ChunkResult result,
            ScanChunk(chunks_[missing[i]], *buffers[worker], &meter));
        return Keep(missing[i], std::move(result));
      });
}

Status Verifier::Keep(size_t chunk, ChunkResult result) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (state_) ECPHORY_RETURN_IF_ERROR(state_->Append(RecordOf(chunk, result)));
  results_[chunk] = std::move(result);
  return {};
}

std::optional<RowScanner> Verifier::ScannerOf(const SourceRange& range) const {
  if (!HoldsRows(range.kind)) return {};
  const TableSource& table = set_.tables[range.table];
  return RowScanner(table.codec, table.width, range.kind == RangeKind::kScales);
}

Result<ChunkResult> Verifier::ScanChunk(const Chunk& chunk,
                                        const AlignedBuffer& buffer,
                                        ProgressMeter* meter) {
  const SourceRange& range = ranges_[chunk.region];
  const DirectReader& reader = *files_.at(range.file);
  std::optional<RowScanner> scanner = ScannerOf(range);
  if (scanner) scanner->Begin(chunk.begin / range.region.row_bytes);
  const uint64_t row_bytes = range.region.row_bytes;
  const uint64_t step =
      std::max<uint64_t>(1, kReadBytes / row_bytes) * row_bytes;
  Digest digest;
  for (uint64_t done = 0; done < chunk.bytes; done += step) {
    const auto bytes = static_cast<size_t>(std::min(step, chunk.bytes - done));
    const uint64_t offset = range.region.offset + chunk.begin + done;
    ECPHORY_ASSIGN_OR_RETURN(const auto read,
                             reader.Read(offset, bytes, buffer));
    digest.Add(read);
    if (scanner) scanner->Add(read);
    const std::lock_guard<std::mutex> lock(meter_mutex_);
    ECPHORY_RETURN_IF_ERROR(meter->Add(bytes));
  }
  ChunkResult result;
  result.digest = digest.value();
  if (scanner) {
    ECPHORY_RETURN_IF_ERROR(SettleUnsure(range, &*scanner));
    result.scan = scanner->Finish();
  }
  return result;
}

Status Verifier::SettleUnsure(const SourceRange& range,
                              RowScanner* scanner) const {
  const TableSource& table = set_.tables[range.table];
  const size_t code_bytes = table.width;
  const size_t scale_bytes = TableScaleBytes(table.codec, table.width);
  std::vector<uint8_t> codes(code_bytes), scales(scale_bytes);
  std::vector<float> values(table.width);
  for (const uint64_t row : scanner->unsure()) {
    ECPHORY_RETURN_IF_ERROR(
        table.file->ReadExact(table.offset + row * code_bytes, codes));
    ECPHORY_RETURN_IF_ERROR(table.scale_file->ReadExact(
        table.scale_offset + row * scale_bytes, scales));
    const bool nan = std::any_of(codes.begin(), codes.end(), [](uint8_t c) {
      return (c & 0x7f) == 0x7f;  // counted with the codes
    });
    if (!nan && !DecodeTableRow(table.codec, codes.data(), scales.data(),
                                table.width, values.data())) {
      scanner->Fault(RowFault::kNotFinite, row);
    }
  }
  return {};
}

}  // namespace ecphory::tables
