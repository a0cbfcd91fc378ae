#include "model/engram_fetch.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/ceil_div.h"

namespace ecphory {

namespace {

double Seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

bool Same(const EngramFetch::Stretch& a, const EngramFetch::Stretch& b) {
  return a.tokens == b.tokens && a.before.length == b.before.length &&
         std::equal(a.before.ids.begin(),
                    a.before.ids.begin() + a.before.length,
                    b.before.ids.begin());
}

}  // namespace

EngramFetch::EngramFetch(const engram::Hasher& hasher, engram::Store& store,
                         const ResidentTables* resident, size_t chunk,
                         bool decoded, ThreadPool& pool)
    : hasher_(hasher),
      store_(store),
      resident_(resident),
      pool_(pool),
      chunk_(chunk),
      columns_(hasher.layout().columns()),
      format_(decoded ? engram::RowFormat::kBf16 : engram::RowFormat::kRaw),
      rows_(hasher.layout().layers.size()) {
  size_t begin = 0;
  for (size_t i = 0; i < layers(); ++i) {
    const engram::TableSource& table = store.table(i);
    const TableCodec codec = decoded ? TableCodec::kBf16 : table.codec;
    const size_t bytes =
        TableRowBytes(codec, table.width) + TableScaleBytes(codec, table.width);
    places_.push_back({codec, bytes, begin});
    begin += chunk * columns_ * bytes;
  }
  const size_t blocks =
      layers() * std::max(CeilDiv(chunk, kBlock), kBlock / kSmallBlock);
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
    const engram::Hasher& hasher, engram::Store& store,
    const ResidentTables* resident, size_t chunk, Device& device,
    ThreadPool& pool) {
  std::unique_ptr<EngramFetch> fetch(
      new EngramFetch(hasher, store, resident, chunk, device.is_host(), pool));
  ECPHORY_RETURN_IF_ERROR(fetch->Allocate(device));
  return fetch;
}

Status EngramFetch::Allocate(Device& device) {
  size_t bytes = 0;
  for (const Layer& layer : places_) {
    bytes += chunk_ * columns_ * layer.row_bytes;
  }
  for (Chunk& part : chunks_) {
    if (resident()) {
      ECPHORY_ASSIGN_OR_RETURN(
          part.numbers,
          DeviceArray<uint64_t>::Allocate(device, layers() * chunk_ * columns_,
                                          MemoryKind::kShared));
    } else {
      ECPHORY_ASSIGN_OR_RETURN(
          part.rows,
          DeviceArray<uint8_t>::Allocate(device, bytes, MemoryKind::kShared));
    }
  }
  return {};
}

EngramFetch::~EngramFetch() { Cancel(); }

// Tokens of a ticket.
size_t EngramFetch::BlockOf(const Chunk& chunk) const {
  const bool small = chunk.ids.size() <= kBlock &&
                     format_ == engram::RowFormat::kRaw && through_page_cache();
  return small ? kSmallBlock : kBlock;
}

size_t EngramFetch::Blocks(const Chunk& chunk) const {
  return CeilDiv(chunk.ids.size(), BlockOf(chunk));
}

// [chunk, columns] of a layer: the chunk's own, or of the last one hashed.
uint64_t* EngramFetch::Numbers(Chunk& chunk, size_t index) {
  if (!resident()) return rows_[index].data();
  return chunk.numbers.data() + index * chunk_ * columns_;
}

uint8_t* EngramFetch::Place(Chunk& chunk, size_t index, size_t token) const {
  const Layer& layer = places_[index];
  return chunk.rows.data() + layer.begin + token * columns_ * layer.row_bytes;
}

TableRows EngramFetch::RowsAt(Chunk& chunk, size_t index, size_t token) const {
  if (resident()) {
    return resident_->Rows(
        index, chunk.numbers.data() + (index * chunk_ + token) * columns_);
  }
  const Layer& layer = places_[index];
  TableRows from{.codec = layer.codec,
                 .rows = Place(chunk, index, token),
                 .row_stride = layer.row_bytes};
  if (layer.codec != TableCodec::kReleasedPair) return from;
  // The store puts a row's scales behind its codes.
  from.scales =
      from.rows + TableRowBytes(layer.codec, store_.table(index).width);
  from.scale_stride = layer.row_bytes;
  return from;
}

// Whether the chunk has the rows of ids_ in these stretches, in so many layers
// or more.
bool EngramFetch::IsFor(const Chunk& chunk, std::span<const Stretch> stretches,
                        size_t n_layers) const {
  return !chunk.tickets.empty() && chunk.ids == ids_ &&
         std::equal(stretches.begin(), stretches.end(), chunk.stretches.begin(),
                    chunk.stretches.end(), Same) &&
         chunk.tickets.size() >= n_layers * Blocks(chunk);
}

Status EngramFetch::Ahead(std::span<const int32_t> tokens,
                          std::span<const uint8_t> image,
                          std::span<const Stretch> stretches, size_t n_layers) {
  ids_.resize(tokens.size());
  ECPHORY_RETURN_IF_ERROR(hasher_.Compress(tokens, image, ids_));
  n_layers = std::min(n_layers, layers());
  if (!IsFor(*ahead_, stretches, n_layers)) {
    Submit(stretches, n_layers, ahead_);
  }
  return Status::Ok();
}

Status EngramFetch::Begin(std::span<const int32_t> tokens,
                          std::span<const uint8_t> image,
                          std::span<const Stretch> stretches, size_t n_layers) {
  ECPHORY_RETURN_IF_ERROR(Ahead(tokens, image, stretches, n_layers));
  CancelChunk(current_);
  std::swap(current_, ahead_);
  chunk_wait_ = chunk_read_ = 0;
  stats_.engram_rows += tokens.size() * columns_ * std::min(n_layers, layers());
  return Status::Ok();
}

// Numbers() of the chunk's tokens, and the histories behind its stretches.
void EngramFetch::Hash(Chunk* chunk) {
  chunk->after.clear();
  size_t first = 0;
  for (const Stretch& stretch : chunk->stretches) {
    rows_views_.clear();
    for (size_t index = 0; index < layers(); ++index) {
      rows_views_.emplace_back(Numbers(*chunk, index) + first * columns_,
                               stretch.tokens * columns_);
    }
    engram::History history = stretch.before;
    hasher_.Hash(std::span(chunk->ids).subspan(first, stretch.tokens), &history,
                 rows_views_);
    chunk->after.push_back(history);
    first += stretch.tokens;
  }
}

// All tables and blocks in one submission, in the order the layers need them.
void EngramFetch::Submit(std::span<const Stretch> stretches, size_t n_layers,
                         Chunk* chunk) {
  CancelChunk(chunk);
  chunk->ids = ids_;
  chunk->stretches.assign(stretches.begin(), stretches.end());
  Hash(chunk);
  if (resident()) {
    chunk->tickets.assign(n_layers * Blocks(*chunk), 0);
    return;
  }
  const size_t tokens = ids_.size(), block = BlockOf(*chunk);
  requests_.clear();
  for (size_t index = 0; index < n_layers; ++index) {
    for (size_t first = 0; first < tokens; first += block) {
      const size_t count = std::min(block, tokens - first);
      requests_.push_back(
          {.table = index,
           .rows = std::span(rows_[index])
                       .subspan(first * columns_, count * columns_),
           .out = Place(*chunk, index, first),
           .format = format_});
    }
  }
  chunk->tickets.resize(requests_.size());
  chunk->submitted = Clock::now();
  if (requests_.empty()) return;  // the history alone was wanted
  store_.Submit(requests_, chunk->tickets, &pool_);
}

Result<EngramFetch::Rows> EngramFetch::Take(size_t index, size_t first) {
  Chunk& chunk = *current_;
  const size_t blocks = Blocks(chunk), block = BlockOf(chunk);
  const size_t begin = first / block;
  ECPHORY_RETURN_IF_ERROR(Wait(index, begin));
  const bool whole = format_ != engram::RowFormat::kBf16;
  size_t end = begin + 1;
  while (end < blocks && (end + 1 - begin) * block <= kMaxTaken &&
         (whole || Ready(chunk.tickets[index * blocks + end]))) {
    ECPHORY_RETURN_IF_ERROR(Wait(index, end++));
  }
  const size_t tokens = std::min(end * block, chunk.ids.size()) - first;
  return Rows{RowsAt(chunk, index, first), tokens};
}

Status EngramFetch::Wait(size_t index, size_t block) {
  engram::Ticket& ticket = current_->tickets[index * Blocks(*current_) + block];
  if (ticket == 0) return {};  // taken before
  engram::LookupStats lookup;
  const Clock::time_point start = Clock::now();
  const Status status = store_.Wait(std::exchange(ticket, 0), &lookup);
  chunk_wait_ += Seconds(Clock::now() - start);
  CountRead(lookup);
  if (status.ok() || current_->stretches.size() == 1) return status;
  const size_t tokens = BlockOf(*current_), begin = block * tokens;
  Hash(current_);
  const Status again =
      ReadAgain(index, begin, std::min(begin + tokens, current_->ids.size()));
  return again.ok() ? status : again;
}

// Reads and decodes the rows of tokens [begin, end), whose numbers were hashed
// last, a sequence at a time, and says for which of several a row is broken or
// cannot be read.
Status EngramFetch::ReadAgain(size_t index, size_t begin, size_t end) {
  const size_t width = store_.table(index).width;
  const uint64_t* const numbers = Numbers(*current_, index);
  const size_t sequences = current_->stretches.size();
  size_t first = 0, behind = 0;
  for (size_t i = 0; i < sequences; ++i, first = behind) {
    behind = first + current_->stretches[i].tokens;
    const size_t from = std::max(first, begin), to = std::min(behind, end);
    if (from >= to) continue;
    const std::span<const uint64_t> rows(numbers + from * columns_,
                                         (to - from) * columns_);
    std::vector<uint16_t> values(rows.size() * width);
    const Status status =
        store_.Wait(store_.Submit({.table = index,
                                   .rows = rows,
                                   .out = values.data(),
                                   .format = engram::RowFormat::kBf16}));
    if (status.ok()) continue;
    return sequences == 1 ? status
                          : status.WithContext("sequence " + std::to_string(i));
  }
  return {};
}

Status EngramFetch::BrokenRows() {
  Hash(current_);
  const size_t asked = current_->tickets.size() / Blocks(*current_);
  for (size_t index = 0; index < asked; ++index) {
    ECPHORY_RETURN_IF_ERROR(ReadAgain(index, 0, current_->ids.size()));
  }
  return Corrupt(
      "Engram rows were broken when they were decoded, and are whole when read "
      "again: the memory or the disk is not to be trusted");
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
  // A token of each sequence, as in decoding.
  if (current_->ids.size() != current_->stretches.size()) return;
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
