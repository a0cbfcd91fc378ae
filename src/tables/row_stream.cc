#include "tables/row_stream.h"

#include <algorithm>
#include <utility>

namespace ecphory::tables {

namespace {

using engram::LayerLayout;
using engram::Layout;
using LayerRows = std::vector<std::vector<uint64_t>>;

// Fewer tokens repeat so soon that every cache answers them.
constexpr size_t kMinTextTokens = 64;

void Shape(const Layout& layout, size_t tokens, LayerRows* rows) {
  rows->resize(layout.layers.size());
  for (auto& layer : *rows) layer.resize(tokens * layout.columns());
}

class RandomStream : public RowStream {
 public:
  RandomStream(Layout layout, uint64_t seed)
      : layout_(std::move(layout)), rng_(seed) {}

  void Next(size_t tokens, LayerRows* rows) override {
    Shape(layout_, tokens, rows);
    const size_t columns = layout_.columns();
    for (size_t l = 0; l < layout_.layers.size(); ++l) {
      const LayerLayout& layer = layout_.layers[l];
      for (size_t i = 0; i < (*rows)[l].size(); ++i) {
        const size_t column = i % columns;
        (*rows)[l][i] = layer.offsets[column] + rng_() % layer.primes[column];
      }
    }
  }

  std::string Describe() const override {
    return "uniform random rows: nothing repeats, as no text does";
  }

 private:
  const Layout layout_;
  std::mt19937_64 rng_;
};

class SequentialStream : public RowStream {
 public:
  explicit SequentialStream(Layout layout) : layout_(std::move(layout)) {}

  void Next(size_t tokens, LayerRows* rows) override {
    Shape(layout_, tokens, rows);
    for (size_t l = 0; l < layout_.layers.size(); ++l) {
      uint64_t row = next_;
      for (uint64_t& out : (*rows)[l]) out = row++ % layout_.layers[l].rows;
    }
    next_ += tokens * layout_.columns();
  }

  std::string Describe() const override {
    return "rows in the order of the table: the best case, no text is like it";
  }

 private:
  const Layout layout_;
  uint64_t next_ = 0;
};

class TextStream : public RowStream {
 public:
  TextStream(const engram::Hasher& hasher, std::vector<int32_t> compressed)
      : hasher_(hasher), ids_(std::move(compressed)) {}

  void Next(size_t tokens, LayerRows* rows) override {
    Shape(hasher_.layout(), tokens, rows);
    const size_t columns = hasher_.layout().columns();
    for (size_t done = 0; done < tokens;) {
      if (at_ == ids_.size()) {
        at_ = 0;
        ++rounds_;
      }
      const size_t count = std::min(tokens - done, ids_.size() - at_);
      std::vector<std::span<uint64_t>> parts;
      for (auto& layer : *rows) {
        parts.push_back(
            std::span(layer).subspan(done * columns, count * columns));
      }
      hasher_.Hash(std::span(ids_).subspan(at_, count), &history_, parts);
      at_ += count;
      done += count;
    }
  }

  std::string Describe() const override {
    return "the rows of a text of " + std::to_string(ids_.size()) + " tokens" +
           (rounds_ == 0 ? ""
                         : ", begun again " + std::to_string(rounds_) +
                               " times: page caches know it then");
  }

 private:
  const engram::Hasher& hasher_;
  const std::vector<int32_t> ids_;
  engram::History history_;
  size_t at_ = 0;
  size_t rounds_ = 0;
};

}  // namespace

std::unique_ptr<RowStream> RandomRows(const Layout& layout, uint64_t seed) {
  return std::make_unique<RandomStream>(layout, seed);
}

std::unique_ptr<RowStream> SequentialRows(const Layout& layout) {
  return std::make_unique<SequentialStream>(layout);
}

Result<std::unique_ptr<RowStream>> TextRows(const engram::Hasher& hasher,
                                            std::span<const int32_t> tokens) {
  std::vector<int32_t> compressed(tokens.size());
  ECPHORY_RETURN_IF_ERROR(hasher.Compress(tokens, {}, compressed));
  std::vector<int32_t> distinct = compressed;
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  if (tokens.size() < kMinTextTokens || distinct.size() < kMinTextTokens / 4) {
    return InvalidArgument(
        "a text of %zu tokens, %zu of them different: too little to stand for "
        "real text, expected %zu tokens and more",
        tokens.size(), distinct.size(), kMinTextTokens);
  }
  return std::unique_ptr<RowStream>(
      std::make_unique<TextStream>(hasher, std::move(compressed)));
}

}  // namespace ecphory::tables
