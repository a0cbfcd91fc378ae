#include "format/safetensors.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "base/little_endian.h"
#include "base/quote.h"
#include "format/strict_json.h"

namespace ecphory {

namespace {

using ull = unsigned long long;

// The format's own limit.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr uint64_t kLengthBytes = 8;
// More than any tensor here has; keeps messages short.
constexpr size_t kMaxRank = 8;

// A tensor as the header describes it.
struct Entry {
  std::string name;
  std::string dtype;
  std::vector<uint64_t> shape;
  std::vector<uint64_t> offsets;  // begin and end, from the start of the data
};

// {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...,
//  "__metadata__": {"key": "value", ...}}
class HeaderHandler : public StrictJsonHandler {
 public:
  std::vector<Entry> TakeEntries() { return std::move(entries_); }

  bool start_object(size_t) override {
    switch (place_) {
      case Place::kStart: place_ = Place::kTop; return true;
      case Place::kTop:
        if (name_ == "__metadata__") {
          place_ = Place::kMetadata;
        } else {
          place_ = Place::kTensor;
          entries_.push_back({name_, {}, {}, {}});
          fields_.clear();
        }
        field_.clear();
        return true;
      default: return Fail("unexpected object");
    }
  }

  bool key(std::string& key) override {
    switch (place_) {
      case Place::kTop:
        name_ = key;
        field_.clear();
        return names_.insert(key).second || Fail("appears twice");
      case Place::kMetadata:
        field_ = key;
        return metadata_keys_.insert(key).second || Fail("appears twice");
      default:
        field_ = key;
        return fields_.insert(key).second || Fail("appears twice");
    }
  }

  bool string(std::string& value) override {
    if (place_ == Place::kMetadata) return true;
    if (place_ != Place::kTensor || field_ != "dtype") {
      return Fail("unexpected string");
    }
    entries_.back().dtype = value;
    return true;
  }

  bool start_array(size_t) override {
    if (place_ != Place::kTensor) return Fail("unexpected array");
    if (field_ == "shape") {
      place_ = Place::kShape;
    } else if (field_ == "data_offsets") {
      place_ = Place::kOffsets;
    } else {
      return Fail("unexpected array");
    }
    return true;
  }

  bool number_unsigned(uint64_t value) override {
    if (place_ == Place::kShape) {
      entries_.back().shape.push_back(value);
      return entries_.back().shape.size() <= kMaxRank ||
             Fail("more dimensions than are supported");
    }
    if (place_ == Place::kOffsets) {
      entries_.back().offsets.push_back(value);
      return entries_.back().offsets.size() <= 2 ||
             Fail("expected two numbers");
    }
    return Fail("unexpected number");
  }

  bool end_array() override {
    place_ = Place::kTensor;
    return true;
  }

  bool end_object() override {
    if (place_ == Place::kTensor && !TensorIsComplete()) return false;
    place_ = place_ == Place::kTop ? Place::kEnd : Place::kTop;
    return true;
  }

 private:
  enum class Place { kStart, kTop, kMetadata, kTensor, kShape, kOffsets, kEnd };

  bool TensorIsComplete() {
    field_.clear();
    for (const char* field : {"dtype", "shape", "data_offsets"}) {
      if (fields_.count(field) == 0) {
        return Fail(std::string("has no \"") + field + "\"");
      }
    }
    if (entries_.back().offsets.size() != 2) {
      return Fail("expected two numbers in \"data_offsets\"");
    }
    return true;
  }

  std::string Where() const override {
    std::string where;
    if (!name_.empty()) where = Quoted(name_) + ": ";
    if (!field_.empty()) where += Quoted(field_) + ": ";
    return where;
  }

  Place place_ = Place::kStart;
  std::string name_;   // of the current top-level member
  std::string field_;  // inside it
  std::unordered_set<std::string> names_;
  std::unordered_set<std::string> metadata_keys_;
  std::unordered_set<std::string> fields_;
  std::vector<Entry> entries_;
};

Result<std::string> ReadHeader(const RandomAccessFile& file) {
  uint8_t length_bytes[kLengthBytes];
  if (file.size() < kLengthBytes) {
    return Corrupt("%s: %llu bytes, too short for a safetensors file",
                   file.path().c_str(), static_cast<ull>(file.size()));
  }
  ECPHORY_RETURN_IF_ERROR(file.ReadExact(0, length_bytes));
  const uint64_t length = LoadLE<uint64_t>(length_bytes);
  if (length > kMaxHeaderBytes) {
    return Corrupt(
        "%s: header length %llu, at most %llu are allowed; is this a "
        "safetensors file?",
        file.path().c_str(), static_cast<ull>(length),
        static_cast<ull>(kMaxHeaderBytes));
  }
  if (length > file.size() - kLengthBytes) {
    return Corrupt(
        "%s: header of %llu bytes, but only %llu follow; is the file "
        "complete?",
        file.path().c_str(), static_cast<ull>(length),
        static_cast<ull>(file.size() - kLengthBytes));
  }
  std::string header(static_cast<size_t>(length), '\0');
  ECPHORY_RETURN_IF_ERROR(file.ReadExact(
      kLengthBytes,
      {reinterpret_cast<uint8_t*>(header.data()), header.size()}));
  if (header.empty() || header[0] != '{') {
    return Corrupt("%s: the header does not start with '{'",
                   file.path().c_str());
  }
  return header;
}

Result<TensorInfo> MakeTensor(const Entry& entry, size_t file_number,
                              uint64_t data_offset, uint64_t data_bytes) {
  TensorInfo tensor;
  const auto dtype = DTypeFromSafetensors(entry.dtype);
  if (!dtype.ok()) {
    return Unsupported("dtype %s is not supported",
                       Quoted(entry.dtype).c_str());
  }
  const uint64_t begin = entry.offsets[0];
  const uint64_t end = entry.offsets[1];
  if (begin > end || end > data_bytes) {
    return Corrupt(
        "data_offsets [%llu, %llu] are outside the file's %llu data "
        "bytes; is the file complete?",
        static_cast<ull>(begin), static_cast<ull>(end),
        static_cast<ull>(data_bytes));
  }
  tensor.name = entry.name;
  tensor.dtype = *dtype;
  tensor.shape = entry.shape;
  tensor.file = file_number;
  tensor.offset = data_offset + begin;
  tensor.bytes = end - begin;
  return tensor;
}

// The format asks that tensors fill the data area without gaps, which also
// shows overlaps and a file that was cut or appended to.
Status CheckNoHoles(const std::string& path, std::vector<Entry> entries,
                    uint64_t data_bytes) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.offsets < b.offsets;
  });
  uint64_t expected = 0;
  for (const Entry& entry : entries) {
    if (entry.offsets[0] != expected) {
      return Corrupt(
          "%s: tensor %s starts at data byte %llu, the one before it "
          "ends at %llu: the data has %s",
          path.c_str(), Quoted(entry.name).c_str(),
          static_cast<ull>(entry.offsets[0]), static_cast<ull>(expected),
          entry.offsets[0] < expected ? "an overlap" : "a hole");
    }
    expected = entry.offsets[1];
  }
  if (expected != data_bytes) {
    return Corrupt("%s: %llu data bytes, but the tensors end at %llu",
                   path.c_str(), static_cast<ull>(data_bytes),
                   static_cast<ull>(expected));
  }
  return Status::Ok();
}

}  // namespace

Status ParseSafetensors(const RandomAccessFile& file, size_t file_number,
                        TensorIndex* index) {
  ECPHORY_ASSIGN_OR_RETURN(const std::string header, ReadHeader(file));
  HeaderHandler handler;
  const Status parsed = handler.Parse(header);
  if (!parsed.ok()) return parsed.WithContext(file.path() + ": header");

  std::vector<Entry> entries = handler.TakeEntries();
  const uint64_t data_offset = kLengthBytes + header.size();
  const uint64_t data_bytes = file.size() - data_offset;
  for (const Entry& entry : entries) {
    auto tensor = MakeTensor(entry, file_number, data_offset, data_bytes);
    if (!tensor.ok()) {
      return tensor.status().WithContext(file.path() + ": tensor " +
                                         Quoted(entry.name));
    }
    ECPHORY_RETURN_IF_ERROR(index->Add(std::move(*tensor)));
  }
  return CheckNoHoles(file.path(), std::move(entries), data_bytes);
}

}  // namespace ecphory
