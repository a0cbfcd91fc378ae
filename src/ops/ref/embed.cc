#include "ops/embed.h"

#include <vector>

#include "ops/ref/ref_ops.h"
#include "ops/ref/streams.h"

namespace ecphory::ref {

void Embed(const EmbedArgs& args, ThreadPool&) {
  const size_t dim = args.table.cols;
  std::vector<float> row(dim);
  for (size_t t = 0; t < args.n_tokens; ++t) {
    DequantizeRow(args.table, static_cast<size_t>(args.tokens[t]), row.data());
    for (size_t s = 0; s < args.streams; ++s) {
      const size_t first = (t * args.streams + s) * dim;
      for (size_t i = 0; i < dim; ++i) SetStream(args.h, first + i, row[i]);
    }
  }
}

}  // namespace ecphory::ref
