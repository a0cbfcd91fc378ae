// Lookups: checked here, done by the store.
#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "base/checked_math.h"
#include "capi/error.h"
#include "capi/handles.h"

using ecphory::CheckedMul;
using ecphory::InvalidArgument;
using ecphory::Status;
using ecphory::capi::GiveResult;
using ecphory::capi::Guard;
using ecphory::capi::NullArgument;
using ecphory::engram::LookupRequest;
using ecphory::engram::LookupStats;
using ecphory::engram::Memory;
using ecphory::engram::RowFormat;

namespace {

static_assert(static_cast<uint32_t>(RowFormat::kF32) == ECPHORY_ENGRAM_F32);
static_assert(static_cast<uint32_t>(RowFormat::kBf16) == ECPHORY_ENGRAM_BF16);
static_assert(static_cast<uint32_t>(RowFormat::kRaw) == ECPHORY_ENGRAM_RAW);

// Requests of a batch that are held on the stack.
constexpr size_t kFewRequests = 32;

// Table and format exist, and `rows` of them fit `out`.
Status CheckOutput(const Memory& memory, uint32_t table, uint32_t format,
                   size_t rows, const void* out, size_t out_bytes) {
  if (table >= memory.tables()) {
    return InvalidArgument("table %u was asked for, the memory has %zu", table,
                           memory.tables());
  }
  if (format > ECPHORY_ENGRAM_RAW) {
    return InvalidArgument("format %u, expected 0..%d", format,
                           ECPHORY_ENGRAM_RAW);
  }
  const auto row_format = static_cast<RowFormat>(format);
  const size_t row_bytes = memory.RowBytes(table, row_format);
  uint64_t bytes = 0;
  if (!CheckedMul(rows, row_bytes, &bytes) || out_bytes < bytes) {
    return InvalidArgument(
        "room for %zu bytes, expected %zu for each of %zu rows", out_bytes,
        row_bytes, rows);
  }
  if (rows > 0 && out == nullptr) return NullArgument("out");
  const size_t unit = format == ECPHORY_ENGRAM_F32    ? 4
                      : format == ECPHORY_ENGRAM_BF16 ? 2
                                                      : 1;
  if (reinterpret_cast<uintptr_t>(out) % unit == 0) return {};
  return InvalidArgument("out lies at %p, expected a multiple of %zu", out,
                         unit);
}

Status CheckRequest(const Memory& memory,
                    const ecphory_engram_request& request) {
  ECPHORY_RETURN_IF_ERROR(CheckOutput(memory, request.table, request.format,
                                      request.count, request.out,
                                      request.out_bytes));
  if (request.count > 0 && request.rows == nullptr) return NullArgument("rows");
  return {};
}

Status Submit(Memory* memory, std::span<const ecphory_engram_request> requests,
              ecphory_engram_ticket* tickets) {
  std::fill_n(tickets, requests.size(), 0);
  std::array<LookupRequest, kFewRequests> few;
  std::vector<LookupRequest> many(
      requests.size() > kFewRequests ? requests.size() : 0);
  LookupRequest* lookups = many.empty() ? few.data() : many.data();
  for (size_t i = 0; i < requests.size(); ++i) {
    const ecphory_engram_request& from = requests[i];
    ECPHORY_RETURN_IF_ERROR(CheckRequest(*memory, from));
    lookups[i].table = from.table;
    lookups[i].rows = {from.rows, from.count};
    lookups[i].out = from.out;
    lookups[i].format = static_cast<RowFormat>(from.format);
  }
  memory->store().Submit(std::span(lookups, requests.size()),
                         std::span(tickets, requests.size()));
  return {};
}

Status Wait(Memory* memory, ecphory_engram_ticket ticket,
            ecphory_engram_lookup_stats* stats) {
  // A structure that does not fit is found before the ticket is used up.
  if (stats != nullptr) {
    ECPHORY_RETURN_IF_ERROR(
        GiveResult(ecphory_engram_lookup_stats{}, stats, "stats"));
  }
  LookupStats cost;
  ECPHORY_RETURN_IF_ERROR(memory->store().Wait(ticket, &cost));
  if (stats == nullptr) return {};
  ecphory_engram_lookup_stats result = {};
  result.cache_hits = cost.cache_hits;
  result.rows_read = cost.rows_read;
  result.bytes_read = cost.bytes_read;
  result.read_seconds = cost.read_seconds;
  return GiveResult(result, stats, "stats");
}

}  // namespace

ecphory_engram_status ecphory_engram_submit(
    ecphory_engram* engram, const ecphory_engram_request* request,
    ecphory_engram_ticket* ticket) {
  return ecphory_engram_submit_batch(engram, request, 1, ticket);
}

ecphory_engram_status ecphory_engram_submit_batch(
    ecphory_engram* engram, const ecphory_engram_request* requests,
    size_t count, ecphory_engram_ticket* tickets) {
  return Guard([&]() -> Status {
    if (engram == nullptr) return NullArgument("engram");
    if (count == 0) return {};
    if (requests == nullptr) return NullArgument("request");
    if (tickets == nullptr) return NullArgument("ticket");
    return Submit(engram->memory.get(), {requests, count}, tickets);
  });
}

ecphory_engram_status ecphory_engram_ready(const ecphory_engram* engram,
                                           ecphory_engram_ticket ticket,
                                           int* ready) {
  return Guard([&]() -> Status {
    if (engram == nullptr) return NullArgument("engram");
    if (ready == nullptr) return NullArgument("ready");
    *ready = engram->memory->store().Ready(ticket) ? 1 : 0;
    return {};
  });
}

ecphory_engram_status ecphory_engram_wait(ecphory_engram* engram,
                                          ecphory_engram_ticket ticket,
                                          ecphory_engram_lookup_stats* stats) {
  return Guard([&]() -> Status {
    if (engram == nullptr) return NullArgument("engram");
    return Wait(engram->memory.get(), ticket, stats);
  });
}

ecphory_engram_status ecphory_engram_cancel(ecphory_engram* engram,
                                            ecphory_engram_ticket ticket) {
  return Guard([&]() -> Status {
    if (engram == nullptr) return NullArgument("engram");
    engram->memory->store().Cancel(ticket);
    return {};
  });
}

ecphory_engram_status ecphory_engram_decode(const ecphory_engram* engram,
                                            uint32_t table, const void* raw,
                                            size_t rows, uint32_t format,
                                            void* out, size_t out_bytes) {
  return Guard([&]() -> Status {
    if (engram == nullptr) return NullArgument("engram");
    const Memory& memory = *engram->memory;
    ECPHORY_RETURN_IF_ERROR(
        CheckOutput(memory, table, format, rows, out, out_bytes));
    if (rows == 0) return {};
    if (raw == nullptr) return NullArgument("raw");
    const auto row_format = static_cast<RowFormat>(format);
    uint64_t raw_bytes = 0;
    if (!CheckedMul(rows, memory.RowBytes(table, RowFormat::kRaw),
                    &raw_bytes)) {
      return InvalidArgument("%zu rows are more than memory holds", rows);
    }
    return memory.Decode(table, {static_cast<const uint8_t*>(raw), raw_bytes},
                         row_format,
                         {static_cast<uint8_t*>(out),
                          rows * memory.RowBytes(table, row_format)});
  });
}
