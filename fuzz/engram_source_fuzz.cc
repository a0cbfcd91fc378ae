// Engram numbers from hostile bytes: a GGUF with keys and tables, else the text
// of a config.json. Whatever is accepted must hash every token into its tables.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "engram/memory.h"
#include "engram/source_numbers.h"
#include "engram/source_tables.h"
#include "format/gguf.h"
#include "io/file.h"

namespace {

using ecphory::Result;
using ecphory::engram::Hasher;
using ecphory::engram::Layout;
using ecphory::engram::Numbers;

// Deriving the layout of a configuration without primes takes time that grows
// with their number.
constexpr uint64_t kMaxDerived = 4096;
// Entries of the map that a config.json is given.
constexpr uint32_t kMaxMap = 1 << 16;

void HashOneOfEach(const Hasher& hasher) {
  const Layout& layout = hasher.layout();
  const size_t count = std::min<size_t>(hasher.token_map().size(), 8);
  std::vector<int32_t> tokens(count);
  for (size_t i = 0; i < count; ++i) tokens[i] = static_cast<int32_t>(i);
  const size_t each = count * layout.columns();
  std::vector<uint64_t> rows(layout.layers.size() * each);
  ecphory::engram::History history;
  if (!HashTokens(hasher, tokens, {}, &history, rows).ok()) std::abort();
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] >= layout.layers[i / each].rows) std::abort();
  }
}

void ReadGguf(const ecphory::GgufFile& file) {
  const Result<Numbers> numbers = ecphory::engram::ReadGgufNumbers(file);
  if (!numbers.ok()) return;
  const auto map = ecphory::engram::ReadGgufTokenMap(file);
  if (!map.ok()) return;
  const ecphory::engram::TableDirectory tables = {
      .path = "fuzz", .index = &file.index(), .config = &numbers->config};
  (void)RefuseUnmentionedTensors(tables);
  for (size_t i = 0; i < numbers->config.layer_ids.size(); ++i) {
    const auto table = FindTable(tables, i);
    if (table.ok() && table->data == nullptr) std::abort();
  }
  const uint32_t vocab_size = numbers->vocab_size != 0
                                  ? numbers->vocab_size
                                  : static_cast<uint32_t>(map->size());
  const auto& config = numbers->config;
  const bool derives = config.vocab_size != 0;
  if (derives && config.primes.size() > kMaxDerived) return;
  const auto hasher =
      ecphory::engram::MakeHasher(config, vocab_size, *map, "fuzz");
  if (hasher.ok()) HashOneOfEach(*hasher);
}

void ReadJson(const std::string& text) {
  const Result<Numbers> numbers =
      ecphory::engram::ReadJsonNumbers(text, "fuzz");
  if (!numbers.ok()) {
    if (numbers.status().message().rfind("fuzz: ", 0) != 0) std::abort();
    return;
  }
  const auto& config = numbers->config;
  if (config.layer_ids.size() * config.columns() > kMaxDerived) return;
  const uint32_t vocab_size = numbers->vocab_size != 0
                                  ? numbers->vocab_size
                                  : config.compressed_vocab_size;
  if (vocab_size > kMaxMap || config.pad_token_id >= vocab_size) return;
  std::vector<int32_t> map(vocab_size);
  for (uint32_t i = 0; i < vocab_size; ++i) {
    map[i] = static_cast<int32_t>(i % config.compressed_vocab_size);
  }
  const auto hasher =
      ecphory::engram::MakeHasher(config, vocab_size, map, "fuzz");
  if (hasher.ok()) HashOneOfEach(*hasher);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file =
      ecphory::GgufFile::Parse(ecphory::MakeMemoryFile("fuzz", {data, size}));
  if (file.ok()) {
    ReadGguf(*file);
  } else {
    ReadJson({reinterpret_cast<const char*>(data), size});
  }
  return 0;
}
