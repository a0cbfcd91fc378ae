#include "trace/report_rows.h"

#include <algorithm>
#include <utility>

#include "trace/reuse.h"

namespace ecphory::trace {

namespace {

double Share(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0
                    : static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

Result<TableRows> HashTexts(const engram::Hasher& hasher,
                            const std::vector<std::vector<int32_t>>& texts) {
  const size_t columns = hasher.layout().columns();
  const size_t layers = hasher.layout().layers.size();
  TableRows rows(layers);
  for (const std::vector<int32_t>& text : texts) {
    std::vector<int32_t> compressed(text.size());
    ECPHORY_RETURN_IF_ERROR(hasher.Compress(text, {}, compressed));
    std::vector<std::span<uint64_t>> views;
    for (auto& layer : rows) {
      const size_t begin = layer.size();
      layer.resize(begin + text.size() * columns);
      views.emplace_back(layer.data() + begin, text.size() * columns);
    }
    engram::History history;
    hasher.Hash(compressed, &history, views);
  }
  return rows;
}

void CountKindReuse(const TableRows& rows, const engram::Layout& layout,
                    const std::vector<uint32_t>& windows,
                    EngramKindReport* report) {
  const size_t columns = layout.columns(), sizes = layout.max_ngram - 1;
  // [windows][sizes]
  std::vector<std::vector<ReuseCounts>> counts(windows.size(),
                                               std::vector<ReuseCounts>(sizes));
  uint64_t repeated = 0, requests = 0;
  std::vector<uint64_t> column;
  for (const std::vector<uint64_t>& layer : rows) {
    for (size_t c = 0; c < columns; ++c) {
      column.clear();
      for (size_t i = c; i < layer.size(); i += columns) {
        column.push_back(layer[i]);
      }
      const std::vector<uint32_t> previous = PreviousUse(column);
      requests += previous.size();
      repeated +=
          previous.size() - static_cast<size_t>(std::count(
                                previous.begin(), previous.end(), kNever));
      for (size_t w = 0; w < windows.size(); ++w) {
        counts[w][c / layout.heads] += CountReuse(previous, windows[w]);
      }
    }
  }
  report->best_hit_rate = Share(repeated, requests);
  for (size_t w = 0; w < windows.size(); ++w) {
    EngramReuse reuse;
    reuse.window = windows[w];
    ReuseCounts all;
    for (const ReuseCounts& n : counts[w]) {
      reuse.within.push_back(Share(n.within, n.requests));
      reuse.across.push_back(Share(n.across, n.distinct));
      all += n;
    }
    reuse.within.push_back(Share(all.within, all.requests));
    reuse.across.push_back(Share(all.across, all.distinct));
    report->reuse.push_back(std::move(reuse));
  }
}

void SimulateCache(const TableRows& rows, const engram::Layout& layout,
                   uint64_t row_bytes, const std::vector<uint64_t>& bytes,
                   EngramKindReport* report) {
  const size_t columns = layout.columns();
  std::vector<uint64_t> keys;
  for (size_t t = 0; t < rows[0].size(); t += columns) {
    uint64_t base = 0;  // rows of different tables are different keys
    for (size_t i = 0; i < rows.size(); ++i) {
      for (size_t c = 0; c < columns; ++c)
        keys.push_back(base + rows[i][t + c]);
      base += layout.layers[i].rows;
    }
  }
  std::vector<uint64_t> sizes;
  for (const uint64_t b : bytes) sizes.push_back(b / row_bytes);
  const std::vector<uint64_t> hits = LruHits(keys, sizes);
  for (size_t i = 0; i < bytes.size(); ++i) {
    report->cache.push_back({bytes[i], Share(hits[i], keys.size())});
  }
}

}  // namespace ecphory::trace
