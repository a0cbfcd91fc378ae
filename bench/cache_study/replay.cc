// The real cache over the 48 rows of every token, as the store asks it. Rows
// are made from their numbers; every hit is compared.
#include <cstdio>
#include <cstring>
#include <memory>

#include "commands.h"
#include "engram/row_cache.h"

namespace ecphory::study {

namespace {

constexpr size_t kRowBytes = 264;
constexpr size_t kColumns = kOrders * 8;

void MakeRow(size_t layer, uint64_t row, uint8_t* out) {
  for (size_t i = 0; i < kRowBytes; i += sizeof(uint64_t)) {
    const uint64_t word = (row + i) * 0x9e37'79b9'7f4a'7c15u ^ layer;
    std::memcpy(out + i, &word, sizeof(word));
  }
}

struct Counts {
  uint64_t tokens = 0;
  std::array<uint64_t, kOrders> hits{};
};

class Replayer {
 public:
  explicit Replayer(engram::RowCache* cache) : cache_(cache) {}

  void Token(const std::array<std::array<uint64_t, kColumns>, 2>& rows,
             Counts* counts) {
    ++counts->tokens;
    for (size_t layer = 0; layer < 2; ++layer) {
      uint8_t found[kColumns];
      cache_->FindBatch(layer, rows[layer], out_.data(), found);
      for (size_t i = 0; i < kColumns; ++i) {
        MakeRow(layer, rows[layer][i], expected_.data());
        if (found[i] == 0) {
          cache_->Insert(layer, rows[layer][i], expected_.data());
          continue;
        }
        ++counts->hits[i / 8];
        wrong_ += std::memcmp(expected_.data(), out_.data() + i * kRowBytes,
                              kRowBytes) != 0;
      }
    }
  }
  uint64_t wrong() const { return wrong_; }

 private:
  engram::RowCache* cache_;
  std::array<uint8_t, kColumns * kRowBytes> out_;
  std::array<uint8_t, kRowBytes> expected_;
  uint64_t wrong_ = 0;
};

Status ReplayAt(const engram::Hasher& hasher, const Kind& kind,
                const Tokens& tokens, uint64_t megabytes) {
  const std::vector<engram::RowCacheTable> tables = {
      {hasher.layout().layers[0].rows, kRowBytes},
      {hasher.layout().layers[1].rows, kRowBytes}};
  ECPHORY_ASSIGN_OR_RETURN(const auto cache,
                           engram::RowCache::Create(megabytes << 20, tables));
  Replayer replayer(cache.get());
  size_t total = 0;
  for (const int32_t id : tokens.ids) total += id >= 0 ? 1 : 0;
  std::array<Counts, 2> halves;
  size_t token = 0;
  ForEachToken(hasher, tokens, [&](const auto& rows) {
    replayer.Token(rows, &halves[token++ < total / 2 ? 0 : 1]);
  });
  std::printf("%s\treplay\t%llu", kind.name.c_str(),
              static_cast<unsigned long long>(megabytes));
  for (const Counts& half : halves) {
    const auto rows = static_cast<double>(half.tokens * kColumnsPerOrder);
    double all = 0;
    for (const uint64_t n : half.hits) all += static_cast<double>(n);
    std::printf("\t%.5f", all / rows / kOrders);
    for (const uint64_t n : half.hits) {
      std::printf("\t%.5f", static_cast<double>(n) / rows);
    }
  }
  std::printf("\n");
  std::fflush(stdout);
  if (replayer.wrong() == 0) return {};
  return Internal("%llu hits with other bytes",
                  static_cast<unsigned long long>(replayer.wrong()));
}

}  // namespace

Status Replay(const engram::Hasher& hasher, const Kind& kind) {
  ECPHORY_ASSIGN_OR_RETURN(const Tokens tokens, ReadTokens(kind));
  for (const uint64_t megabytes : {16, 256}) {
    ECPHORY_RETURN_IF_ERROR(ReplayAt(hasher, kind, tokens, megabytes));
  }
  return {};
}

}  // namespace ecphory::study
