#include "model/weight_reading.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <span>

#include "base/quote.h"

namespace ecphory {

namespace {

// Smaller pieces are not worth a split: a read costs some microseconds.
constexpr uint64_t kMinRangeBytes = uint64_t{256} << 10;
// One system call's worth.
constexpr uint64_t kReadBytes = uint64_t{8} << 20;

using Files = std::vector<std::shared_ptr<RandomAccessFile>>;

Result<Files> OpenFiles(const ModelSource& source, const FileOpener& open) {
  Files files;
  for (const ModelFile& file : source.index.files()) {
    ECPHORY_ASSIGN_OR_RETURN(std::shared_ptr<RandomAccessFile> opened,
                             open(file.path));
    files.push_back(std::move(opened));
  }
  return files;
}

// Bytes [begin, end) of the piece.
Status ReadPart(const RandomAccessFile& file, const TensorPiece& piece,
                uint64_t begin, uint64_t end, uint8_t* tensor) {
  for (uint64_t at = begin; at < end; at += kReadBytes) {
    const uint64_t offset = piece.offset + at;
    ECPHORY_RETURN_IF_ERROR(
        file.ReadExact(piece.tensor->offset + offset,
                       {tensor + offset, std::min(kReadBytes, end - at)}));
  }
  return {};
}

Status ReadPiece(const RandomAccessFile& file, const TensorPiece& piece,
                 uint8_t* tensor, ThreadPool& pool) {
  const uint64_t row_bytes = std::max<uint64_t>(1, piece.bytes / piece.rows);
  std::mutex mutex;
  Status first_error;
  pool.ParallelFor(
      piece.rows, std::max<uint64_t>(1, kMinRangeBytes / row_bytes),
      [&](size_t begin, size_t end, size_t) {
        const uint64_t last = end == piece.rows ? piece.bytes : end * row_bytes;
        const Status read =
            ReadPart(file, piece, begin * row_bytes, last, tensor);
        if (read.ok()) return;
        const std::lock_guard<std::mutex> lock(mutex);
        if (first_error.ok()) first_error = read;
      });
  return first_error;
}

}  // namespace

Status ReadTensors(const ModelSource& source, const FileOpener& open,
                   const std::vector<TensorPiece>& pieces,
                   const WeightMapping& memory,
                   const std::function<bool(uint64_t, uint64_t)>& progress,
                   ThreadPool& pool) {
  ECPHORY_ASSIGN_OR_RETURN(const Files files, OpenFiles(source, open));
  uint64_t total = 0, done = 0;
  for (const TensorPiece& piece : pieces) total += piece.bytes;
  for (const TensorPiece& piece : pieces) {
    ECPHORY_RETURN_IF_ERROR(
        ReadPiece(*files[piece.tensor->file], piece,
                  memory.Write(*piece.tensor), pool)
            .WithContext("tensor " + Quoted(piece.tensor->name)));
    done += piece.bytes;
    if (progress && !progress(done, total)) {
      return Cancelled("%s: stopped after reading %llu of %llu bytes",
                       source.path.c_str(),
                       static_cast<unsigned long long>(done),
                       static_cast<unsigned long long>(total));
    }
  }
  return {};
}

}  // namespace ecphory
