// Products on AMX tiles, for weights whose values are bf16: an instruction adds
// 16 rows of W times 32 values of 16 columns of inputs to 16 x 16 fp32 sums.
//
// A column is an input of bf16 values, so that every product is exact, as in
// fp32. A sum takes 32 values at a time: the even ones and the odd ones are
// added up in turn by fused multiply-adds that begin at zero, their sum is
// added to what was there. That order is the column's alone: a result is the
// same bits for any number of tokens that AMX takes and of rows.
//
// The unit takes denormals for zero and knows no other range than bf16's. It is
// left to fp32 (the caller's, of the rows and tokens that are named)
// - a row with a scale outside [2^-60, 2^60] for codes other than zero, or with
//   a NaN code; of plain bf16, a row whose largest magnitude lies outside;
// - an input whose largest magnitude lies outside, infinities and NaN included.
// What counts as zero elsewhere is then less than 2^-66 of the row's largest
// value times the input's.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/thread_pool.h"
#include "ops/matmul.h"
#include "tensor/matrix.h"

namespace ecphory {

// Whether this processor and system have AMX with bf16 (asked for once, with
// the permission that Linux wants) and the Highway target is one that comes
// with it, AVX3_DL.
bool UsesAmx();
// Whether inputs can be packed and rows unpacked here, which takes less than
// AMX: that target, AVX-512 with VBMI.
bool PacksForAmx();

// Whether products of `weight` with `tokens` inputs run on AMX: bf16 inputs,
// more than kMaxFewTokens. Fewer are bound by reading W, where the detour of
// its rows through memory costs 1.5 times the time.
bool TakesAmx(const Matrix& weight, MatmulInput input, size_t tokens);

// Values of one block along a row; rows are whole blocks.
inline constexpr size_t kAmxBlock = 32;
// Rows of W, and columns of inputs, of a tile.
inline constexpr size_t kAmxTile = 16;

// Tokens of a set at most: rows are unpacked once for a set.
inline constexpr size_t kAmxSetTokens = 512;

// Packed inputs of `tokens` tokens, in sets of `set_tokens`, a multiple of 16,
// the last one smaller. 16 tokens of a set make a group, the last one may have
// fewer. A group holds, block by block, the pairs of values 0 and 1, 2 and 3,
// ... of all its tokens, in the order in which the format's codes unpack.
struct AmxInputs {
  uint16_t* values = nullptr;   // [tokens * cols]
  uint32_t* largest = nullptr;  // [tokens]: bits of the largest magnitude
  size_t tokens = 0;
  size_t cols = 0;
  size_t set_tokens = 0;
  // [tokens]: the inputs themselves, for those that are left; null where they
  // are not kept, and what is packed has to do.
  const float* const* x = nullptr;

  size_t sets() const { return (tokens + set_tokens - 1) / set_tokens; }
  AmxInputs Set(size_t set) const {
    const size_t first = set * set_tokens;
    AmxInputs one = *this;
    one.values += first * cols;
    one.largest += first;
    if (x != nullptr) one.x += first;
    one.tokens = std::min(set_tokens, tokens - first);
    return one;
  }
  size_t groups() const {  // of all sets
    return (tokens + kAmxTile - 1) / kAmxTile;
  }
};

// Packs tokens [16 group, 16 group + 16): blocks [begin, end) of them.
// x[t] points at the first value of block `begin` of token t.
void PackAmxGroup(WeightFormat format, const AmxInputs& inputs, size_t group,
                  size_t begin, size_t end, const float* const* x);
// Bits of the largest magnitude of n values, a multiple of 16; more than those
// of any number where there is a NaN.
uint32_t LargestMagnitude(const float* x, size_t n);
// Token `token` as it was before packing.
void UnpackAmxInput(WeightFormat format, const AmxInputs& inputs, size_t token,
                    float* x);
// The values of a row as MultiplyAmx() unpacks it, for tests; whether the row
// is left to fp32, and its values are of no meaning.
bool UnpackAmxRow(const Matrix& weight, size_t row, float* values);
// Whether a token is left to fp32.
bool AmxLeavesToken(uint32_t largest);

// y[t][row] = row . x[t] for rows [begin, end) of W and all tokens, but for
// those that are left: their results are of no meaning, and left_rows[row -
// begin] says which rows they are.
void MultiplyAmx(const Matrix& weight, const AmxInputs& inputs, float* const* y,
                 size_t begin, size_t end, bool* left_rows);

// What MultiplyAmx() keeps in the calling thread.
uint64_t AmxScratchBytes(size_t rows, size_t cols, size_t tokens);

// `rounds` products of tiles that stay in registers; returns the operations
// done, two a multiply-add.
double MultiplyAddsAmx(size_t rounds);

// --- matmul_amx.cc -----------------------------------------------------------

// MultiplyAmx(), and fp32 for what it leaves.
void MatmulRowsAmx(const Matrix& weight, const AmxInputs& inputs,
                   float* const* y, size_t begin, size_t end);

// matmul of what TakesAmx().
void CpuAmxMatmul(const MatmulArgs& args, ThreadPool& pool);

// What CpuAmxMatmul() keeps in each thread.
uint64_t AmxMatmulScratchBytes(size_t rows, size_t cols, size_t tokens,
                               size_t threads);

}  // namespace ecphory
