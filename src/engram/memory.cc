#include "engram/memory.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/quote.h"
#include "engram/row_decode.h"
#include "tensor/table_codec.h"

namespace ecphory::engram {

namespace {

// Tokens hashed at once: their compressed ids lie on the stack.
constexpr size_t kBlock = 256;
// Tables whose places lie on the stack (the released models: 2).
constexpr size_t kFewTables = 16;

Status CheckHashSizes(size_t tokens, size_t dead, size_t rows,
                      size_t expected_rows) {
  if (dead != 0 && dead != tokens) {
    return InvalidArgument(
        "%zu marks of dead positions, expected one for each of %zu tokens "
        "or none",
        dead, tokens);
  }
  if (rows == expected_rows) return {};
  return InvalidArgument("room for %zu row numbers, expected %zu", rows,
                         expected_rows);
}

Status CheckTokens(std::span<const int32_t> tokens, size_t vocab_size) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && static_cast<size_t>(tokens[i]) < vocab_size) {
      continue;
    }
    return OutOfRange("token %d at position %zu, expected ids 0..%zu",
                      tokens[i], i, vocab_size - 1);
  }
  return {};
}

}  // namespace

Status HashTokens(const Hasher& hasher, std::span<const int32_t> tokens,
                  std::span<const uint8_t> dead, History* history,
                  std::span<uint64_t> rows) {
  const size_t columns = hasher.layout().columns();
  const size_t tables = hasher.layout().layers.size();
  const size_t per_table = tokens.size() * columns;
  ECPHORY_RETURN_IF_ERROR(CheckHashSizes(tokens.size(), dead.size(),
                                         rows.size(), per_table * tables));
  ECPHORY_RETURN_IF_ERROR(CheckTokens(tokens, hasher.token_map().size()));
  std::array<int32_t, kBlock> compressed;
  std::array<std::span<uint64_t>, kFewTables> few;
  std::vector<std::span<uint64_t>> many(tables > kFewTables ? tables : 0);
  const std::span<std::span<uint64_t>> places =
      many.empty() ? std::span(few).first(tables) : std::span(many);
  for (size_t begin = 0; begin < tokens.size(); begin += kBlock) {
    const size_t count = std::min(kBlock, tokens.size() - begin);
    const std::span<int32_t> ids(compressed.data(), count);
    ECPHORY_RETURN_IF_ERROR(
        hasher.Compress(tokens.subspan(begin, count),
                        dead.empty() ? dead : dead.subspan(begin, count), ids));
    for (size_t i = 0; i < places.size(); ++i) {
      places[i] =
          rows.subspan(i * per_table + begin * columns, count * columns);
    }
    hasher.Hash(ids, history, {places.data(), places.size()});
  }
  return {};
}

Result<std::unique_ptr<Memory>> Memory::Open(const std::string& path,
                                             const MemoryOptions& options) {
  std::unique_ptr<Memory> memory(new Memory);
  ECPHORY_ASSIGN_OR_RETURN(memory->source_, OpenSource(path, options.source));
  ECPHORY_ASSIGN_OR_RETURN(Hasher hasher, MakeHasher(memory->source_));
  memory->hasher_ = std::make_shared<const Hasher>(std::move(hasher));
  ECPHORY_ASSIGN_OR_RETURN(std::vector<TableSource> tables,
                           OpenTables(memory->source_));
  ECPHORY_ASSIGN_OR_RETURN(memory->store_,
                           Store::Open(std::move(tables), options.store));
  return memory;
}

size_t Memory::RowBytes(size_t table, RowFormat format) const {
  const TableSource& source = store_->table(table);
  switch (format) {
    case RowFormat::kF32: return size_t{source.width} * 4;
    case RowFormat::kBf16: return size_t{source.width} * 2;
    case RowFormat::kRaw: break;
  }
  return TableRowBytes(source.codec, source.width) +
         TableScaleBytes(source.codec, source.width);
}

Status Memory::Decode(size_t table, std::span<const uint8_t> raw,
                      RowFormat format, std::span<uint8_t> out) const {
  if (table >= tables()) {
    return InvalidArgument("table %zu was asked for, the store has %zu", table,
                           tables());
  }
  const size_t raw_bytes = RowBytes(table, RowFormat::kRaw);
  const size_t out_bytes = RowBytes(table, format);
  const size_t rows = raw.size() / raw_bytes;
  if (raw.size() % raw_bytes != 0 || out.size() != rows * out_bytes) {
    return InvalidArgument(
        "%zu bytes of rows and room for %zu, expected %zu and %zu bytes a row",
        raw.size(), out.size(), raw_bytes, out_bytes);
  }
  if (format == RowFormat::kRaw) {
    std::copy(raw.begin(), raw.end(), out.begin());
    return {};
  }
  const TableSource& source = store_->table(table);
  const size_t codes = TableRowBytes(source.codec, source.width);
  const auto decode = [&](const uint8_t* row, uint8_t* to) {
    const uint8_t* scales = raw_bytes == codes ? nullptr : row + codes;
    return format == RowFormat::kF32
               ? DecodeTableRowFast(source.codec, row, scales, source.width,
                                    reinterpret_cast<float*>(to))
               : DecodeTableRowFast(source.codec, row, scales, source.width,
                                    reinterpret_cast<uint16_t*>(to));
  };
  for (size_t row = 0; row < rows; ++row) {
    if (decode(raw.data() + row * raw_bytes, out.data() + row * out_bytes)) {
      continue;
    }
    return Corrupt("table %s: row %zu of those given is damaged",
                   Quoted(source.name).c_str(), row);
  }
  return {};
}

}  // namespace ecphory::engram
