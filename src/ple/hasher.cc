#include "ple/hasher.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace ecphory::ple {

static_assert(kMaxNgram <= engram::kMaxNgram, "a history holds kMaxNgram - 1");

Hasher::Hasher(Layout layout) : layout_(std::move(layout)) {
  for (size_t i = 0; i < layout_.sizes.size(); ++i) {
    heads_.push_back({engram::Modulus(layout_.sizes[i]), layout_.offsets[i]});
  }
}

Result<Hasher> Hasher::Create(Layout layout) {
  ECPHORY_RETURN_IF_ERROR(CheckLayout(layout));
  return Hasher(std::move(layout));
}

Status Hasher::Resolve(std::span<const int32_t> tokens,
                       std::span<const Position> positions,
                       std::span<int32_t> ids) const {
  ECPHORY_CHECK(ids.size() == tokens.size());
  ECPHORY_CHECK(positions.empty() || positions.size() == tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    const Position position =
        positions.empty() ? Position::kToken : positions[i];
    if (position != Position::kToken) {
      const bool image = position == Position::kImage;
      ids[i] =
          image ? layout_.image_id.value_or(layout_.eos_id) : layout_.eos_id;
      continue;
    }
    if (tokens[i] < 0 ||
        static_cast<uint32_t>(tokens[i]) >= layout_.vocab_size) {
      return OutOfRange("token %d at position %zu, expected ids 0..%u",
                        tokens[i], i, layout_.vocab_size - 1);
    }
    ids[i] = tokens[i];
  }
  return {};
}

// CheckLayout() keeps every product below 2^63, and so their xor.
void Hasher::HashToken(int32_t id, const History& history,
                       uint64_t* rows) const {
  uint64_t mixed = static_cast<uint64_t>(id) * layout_.multipliers[0];
  const Head* head = heads_.data();
  for (uint32_t n = 1; n < layout_.ngram_size; ++n) {
    const int32_t before =
        n <= history.length ? history.ids[n - 1] : layout_.eos_id;
    mixed ^= static_cast<uint64_t>(before) * layout_.multipliers[n];
    for (uint32_t i = 0; i < layout_.heads_per_ngram; ++i, ++head) {
      *rows++ = head->size(mixed) + head->offset;
    }
  }
}

// EOS hides what is before it, and itself counts as EOS: nothing is left.
void Hasher::Push(int32_t id, History* history) const {
  if (id == layout_.eos_id) {
    *history = {};
    return;
  }
  auto& ids = history->ids;
  std::copy_backward(ids.begin(), ids.end() - 1, ids.end());
  ids[0] = id;
  history->length = std::min(history->length + 1, layout_.ngram_size - 1);
}

void Hasher::Hash(std::span<const int32_t> ids, History* history,
                  std::span<uint64_t> rows) const {
  const size_t heads = layout_.heads();
  ECPHORY_CHECK(rows.size() == ids.size() * heads);
  for (size_t i = 0; i < ids.size(); ++i) {
    HashToken(ids[i], *history, rows.data() + i * heads);
    Push(ids[i], history);
  }
}

}  // namespace ecphory::ple
