// The address half of a trace: from ids to compressed ids, n-grams and rows.
#pragma once

#include <cstdint>
#include <span>

#include "ecphory/engram_trace.h"
#include "engram/hasher.h"

namespace ecphory::trace {

// The columns of every layer of `layout`.
std::vector<EngramTraceLayer> DescribeLayers(const engram::Layout& layout);

// Appends `tokens` (a fresh sequence; dead[i] != 0: image position) to
// trace->tokens, without pieces and streams. kOutOfRange names an id outside
// the vocabulary.
Status TraceAddresses(const engram::Hasher& hasher,
                      std::span<const int32_t> tokens,
                      std::span<const uint8_t> dead, EngramTrace* trace);

// The classes of the compressed ids in trace->tokens. `tokenizer` may be null:
// then they have no pieces.
std::vector<EngramTraceClass> DescribeClasses(const engram::Hasher& hasher,
                                              const Tokenizer* tokenizer,
                                              const EngramTrace& trace);

}  // namespace ecphory::trace
