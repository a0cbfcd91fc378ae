// Restoring a session from hostile bytes. The checksum and the fingerprint are
// repaired first, so that mutations reach the parser behind them.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "model/caches.h"
#include "model/snapshot.h"

namespace {

ecphory::ModelConfig SmallConfig() {
  ecphory::ModelConfig config;
  config.vocab_size = 16;
  config.n_layers = 3;
  config.head_dim = 32;
  config.sliding_window = 4;
  config.compress_ratios = {0, 2, 1};
  config.kv_source_layer_ids = {1, 2};
  config.index_source_layer_ids = {1, 2};
  config.index_head_dim = 32;
  return config;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const ecphory::ModelConfig config = SmallConfig();
  ecphory::SessionOptions options;
  options.context = 64;
  options.chunk = 8;
  auto state =
      ecphory::SequenceState::Create(config, options, ecphory::HostDevice());
  if (!state.ok()) std::abort();
  std::vector<uint8_t> bytes(data, data + size);
  if (size >= 72) {
    const uint64_t print = ecphory::StateFingerprint(config, *state);
    std::memcpy(bytes.data() + 16, &print, sizeof(print));
    const uint64_t sum = XXH64(bytes.data(), size - sizeof(uint64_t), 0);
    std::memcpy(bytes.data() + size - sizeof(sum), &sum, sizeof(sum));
  }
  if (!ecphory::DecodeSnapshot(config, bytes, &*state).ok()) return 0;
  // What was accepted can be saved and read again, and stepped back.
  const auto again = ecphory::EncodeSnapshot(config, *state);
  if (!again.ok()) std::abort();
  if (!ecphory::DecodeSnapshot(config, *again, &*state).ok()) std::abort();
  state->TruncateTo(state->EarliestTruncation());
  return 0;
}
