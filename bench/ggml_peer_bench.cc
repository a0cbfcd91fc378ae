// Matrix products with int8 inputs beside ggml's, on the same weights in the
// same memory, in turn: like with like, for ggml rounds its inputs to int8 too.
//
//   ggml_peer_bench FOLDER [--threads N] [--shape ROWSxCOLS] [--tokens N]
//                   [--rounds N] [--formats Q8_0,MXFP4,...] [--exact]
//
// FOLDER holds libggml-base.so and libggml-cpu.so. --exact: our products take x
// as it is (MatmulInput::kF32).
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>

#include "ggml_peer.h"
#include "ops/ops.h"

namespace ecphory {
namespace {

// Weights are visited in turn, so that none is found in a cache.
constexpr size_t kWorkingSet = size_t{256} << 20;
// Rows that are encoded, and repeated: ggml takes seconds to encode some
// formats.
constexpr size_t kEncodedRows = 32;

struct Flags {
  std::string folder;
  size_t threads = 2;
  size_t rows = 2304, cols = 5120;  // an expert's projection
  size_t tokens = 1;
  size_t rounds = 9;
  std::string formats = "Q8_0,MXFP4,Q4_K,Q2_K,IQ2_XXS";
  MatmulInput input = MatmulInput::kInt8;
};

constexpr WeightFormat kFormats[] = {
    WeightFormat::kF32,  WeightFormat::kF16,    WeightFormat::kBF16,
    WeightFormat::kQ8_0, WeightFormat::kMXFP4,  WeightFormat::kQ4_K,
    WeightFormat::kQ2_K, WeightFormat::kIQ2_XXS};

double Now() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::vector<float> Normal(size_t count, float scale) {
  static std::mt19937 bits(7);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(count);
  for (float& value : values) value = normal(bits);
  return values;
}

struct Middle {
  explicit Middle(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    low = values.front();
    median = values[values.size() / 2];
    high = values.back();
  }
  double low, median, high;
};

// Root of the mean square of y - (weights . x in double), to that of y.
double Error(const Matrix& weight, const float* x, const float* y) {
  std::vector<float> row(weight.cols);
  double error = 0, size = 0;
  for (size_t r = 0; r < std::min(weight.rows, kEncodedRows); ++r) {
    DequantizeRow(weight, r, row.data());
    double sum = 0;
    for (size_t c = 0; c < weight.cols; ++c) {
      sum += static_cast<double>(row[c]) * x[c];
    }
    error += (y[r] - sum) * (y[r] - sum);
    size += sum * sum;
  }
  return std::sqrt(error / size);
}

// Seconds of one product of `count`, once the other side's workers sleep.
template <typename Products>
double TimeEach(size_t count, const Products& products) {
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const double start = Now();
  products();
  return (Now() - start) / static_cast<double>(count);
}

Status Compare(const Flags& flags, WeightFormat format, ThreadPool& pool) {
  GgmlProducts::Shape shape = {.format = format,
                               .rows = flags.rows,
                               .cols = flags.cols,
                               .tokens = flags.tokens};
  const Matrix view{.format = format, .rows = flags.rows, .cols = flags.cols};
  const size_t bytes = view.rows * view.row_bytes();
  shape.matrices = flags.tokens == 1 ? kWorkingSet / bytes + 1 : 4;
  ECPHORY_ASSIGN_OR_RETURN(
      const std::unique_ptr<GgmlProducts> peer,
      GgmlProducts::Create(flags.folder, shape, flags.threads));
  peer->Encode(Normal(kEncodedRows * flags.cols, 0.02f));
  const std::vector<float> x = Normal(flags.tokens * flags.cols, 1);
  std::copy(x.begin(), x.end(), peer->x());
  std::vector<float> y(flags.tokens * flags.rows);
  const auto run_ours = [&] {
    for (size_t i = 0; i < shape.matrices; ++i) {
      CpuOps().matmul({.weight = peer->matrix(i),
                       .x = x.data(),
                       .y = y.data(),
                       .tokens = flags.tokens,
                       .input = flags.input},
                      pool);
    }
  };
  run_ours();
  peer->Run();
  std::vector<double> ours, theirs, ratio;
  for (size_t round = 0; round < flags.rounds; ++round) {
    peer->Pause();
    ours.push_back(TimeEach(shape.matrices, run_ours));
    peer->Resume();
    theirs.push_back(TimeEach(shape.matrices, [&] { peer->Run(); }));
    ratio.push_back(theirs.back() / ours.back());
  }
  const Middle a(ours), b(theirs), c(ratio);
  const double gbytes = static_cast<double>(bytes) / 1e9;
  const double gops =
      2e-9 * static_cast<double>(flags.rows * flags.cols * flags.tokens);
  std::printf(
      "%-8s ours %8.1f us (%.1f GB/s, %.0f GFLOP/s)  ggml %8.1f us (%.1f GB/s, "
      "%.0f GFLOP/s)  ours to ggml %.2f (%.2f-%.2f)  error %.1e and %.1e\n",
      WeightFormatName(format), a.median * 1e6, gbytes / a.median,
      gops / a.median, b.median * 1e6, gbytes / b.median, gops / b.median,
      c.median, c.low, c.high, Error(peer->matrix(0), x.data(), y.data()),
      Error(peer->matrix(0), x.data(), peer->y(0)));
  std::fflush(stdout);
  return {};
}

Result<Flags> Parse(int argc, char** argv) {
  Flags flags;
  if (argc < 2) return InvalidArgument("expected FOLDER (see the file's head)");
  flags.folder = argv[1];
  for (int i = 2; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--exact") {
      flags.input = MatmulInput::kF32;
      continue;
    }
    if (i + 1 == argc) return InvalidArgument("%s: no value", argv[i]);
    const char* const value = argv[++i];
    if (name == "--threads") {
      flags.threads = std::strtoul(value, nullptr, 10);
    } else if (name == "--tokens") {
      flags.tokens = std::strtoul(value, nullptr, 10);
    } else if (name == "--rounds") {
      flags.rounds = std::strtoul(value, nullptr, 10);
    } else if (name == "--formats") {
      flags.formats = value;
    } else if (name == "--shape" &&
               std::sscanf(value, "%zux%zu", &flags.rows, &flags.cols) == 2) {
      continue;
    } else {
      return InvalidArgument("%s %s: expected a flag of the file's head",
                             name.c_str(), value);
    }
  }
  if (flags.threads == 0 || flags.tokens == 0 || flags.rounds == 0 ||
      flags.rows == 0 || flags.cols == 0 || flags.cols % 256 != 0) {
    return InvalidArgument("numbers: expected above 0, COLS a multiple of 256");
  }
  return flags;
}

Status Main(int argc, char** argv) {
  ECPHORY_ASSIGN_OR_RETURN(const Flags flags, Parse(argc, argv));
  ThreadPool pool(flags.threads);
  std::printf("%zu x %zu, %zu tokens, %zu threads, target %s\n", flags.rows,
              flags.cols, flags.tokens, flags.threads, CpuTargetName());
  for (const WeightFormat format : kFormats) {
    const std::string list = "," + flags.formats + ",";
    const std::string name = std::string(",") + WeightFormatName(format) + ",";
    if (list.find(name) == std::string::npos) continue;
    ECPHORY_RETURN_IF_ERROR(Compare(flags, format, pool));
  }
  return {};
}

}  // namespace
}  // namespace ecphory

int main(int argc, char** argv) {
  const ecphory::Status status = ecphory::Main(argc, argv);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
