// What the files of cuda_bench share: device memory with random values, timing
// by graph replay, and the report.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "ops/residual_streams.h"
#include "tensor/matrix.h"

namespace ecphory {

// Ends the program on an error.
void Check(cudaError_t error);

// Device memory; Floats are in [-scale, scale), streams in [-1, 1), Codes low +
// random & mask.
void* Device(size_t bytes);
float* Floats(size_t n, float scale = 1);
Streams RandomStreams(size_t n, StreamFormat format);
uint8_t* Codes(size_t n, uint8_t low, uint8_t mask);
Matrix RandomMatrix(WeightFormat format, size_t rows, size_t cols);
// With its scales.
double MatrixBytes(const Matrix& m);
void Free(const Matrix& m);

struct Bench {
  cudaStream_t stream;
  double copy = 0;     // bytes a second, read and written
  std::string filter;  // NAME,NAME...: what names of cases contain one of
  ThreadPool pool{1};

  bool Wanted(const std::string& name) const {
    for (size_t begin = 0, end = 0; end != filter.npos; begin = end + 1) {
      end = filter.find(',', begin);
      if (name.find(filter.substr(begin, end - begin)) != name.npos) {
        return true;
      }
    }
    return false;
  }
  // `launches` queue one call on each buffer set; a graph of all of them is
  // replayed. The median time of one call in seconds.
  double Median(const std::vector<std::function<void()>>& launches) const;
  // Prints it beside `bytes`, which one call must move, and `flops`, its
  // multiplications and additions, where they are given.
  void Report(const std::string& name, double bytes,
              const std::vector<std::function<void()>>& launches,
              double flops = 0);
};

void BenchStreams(Bench& bench);     // mHC and Engram
void BenchAttentions(Bench& bench);  // attention, indexer, rows, drawing
void BenchProducts(Bench& bench);    // matrix products and experts

}  // namespace ecphory
