// The n-gram table in GGUF files: inside a model's (`qwen4exp`), or alone in a
// sidecar (`qwen38-next-ple`).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "ecphory/status.h"
#include "engram/store.h"
#include "format/gguf.h"
#include "io/file.h"
#include "ple/layout.h"

namespace ecphory::ple {

// What a sidecar does not say; the caller has it from the model's
// configuration. A file that says otherwise is refused.
struct TableOptions {
  std::optional<int32_t> eos_id = {};
  std::optional<int32_t> image_id = {};
  std::optional<uint32_t> vocab_size = {};  // default: LargestVocab()
};

struct Table {
  Layout layout;
  engram::TableSource source;     // for engram::Store::Open
  std::optional<uint32_t> layer;  // that reads it, from 0; a sidecar has none
};

// Whether a file is one of those: it has the hash constants, or the tensor and
// no architecture of another kind (as parts of a split model have none).
bool IsTableFile(const GgufFile& file);

// Finds tensor `per_layer_token_embd.weight` by name in whichever of `files`
// holds it (parts of a split model in any order, a sidecar, or both), and its
// constants in that file or else in another. Refuses, naming file and key or
// tensor: no such tensor or two, types other than BF16, Q8_0, Q4_0 and Q4_1,
// missing or contradicting keys, what CheckLayout() and CheckPlacement()
// refuse, and a table with fewer rows than the heads address.
Result<Table> OpenTable(
    std::span<const std::shared_ptr<RandomAccessFile>> files,
    const TableOptions& options);

}  // namespace ecphory::ple
