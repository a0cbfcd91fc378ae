#include "ops/embed.h"

#include <algorithm>

#include "ops/ref/ref_ops.h"

namespace ecphory::ref {

void Embed(const EmbedArgs& args, ThreadPool&) {
  const size_t dim = args.table.cols;
  for (size_t t = 0; t < args.n_tokens; ++t) {
    float* first = args.h + t * args.streams * dim;
    DequantizeRow(args.table, static_cast<size_t>(args.tokens[t]), first);
    for (size_t s = 1; s < args.streams; ++s) {
      std::copy(first, first + dim, first + s * dim);
    }
  }
}

}  // namespace ecphory::ref
