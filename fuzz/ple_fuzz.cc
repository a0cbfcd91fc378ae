// An n-gram table's metadata from hostile bytes; whatever is accepted must hash
// to rows that the table has.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "ple/gguf_table.h"
#include "ple/hasher.h"

namespace {

using ecphory::ple::Table;

void CheckTable(const Table& table) {
  const auto hasher = ecphory::ple::Hasher::Create(table.layout);
  if (!hasher.ok()) std::abort();
  const int32_t last = static_cast<int32_t>(table.layout.vocab_size - 1);
  const std::vector<int32_t> tokens = {0,    last, table.layout.eos_id,
                                       last, last, last};
  std::vector<int32_t> ids(tokens.size());
  if (!hasher->Resolve(tokens, {}, ids).ok()) std::abort();
  std::vector<uint64_t> rows(ids.size() * table.layout.heads());
  ecphory::ple::History history;
  hasher->Hash(ids, &history, rows);
  for (const uint64_t row : rows) {
    if (row >= table.source.rows) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::vector<std::shared_ptr<ecphory::RandomAccessFile>> files = {
      ecphory::MakeMemoryFile("fuzz", {data, size})};
  ecphory::ple::TableOptions options;
  for (int round = 0; round < 2; ++round) {
    const auto table = ecphory::ple::OpenTable(files, options);
    if (table.ok()) CheckTable(*table);
    options.eos_id = 1;
  }
  return 0;
}
