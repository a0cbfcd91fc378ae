// Does a model stand still for its memory? Prefill and decoding of real text on
// a model with tables on disk: the time layers waited for rows, held against
// the time the rows alone take and the time of the rest.
//
//   engram_exposed_bench make OUT.gguf TOKENIZER.gguf [ROWS] [LAYERS]
//   engram_exposed_bench run MODEL.gguf TOKENIZER.gguf TEXT [IO] [CACHE]
//                            [TOKENS] [BACKEND]
//
// `make` writes noise in the shape of golden model A with 24 columns of ROWS
// rows in each of two tables and LAYERS more layers. Runs in the repository's
// root. TOKENIZER is the bundled model: it cuts the text.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "ecphory/convert.h"
#include "ecphory/session.h"
#include "grown_model.h"
#include "io_bench_reads.h"
#include "model/engram_fetch.h"
#include "model/model_impl.h"

namespace ecphory {
namespace {

using Clock = std::chrono::steady_clock;
using Ids = std::vector<int32_t>;

constexpr uint32_t kChunk = 256;
constexpr size_t kDecoded = 400;

uint64_t Number(int argc, char** argv, int index, uint64_t fallback) {
  return index < argc ? std::strtoull(argv[index], nullptr, 10) : fallback;
}

Status Make(int argc, char** argv) {
  const std::string out = argv[2], directory = out + ".directory";
  ECPHORY_ASSIGN_OR_RETURN(const auto tokenizer, Model::Open(argv[3], {}));
  ECPHORY_ASSIGN_OR_RETURN(auto model,
                           bench::GrownModel::Load("tests/golden/v41/A"));
  std::filesystem::create_directory(directory);
  const bench::GrownShape shape = {
      .column_rows = Number(argc, argv, 4, 100'000),
      .extra_layers = static_cast<uint32_t>(Number(argc, argv, 5, 0)),
      .vocab = tokenizer->config().vocab_size,
      .compressed_vocab = tokenizer->info().compressed_vocab};
  ECPHORY_RETURN_IF_ERROR(
      model.Write(shape, tokenizer->token_map(), directory));
  ECPHORY_RETURN_IF_ERROR(Convert(directory, out, {}));
  std::filesystem::remove_all(directory);
  return {};
}

Result<Ids> ReadText(const std::string& tokenizer_path, const std::string& path,
                     size_t tokens) {
  ECPHORY_ASSIGN_OR_RETURN(const auto model, Model::Open(tokenizer_path, {}));
  ECPHORY_ASSIGN_OR_RETURN(const std::string text,
                           ReadWholeFile(path, uint64_t{1} << 30));
  // About four bytes a token; more than enough for the beginning of a text.
  ECPHORY_ASSIGN_OR_RETURN(
      Ids ids,
      model->tokenizer()->Encode(std::string_view(text).substr(0, 8 * tokens)));
  if (ids.size() < tokens) {
    return InvalidArgument("%s: %zu tokens, expected %zu", path.c_str(),
                           ids.size(), tokens);
  }
  ids.resize(tokens);
  return ids;
}

// The rows of a text as a session asks for them, and no layer in between.
Status ReadAlone(const Model& model, const Ids& ids, double* seconds) {
  const Model::Impl& impl = model.impl();
  ECPHORY_ASSIGN_OR_RETURN(
      const std::unique_ptr<EngramFetch> fetch,
      EngramFetch::Create(*impl.hasher, *impl.store, /*resident=*/nullptr,
                          kChunk, HostDevice(), *impl.pool));
  const std::vector<uint8_t> image(ids.size());
  engram::History history;
  const auto part = [&](const auto& all, size_t first) {
    const std::span whole(all);
    return whole.subspan(first, std::min<size_t>(kChunk, whole.size() - first));
  };
  const auto start = Clock::now();
  for (size_t first = 0; first < ids.size(); first += kChunk) {
    const auto chunk = part(ids, first);
    const EngramFetch::Stretch now{chunk.size(), history};
    ECPHORY_RETURN_IF_ERROR(fetch->Begin(chunk, part(image, first), {&now, 1}));
    history = fetch->after(0);
    if (first + kChunk < ids.size()) {
      const auto next = part(ids, first + kChunk);
      const EngramFetch::Stretch then{next.size(), history};
      ECPHORY_RETURN_IF_ERROR(
          fetch->Ahead(next, part(image, first + kChunk), {&then, 1}));
    }
    for (size_t layer = 0; layer < impl.store->tables(); ++layer) {
      for (size_t t = 0; t < chunk.size();) {
        ECPHORY_ASSIGN_OR_RETURN(const auto rows, fetch->Take(layer, t));
        t += rows.tokens;
      }
    }
    fetch->End();
  }
  *seconds = SecondsSince(start);
  return {};
}

Result<std::unique_ptr<Session>> NewSession(
    const std::shared_ptr<const Model>& model, bool engram = true) {
  SessionOptions options;
  options.context = model->config().max_positions;
  options.chunk = kChunk;
  options.engram = engram;
  return Session::Create(model, options);
}

Status Prefill(const std::shared_ptr<const Model>& model, const Ids& ids) {
  double alone = 0;
  ECPHORY_RETURN_IF_ERROR(ReadAlone(*model, ids, &alone));
  ECPHORY_ASSIGN_OR_RETURN(const auto session, NewSession(model));
  const auto start = Clock::now();
  ECPHORY_RETURN_IF_ERROR(session->Append(ids, {}));
  const double seconds = SecondsSince(start);
  const SessionStats stats = session->stats();
  std::printf(
      "prefill %zu tokens: %.2f s, %llu rows, %llu read, %llu hits; "
      "reading alone %.2f s, exposed %.3f s = %.2f %% of reading alone, "
      "%.2f %% of the prefill\n",
      ids.size(), seconds, static_cast<unsigned long long>(stats.engram_rows),
      static_cast<unsigned long long>(stats.engram_rows_read),
      static_cast<unsigned long long>(stats.engram_cache_hits), alone,
      stats.engram_wait_seconds, 100 * stats.engram_wait_seconds / alone,
      100 * stats.engram_wait_seconds / seconds);
  return {};
}

// The text token by token, each asked for as a generation does.
Status Decode(const std::shared_ptr<const Model>& model, const Ids& ids) {
  ECPHORY_ASSIGN_OR_RETURN(const auto session, NewSession(model));
  const auto start = Clock::now();
  const size_t count = std::min(kDecoded, ids.size());
  for (size_t t = 0; t < count; ++t) {
    session->Prefetch({&ids[t], 1});
    ECPHORY_RETURN_IF_ERROR(session->Append({&ids[t], 1}, {}));
  }
  const double seconds = SecondsSince(start);
  const SessionStats stats = session->stats();
  const auto us = [](const DurationHistogram& h, double q) {
    return 1e6 * h.Quantile(q);
  };
  std::printf(
      "decode %zu tokens: %.2f ms a token, exposed %.3f %%; "
      "exposed a token p50 %.0f p95 %.0f p99 %.0f us, "
      "reading p50 %.0f p95 %.0f p99 %.0f us\n",
      count, 1e3 * seconds / static_cast<double>(count),
      100 * stats.engram_wait_seconds / seconds,
      us(stats.engram_token_wait, 0.5), us(stats.engram_token_wait, 0.95),
      us(stats.engram_token_wait, 0.99), us(stats.engram_token_read, 0.5),
      us(stats.engram_token_read, 0.95), us(stats.engram_token_read, 0.99));
  return {};
}

Status Run(int argc, char** argv) {
  ModelOptions options;
  if (argc > 5) options.engram_io = argv[5];
  if (argc > 6) options.engram_cache_bytes = Number(argc, argv, 6, 0);
  const size_t tokens = Number(argc, argv, 7, 65536);
  if (argc > 8) options.backend = argv[8];
  ECPHORY_ASSIGN_OR_RETURN(const Ids ids, ReadText(argv[3], argv[4], tokens));
  ECPHORY_ASSIGN_OR_RETURN(const auto model, Model::Open(argv[2], options));
  const EngramIoFacts& io = model->engram_io();
  std::printf("%s, %u threads; rows by %s%s; cache of %llu bytes; %s\n",
              model->backend(), model->threads(), io.mode.c_str(),
              io.direct ? ", O_DIRECT" : "",
              static_cast<unsigned long long>(io.cache_bytes),
              io.reason.c_str());
  ECPHORY_RETURN_IF_ERROR(Decode(model, ids));
  return Prefill(model, ids);
}

int Main(int argc, char** argv) {
  ShowUsage(argc, argv,
            "engram_exposed_bench make OUT.gguf TOKENIZER.gguf [ROWS] "
            "[LAYERS]\n"
            "       engram_exposed_bench run MODEL.gguf TOKENIZER.gguf TEXT "
            "[IO] [CACHE]\n"
            "                                [TOKENS] [BACKEND]\n");
  const std::string command = argc > 1 ? argv[1] : "";
  Status status = InvalidArgument("expected make or run, and files");
  if (command == "make" && argc >= 4) status = Make(argc, argv);
  if (command == "run" && argc >= 5) status = Run(argc, argv);
  if (!status.ok()) Fail(status.ToString());
  return 0;
}

}  // namespace
}  // namespace ecphory

int main(int argc, char** argv) { return ecphory::Main(argc, argv); }
