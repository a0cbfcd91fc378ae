// The GGUF v3 header, parsed front to back. docs/formats.md gives the rules.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ecphory/status.h"
#include "format/buffered_reader.h"
#include "format/gguf.h"

namespace ecphory {

// One pass over one file. Every count and length is held against the bytes
// left in the file before anything is allocated for it.
class GgufParser {
 public:
  GgufParser(const RandomAccessFile& file, const GgufLimits& limits)
      : file_(file),
        limits_(limits),
        reader_(file, limits.max_metadata_bytes) {}

  Result<GgufFile> Parse();

 private:
  // A tensor as the header describes it.
  struct TensorEntry {
    std::string name;
    std::vector<uint64_t> dims;  // fastest first
    uint32_t type = 0;
    uint64_t offset = 0;  // from the start of the data
  };

  Status ParseVersion();
  Status ParseCounts();
  Status ParseMetadata();
  Status ParseValue(GgufValue* out);
  Status ParseElements(uint64_t count, GgufValue* out);
  Status ParseAlignment();
  Status ParseTensors();
  Status ParseTensor(TensorEntry* out);
  Status FindDataOffset();
  Status PlaceTensor(TensorEntry entry);

  // The Read functions fail with "the file ends inside WHAT" when it does.
  template <typename T>
  Status Read(const char* what, T* out);
  Status ReadString(const char* what, uint64_t max_bytes, std::string* out);
  Status ReadName(const char* what, std::string* out);
  Status ReadType(const char* what, GgufType* out);
  template <typename Stored, typename Wide>
  Status ReadVector(uint64_t count, std::vector<Wide>* out);
  template <typename Stored, typename Wide>
  Status ReadNumbers(uint64_t count, GgufValue* out);
  Status ReadBools(uint64_t count, GgufValue* out);
  Status ReadStrings(uint64_t count, GgufValue* out);

  // Fails unless `count` items of at least `min_bytes` each can follow.
  Status CheckRoom(const char* what, uint64_t count, uint64_t min_bytes) const;
  // Counts memory of decoded values against the metadata limit: an array of
  // bytes grows eightfold when it is widened.
  Status Charge(uint64_t count, uint64_t item_bytes);

  // Says which key or tensor later errors are about.
  void Enter(const char* kind, uint64_t index);
  // The error with file and current key or tensor in front.
  Status Error(const Status& status) const;

  const RandomAccessFile& file_;
  const GgufLimits limits_;
  BufferedReader reader_;
  uint64_t tensor_count_ = 0;
  uint64_t key_count_ = 0;
  uint64_t decoded_bytes_ = 0;
  const char* item_kind_ = nullptr;
  uint64_t item_index_ = 0;
  std::string item_name_;
  GgufFile out_;
};

}  // namespace ecphory
