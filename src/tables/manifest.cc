#include "tables/manifest.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "base/ceil_div.h"
#include "base/quote.h"
#include "io/file.h"
#include "io/file_writes.h"
#include "tables/digest.h"

namespace ecphory::tables {

namespace {

constexpr std::string_view kFirstLine = "ecphory-tables-manifest 1";
// A region of 64 TiB takes a fifth of it.
constexpr uint64_t kMaxManifestBytes = uint64_t{128} << 20;
constexpr size_t kMaxRegions = 4096;

// Lines of a text, each ended by a newline.
class LineReader {
 public:
  LineReader(std::string_view text, const std::string& where)
      : text_(text), where_(where) {}

  bool AtEnd() const { return text_.empty(); }
  size_t number() const { return number_; }

  Result<std::string_view> Next(const char* expected) {
    const size_t end = text_.find('\n');
    if (end == std::string_view::npos) return Wrong(text_, expected);
    const std::string_view line = text_.substr(0, end);
    text_.remove_prefix(end + 1);
    ++number_;
    return line;
  }

  Status Wrong(std::string_view line, const char* expected) const {
    return Corrupt("%s: line %zu: found %s, expected %s", where_.c_str(),
                   number_, Quoted(line).c_str(), expected);
  }

 private:
  std::string_view text_;
  const std::string& where_;
  size_t number_ = 0;
};

std::vector<std::string_view> Words(std::string_view line) {
  std::vector<std::string_view> words;
  while (true) {
    const size_t space = line.find(' ');
    words.push_back(line.substr(0, space));
    if (space == std::string_view::npos) return words;
    line.remove_prefix(space + 1);
  }
}

bool ParseNumber(std::string_view text, uint64_t* out) {
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, *out);
  return error == std::errc() && at == end;
}

Result<ManifestRegion> ParseRegion(LineReader* lines, std::string_view line) {
  constexpr char kExpected[] = "'region NAME bytes N chunk N' or 'whole SUM'";
  const auto words = Words(line);
  ManifestRegion region;
  if (words.size() != 6 || words[0] != "region" || words[1].empty() ||
      words[2] != "bytes" || !ParseNumber(words[3], &region.bytes) ||
      words[4] != "chunk" || !ParseNumber(words[5], &region.chunk_bytes) ||
      region.bytes == 0 || region.chunk_bytes == 0) {
    return lines->Wrong(line, kExpected);
  }
  region.name = words[1];
  for (uint64_t done = 0; done < region.bytes;) {
    ECPHORY_ASSIGN_OR_RETURN(const std::string_view sum,
                             lines->Next("a sum of 16 hex digits"));
    const auto digest = ParseHex(sum);
    if (!digest) return lines->Wrong(sum, "a sum of 16 hex digits");
    region.digests.push_back(*digest);
    done += std::min(region.chunk_bytes, region.bytes - done);
  }
  return region;
}

}  // namespace

uint64_t Manifest::Whole() const {
  Digest whole;
  for (const ManifestRegion& region : regions) {
    whole.Add({reinterpret_cast<const uint8_t*>(region.digests.data()),
               region.digests.size() * sizeof(uint64_t)});
  }
  return whole.value();
}

const ManifestRegion* Manifest::Find(const std::string& name) const {
  for (const ManifestRegion& region : regions) {
    if (region.name == name) return &region;
  }
  return nullptr;
}

Manifest MakeManifest(std::span<const Region> regions,
                      std::span<const uint64_t> digests) {
  Manifest manifest;
  for (const Region& region : regions) {
    ManifestRegion part{region.name, region.bytes, ChunkBytesOf(region), {}};
    const size_t chunks =
        static_cast<size_t>(CeilDiv(region.bytes, part.chunk_bytes));
    part.digests.assign(digests.begin(),
                        digests.begin() + static_cast<ptrdiff_t>(chunks));
    digests = digests.subspan(chunks);
    manifest.regions.push_back(std::move(part));
  }
  return manifest;
}

std::string ManifestText(const Manifest& manifest) {
  std::string text = std::string(kFirstLine) + "\n";
  for (const ManifestRegion& region : manifest.regions) {
    text += "region " + region.name + " bytes " + std::to_string(region.bytes) +
            " chunk " + std::to_string(region.chunk_bytes) + "\n";
    for (const uint64_t digest : region.digests) text += Hex(digest) + "\n";
  }
  return text + "whole " + Hex(manifest.Whole()) + "\n";
}

Result<Manifest> ParseManifest(const std::string& text,
                               const std::string& where) {
  LineReader lines(text, where);
  ECPHORY_ASSIGN_OR_RETURN(std::string_view line,
                           lines.Next("'ecphory-tables-manifest 1'"));
  if (line != kFirstLine) {
    return lines.Wrong(line, "'ecphory-tables-manifest 1'");
  }
  Manifest manifest;
  while (true) {
    ECPHORY_ASSIGN_OR_RETURN(line, lines.Next("'whole SUM'"));
    if (line.rfind("whole ", 0) == 0) break;
    ECPHORY_ASSIGN_OR_RETURN(ManifestRegion region, ParseRegion(&lines, line));
    if (manifest.Find(region.name) != nullptr ||
        manifest.regions.size() == kMaxRegions) {
      return lines.Wrong(line, "a region that is not there yet");
    }
    manifest.regions.push_back(std::move(region));
  }
  if (line.substr(6) != Hex(manifest.Whole())) {
    return lines.Wrong(line, "the sum of the sums above; fetch the file again");
  }
  if (!lines.AtEnd()) return lines.Wrong("more lines", "the end of the file");
  return manifest;
}

Status WriteManifest(const std::string& path, const Manifest& manifest) {
  ECPHORY_ASSIGN_OR_RETURN(const auto writer, AtomicFileWriter::Create(path));
  const std::string text = ManifestText(manifest);
  ECPHORY_RETURN_IF_ERROR(writer->Write(AsBytes(text)));
  return writer->Commit();
}

Result<Manifest> ReadManifest(const std::string& path) {
  ECPHORY_ASSIGN_OR_RETURN(const std::string text,
                           ReadWholeFile(path, kMaxManifestBytes));
  return ParseManifest(text, path);
}

}  // namespace ecphory::tables
