#include "model/engram_fetch.h"

#include <algorithm>
#include <utility>

#include "base/ceil_div.h"

namespace ecphory {

namespace {

double Seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

bool Same(const engram::History& a, const engram::History& b) {
  return a.length == b.length &&
         std::equal(a.ids.begin(), a.ids.begin() + a.length, b.ids.begin());
}

}  // namespace

EngramFetch::EngramFetch(const engram::Hasher& hasher, engram::Store& store,
                         size_t chunk)
    : hasher_(hasher),
      store_(store),
      chunk_(chunk),
      columns_(hasher.layout().columns()),
      values_per_token_(columns_ * store.table(0).width),
      rows_(hasher.layout().layers.size()) {
  const size_t blocks = layers() * CeilDiv(chunk, kBlock);
  for (Chunk& part : chunks_) {
    part.ids.reserve(chunk);
    part.tickets.reserve(blocks);
  }
  ids_.resize(chunk);
  for (auto& rows : rows_) rows.resize(chunk * columns_);
  rows_views_.reserve(layers());
  requests_.reserve(blocks);
}

Result<std::unique_ptr<EngramFetch>> EngramFetch::Create(
    const engram::Hasher& hasher, engram::Store& store, size_t chunk,
    Device& device) {
  std::unique_ptr<EngramFetch> fetch(new EngramFetch(hasher, store, chunk));
  const size_t values = fetch->layers() * chunk * fetch->values_per_token_;
  for (Chunk& part : fetch->chunks_) {
    ECPHORY_ASSIGN_OR_RETURN(
        part.values,
        DeviceArray<uint16_t>::Allocate(device, values, MemoryKind::kShared));
  }
  return fetch;
}

EngramFetch::~EngramFetch() { Cancel(); }

size_t EngramFetch::Blocks(const Chunk& chunk) {
  return CeilDiv(chunk.ids.size(), kBlock);
}

uint16_t* EngramFetch::Values(Chunk& chunk, size_t index, size_t token) const {
  return chunk.values.data() + (index * chunk_ + token) * values_per_token_;
}

// Whether the chunk has the rows of ids_ behind `before`, in so many layers or
// more.
bool EngramFetch::IsFor(const Chunk& chunk, const engram::History& before,
                        size_t n_layers) const {
  return !chunk.tickets.empty() && chunk.ids == ids_ &&
         Same(chunk.before, before) &&
         chunk.tickets.size() >= n_layers * Blocks(chunk);
}

Status EngramFetch::Ahead(std::span<const int32_t> tokens,
                          std::span<const uint8_t> image,
                          const engram::History& before, size_t n_layers) {
  ids_.resize(tokens.size());
  ECPHORY_RETURN_IF_ERROR(hasher_.Compress(tokens, image, ids_));
  n_layers = std::min(n_layers, layers());
  if (!IsFor(*ahead_, before, n_layers)) Submit(before, n_layers, ahead_);
  return Status::Ok();
}

Status EngramFetch::Begin(std::span<const int32_t> tokens,
                          std::span<const uint8_t> image,
                          const engram::History& before, size_t n_layers) {
  ECPHORY_RETURN_IF_ERROR(Ahead(tokens, image, before, n_layers));
  CancelChunk(current_);
  std::swap(current_, ahead_);
  chunk_wait_ = chunk_read_ = 0;
  stats_.engram_rows += tokens.size() * columns_ * std::min(n_layers, layers());
  return Status::Ok();
}

// All tables and blocks in one submission, in the order the layers need them.
void EngramFetch::Submit(const engram::History& before, size_t n_layers,
                         Chunk* chunk) {
  CancelChunk(chunk);
  chunk->ids = ids_;
  chunk->before = chunk->after = before;
  const size_t tokens = ids_.size();
  rows_views_.clear();
  for (auto& rows : rows_) {
    rows_views_.emplace_back(rows.data(), tokens * columns_);
  }
  hasher_.Hash(ids_, &chunk->after, rows_views_);
  requests_.clear();
  for (size_t index = 0; index < n_layers; ++index) {
    for (size_t first = 0; first < tokens; first += kBlock) {
      const size_t count = std::min(kBlock, tokens - first);
      requests_.push_back({.table = index,
                           .rows = rows_views_[index].subspan(first * columns_,
                                                              count * columns_),
                           .out = Values(*chunk, index, first),
                           .format = engram::RowFormat::kBf16});
    }
  }
  chunk->tickets.resize(requests_.size());
  chunk->submitted = Clock::now();
  if (requests_.empty()) return;  // the history alone was wanted
  store_.Submit(requests_, chunk->tickets);
}

Result<EngramFetch::Rows> EngramFetch::Take(size_t index, size_t first) {
  Chunk& chunk = *current_;
  const size_t blocks = Blocks(chunk);
  const size_t begin = first / kBlock;
  ECPHORY_RETURN_IF_ERROR(Wait(index, begin));
  size_t end = begin + 1;
  while (end < blocks && (end + 1 - begin) * kBlock <= kMaxTaken &&
         store_.Ready(chunk.tickets[index * blocks + end])) {
    ECPHORY_RETURN_IF_ERROR(Wait(index, end++));
  }
  const size_t tokens = std::min(end * kBlock, chunk.ids.size()) - first;
  return Rows{Values(chunk, index, first), tokens};
}

Status EngramFetch::Wait(size_t index, size_t block) {
  engram::Ticket& ticket = current_->tickets[index * Blocks(*current_) + block];
  engram::LookupStats lookup;
  const Clock::time_point start = Clock::now();
  const Status status = store_.Wait(std::exchange(ticket, 0), &lookup);
  chunk_wait_ += Seconds(Clock::now() - start);
  CountRead(lookup);
  return status;
}

// Reading time is the time in which rows were under way, however many at once:
// lookups end in the order of their submission, or nearly so.
void EngramFetch::CountRead(const engram::LookupStats& lookup) {
  stats_.engram_rows_read += lookup.rows_read;
  stats_.engram_bytes_read += lookup.bytes_read;
  stats_.engram_cache_hits += lookup.cache_hits;
  chunk_read_ = std::max(chunk_read_, lookup.read_seconds);
  const Clock::time_point begin = std::max(current_->submitted, read_until_);
  const Clock::time_point end =
      current_->submitted +
      std::chrono::duration_cast<Clock::duration>(
          std::chrono::duration<double>(lookup.read_seconds));
  if (end <= begin) return;
  stats_.engram_read_seconds += Seconds(end - begin);
  read_until_ = end;
}

void EngramFetch::End() {
  stats_.engram_wait_seconds += chunk_wait_;
  if (current_->ids.size() != 1) return;
  stats_.engram_token_wait.Add(chunk_wait_);
  stats_.engram_token_read.Add(chunk_read_);
}

void EngramFetch::CancelChunk(Chunk* chunk) {
  for (engram::Ticket& ticket : chunk->tickets) {
    if (ticket != 0) store_.Cancel(ticket);
    ticket = 0;
  }
  chunk->tickets.clear();
}

void EngramFetch::Cancel() {
  CancelChunk(current_);
  CancelChunk(ahead_);
}

}  // namespace ecphory
