// A sequence's state as bytes. Layout: docs/formats.md, 'Snapshot'.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ecphory/config.h"
#include "ecphory/status.h"
#include "model/caches.h"

namespace ecphory {

// Hash of every size and constant that gives the state its meaning.
uint64_t StateFingerprint(const ModelConfig& config,
                          const SequenceState& state);

// Fails only where the device that holds the rows does.
Result<std::vector<uint8_t>> EncodeSnapshot(const ModelConfig& config,
                                            const SequenceState& state);

// Replaces `state` (made by SequenceState::Create for the same config) by the
// snapshot's; the n-gram history is the caller's to rebuild from the tokens.
// Everything is checked before the first byte of `state` changes, which is
// broken where the device fails later. Context and
// chunk may differ from the ones the snapshot was taken with.
Status DecodeSnapshot(const ModelConfig& config,
                      std::span<const uint8_t> snapshot, SequenceState* state);

}  // namespace ecphory
