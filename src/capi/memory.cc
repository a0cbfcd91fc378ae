// Opening, closing, and the facts of a memory.
#include <cstring>
#include <string>
#include <utility>

#include "capi/error.h"
#include "capi/handles.h"
#include "capi/options.h"
#include "ecphory/version.h"

using ecphory::InvalidArgument;
using ecphory::OutOfRange;
using ecphory::Result;
using ecphory::Status;
using ecphory::capi::GiveResult;
using ecphory::capi::Guard;
using ecphory::capi::NullArgument;
using ecphory::engram::LayerLayout;
using ecphory::engram::Memory;
using ecphory::engram::MemoryOptions;
using ecphory::engram::RowFormat;
using ecphory::engram::StoreStats;
using ecphory::engram::TableSource;

namespace {

Status Open(const char* path, const ecphory_engram_options* options,
            ecphory_engram** engram) {
  if (path == nullptr) return NullArgument("path");
  ECPHORY_ASSIGN_OR_RETURN(const MemoryOptions chosen,
                           ecphory::capi::ReadOptions(options));
  auto handle = std::make_unique<ecphory_engram>();
  ECPHORY_ASSIGN_OR_RETURN(handle->memory, Memory::Open(path, chosen));
  *engram = handle.release();
  return {};
}

Status CheckTable(const Memory& memory, uint32_t table) {
  if (table < memory.tables()) return {};
  return OutOfRange("table %u was asked for, the memory has %zu", table,
                    memory.tables());
}

Status GetTable(const Memory& memory, uint32_t number,
                ecphory_engram_table* out) {
  ECPHORY_RETURN_IF_ERROR(CheckTable(memory, number));
  const TableSource& table = memory.store().table(number);
  const LayerLayout& layer = memory.layout().layers[number];
  ecphory_engram_table facts = {};
  facts.layer = layer.layer_id;
  facts.codec = static_cast<uint32_t>(table.codec);
  facts.rows = table.rows;
  facts.row_bytes = memory.RowBytes(number, RowFormat::kRaw);
  facts.offset = table.offset;
  facts.scale_offset = table.scale_offset;
  facts.name = table.name.c_str();
  facts.codec_name = ecphory::TableCodecName(table.codec);
  facts.file = table.file->path().c_str();
  if (table.scale_file != nullptr) {
    facts.scale_file = table.scale_file->path().c_str();
  }
  facts.primes = layer.primes.data();
  facts.offsets = layer.offsets.data();
  facts.multipliers = layer.multipliers.data();
  return GiveResult(facts, out, "facts");
}

Status GetStats(const Memory& memory, uint32_t table,
                ecphory_engram_stats* out) {
  const bool all = table == ECPHORY_ENGRAM_ALL_TABLES;
  if (!all) ECPHORY_RETURN_IF_ERROR(CheckTable(memory, table));
  const StoreStats from =
      all ? memory.store().stats() : memory.store().table_stats(table);
  ecphory_engram_stats stats = {};
  stats.lookups = from.lookups;
  stats.rows = from.rows;
  stats.cache_hits = from.cache_hits;
  stats.rows_read = from.rows_read;
  stats.reads = from.reads;
  stats.bytes_read = from.bytes_read;
  stats.read_seconds = from.read_seconds;
  stats.wait_seconds = from.wait_seconds;
  return GiveResult(stats, out, "stats");
}

}  // namespace

const char* ecphory_engram_version(void) { return ECPHORY_VERSION_STRING; }

uint32_t ecphory_engram_abi_version(void) { return ECPHORY_ENGRAM_ABI_VERSION; }

const char* ecphory_engram_status_name(ecphory_engram_status status) {
  const int number = static_cast<int>(status);
  const bool known =
      number >= ECPHORY_ENGRAM_OK && number <= ECPHORY_ENGRAM_INTERNAL;
  return known
             ? ecphory::StatusCodeName(static_cast<ecphory::StatusCode>(number))
             : "unknown";
}

const char* ecphory_engram_last_error(void) {
  return ecphory::capi::LastError();
}

ecphory_engram_status ecphory_engram_open(const char* path,
                                          const ecphory_engram_options* options,
                                          ecphory_engram** engram) {
  return Guard([&]() -> Status {
    if (engram == nullptr) return NullArgument("engram");
    *engram = nullptr;
    return Open(path, options, engram);
  });
}

void ecphory_engram_close(ecphory_engram** engram) {
  if (engram == nullptr) return;
  delete *engram;
  *engram = nullptr;
}

ecphory_engram_status ecphory_engram_get_facts(const ecphory_engram* engram,
                                               ecphory_engram_facts* facts) {
  return Guard([&]() -> Status {
    if (engram == nullptr) return NullArgument("engram");
    if (facts == nullptr) return NullArgument("facts");
    const Memory& memory = *engram->memory;
    ecphory_engram_facts result = {};
    result.tables = static_cast<uint32_t>(memory.tables());
    result.max_ngram = memory.layout().max_ngram;
    result.heads = memory.layout().heads;
    result.columns = memory.columns();
    result.width = memory.width();
    result.vocab_size = memory.source().vocab_size;
    result.compressed_vocab_size = memory.layout().compressed_vocab_size;
    result.pad_id = memory.hasher().pad_id();
    return GiveResult(result, facts, "facts");
  });
}

ecphory_engram_status ecphory_engram_get_table(const ecphory_engram* engram,
                                               uint32_t table,
                                               ecphory_engram_table* facts) {
  return Guard([&]() -> Status {
    if (engram == nullptr) return NullArgument("engram");
    if (facts == nullptr) return NullArgument("facts");
    return GetTable(*engram->memory, table, facts);
  });
}

const int32_t* ecphory_engram_token_map(const ecphory_engram* engram,
                                        size_t* count) {
  if (count != nullptr) *count = 0;
  if (engram == nullptr) return nullptr;
  const auto& map = engram->memory->hasher().token_map();
  if (count != nullptr) *count = map.size();
  return map.data();
}

ecphory_engram_status ecphory_engram_compress(const ecphory_engram* engram,
                                              const int32_t* tokens,
                                              const uint8_t* dead, size_t count,
                                              int32_t* compressed) {
  return Guard([&]() -> Status {
    if (engram == nullptr) return NullArgument("engram");
    if (count == 0) return {};
    if (tokens == nullptr) return NullArgument("tokens");
    if (compressed == nullptr) return NullArgument("compressed");
    return engram->memory->hasher().Compress(
        {tokens, count}, {dead, dead == nullptr ? 0 : count},
        {compressed, count});
  });
}

ecphory_engram_status ecphory_engram_get_io(const ecphory_engram* engram,
                                            ecphory_engram_io* io) {
  return Guard([&]() -> Status {
    if (engram == nullptr) return NullArgument("engram");
    if (io == nullptr) return NullArgument("io");
    const ecphory::engram::IoReport& report = engram->memory->store().io();
    ecphory_engram_io result = {};
    result.mode = static_cast<uint32_t>(report.mode);
    result.direct = report.direct ? 1 : 0;
    result.reason = report.reason.c_str();
    return GiveResult(result, io, "io");
  });
}

ecphory_engram_status ecphory_engram_get_stats(const ecphory_engram* engram,
                                               uint32_t table,
                                               ecphory_engram_stats* stats) {
  return Guard([&]() -> Status {
    if (engram == nullptr) return NullArgument("engram");
    if (stats == nullptr) return NullArgument("stats");
    return GetStats(*engram->memory, table, stats);
  });
}

ecphory_engram_status ecphory_engram_reset_stats(ecphory_engram* engram) {
  return Guard([&]() -> Status {
    if (engram == nullptr) return NullArgument("engram");
    engram->memory->store().ResetStats();
    return {};
  });
}
