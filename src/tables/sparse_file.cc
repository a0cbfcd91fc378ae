#include "tables/sparse_file.h"

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "io/file_writes.h"
#include "tables/digest.h"
#include "tables/resumable_file.h"

namespace ecphory::tables {

namespace {

// The first row of each group: every `stride` bytes, and the region's end.
std::vector<uint64_t> FirstRows(const Region& region, uint64_t stride) {
  const uint64_t rows = region.bytes / region.row_bytes;
  const uint64_t step =
      std::max<uint64_t>(kSparseRows, stride / region.row_bytes);
  std::vector<uint64_t> first;
  for (uint64_t row = 0; row < rows; row += step) first.push_back(row);
  if (rows > kSparseRows) first.push_back(rows - kSparseRows);
  return first;
}

Status WriteRegion(const TableFilePlan& plan, size_t number, uint64_t stride,
                   const RegionFill& fill, const ResumableFile& file,
                   ProgressMeter* meter) {
  const Region& region = plan.regions[number];
  const uint64_t rows = region.bytes / region.row_bytes;
  std::vector<uint8_t> buffer;
  for (const uint64_t row : FirstRows(region, stride)) {
    buffer.resize(static_cast<size_t>(std::min(kSparseRows, rows - row) *
                                      region.row_bytes));
    const uint64_t begin = row * region.row_bytes;
    ECPHORY_RETURN_IF_ERROR(fill(number, begin, buffer, /*worker=*/0));
    ECPHORY_RETURN_IF_ERROR(file.Write(region.offset + begin, buffer));
    ECPHORY_RETURN_IF_ERROR(meter->Add(std::min(stride, region.bytes - begin)));
  }
  return {};
}

}  // namespace

Status WriteSparseFile(const TableFilePlan& plan, const RegionFill& fill,
                       uint64_t stride, const WriteOptions& options) {
  ECPHORY_ASSIGN_OR_RETURN(
      const auto file,
      ResumableFile::Open(
          options.path,
          {.signature = options.signature + " sparse " + std::to_string(stride),
           .overwrite = options.overwrite}));
  if (file->verified()) return file->Publish();
  // Whatever a killed run wrote: it is quicker to begin again.
  ECPHORY_RETURN_IF_ERROR(file->SetSize(0));
  ProgressMeter meter(options.progress, "writing", plan.total_bytes);
  ECPHORY_RETURN_IF_ERROR(file->Write(0, AsBytes(plan.header)));
  for (size_t i = 0; i < plan.regions.size(); ++i) {
    ECPHORY_RETURN_IF_ERROR(WriteRegion(plan, i, stride, fill, *file, &meter));
  }
  ECPHORY_RETURN_IF_ERROR(file->SetSize(plan.total_bytes));
  ECPHORY_RETURN_IF_ERROR(file->RecordVerified());
  return file->Publish();
}

}  // namespace ecphory::tables
