// GGUF version 3: reading metadata and tensor directory, and writing files.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "ecphory/status.h"
#include "format/tensor_index.h"
#include "io/file.h"

namespace ecphory {

// Value types of GGUF v3, by their ids.
enum class GgufType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

// Integers of every width widen to u64 or i64 (bits kept: multipliers above
// 2^53 stay exact). Arrays are flat; arrays of arrays are refused. Arrays of
// bools are vectors of u64, 0 or 1.
struct GgufValue {
  GgufType type = GgufType::kU32;  // element type for arrays
  bool is_array = false;
  std::variant<uint64_t, int64_t, double, bool, std::string,
               std::vector<uint64_t>, std::vector<int64_t>, std::vector<double>,
               std::vector<std::string>>
      value;
};

// Limits that a hostile file runs into before memory does.
struct GgufLimits {
  // Of the header as stored and, apart from that, of its decoded values.
  uint64_t max_metadata_bytes = 256ull << 20;
  uint64_t max_string_bytes = 64ull << 20;
  uint64_t max_tensors = 1ull << 20;
  uint64_t max_keys = 1ull << 16;
};

// Metadata and tensor directory of one file, or of a model in parts, checked:
// keys and tensor names are unique, every tensor lies in its file, aligned, and
// overlaps no other.
class GgufFile {
 public:
  // Of a model in parts (llama.cpp's gguf-split: keys split.*, names that end
  // in
  // "-00001-of-00005.gguf") `path` is the first, which has the metadata;
  // index() then has the tensors of all parts. Errors as those of Parse.
  static Result<GgufFile> Open(const std::string& path,
                               const GgufLimits& limits = {});
  // This file alone. Reads the header only. Errors name file and key or tensor.
  static Result<GgufFile> Parse(std::shared_ptr<RandomAccessFile> file,
                                const GgufLimits& limits = {});

  const std::string& path() const { return path_; }  // the first part's
  uint64_t alignment() const { return alignment_; }
  uint64_t data_offset() const { return data_offset_; }
  const TensorIndex& index() const { return index_; }

  bool Has(const std::string& key) const;
  const GgufValue* Find(const std::string& key) const;  // null when absent
  std::vector<std::string> Keys() const;                // file order
  // Typed access; kNotFound / kCorrupt name file, key, found and expected type.
  // Integer getters accept every integer type whose value fits.
  Result<uint64_t> GetUint(const std::string& key) const;
  Result<int64_t> GetInt(const std::string& key) const;
  Result<double> GetFloat(const std::string& key) const;  // or an integer
  Result<bool> GetBool(const std::string& key) const;
  Result<std::string> GetString(const std::string& key) const;
  Result<std::vector<uint64_t>> GetUintArray(const std::string& key) const;
  Result<std::vector<int64_t>> GetIntArray(const std::string& key) const;
  Result<std::vector<std::string>> GetStringArray(const std::string& key) const;

 private:
  friend class GgufParser;
  Status AddPart(const GgufFile& part, size_t number, size_t count,
                 const GgufLimits& limits);
  Status CheckPartTensors() const;
  Result<const GgufValue*> Require(const std::string& key) const;
  template <typename Int>
  Result<Int> GetInteger(const std::string& key, const char* expected) const;
  template <typename Int>
  Result<std::vector<Int>> GetIntegerArray(const std::string& key,
                                           const char* expected) const;
  template <typename T>
  Result<T> GetExactly(const std::string& key, const char* expected) const;

  std::string path_;
  uint64_t alignment_ = 32;  // the format's default
  uint64_t data_offset_ = 0;
  TensorIndex index_;
  std::vector<std::string> key_order_;
  std::unordered_map<std::string, GgufValue> values_;
};

// The paths of all parts of a model, `first` among them; of one in a single
// file that alone. Any part but the first is refused.
Result<std::vector<std::string>> GgufParts(const GgufFile& first);

// Plans a whole file first, so that its size is known before a byte is
// written; then streams the tensors' data in order.
class GgufWriter {
 public:
  // `alignment` is a power of two; written as key general.alignment, first.
  explicit GgufWriter(uint64_t alignment);
  // Keys are unique, and ours: a second Add of one stops the program.
  void AddUint32(const std::string& key, uint32_t value);
  void AddInt32(const std::string& key, int32_t value);
  void AddUint64(const std::string& key, uint64_t value);
  void AddFloat32(const std::string& key, float value);
  void AddBool(const std::string& key, bool value);
  void AddString(const std::string& key, const std::string& value);
  void AddUint32Array(const std::string& key, const std::vector<uint32_t>& v);
  void AddInt32Array(const std::string& key, const std::vector<int32_t>& v);
  void AddUint64Array(const std::string& key, const std::vector<uint64_t>& v);
  void AddFloat32Array(const std::string& key, const std::vector<float>& v);
  void AddStringArray(const std::string& key,
                      const std::vector<std::string>& v);

  // Produces exactly the tensor's bytes into `sink`, in pieces of any size;
  // passes on the first error that `sink` returns.
  using Sink = std::function<Status(std::span<const uint8_t>)>;
  using Producer = std::function<Status(const Sink& sink)>;
  // `shape` outermost first. Data is padded to the alignment, also the last.
  // Refuses shapes and types that GGUF cannot hold, and a name used before.
  Status AddTensor(const std::string& name, DType dtype,
                   std::vector<uint64_t> shape, Producer producer);

  uint64_t FileBytes() const;
  // Everything before the data, padded to the alignment: for those who write
  // the data, each tensor's padded to the alignment, themselves.
  std::string EncodeHeader() const;
  // Refuses when the disk has too little room. `progress` (may be empty) is
  // called now and then with bytes done and total; returning false cancels.
  // On any error nothing is left behind.
  using Progress = std::function<bool(uint64_t done, uint64_t total)>;
  Status WriteTo(const std::string& path, const Progress& progress) const;

 private:
  struct Tensor {
    std::string name;
    uint32_t type;  // ggml id
    std::vector<uint64_t> shape;
    uint64_t bytes;
    uint64_t offset;  // from the start of the data
    Producer producer;
  };
  void AddEncoded(const std::string& key, std::string encoded);
  uint64_t alignment_;
  std::vector<std::pair<std::string, std::string>> metadata_;  // key, encoded
  std::vector<Tensor> tensors_;
  uint64_t data_bytes_ = 0;  // padded
  std::unordered_set<std::string> keys_;
  std::unordered_set<std::string> tensor_names_;
};

}  // namespace ecphory
