#include "ops/embed.h"

#include <algorithm>
#include <cstring>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/scratch.h"
#include "tensor/float_codec.h"

namespace ecphory {

namespace {

void EmbedToken(const EmbedArgs& args, size_t t) {
  struct Purpose;
  const size_t dim = args.table.cols;
  const size_t bytes = dim * StreamBytes(args.h.format);
  uint8_t* const h =
      static_cast<uint8_t*>(args.h.data) + t * args.streams * bytes;
  const size_t row = static_cast<size_t>(args.tokens[t]);
  if (args.h.is_bf16()) {
    float* const values = ThreadScratch<Purpose>(dim);
    DequantizeRow(args.table, row, values);
    std::transform(values, values + dim, reinterpret_cast<uint16_t*>(h),
                   F32ToBF16);
  } else {
    DequantizeRow(args.table, row, reinterpret_cast<float*>(h));
  }
  for (size_t s = 1; s < args.streams; ++s) {
    std::memcpy(h + s * bytes, h, bytes);
  }
}

}  // namespace

void CpuEmbed(const EmbedArgs& args, ThreadPool& pool) {
  // The plain decoder takes about as long as 8 multiply-adds a value.
  pool.ParallelFor(args.n_tokens,
                   GrainFor((8 + args.streams) * args.table.cols),
                   [&](size_t begin, size_t end, size_t) {
                     for (size_t t = begin; t < end; ++t) EmbedToken(args, t);
                   });
}

}  // namespace ecphory
