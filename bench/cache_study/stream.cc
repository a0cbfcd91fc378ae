#include "stream.h"

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/little_endian.h"

namespace ecphory::study {

namespace {

Result<std::string> ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return NotFound("%s cannot be opened", path.c_str());
  return std::string(std::istreambuf_iterator<char>(in), {});
}

Result<std::vector<int32_t>> ReadIds(const std::string& path) {
  ECPHORY_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path));
  std::vector<int32_t> ids(bytes.size() / 4);
  for (size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<int32_t>(LoadLE<uint32_t>(bytes.data() + 4 * i));
  }
  return ids;
}

}  // namespace

Result<std::vector<Kind>> ReadKinds(const std::string& path) {
  ECPHORY_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  std::vector<Kind> kinds;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    Kind kind;
    if (!(words >> kind.name)) continue;
    for (std::string file; words >> file;) kind.files.push_back(folder + file);
    kinds.push_back(std::move(kind));
  }
  return kinds;
}

Result<engram::Hasher> ReleasedHasher(const std::string& facts,
                                      const std::string& map) {
  ECPHORY_ASSIGN_OR_RETURN(const std::string text, ReadFile(facts));
  const auto json = nlohmann::json::parse(text);
  const engram::LayoutSpec spec = {json["layer_ids"], json["max_ngram_size"],
                                   json["n_heads"], json["engram_vocab_size"],
                                   json["compressed_vocab_size"]};
  ECPHORY_ASSIGN_OR_RETURN(engram::Layout layout, engram::DeriveLayout(spec));
  ECPHORY_ASSIGN_OR_RETURN(std::vector<int32_t> ids, ReadIds(map));
  return engram::Hasher::Create(std::move(layout), std::move(ids),
                                json["pad_compressed_id"]);
}

Result<Tokens> ReadTokens(const Kind& kind) {
  std::vector<std::vector<int32_t>> files;
  size_t longest = 0;
  for (const std::string& path : kind.files) {
    ECPHORY_ASSIGN_OR_RETURN(std::vector<int32_t> ids, ReadIds(path));
    longest = std::max(longest, ids.size());
    files.push_back(std::move(ids));
  }
  Tokens tokens;
  tokens.sequences = files.size();
  for (size_t i = 0; i < longest; ++i) {
    for (size_t s = 0; s < files.size(); ++s) {
      if (i >= files[s].size()) continue;
      tokens.ids.push_back(files[s][i]);
      tokens.sequence.push_back(static_cast<uint8_t>(s));
    }
  }
  return tokens;
}

namespace {

void FillNext(Sample* sample) {
  std::vector<uint32_t> last(sample->rows.size(), kNever);
  sample->next.resize(sample->ids.size());
  for (size_t i = sample->ids.size(); i-- > 0;) {
    sample->next[i] = last[sample->ids[i]];
    last[sample->ids[i]] = static_cast<uint32_t>(i);
  }
}

}  // namespace

Result<Sample> MakeSample(const engram::Hasher& hasher, const Kind& kind,
                          size_t layer, size_t head) {
  ECPHORY_ASSIGN_OR_RETURN(const Tokens tokens, ReadTokens(kind));
  const engram::LayerLayout& layout = hasher.layout().layers[layer];
  Sample sample;
  sample.name = kind.name;
  std::vector<std::vector<uint32_t>> id_of(kOrders);  // by row in its column
  for (size_t order = 0; order < kOrders; ++order) {
    id_of[order].assign(layout.primes[order * 8 + head], kNever);
  }
  ForEachToken(hasher, tokens, [&](const auto& rows) {
    for (size_t order = 0; order < kOrders; ++order) {
      const size_t column = order * 8 + head;
      const uint64_t row = rows[layer][column];
      uint32_t& id = id_of[order][row - layout.offsets[column]];
      if (id == kNever) {
        id = static_cast<uint32_t>(sample.rows.size());
        sample.rows.push_back(row);
      }
      sample.ids.push_back(id);
      sample.orders.push_back(static_cast<uint8_t>(order));
    }
    ++sample.tokens;
  });
  sample.half = sample.tokens / 2 * kOrders;
  FillNext(&sample);
  return sample;
}

Sample Thin(const Sample& sample, uint64_t divisor) {
  Sample thin;
  thin.name = sample.name;
  thin.tokens = sample.tokens;
  thin.thinned_by = divisor;
  std::vector<uint32_t> id_of(sample.rows.size(), kNever);
  for (size_t i = 0; i < sample.ids.size(); ++i) {
    const uint32_t id = sample.ids[i];
    if (sample.rows[id] * 0x9e37'79b9'7f4a'7c15u >> 32 & (divisor - 1))
      continue;
    if (id_of[id] == kNever) {
      id_of[id] = static_cast<uint32_t>(thin.rows.size());
      thin.rows.push_back(sample.rows[id]);
    }
    thin.half += i < sample.half ? 1 : 0;
    thin.ids.push_back(id_of[id]);
    thin.orders.push_back(sample.orders[i]);
  }
  FillNext(&thin);
  return thin;
}

}  // namespace ecphory::study
