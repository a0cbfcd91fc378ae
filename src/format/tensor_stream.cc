#include "format/tensor_stream.h"

#include "base/quote.h"

namespace ecphory {

namespace {

// How often progress is reported: often enough to cancel promptly, rarely
// enough to cost nothing.
constexpr uint64_t kProgressBytes = uint64_t{8} << 20;

}  // namespace

Status TensorStream::WriteTensor(const std::string& name, uint64_t bytes,
                                 const Producer& producer) {
  const uint64_t end = file_->size() + bytes;
  const Status produced =
      producer([&](std::span<const uint8_t> piece) -> Status {
        if (piece.size() > end - file_->size()) {
          return Internal("%s: tensor %s got more than its %llu bytes",
                          path_.c_str(), Quoted(name).c_str(),
                          static_cast<unsigned long long>(bytes));
        }
        ECPHORY_RETURN_IF_ERROR(file_->Write(piece));
        return file_->size() - reported_ < kProgressBytes ? Status::Ok()
                                                          : Report();
      });
  if (!produced.ok() || file_->size() == end) return produced;
  return Internal("%s: tensor %s got %llu bytes too few", path_.c_str(),
                  Quoted(name).c_str(),
                  static_cast<unsigned long long>(end - file_->size()));
}

Status TensorStream::Report() {
  reported_ = file_->size();
  if (!progress_ || progress_(reported_, total_)) return Status::Ok();
  return Cancelled("%s: cancelled, nothing was written", path_.c_str());
}

}  // namespace ecphory
