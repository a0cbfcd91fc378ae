#include "model/synth_stream.h"

#include <algorithm>

namespace ecphory {

namespace {

// Large enough that threads meet rarely, small enough to stay in the cache of
// the last level between making and writing.
constexpr uint64_t kPieceBytes = uint64_t{4} << 20;
// A range of a thread: 20 us of work and more.
constexpr uint64_t kRangeBytes = uint64_t{64} << 10;

}  // namespace

TensorStream::Producer SynthStream::ProducerOf(const SynthTensor& tensor) {
  return [this, &tensor](const TensorStream::Sink& sink) {
    return Produce(tensor, sink);
  };
}

Status SynthStream::Produce(const SynthTensor& tensor,
                            const TensorStream::Sink& sink) {
  const SynthRowFiller filler(tensor, seed_);
  const uint64_t row_bytes = tensor.row_bytes(), rows = tensor.rows();
  const uint64_t piece_rows = std::max<uint64_t>(1, kPieceBytes / row_bytes);
  const uint64_t range_rows = std::max<uint64_t>(1, kRangeBytes / row_bytes);
  for (uint64_t first = 0; first < rows; first += piece_rows) {
    const uint64_t count = std::min(piece_rows, rows - first);
    piece_.resize(count * row_bytes);
    pool_.ParallelFor(count, range_rows, [&](size_t begin, size_t end, size_t) {
      filler.Fill(first + begin,
                  std::span(piece_).subspan(begin * row_bytes,
                                            (end - begin) * row_bytes));
    });
    ECPHORY_RETURN_IF_ERROR(sink(piece_));
  }
  return {};
}

}  // namespace ecphory
