#include "capi/options.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <string>

#include "capi/error.h"
#include "capi/handles.h"

namespace ecphory::capi {

namespace {

static_assert(static_cast<uint32_t>(IoMode::kAuto) == ECPHORY_ENGRAM_IO_AUTO);
static_assert(static_cast<uint32_t>(IoMode::kUring) == ECPHORY_ENGRAM_IO_URING);
static_assert(static_cast<uint32_t>(IoMode::kPread) == ECPHORY_ENGRAM_IO_PREAD);
static_assert(static_cast<uint32_t>(IoMode::kBuffered) ==
              ECPHORY_ENGRAM_IO_BUFFERED);
static_assert(static_cast<uint32_t>(IoMode::kMmap) == ECPHORY_ENGRAM_IO_MMAP);
static_assert(static_cast<uint32_t>(IoMode::kRam) == ECPHORY_ENGRAM_IO_RAM);

ecphory_engram_options Defaults() {
  const engram::StoreOptions store;
  ecphory_engram_options options = {};
  options.struct_size = sizeof(options);
  options.io_mode = static_cast<uint32_t>(store.io);
  options.io_threads = store.io_threads;
  options.queue_depth = store.queue_depth;
  options.cache_bytes = ECPHORY_ENGRAM_CACHE_DEFAULT;
  options.probe_seconds = store.probe_seconds;
  return options;
}

Status CheckSize(const ecphory_engram_options* options) {
  constexpr size_t kKnown = sizeof(ecphory_engram_options);
  const size_t size = options->struct_size;
  if (size < kKnown || size > kMaxStructBytes) {
    return InvalidArgument(
        "options->struct_size is %zu, expected %zu..%zu; "
        "ecphory_engram_options_init sets it",
        size, kKnown, kMaxStructBytes);
  }
  const auto* bytes = reinterpret_cast<const uint8_t*>(options);
  for (size_t i = kKnown; i < size; ++i) {
    if (bytes[i] == 0) continue;
    return Unsupported(
        "options: byte %zu of %zu is set, this library (%s) knows the first "
        "%zu",
        i, size, ecphory_engram_version(), kKnown);
  }
  return {};
}

Status CheckValues(const ecphory_engram_options& options) {
  if (options.io_mode > ECPHORY_ENGRAM_IO_RAM) {
    return InvalidArgument("options->io_mode is %u, expected 0..%d",
                           options.io_mode, ECPHORY_ENGRAM_IO_RAM);
  }
  if (options.reserved != 0) {
    return InvalidArgument("options->reserved is %u, expected 0",
                           options.reserved);
  }
  if (!std::isfinite(options.probe_seconds) || options.probe_seconds < 0) {
    return InvalidArgument("options->probe_seconds is %g, expected 0 or more",
                           options.probe_seconds);
  }
  if (options.more_tables == nullptr && options.more_tables_count != 0) {
    return NullArgument("options->more_tables");
  }
  return {};
}

std::string TextOf(const char* text) { return text == nullptr ? "" : text; }

}  // namespace

Result<engram::MemoryOptions> ReadOptions(
    const ecphory_engram_options* options) {
  engram::MemoryOptions out;
  if (options == nullptr) return out;
  ECPHORY_RETURN_IF_ERROR(CheckSize(options));
  ECPHORY_RETURN_IF_ERROR(CheckValues(*options));
  out.source.config = TextOf(options->config);
  out.source.token_map = TextOf(options->token_map);
  out.source.tokenizer = TextOf(options->tokenizer);
  for (size_t i = 0; i < options->more_tables_count; ++i) {
    if (options->more_tables[i] == nullptr) {
      return NullArgument("one of options->more_tables");
    }
    out.source.more_tables.push_back(options->more_tables[i]);
  }
  out.store.io = static_cast<IoMode>(options->io_mode);
  out.store.io_threads = options->io_threads;
  out.store.queue_depth = options->queue_depth;
  if (options->cache_bytes != ECPHORY_ENGRAM_CACHE_DEFAULT) {
    out.store.cache_bytes = options->cache_bytes;
  }
  out.store.probe_seconds = options->probe_seconds;
  return out;
}

}  // namespace ecphory::capi

void ecphory_engram_options_init(ecphory_engram_options* options,
                                 size_t struct_size) {
  if (options == nullptr || struct_size < sizeof(options->struct_size)) return;
  ecphory_engram_options defaults = ecphory::capi::Defaults();
  defaults.struct_size = struct_size;
  std::memset(static_cast<void*>(options), 0, struct_size);
  std::memcpy(static_cast<void*>(options), &defaults,
              std::min(struct_size, sizeof(defaults)));
}
