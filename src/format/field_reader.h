// Filling structures from named values, whichever kind of file holds them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ecphory/status.h"

namespace ecphory {

// Typed access to the values of one file. Errors name key, found and expected,
// not the file.
class KeySource {
 public:
  virtual ~KeySource() = default;
  // False for absent keys and for JSON null.
  virtual bool Has(const std::string& key) const = 0;
  // How messages spell a key, e.g. "deepseek41.hc_mult".
  virtual std::string Spelling(const std::string& key) const = 0;
  virtual Result<uint64_t> Uint(const std::string& key) const = 0;
  virtual Result<int64_t> Int(const std::string& key) const = 0;
  virtual Result<double> Float(const std::string& key) const = 0;
  virtual Result<bool> Bool(const std::string& key) const = 0;
  virtual Result<std::string> String(const std::string& key) const = 0;
  virtual Result<std::vector<uint64_t>> UintArray(
      const std::string& key) const = 0;
};

// Reads many fields and reports once: every missing key in one error, else the
// first value that is wrong.
class FieldReader {
 public:
  explicit FieldReader(const KeySource& source) : source_(source) {}

  template <typename T>
  void Required(const std::string& key, T* out) {
    if (source_.Has(key)) {
      Keep(Read(key, out));
    } else {
      Missing(key);
    }
  }
  // Leaves *out alone when the key is absent.
  template <typename T>
  void Optional(const std::string& key, T* out) {
    if (source_.Has(key)) Keep(Read(key, out));
  }
  // Refuses any other text; an absent key is fine.
  void ExpectIfPresent(const std::string& key, const std::string& expected);
  void Missing(const std::string& key);
  void Keep(Status status);

  const KeySource& source() const { return source_; }
  Status status() const;

 private:
  Status Read(const std::string& key, uint32_t* out) const;
  Status Read(const std::string& key, int32_t* out) const;
  Status Read(const std::string& key, uint64_t* out) const;
  Status Read(const std::string& key, float* out) const;
  Status Read(const std::string& key, bool* out) const;
  Status Read(const std::string& key, std::string* out) const;
  Status Read(const std::string& key, std::vector<uint32_t>* out) const;
  Status Read(const std::string& key, std::vector<uint64_t>* out) const;

  const KeySource& source_;
  std::vector<std::string> missing_;
  Status first_error_;
};

// "a, b, c".
std::string JoinNames(const std::vector<std::string>& names);

// ---- checks of values that were read; errors name `key` ----

Status CheckRange(const char* key, uint64_t value, uint64_t low, uint64_t high);
// `why` says what needs the multiple.
Status CheckMultiple(const char* key, uint64_t value, uint64_t unit,
                     const char* why);
// Ids rise; each below `n_layers`.
Status CheckLayerIds(const char* key, const std::vector<uint32_t>& ids,
                     uint32_t n_layers);

}  // namespace ecphory
