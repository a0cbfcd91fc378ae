#include "ops/embed.h"

#include <cstring>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/parallel.h"

namespace ecphory {

void CpuEmbed(const EmbedArgs& args, ThreadPool& pool) {
  const size_t dim = args.table.cols;
  // The plain decoder takes about as long as 8 multiply-adds a value.
  pool.ParallelFor(args.n_tokens, GrainFor((8 + args.streams) * dim),
                   [&](size_t begin, size_t end, size_t) {
                     for (size_t t = begin; t < end; ++t) {
                       float* const h = args.h + t * args.streams * dim;
                       DequantizeRow(args.table,
                                     static_cast<size_t>(args.tokens[t]), h);
                       for (size_t s = 1; s < args.streams; ++s) {
                         std::memcpy(h + s * dim, h, dim * sizeof(float));
                       }
                     }
                   });
}

}  // namespace ecphory
