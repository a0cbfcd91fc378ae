#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/quote.h"
#include "format/gguf.h"
#include "io/gguf_part_name.h"

namespace ecphory {

namespace {

using Ull = unsigned long long;

constexpr char kCount[] = "split.count";
constexpr char kNumber[] = "split.no";  // from 0
constexpr char kTensors[] = "split.tensors.count";
// The names' five digits hold no more.
constexpr uint64_t kMaxParts = 99'999;

// The part's number, after a look at what it says of the whole.
Result<uint64_t> PartNumber(const GgufFile& part, uint64_t count) {
  ECPHORY_ASSIGN_OR_RETURN(const uint64_t its_count, part.GetUint(kCount));
  ECPHORY_ASSIGN_OR_RETURN(const uint64_t number, part.GetUint(kNumber));
  if (its_count == count && number < count) return number;
  return Corrupt("%s: keys %s %llu and %s %llu, expected one of %llu parts",
                 part.path().c_str(), Quoted(kNumber).c_str(),
                 static_cast<Ull>(number), Quoted(kCount).c_str(),
                 static_cast<Ull>(its_count), static_cast<Ull>(count));
}

Status NotTheFirst(const std::string& path, uint64_t number, uint64_t count,
                   const std::string& stem) {
  const std::string first =
      stem.empty() ? "" : ", " + stem + GgufPartEnding(1, count);
  return InvalidArgument(
      "%s: part %llu of %llu of a model; give the first part%s", path.c_str(),
      static_cast<Ull>(number + 1), static_cast<Ull>(count), first.c_str());
}

}  // namespace

Result<std::vector<std::string>> GgufParts(const GgufFile& first) {
  if (!first.Has(kCount)) return std::vector<std::string>{first.path()};
  ECPHORY_ASSIGN_OR_RETURN(const uint64_t count, first.GetUint(kCount));
  if (count <= 1) return std::vector<std::string>{first.path()};
  if (count > kMaxParts) {
    return Corrupt("%s: key %s holds %llu, expected at most %llu parts",
                   first.path().c_str(), Quoted(kCount).c_str(),
                   static_cast<Ull>(count), static_cast<Ull>(kMaxParts));
  }
  ECPHORY_ASSIGN_OR_RETURN(const uint64_t number, PartNumber(first, count));
  const std::string ending = GgufPartEnding(number + 1, count);
  const bool named = first.path().ends_with(ending);
  const std::string stem =
      named ? first.path().substr(0, first.path().size() - ending.size()) : "";
  if (number != 0) return NotTheFirst(first.path(), number, count, stem);
  if (!named) {
    return InvalidArgument(
        "%s: part 1 of %llu of a model, expected a name that ends in %s: the "
        "other parts are found by it",
        first.path().c_str(), static_cast<Ull>(count), ending.c_str());
  }
  std::vector<std::string> paths;
  for (uint64_t i = 1; i <= count; ++i) {
    paths.push_back(stem + GgufPartEnding(i, count));
  }
  return paths;
}

Result<GgufFile> GgufFile::Open(const std::string& path,
                                const GgufLimits& limits) {
  ECPHORY_ASSIGN_OR_RETURN(std::shared_ptr<RandomAccessFile> opened,
                           OpenFile(path));
  ECPHORY_ASSIGN_OR_RETURN(GgufFile whole, Parse(std::move(opened), limits));
  ECPHORY_ASSIGN_OR_RETURN(const std::vector<std::string> paths,
                           GgufParts(whole));
  for (size_t i = 1; i < paths.size(); ++i) {
    auto file = OpenFile(paths[i]);
    if (file.status().code() == StatusCode::kNotFound) {
      return NotFound("%s: missing, part %zu of %zu of %s", paths[i].c_str(),
                      i + 1, paths.size(), path.c_str());
    }
    ECPHORY_RETURN_IF_ERROR(file.status());
    ECPHORY_ASSIGN_OR_RETURN(const GgufFile part,
                             Parse(std::move(file).value(), limits));
    ECPHORY_RETURN_IF_ERROR(whole.AddPart(part, i, paths.size(), limits));
  }
  ECPHORY_RETURN_IF_ERROR(whole.CheckPartTensors());
  return whole;
}

Status GgufFile::AddPart(const GgufFile& part, size_t number, size_t count,
                         const GgufLimits& limits) {
  ECPHORY_ASSIGN_OR_RETURN(const uint64_t its_number, PartNumber(part, count));
  if (its_number != number) {
    return Corrupt("%s: key %s holds %llu, expected %zu as in its name",
                   part.path().c_str(), Quoted(kNumber).c_str(),
                   static_cast<Ull>(its_number), number);
  }
  if (part.index().tensors().size() >
      limits.max_tensors - index_.tensors().size()) {
    return Corrupt("%s: more than %llu tensors with the parts before it",
                   part.path().c_str(), static_cast<Ull>(limits.max_tensors));
  }
  const size_t file = index_.AddFile(part.index().files().front());
  for (TensorInfo tensor : part.index().tensors()) {
    tensor.file = file;
    ECPHORY_RETURN_IF_ERROR(index_.Add(std::move(tensor)));
  }
  return {};
}

Status GgufFile::CheckPartTensors() const {
  if (!Has(kTensors)) return {};
  ECPHORY_ASSIGN_OR_RETURN(const uint64_t expected, GetUint(kTensors));
  const size_t found = index_.tensors().size();
  if (found == expected) return {};
  return Corrupt("%s: key %s holds %llu, its %zu parts have %zu tensors",
                 path_.c_str(), Quoted(kTensors).c_str(),
                 static_cast<Ull>(expected), index_.files().size(), found);
}

}  // namespace ecphory
