#include "tables/table_writer.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "io/file_writes.h"
#include "tables/digest.h"
#include "tables/direct_reader.h"
#include "tables/resumable_file.h"

namespace ecphory::tables {

namespace {

using Ull = unsigned long long;

// One run of WriteTableFile over an opened output.
class TableFileJob {
 public:
  TableFileJob(const TableFilePlan& plan, const RegionFill& fill,
               const WriteOptions& options, ResumableFile* file)
      : plan_(plan),
        fill_(fill),
        options_(options),
        file_(file),
        regions_(AllRegions(plan)),
        chunks_(ChunksOf(regions_, options.chunk_bytes)),
        threads_(std::max<size_t>(1, options.threads)) {}

  Result<WrittenFile> Run() {
    WrittenFile written;
    std::vector<size_t> missing;
    for (size_t i = 0; i < chunks_.size(); ++i) {
      if (file_->chunks().count(i) == 0) {
        missing.push_back(i);
      } else {
        written.resumed_bytes += chunks_[i].bytes;
      }
    }
    if (!file_->complete()) {
      ECPHORY_RETURN_IF_ERROR(WriteMissing(missing, written.resumed_bytes));
    }
    if (!file_->verified()) ECPHORY_RETURN_IF_ERROR(Verify());
    ECPHORY_RETURN_IF_ERROR(file_->Publish());
    for (const auto& [chunk, digest] : file_->chunks()) {
      written.digests.push_back(digest);
    }
    return written;
  }

 private:
  const Region& RegionOf(const Chunk& chunk) const {
    return regions_[chunk.region];
  }

  Status WriteMissing(const std::vector<size_t>& missing, uint64_t resumed) {
    ProgressMeter meter(options_.progress, "writing", plan_.total_bytes);
    ECPHORY_RETURN_IF_ERROR(meter.Add(resumed));
    std::vector<std::vector<uint8_t>> buffers(threads_);
    return ForEachChunk(
        missing.size(), threads_, [&](size_t i, size_t worker) -> Status {
          const Chunk& chunk = chunks_[missing[i]];
          Digest digest;
          ECPHORY_RETURN_IF_ERROR(
              WriteChunk(chunk, worker, &buffers[worker], &digest, &meter));
          const std::lock_guard<std::mutex> lock(journal_mutex_);
          return file_->Record({{missing[i], digest.value()}});
        });
  }

  Status WriteChunk(const Chunk& chunk, size_t worker,
                    std::vector<uint8_t>* buffer, Digest* digest,
                    ProgressMeter* meter) {
    const Region& region = RegionOf(chunk);
    const uint64_t rows = std::max<uint64_t>(1, kFillBytes / region.row_bytes);
    const uint64_t step = rows * region.row_bytes;
    for (uint64_t done = 0; done < chunk.bytes; done += step) {
      buffer->resize(static_cast<size_t>(std::min(step, chunk.bytes - done)));
      ECPHORY_RETURN_IF_ERROR(
          Fill(chunk.region, chunk.begin + done, *buffer, worker));
      digest->Add(*buffer);
      ECPHORY_RETURN_IF_ERROR(
          file_->Write(region.offset + chunk.begin + done, *buffer));
      const std::lock_guard<std::mutex> lock(meter_mutex_);
      ECPHORY_RETURN_IF_ERROR(meter->Add(buffer->size()));
    }
    return {};
  }

  Status Fill(size_t region, uint64_t begin, std::span<uint8_t> out,
              size_t worker) const {
    const bool has_header = !plan_.header.empty();
    if (!has_header || region > 0) {
      return fill_(region - (has_header ? 1 : 0), begin, out, worker);
    }
    const auto bytes = AsBytes(plan_.header).subspan(begin, out.size());
    std::copy(bytes.begin(), bytes.end(), out.begin());
    return {};
  }

  Status Verify() {
    ECPHORY_RETURN_IF_ERROR(file_->SetSize(plan_.total_bytes));
    ECPHORY_ASSIGN_OR_RETURN(const auto reader,
                             DirectReader::Open(file_->partial_path()));
    ProgressMeter meter(options_.progress, "verifying", plan_.total_bytes);
    std::vector<std::unique_ptr<AlignedBuffer>> buffers(threads_);
    ECPHORY_RETURN_IF_ERROR(ForEachChunk(
        chunks_.size(), threads_, [&](size_t i, size_t worker) -> Status {
          if (!buffers[worker]) {
            buffers[worker] = std::make_unique<AlignedBuffer>(
                DirectReader::BufferBytes(kFillBytes));
          }
          return VerifyChunk(i, *reader, *buffers[worker], &meter);
        }));
    return file_->RecordVerified();
  }

  Status VerifyChunk(size_t number, const DirectReader& reader,
                     const AlignedBuffer& buffer, ProgressMeter* meter) {
    const Chunk& chunk = chunks_[number];
    const uint64_t offset = RegionOf(chunk).offset + chunk.begin;
    Digest digest;
    for (uint64_t done = 0; done < chunk.bytes; done += kFillBytes) {
      const size_t bytes = static_cast<size_t>(
          std::min<uint64_t>(kFillBytes, chunk.bytes - done));
      ECPHORY_ASSIGN_OR_RETURN(const auto read,
                               reader.Read(offset + done, bytes, buffer));
      digest.Add(read);
      const std::lock_guard<std::mutex> lock(meter_mutex_);
      ECPHORY_RETURN_IF_ERROR(meter->Add(bytes));
    }
    if (digest.value() == file_->chunks().at(number)) return {};
    return Corrupt(
        "%s: %llu bytes at offset %llu read back as something else than was "
        "written; the disk or memory is at fault: remove the file and its "
        "journal before another try",
        reader.path().c_str(), static_cast<Ull>(chunk.bytes),
        static_cast<Ull>(offset));
  }

  const TableFilePlan& plan_;
  const RegionFill& fill_;
  const WriteOptions& options_;
  ResumableFile* const file_;
  const std::vector<Region> regions_;
  const std::vector<Chunk> chunks_;
  const size_t threads_;
  std::mutex meter_mutex_;
  std::mutex journal_mutex_;
};

}  // namespace

std::vector<Region> AllRegions(const TableFilePlan& plan) {
  std::vector<Region> regions;
  if (!plan.header.empty()) {
    regions.push_back({"header", 0, plan.header.size(), 1});
  }
  regions.insert(regions.end(), plan.regions.begin(), plan.regions.end());
  return regions;
}

Result<WrittenFile> WriteTableFile(const TableFilePlan& plan,
                                   const RegionFill& fill,
                                   const WriteOptions& options) {
  ECPHORY_ASSIGN_OR_RETURN(
      const auto file,
      ResumableFile::Open(options.path, {.signature = options.signature,
                                         .total_bytes = plan.total_bytes,
                                         .overwrite = options.overwrite}));
  auto written = TableFileJob(plan, fill, options, file.get()).Run();
  // Nothing to go on from: nothing is left either.
  if (!written.ok() && !file->complete() && file->chunks().empty()) {
    ECPHORY_RETURN_IF_ERROR(file->Discard());
  }
  return written;
}

}  // namespace ecphory::tables
