// How rows come back: inside a token, between neighbours, inside a sequence,
// across sequences; and how many tokens apart.
#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <set>

#include "commands.h"

namespace ecphory::study {

namespace {

constexpr size_t kMaxLog = 24;
using Rows = std::array<uint64_t, kOrders * 8>;

struct LastUse {
  uint32_t token = kNever;
  uint32_t sequence = kNever;
};

struct Tally {
  uint64_t tokens = 0;
  std::array<uint64_t, kOrders> neighbour{}, same_sequence{}, other{}, fresh{};
  // By the bits of the distance in tokens.
  std::array<std::vector<uint64_t>, kOrders> distance;
  uint64_t inside_token = 0;
};

// Rows that a token asks for twice: by n-grams that collide.
uint64_t Duplicates(const Rows& rows) {
  return rows.size() - std::set<uint64_t>(rows.begin(), rows.end()).size();
}

void Print(const std::string& name, const char* what,
           const std::array<uint64_t, kOrders>& counts, uint64_t tokens) {
  double all = 0;
  std::printf("%s\t%s", name.c_str(), what);
  for (const uint64_t n : counts) all += static_cast<double>(n);
  const auto total = static_cast<double>(tokens);
  std::printf("\t%.5f", all / total / kOrders);
  for (const uint64_t n : counts) {
    std::printf("\t%.5f", static_cast<double>(n) / total);
  }
  std::printf("\n");
}

}  // namespace

// One head of one layer stands for all (stream.h); duplicates inside a token
// are counted over the 24 rows of that layer.
Status Reuse(const engram::Hasher& hasher, const Kind& kind) {
  ECPHORY_ASSIGN_OR_RETURN(const Tokens tokens, ReadTokens(kind));
  const engram::LayerLayout& layout = hasher.layout().layers[0];
  std::array<std::vector<LastUse>, kOrders> last;
  for (size_t order = 0; order < kOrders; ++order) {
    last[order].resize(layout.primes[order * 8]);
  }
  // The document that each of the interleaved sequences is in.
  std::vector<uint32_t> document(tokens.sequences);
  uint32_t documents = 0;
  for (uint32_t& d : document) d = documents++;
  Tally tally;
  tally.distance.fill(std::vector<uint64_t>(kMaxLog + 1));
  size_t at = 0;  // among tokens.ids
  ForEachToken(hasher, tokens, [&](const auto& rows) {
    for (; tokens.ids[at] < 0; ++at) {
      document[tokens.sequence[at]] = documents++;
    }
    const uint32_t sequence = document[tokens.sequence[at++]];
    const auto now = static_cast<uint32_t>(tally.tokens++);
    tally.inside_token += Duplicates(rows[0]);
    for (size_t order = 0; order < kOrders; ++order) {
      const size_t column = order * 8;
      LastUse& use = last[order][rows[0][column] - layout.offsets[column]];
      if (use.token == kNever) {
        ++tally.fresh[order];
      } else {
        const uint32_t distance = now - use.token;
        ++tally.distance[order][static_cast<size_t>(std::bit_width(distance))];
        tally.neighbour[order] += distance == 1 ? 1 : 0;
        ++(use.sequence == sequence ? tally.same_sequence : tally.other)[order];
      }
      use = {now, sequence};
    }
  });
  std::printf(
      "# %s: %llu tokens, %u sequences; share of rows: all, 2-grams, "
      "3-grams, 4-grams\n",
      kind.name.c_str(), static_cast<unsigned long long>(tally.tokens),
      documents);
  std::printf("%s\tinside a token\t%.6f\n", kind.name.c_str(),
              static_cast<double>(tally.inside_token) /
                  static_cast<double>(tally.tokens * kOrders * 8));
  Print(kind.name, "never seen", tally.fresh, tally.tokens);
  Print(kind.name, "last in this sequence", tally.same_sequence, tally.tokens);
  Print(kind.name, "last in another", tally.other, tally.tokens);
  Print(kind.name, "last token", tally.neighbour, tally.tokens);
  std::array<uint64_t, kOrders> within{};
  for (size_t log = 1; log <= kMaxLog; ++log) {
    for (size_t order = 0; order < kOrders; ++order) {
      within[order] += tally.distance[order][log];
    }
    const std::string what =
        "within " + std::to_string((uint64_t{1} << log) - 1);
    Print(kind.name, what.c_str(), within, tally.tokens);
  }
  return {};
}

}  // namespace ecphory::study
