// Random values of a tensor in any storage type: what is stored has the mean
// and the deviation asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/synth_blocks.h"
#include "tensor/dtype.h"

namespace ecphory {

// What a tensor's numbers shall be.
struct SynthValues {
  enum class Kind : uint8_t {
    kNumbers,      // of `mean` and `deviation`; codes with scales elsewhere
    kTileScales,   // e8m0 scales of e4m3 codes that shall have `deviation`
    kFp4Scales,    // e8m0 scales of packed e2m1 codes, likewise
    kTableRows,    // Engram rows: codes and scales together
    kTableCodes,   // Engram rows: codes
    kTableScales,  // Engram rows: scales
    kExpertIds,    // distinct numbers below `limit` in each row
  };
  Kind kind = Kind::kNumbers;
  double deviation = 0;
  std::vector<float> mean;  // of each column, or one of all; empty: 0
  uint32_t table = 0;       // kTable*: number of the table
  uint32_t limit = 0;       // kExpertIds

  bool IsTable() const {
    return kind == Kind::kTableRows || kind == Kind::kTableCodes ||
           kind == Kind::kTableScales;
  }
};

struct SynthTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<uint64_t> shape;  // outermost first
  SynthValues values;

  uint64_t rows() const;  // all dimensions but the last
  uint64_t cols() const { return shape.back(); }
  uint64_t row_bytes() const;  // of whole blocks
  uint64_t bytes() const { return rows() * row_bytes(); }
};

// Root mean square of an Engram row's values.
double SynthTableRms();

// Fills rows of one tensor. A row depends on seed, tensor name (tables: their
// number) and row number alone, and on no mathematics beyond + - * / and square
// roots: the same bytes on every machine. Immutable, thread-safe. Block types
// have mean 0.
class SynthRowFiller {
 public:
  SynthRowFiller(const SynthTensor& tensor, uint64_t seed);

  // Rows [first, ...), as many as `out` holds.
  void Fill(uint64_t first, std::span<uint8_t> out) const;

 private:
  void PlanNumbers();
  void FillTable(uint64_t first, std::span<uint8_t> out) const;
  void FillRow(uint64_t key, std::span<uint8_t> out) const;
  void FillNumbers(uint64_t key, std::span<uint8_t> out) const;
  void FillShifted(uint64_t key, std::span<uint8_t> out) const;
  void FillBlocks(uint64_t key, std::span<uint8_t> out) const;
  void FillScales(uint64_t key, std::span<uint8_t> out) const;
  void FillExpertIds(uint64_t key, std::span<uint8_t> out) const;

  const SynthTensor tensor_;
  const uint64_t seed_;
  const uint64_t key_;
  const size_t row_bytes_;
  // 4096 equally likely values of a triangular distribution, as stored.
  std::vector<uint32_t> codes_;
  std::optional<SynthBlocks> blocks_;
  std::optional<PowerScales> scales_;
};

}  // namespace ecphory
