#include "model/weight_mapping.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "model/engram_source.h"

namespace ecphory {

namespace {

bool LiesBefore(const TensorInfo* a, const TensorInfo* b) {
  return a->file != b->file ? a->file < b->file : a->offset < b->offset;
}

}  // namespace

std::vector<FileRange> CoverTensors(std::vector<const TensorInfo*> used,
                                    std::vector<const TensorInfo*> kept_out) {
  std::sort(used.begin(), used.end(), LiesBefore);
  std::sort(kept_out.begin(), kept_out.end(), LiesBefore);
  std::vector<FileRange> ranges;
  auto table = kept_out.begin();
  for (const TensorInfo* tensor : used) {
    bool new_range = ranges.empty() || ranges.back().file != tensor->file;
    for (; table != kept_out.end() && LiesBefore(*table, tensor); ++table) {
      new_range = true;
    }
    if (new_range) ranges.push_back({tensor->file, tensor->offset, 0});
    FileRange& range = ranges.back();
    range.end = std::max(range.end, tensor->offset + tensor->bytes);
  }
  return ranges;
}

Result<WeightMapping> WeightMapping::Map(
    const ModelSource& source, const std::vector<const TensorInfo*>& used) {
  WeightMapping mapping;
  mapping.ranges_ = CoverTensors(used, EngramTableTensors(source));
  for (const FileRange& range : mapping.ranges_) {
    ECPHORY_ASSIGN_OR_RETURN(
        std::shared_ptr<FileMapping> mapped,
        FileMapping::Map(source.index.files()[range.file].path, range.begin,
                         range.end - range.begin));
    mapping.mappings_.push_back(std::move(mapped));
  }
  return mapping;
}

Result<WeightMapping> WeightMapping::Reserve(
    const ModelSource& source, const std::vector<const TensorInfo*>& used) {
  WeightMapping mapping;
  mapping.ranges_ = CoverTensors(used, EngramTableTensors(source));
  for (const FileRange& range : mapping.ranges_) {
    Result<AnonymousMemory> memory = AnonymousMemory::Map(
        range.end - range.begin, AnonymousMemory::Pages::kHuge);
    if (!memory.ok()) return memory.status().WithContext("weights");
    mapping.copies_.push_back(
        std::make_shared<AnonymousMemory>(std::move(memory).value()));
  }
  return mapping;
}

size_t WeightMapping::RangeOf(const TensorInfo& tensor) const {
  const auto after = std::upper_bound(
      ranges_.begin(), ranges_.end(), tensor,
      [](const TensorInfo& t, const FileRange& r) {
        return t.file != r.file ? t.file < r.file : t.offset < r.begin;
      });
  ECPHORY_CHECK(after != ranges_.begin());
  const FileRange& range = *std::prev(after);
  ECPHORY_CHECK(range.file == tensor.file &&
                tensor.offset + tensor.bytes <= range.end);
  return static_cast<size_t>(std::prev(after) - ranges_.begin());
}

const uint8_t* WeightMapping::Bytes(const TensorInfo& tensor) const {
  if (!copies_.empty()) return Write(tensor);
  const size_t index = RangeOf(tensor);
  return mappings_[index]->bytes().data() +
         (tensor.offset - ranges_[index].begin);
}

uint8_t* WeightMapping::Write(const TensorInfo& tensor) const {
  const size_t index = RangeOf(tensor);
  return copies_[index]->data() + (tensor.offset - ranges_[index].begin);
}

uint64_t WeightMapping::bytes() const {
  uint64_t total = 0;
  for (const FileRange& range : ranges_) total += range.end - range.begin;
  return total;
}

}  // namespace ecphory
