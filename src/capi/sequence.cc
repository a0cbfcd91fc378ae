// Sequences: histories of their own over a shared hasher.
#include <algorithm>
#include <utility>

#include "capi/error.h"
#include "capi/handles.h"

using ecphory::InvalidArgument;
using ecphory::OutOfRange;
using ecphory::Status;
using ecphory::capi::Guard;
using ecphory::capi::NullArgument;
using ecphory::engram::Hasher;
using ecphory::engram::History;

namespace {

Status Hash(ecphory_engram_sequence* sequence, const int32_t* tokens,
            const uint8_t* dead, size_t count, uint64_t* rows,
            size_t capacity) {
  if (count == 0) return {};
  if (tokens == nullptr) return NullArgument("tokens");
  if (rows == nullptr) return NullArgument("rows");
  const ecphory::engram::Layout& layout = sequence->hasher->layout();
  const size_t each = layout.layers.size() * layout.columns();
  if (capacity / each < count) {
    return InvalidArgument(
        "room for %zu row numbers, expected %zu for each of %zu tokens",
        capacity, each, count);
  }
  return ecphory::engram::HashTokens(*sequence->hasher, {tokens, count},
                                     {dead, dead == nullptr ? 0 : count},
                                     &sequence->history, {rows, count * each});
}

Status SetHistory(ecphory_engram_sequence* sequence, const int32_t* ids,
                  size_t count) {
  const ecphory::engram::Layout& layout = sequence->hasher->layout();
  if (count > 0 && ids == nullptr) return NullArgument("ids");
  if (count > layout.max_ngram - 1) {
    return InvalidArgument("a history of %zu ids, expected at most %u", count,
                           layout.max_ngram - 1);
  }
  History history;
  history.length = static_cast<uint32_t>(count);
  for (size_t i = 0; i < count; ++i) {
    const int64_t limit = layout.compressed_vocab_size;
    if (ids[i] < ECPHORY_ENGRAM_DEAD || ids[i] >= limit) {
      return OutOfRange("history id %zu is %d, expected -1..%lld", i, ids[i],
                        static_cast<long long>(limit - 1));
    }
    history.ids[i] = ids[i];
  }
  sequence->history = history;
  return {};
}

}  // namespace

ecphory_engram_status ecphory_engram_sequence_create(
    const ecphory_engram* engram, ecphory_engram_sequence** sequence) {
  return Guard([&]() -> Status {
    if (sequence == nullptr) return NullArgument("sequence");
    *sequence = nullptr;
    if (engram == nullptr) return NullArgument("engram");
    *sequence =
        new ecphory_engram_sequence{engram->memory->shared_hasher(), {}};
    return {};
  });
}

ecphory_engram_status ecphory_engram_sequence_clone(
    const ecphory_engram_sequence* sequence, ecphory_engram_sequence** clone) {
  return Guard([&]() -> Status {
    if (clone == nullptr) return NullArgument("clone");
    *clone = nullptr;
    if (sequence == nullptr) return NullArgument("sequence");
    *clone = new ecphory_engram_sequence(*sequence);
    return {};
  });
}

ecphory_engram_status ecphory_engram_sequence_assign(
    ecphory_engram_sequence* sequence, const ecphory_engram_sequence* from) {
  return Guard([&]() -> Status {
    if (sequence == nullptr) return NullArgument("sequence");
    if (from == nullptr) return NullArgument("from");
    if (sequence->hasher != from->hasher) {
      return InvalidArgument("the sequences are of two memories");
    }
    sequence->history = from->history;
    return {};
  });
}

ecphory_engram_status ecphory_engram_sequence_reset(
    ecphory_engram_sequence* sequence) {
  return Guard([&]() -> Status {
    if (sequence == nullptr) return NullArgument("sequence");
    sequence->history = {};
    return {};
  });
}

void ecphory_engram_sequence_free(ecphory_engram_sequence** sequence) {
  if (sequence == nullptr) return;
  delete *sequence;
  *sequence = nullptr;
}

ecphory_engram_status ecphory_engram_sequence_get_history(
    const ecphory_engram_sequence* sequence, int32_t* ids, size_t capacity,
    size_t* count) {
  return Guard([&]() -> Status {
    if (sequence == nullptr) return NullArgument("sequence");
    if (count == nullptr) return NullArgument("count");
    const History& history = sequence->history;
    *count = history.length;
    if (history.length > capacity) {
      return InvalidArgument("room for %zu ids, the history has %u", capacity,
                             history.length);
    }
    if (history.length == 0) return {};
    if (ids == nullptr) return NullArgument("ids");
    std::copy_n(history.ids.begin(), history.length, ids);
    return {};
  });
}

ecphory_engram_status ecphory_engram_sequence_set_history(
    ecphory_engram_sequence* sequence, const int32_t* ids, size_t count) {
  return Guard([&]() -> Status {
    if (sequence == nullptr) return NullArgument("sequence");
    return SetHistory(sequence, ids, count);
  });
}

ecphory_engram_status ecphory_engram_hash(ecphory_engram_sequence* sequence,
                                          const int32_t* tokens,
                                          const uint8_t* dead, size_t count,
                                          uint64_t* rows, size_t capacity) {
  return Guard([&]() -> Status {
    if (sequence == nullptr) return NullArgument("sequence");
    return Hash(sequence, tokens, dead, count, rows, capacity);
  });
}
