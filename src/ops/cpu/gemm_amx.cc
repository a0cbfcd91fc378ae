#include "ops/cpu/gemm_amx.h"

#include <cstring>
#include <type_traits>

#include "base/ceil_div.h"
#include "base/check.h"
#include "ops/cpu/scratch.h"
#include "tensor/float_codec.h"

#define HWY_WANT_AVX3_DL 1
#include "base/highway_config.h"
#define HWY_TARGET_INCLUDE "ops/cpu/gemm_amx.cc"
#include "hwy/foreach_target.h"
// Order matters: foreach_target comes before everything per target.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ecphory {
namespace HWY_NAMESPACE {
namespace {

// AVX-512 with VBMI. Every processor with AMX has what this target asks for.
bool TargetHasVbmi() { return HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3_DL; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ecphory
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#if HWY_ARCH_X86_64 && defined(__linux__)
#define ECPHORY_AMX 1
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#else
#define ECPHORY_AMX 0
#endif

namespace ecphory {

namespace {

HWY_EXPORT(TargetHasVbmi);

// 2^-60 and 2^60 as bf16.
constexpr uint32_t kLeast = 67 << 7, kMost = 187 << 7;

// Of a magnitude as bf16, or of as many bits more as both limits.
bool Outside(uint32_t magnitude, uint32_t least, uint32_t most) {
  return magnitude != 0 && (magnitude < least || magnitude > most);
}

// Rows whose codes are unpacked together: two tiles.
constexpr size_t kPanelRows = 2 * kAmxTile;
// Blocks of them: 16 KB, which stay in the first-level cache while all columns
// pass, of two threads if they share it (48 KB). Half of it and twice are
// slower.
constexpr size_t kChunk = 8;
// Sums of a pass over the columns, 512 KB: a quarter of the second-level cache,
// of which the chunk's inputs take another.
constexpr size_t kSums = 128 << 10;
// Inputs that are read anew for every panel instead, so that rows are read from
// end to end.
constexpr size_t kFewValues = 128 << 10;

constexpr size_t kTileFloats = kAmxTile * kAmxTile;
constexpr size_t kTileValues = kAmxTile * kAmxBlock;

constexpr size_t kMaxPassRows = 512;
size_t PassRows(size_t cols, size_t tokens) {
  if (tokens * cols <= kFewValues) return kPanelRows;
  const size_t rows = kSums / (CeilDiv(tokens, kAmxTile) * kAmxTile);
  return std::clamp(rows / kPanelRows * kPanelRows, kPanelRows, kMaxPassRows);
}

// The element at each place of an unpacked block.
struct Places {
  explicit Places(WeightFormat format) {
    for (size_t place = 0; place < kAmxBlock; ++place) {
      // Of the nibble formats 16 bits hold four codes, and places run over the
      // first codes of all, then the second ones, ...
      const size_t word = place % 8, code = place / 8;
      switch (format) {
        case WeightFormat::kFp4Row32: element[place] = 4 * word + code; break;
        case WeightFormat::kMXFP4:
          element[place] = 2 * word + code / 2 + code % 2 * 16;
          break;
        default: element[place] = place;
      }
    }
  }
  size_t element[kAmxBlock];
};

// Where a set begins, and what it holds.
struct Set {
  size_t first = 0;  // token
  size_t tokens = 0;
  size_t groups = 0;

  Set(const AmxInputs& inputs, size_t first_token)
      : first(first_token),
        tokens(std::min(inputs.set_tokens, inputs.tokens - first_token)),
        groups(CeilDiv(tokens, kAmxTile)) {}
  size_t GroupTokens(size_t group) const {
    return std::min(kAmxTile, tokens - group * kAmxTile);
  }
  uint16_t* Group(const AmxInputs& inputs, size_t group) const {
    return inputs.values + (first + group * kAmxTile) * inputs.cols;
  }
};

#if ECPHORY_AMX

#define ECPHORY_AMX_ATTR \
  __attribute__((target( \
      "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,amx-tile,amx-bf16")))
#define ECPHORY_AMX_INLINE ECPHORY_AMX_ATTR inline

bool ProcessorHasAmx() {
  unsigned a, b, c, d;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  constexpr unsigned kBf16 = 1u << 22, kTile = 1u << 24;
  if ((d & kBf16) == 0 || (d & kTile) == 0) return false;
  // The system keeps the tiles of a thread (XCR0) ...
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & bit_OSXSAVE) == 0) {
    return false;
  }
  unsigned low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  constexpr unsigned kTileState = 3u << 17;
  if ((low & kTileState) != kTileState) return false;
  // ... and lets this process use them: ARCH_REQ_XCOMP_PERM,
  // XFEATURE_XTILEDATA.
  return syscall(SYS_arch_prctl, 0x1023, 18) == 0;
}

// --- Inputs ------------------------------------------------------------------

// The dwords of 16 vectors, lane by lane.
ECPHORY_AMX_INLINE void Transpose(__m512i* v) {
  __m512i r[16];
#pragma GCC unroll 4
  for (size_t i = 0; i < 16; i += 4) {
    const __m512i a = _mm512_unpacklo_epi32(v[i], v[i + 1]);
    const __m512i b = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    const __m512i c = _mm512_unpacklo_epi32(v[i + 2], v[i + 3]);
    const __m512i d = _mm512_unpackhi_epi32(v[i + 2], v[i + 3]);
    r[i] = _mm512_unpacklo_epi64(a, c);
    r[i + 1] = _mm512_unpackhi_epi64(a, c);
    r[i + 2] = _mm512_unpacklo_epi64(b, d);
    r[i + 3] = _mm512_unpackhi_epi64(b, d);
  }
#pragma GCC unroll 4
  for (size_t k = 0; k < 4; ++k) {
    const __m512i a = _mm512_shuffle_i32x4(r[k], r[4 + k], 0x88);
    const __m512i b = _mm512_shuffle_i32x4(r[k], r[4 + k], 0xdd);
    const __m512i c = _mm512_shuffle_i32x4(r[8 + k], r[12 + k], 0x88);
    const __m512i d = _mm512_shuffle_i32x4(r[8 + k], r[12 + k], 0xdd);
    v[k] = _mm512_shuffle_i32x4(a, c, 0x88);
    v[4 + k] = _mm512_shuffle_i32x4(b, d, 0x88);
    v[8 + k] = _mm512_shuffle_i32x4(a, c, 0xdd);
    v[12 + k] = _mm512_shuffle_i32x4(b, d, 0xdd);
  }
}

// The upper 16 bits of a block of values, in the order of `places`.
ECPHORY_AMX_INLINE __m512i Upper(__m512 low, __m512 high, __m512i places) {
  return _mm512_permutex2var_epi16(_mm512_castps_si512(low), places,
                                   _mm512_castps_si512(high));
}

// For Upper(): the upper half of each place's element.
ECPHORY_AMX_INLINE __m512i UpperHalves(WeightFormat format) {
  const Places places(format);
  alignas(64) uint16_t index[kAmxBlock];
  for (size_t i = 0; i < kAmxBlock; ++i) {
    index[i] = static_cast<uint16_t>(2 * places.element[i] + 1);
  }
  return _mm512_load_si512(index);
}

// The tokens' pairs of a block.
ECPHORY_AMX_INLINE void StorePairs(__m512i* v, size_t tokens, uint16_t* out) {
  if (tokens == 1) return _mm512_storeu_si512(out, v[0]);
  Transpose(v);
  const auto mask = static_cast<__mmask16>((1u << tokens) - 1);
  for (size_t i = 0; i < kAmxTile; ++i) {
    _mm512_mask_storeu_epi32(out + i * 2 * tokens, mask, v[i]);
  }
}

ECPHORY_AMX_ATTR void PackGroup(WeightFormat format, const AmxInputs& inputs,
                                const Set& set, size_t group, size_t begin,
                                size_t end, const float* const* x) {
  const __m512i places = UpperHalves(format);
  const size_t tokens = set.GroupTokens(group);
  const float* const* const from = x + set.first + group * kAmxTile;
  const size_t block_values = kAmxBlock * tokens;
  uint16_t* out = set.Group(inputs, group) + begin * block_values;
  __m512i v[kAmxTile] = {};  // past the tokens: lanes that are not stored
  for (size_t i = 0; i < (end - begin) * kAmxBlock; i += kAmxBlock) {
    for (size_t t = 0; t < tokens; ++t) {
      v[t] = Upper(_mm512_loadu_ps(from[t] + i),
                   _mm512_loadu_ps(from[t] + i + 16), places);
    }
    StorePairs(v, tokens, out);
    out += block_values;
  }
}

ECPHORY_AMX_ATTR uint32_t Largest(const float* x, size_t n) {
  __m512i largest = _mm512_setzero_si512();
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  for (size_t i = 0; i < n; i += 16) {
    largest = _mm512_max_epu32(
        largest, _mm512_and_si512(_mm512_loadu_si512(x + i), magnitude));
  }
  return _mm512_reduce_max_epu32(largest);
}

// --- Rows --------------------------------------------------------------------

// Blocks [begin, end) of a row, as bf16 in the order of the format's Places,
// kTileValues apart. Returns what is held to the limits: 0 where all is well.
template <WeightFormat kFormat>
class RowUnpacker;

// What is added to 16-bit values of exponent 127 for a scale of a code, for two
// of them.
struct ScaleExponents {
  constexpr ScaleExponents() : added() {
    for (uint32_t code = 0; code < 256; ++code) {
      added[code] = ((code - 127) << 7 & 0xffff) * 0x10001u;
    }
  }
  uint32_t added[256];
};
constexpr ScaleExponents kScales;

bool ScaleInside(uint8_t code) { return code >= 67 && code <= 187; }

// A scale that is not inside matters to codes other than zero, or if it is NaN.
inline bool LeavesBlock(uint8_t scale, const uint8_t* codes, size_t n,
                        uint8_t magnitude) {
  if (ScaleInside(scale)) return false;
  return scale == 255 || std::any_of(codes, codes + n, [&](uint8_t code) {
           return (code & magnitude) != 0;
         });
}

class E2M1Unpacker {
 public:
  ECPHORY_AMX_INLINE E2M1Unpacker() {
    static constexpr uint16_t kMagnitudes[8] = {0,      0x3f00, 0x3f80, 0x3fc0,
                                                0x4000, 0x4040, 0x4080, 0x40c0};
    alignas(64) uint16_t values[32], shifts[32];
    for (size_t i = 0; i < 32; ++i) {
      values[i] = static_cast<uint16_t>(kMagnitudes[i % 8] | i % 16 / 8 << 15);
      shifts[i] = static_cast<uint16_t>(4 * (i / 8));
    }
    values_ = _mm512_load_si512(values);
    shifts_ = _mm512_load_si512(shifts);
  }
  // 32 codes. The look-up takes 5 bits, of which it needs 4.
  ECPHORY_AMX_INLINE void operator()(const uint8_t* p, uint8_t scale,
                                     uint16_t* out) const {
    constexpr __mmask32 kNonzero = 0xfefefefe;
    const __m512i table = _mm512_maskz_add_epi16(
        kNonzero, values_,
        _mm512_set1_epi32(static_cast<int>(kScales.added[scale])));
    const __m512i codes = _mm512_srlv_epi16(
        _mm512_broadcast_i32x4(
            _mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
        shifts_);
    _mm512_storeu_si512(out, _mm512_permutexvar_epi16(codes, table));
  }

 private:
  __m512i values_, shifts_;
};

constexpr uint32_t kLeaveRow = 0xffff;

// A row of either format of e2m1 codes; Row(weight, stored row) says where the
// codes and the scale of a block lie.
template <class Row>
class E2M1RowUnpacker {
 public:
  static constexpr size_t kBytes = Row::kBytes;
  ECPHORY_AMX_INLINE uint32_t operator()(const Matrix& weight, size_t row,
                                         size_t begin, size_t end,
                                         uint16_t* out) const {
    const Row from(weight, weight.first_row + row);
    bool leave = false;
    for (size_t b = begin; b < end; ++b, out += kTileValues) {
      const uint8_t* const codes = from.codes(b);
      const uint8_t scale = from.scale(b);
      if (__builtin_expect(!ScaleInside(scale), 0)) {
        leave |= LeavesBlock(scale, codes, kAmxBlock / 2, 0x77);
      }
      unpack_(codes, scale, out);
    }
    return leave ? kLeaveRow : 0;
  }

 private:
  E2M1Unpacker unpack_;
};

// Codes and scales in two arrays.
class Fp4Row {
 public:
  static constexpr size_t kBytes = 16;  // of a block, from codes to codes
  Fp4Row(const Matrix& weight, size_t row)
      : codes_(weight.data + row * (weight.cols / 2)),
        scales_(weight.scales + row * (weight.cols / kAmxBlock)) {}
  const uint8_t* codes(size_t block) const { return codes_ + block * kBytes; }
  uint8_t scale(size_t block) const { return scales_[block]; }

 private:
  const uint8_t* codes_;
  const uint8_t* scales_;
};

// Each block's scale before its codes.
class Mxfp4Row {
 public:
  static constexpr size_t kBytes = 17;
  Mxfp4Row(const Matrix& weight, size_t row)
      : blocks_(weight.data + row * (weight.cols / kAmxBlock * kBytes)) {}
  const uint8_t* codes(size_t block) const {
    return blocks_ + block * kBytes + 1;
  }
  uint8_t scale(size_t block) const { return blocks_[block * kBytes]; }

 private:
  const uint8_t* blocks_;
};

template <>
class RowUnpacker<WeightFormat::kFp4Row32> : public E2M1RowUnpacker<Fp4Row> {};
template <>
class RowUnpacker<WeightFormat::kMXFP4> : public E2M1RowUnpacker<Mxfp4Row> {};

// The bits of an e4m3 code are those of a bf16 that is 2^120 too small, unless
// it is subnormal: those seven are looked up.
template <>
class RowUnpacker<WeightFormat::kFp8Tile32> {
 public:
  static constexpr size_t kBytes = 32;
  ECPHORY_AMX_INLINE RowUnpacker() {
    alignas(64) uint16_t subnormal[32];
    for (uint32_t i = 0; i < 32; ++i) {
      const uint16_t bits = F32ToBF16(E4M3ToF32(static_cast<uint8_t>(i % 8)));
      subnormal[i] = static_cast<uint16_t>(bits - (120 << 7));
    }
    subnormal_ = _mm512_load_si512(subnormal);
  }
  ECPHORY_AMX_INLINE uint32_t operator()(const Matrix& weight, size_t row,
                                         size_t begin, size_t end,
                                         uint16_t* out) const {
    const size_t stored = weight.first_row + row;
    const uint8_t* const p = weight.data + stored * weight.cols;
    const uint8_t* const scales =
        weight.scales + stored / 32 * (weight.cols / 32);
    const __m512i magnitude_bits = _mm512_set1_epi16(0x7f);
    const __m512i sign_bit = _mm512_set1_epi16(int16_t{-0x8000});
    const __m512i bias = _mm512_set1_epi16(120 << 7);
    bool leave = false;
    __mmask32 nan = 0;
    for (size_t b = begin; b < end; ++b, out += kTileValues) {
      if (__builtin_expect(!ScaleInside(scales[b]), 0)) {
        leave |= LeavesBlock(scales[b], p + b * kBytes, kBytes, 0x7f);
      }
      const __m512i codes = _mm512_cvtepi8_epi16(
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + b * kBytes)));
      const __m512i magnitude = _mm512_and_si512(codes, magnitude_bits);
      nan |= _mm512_cmpeq_epi16_mask(magnitude, magnitude_bits);
      const __mmask32 subnormal =
          _mm512_cmplt_epu16_mask(magnitude, _mm512_set1_epi16(8));
      const __m512i bits = _mm512_mask_permutexvar_epi16(
          _mm512_slli_epi16(magnitude, 4), subnormal, magnitude, subnormal_);
      const __m512i added = _mm512_add_epi16(
          bias, _mm512_set1_epi32(static_cast<int>(kScales.added[scales[b]])));
      const __m512i scaled = _mm512_maskz_add_epi16(
          _mm512_test_epi16_mask(magnitude, magnitude), bits, added);
      // Codes are sign-extended.
      constexpr int kAOrBAndC = 0xf8;
      _mm512_storeu_si512(
          out, _mm512_ternarylogic_epi32(scaled, codes, sign_bit, kAOrBAndC));
    }
    return leave || nan != 0 ? kLeaveRow : 0;
  }

 private:
  __m512i subnormal_;
};

template <>
class RowUnpacker<WeightFormat::kBF16> {
 public:
  static constexpr size_t kBytes = 64;
  ECPHORY_AMX_INLINE uint32_t operator()(const Matrix& weight, size_t row,
                                         size_t begin, size_t end,
                                         uint16_t* out) const {
    const uint8_t* const p =
        weight.data + (weight.first_row + row) * (2 * weight.cols);
    const __m512i magnitude = _mm512_set1_epi16(0x7fff);
    __m512i largest = _mm512_setzero_si512();
    for (size_t b = begin; b < end; ++b, out += kTileValues) {
      const __m512i values = _mm512_loadu_si512(p + b * kBytes);
      largest = _mm512_max_epu16(largest, _mm512_and_si512(values, magnitude));
      _mm512_storeu_si512(out, values);
    }
    const __m512i pairs =
        _mm512_max_epu16(_mm512_srli_epi32(largest, 16),
                         _mm512_and_si512(largest, _mm512_set1_epi32(0xffff)));
    return _mm512_reduce_max_epu32(pairs);
  }
};

// --- Products ----------------------------------------------------------------

// Tiles 0 to 3 are sums (two of rows times two of columns), 4 and 5 rows, 6 and
// 7 columns.
struct TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// For groups of so many columns.
ECPHORY_AMX_ATTR void Configure(size_t first, size_t second) {
  TileConfig config;
  for (size_t i = 0; i < 8; ++i) {
    const size_t columns = i == 4 || i == 5 ? 16 : i % 2 == 0 ? first : second;
    config.rows[i] = kAmxTile;
    config.row_bytes[i] = static_cast<uint16_t>(4 * columns);
  }
  // The intrinsic does not say that it reads all of it.
  asm volatile("" : : "r"(&config) : "memory");
  _tile_loadconfig(&config);
}

// One or two tiles of rows times one or two groups of columns.
struct TileBlock {
  const uint16_t* rows[2];     // kTileValues a block
  const uint16_t* columns[2];  // of each group
  size_t stride[2];            // bytes between its pairs
  float* sums[2][2];           // rows, groups
  size_t blocks = 0;
  bool zero = false;  // sums begin at zero
  bool load = false;  // else they are in memory, or still in the tiles
  bool store = false;
};

// The intrinsics want their tiles as literals.
template <size_t kRows, size_t kGroups>
ECPHORY_AMX_INLINE void MultiplyTiles(const TileBlock& t) {
  constexpr bool kTwoRows = kRows == 2, kTwoGroups = kGroups == 2;
  if (t.zero) {
    _tile_zero(0);
    if constexpr (kTwoGroups) _tile_zero(1);
    if constexpr (kTwoRows) _tile_zero(2);
    if constexpr (kTwoRows && kTwoGroups) _tile_zero(3);
  } else if (t.load) {
    _tile_loadd(0, t.sums[0][0], 64);
    if constexpr (kTwoGroups) _tile_loadd(1, t.sums[0][1], 64);
    if constexpr (kTwoRows) _tile_loadd(2, t.sums[1][0], 64);
    if constexpr (kTwoRows && kTwoGroups) _tile_loadd(3, t.sums[1][1], 64);
  }
  const size_t step[2] = {t.stride[0] * kAmxTile / 2,
                          t.stride[1] * kAmxTile / 2};
  const uint16_t* first = t.columns[0];
  const uint16_t* second = t.columns[1];
  for (size_t b = 0; b < t.blocks; ++b) {
    _tile_loadd(4, t.rows[0] + b * kTileValues, 64);
    if constexpr (kTwoRows) _tile_loadd(5, t.rows[1] + b * kTileValues, 64);
    _tile_loadd(6, first, t.stride[0]);
    first += step[0];
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kTwoGroups) {
      _tile_loadd(7, second, t.stride[1]);
      second += step[1];
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (kTwoRows) _tile_dpbf16ps(2, 5, 6);
    if constexpr (kTwoRows && kTwoGroups) _tile_dpbf16ps(3, 5, 7);
  }
  if (!t.store) return;
  _tile_stored(0, t.sums[0][0], 64);
  if constexpr (kTwoGroups) _tile_stored(1, t.sums[0][1], 64);
  if constexpr (kTwoRows) _tile_stored(2, t.sums[1][0], 64);
  if constexpr (kTwoRows && kTwoGroups) _tile_stored(3, t.sums[1][1], 64);
}

// Rows of W times one set of tokens.
template <WeightFormat kFormat>
class SetProduct {
 public:
  ECPHORY_AMX_INLINE SetProduct(const Matrix& weight, const AmxInputs& inputs,
                                const Set& set)
      : weight_(weight),
        inputs_(inputs),
        set_(set),
        pass_(PassRows(weight.cols, set.tokens)) {
    struct Unpacked;
    panel_ = ThreadScratch<Unpacked, uint16_t>(kPanelRows * kChunk * kAmxBlock);
  }

  ECPHORY_AMX_ATTR void Run(float* const* y, size_t begin, size_t end,
                            bool* left_rows) {
    struct Sums;
    sums_ = ThreadScratch<Sums>(
        CeilDiv(std::min(pass_, end - begin), kPanelRows) * PanelFloats());
    for (size_t row = begin; row < end; row += pass_) {
      RunPass(row, std::min(pass_, end - row), y, left_rows + (row - begin));
    }
  }

 private:
  size_t PanelFloats() const { return 2 * set_.groups * kTileFloats; }

  ECPHORY_AMX_INLINE void RunPass(size_t row, size_t rows, float* const* y,
                                  bool* left_rows) {
    const size_t blocks = weight_.cols / kAmxBlock;
    uint32_t held[kPanelRows];
    for (size_t b = 0; b < blocks; b += kChunk) {
      const size_t count = std::min(kChunk, blocks - b);
      for (size_t r = 0; r < rows; r += kPanelRows) {
        const size_t height = std::min(kPanelRows, rows - r);
        UnpackRows(row + r, height, b, count, held);
        for (size_t i = 0; i < height; ++i) {
          // Of plain values the largest of the whole row counts.
          largest_[r + i] =
              b == 0 ? held[i] : std::max(largest_[r + i], held[i]);
        }
        MultiplyPanel(height, b, count, sums_ + r / kPanelRows * PanelFloats());
      }
    }
    for (size_t r = 0; r < rows; ++r) {
      left_rows[r] = Outside(largest_[r], kLeast, kMost);
    }
    for (size_t r = 0; r < rows; r += kPanelRows) {
      StoreRows(row + r, std::min(kPanelRows, rows - r),
                sums_ + r / kPanelRows * PanelFloats(), y);
    }
  }

  ECPHORY_AMX_INLINE void UnpackRows(size_t row, size_t rows, size_t begin,
                                     size_t count, uint32_t* held) {
    // Rows that do not exist keep what was there.
    for (size_t r = 0; r < rows; ++r) {
      PrefetchAhead(row + r, begin, count);
      held[r] = unpack_(weight_, row + r, begin, begin + count,
                        panel_ + r / kAmxTile * count * kTileValues +
                            r % kAmxTile * kAmxBlock);
    }
  }

  // What will be unpacked a panel later.
  ECPHORY_AMX_INLINE void PrefetchAhead(size_t row, size_t begin,
                                        size_t count) const {
    constexpr size_t kLine = 64;
    const size_t bytes = RowUnpacker<kFormat>::kBytes;
    const size_t blocks = weight_.cols / kAmxBlock;
    // The same row's next blocks, or those of a row of the next panel.
    const bool along = pass_ == kPanelRows && begin + count < blocks;
    const size_t next = weight_.first_row + row + (along ? 0 : kPanelRows);
    const size_t block =
        along ? begin + count : (pass_ == kPanelRows ? 0 : begin);
    const uint8_t* const p = weight_.data + (next * blocks + block) * bytes;
    for (size_t i = 0; i < count * bytes; i += kLine) {
      _mm_prefetch(reinterpret_cast<const char*>(p + i), _MM_HINT_T1);
    }
  }

  ECPHORY_AMX_INLINE void MultiplyPanel(size_t rows, size_t begin, size_t count,
                                        float* sums) {
    asm volatile("" : : "r"(panel_), "r"(sums) : "memory");
    const bool two_rows = rows > kAmxTile;
    size_t g = 0;
    for (; g + 2 <= set_.groups; g += 2) {
      const TileBlock block = BlockOf(g, 2, begin, count, sums);
      two_rows ? MultiplyTiles<2, 2>(block) : MultiplyTiles<1, 2>(block);
    }
    if (g < set_.groups) {
      const TileBlock block = BlockOf(g, 1, begin, count, sums);
      two_rows ? MultiplyTiles<2, 1>(block) : MultiplyTiles<1, 1>(block);
    }
    asm volatile("" : : : "memory");
  }

  ECPHORY_AMX_INLINE TileBlock BlockOf(size_t group, size_t groups,
                                       size_t begin, size_t count,
                                       float* sums) {
    TileBlock block;
    size_t columns[2] = {};
    for (size_t i = 0; i < 2; ++i) {
      // Without a second one its pointers are not used.
      const size_t g = group + std::min(i, groups - 1);
      columns[i] = set_.GroupTokens(g);
      block.columns[i] =
          set_.Group(inputs_, g) + begin * kAmxBlock * columns[i];
      block.stride[i] = 4 * columns[i];
      block.rows[i] = panel_ + i * count * kTileValues;
      for (size_t r = 0; r < 2; ++r) {
        block.sums[r][i] = sums + (2 * g + r) * kTileFloats;
      }
    }
    if (columns[0] != configured_[0] || columns[1] != configured_[1]) {
      Configure(columns[0], columns[1]);
      std::copy_n(columns, 2, configured_);
    }
    block.blocks = count;
    // Where no others come between they stay in the tiles.
    const bool stay = pass_ == kPanelRows && set_.groups <= 2;
    block.zero = begin == 0;
    block.load = !stay;
    block.store = !stay || (begin + count) * kAmxBlock == weight_.cols;
    return block;
  }

  // Sums of a panel's rows to the tokens' outputs.
  ECPHORY_AMX_INLINE void StoreRows(size_t row, size_t rows, const float* sums,
                                    float* const* y) {
    for (size_t g = 0; g < set_.groups; ++g) {
      for (size_t r = 0; r < rows; r += kAmxTile) {
        const float* const tile = sums + (2 * g + r / kAmxTile) * kTileFloats;
        __m512i v[kAmxTile];
        for (size_t i = 0; i < kAmxTile; ++i) {
          v[i] = _mm512_loadu_si512(tile + i * kAmxTile);
        }
        Transpose(v);
        const size_t count = std::min(kAmxTile, rows - r);
        const auto mask = static_cast<__mmask16>((1u << count) - 1);
        for (size_t t = 0; t < set_.GroupTokens(g); ++t) {
          float* const to = y[set_.first + g * kAmxTile + t] + row + r;
          _mm512_mask_storeu_epi32(to, mask, v[t]);
        }
      }
    }
  }

  const Matrix& weight_;
  const AmxInputs& inputs_;
  const Set& set_;
  size_t pass_;  // rows
  RowUnpacker<kFormat> unpack_;
  uint16_t* panel_ = nullptr;
  float* sums_ = nullptr;
  size_t configured_[2] = {};
  uint32_t largest_[kMaxPassRows];
};

template <WeightFormat kFormat>
ECPHORY_AMX_ATTR uint32_t UnpackRow(const Matrix& weight, size_t row,
                                    size_t begin, size_t end, uint16_t* out) {
  return RowUnpacker<kFormat>()(weight, row, begin, end, out);
}

template <WeightFormat kFormat>
ECPHORY_AMX_ATTR void Multiply(const Matrix& weight, const AmxInputs& inputs,
                               float* const* y, size_t begin, size_t end,
                               bool* left_rows) {
  for (size_t t = 0; t < inputs.tokens; t += inputs.set_tokens) {
    const Set set(inputs, t);
    SetProduct<kFormat>(weight, inputs, set).Run(y, begin, end, left_rows);
  }
  _tile_release();
}

ECPHORY_AMX_ATTR double MultiplyAdds(size_t rounds) {
  Configure(kAmxTile, kAmxTile);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  _tile_zero(6);
  _tile_zero(7);
  for (size_t i = 0; i < rounds; i += 4) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
  constexpr size_t kTileProducts = kAmxTile * kAmxTile * kAmxBlock;
  return 2.0 * static_cast<double>(kTileProducts * CeilDiv(rounds, 4) * 4);
}

#else

// Never called, as TakesAmx() and PacksForAmx() say.
bool ProcessorHasAmx() { return false; }
void PackGroup(WeightFormat, const AmxInputs&, const Set&, size_t, size_t,
               size_t, const float* const*) {
  ECPHORY_CHECK(false);
}
uint32_t Largest(const float*, size_t) {
  ECPHORY_CHECK(false);
  return 0;
}
template <WeightFormat kFormat>
uint32_t UnpackRow(const Matrix&, size_t, size_t, size_t, uint16_t*) {
  ECPHORY_CHECK(false);
  return 0;
}
template <WeightFormat kFormat>
void Multiply(const Matrix&, const AmxInputs&, float* const*, size_t, size_t,
              bool*) {
  ECPHORY_CHECK(false);
}
double MultiplyAdds(size_t) {
  ECPHORY_CHECK(false);
  return 0;
}

#endif

// Calls body(format) with the format as a constant, if AMX takes it.
template <class Body>
void WithAmxFormat(WeightFormat format, const Body& body) {
  using F = WeightFormat;
  switch (format) {
    case F::kBF16: return body(std::integral_constant<F, F::kBF16>());
    case F::kMXFP4: return body(std::integral_constant<F, F::kMXFP4>());
    case F::kFp8Tile32: return body(std::integral_constant<F, F::kFp8Tile32>());
    case F::kFp4Row32: return body(std::integral_constant<F, F::kFp4Row32>());
    default: ECPHORY_CHECK(false);
  }
}

}  // namespace

bool PacksForAmx() {
  return ECPHORY_AMX && HWY_DYNAMIC_DISPATCH(TargetHasVbmi)();
}

bool UsesAmx() {
  static const bool processor = ProcessorHasAmx();
  return processor && PacksForAmx();
}

bool TakesAmx(const Matrix& weight, MatmulInput input, size_t tokens) {
  if (input != MatmulInput::kBF16 || tokens <= kMaxFewTokens) return false;
  switch (weight.format) {
    case WeightFormat::kBF16:
    case WeightFormat::kMXFP4:
    case WeightFormat::kFp8Tile32:
    case WeightFormat::kFp4Row32:
      return weight.cols % kAmxBlock == 0 && UsesAmx();
    default: return false;
  }
}

void PackAmxGroup(WeightFormat format, const AmxInputs& inputs, size_t group,
                  size_t begin, size_t end, const float* const* x) {
  const size_t token = group * kAmxTile;
  const Set set(inputs, token / inputs.set_tokens * inputs.set_tokens);
  PackGroup(format, inputs, set, (token - set.first) / kAmxTile, begin, end, x);
}

uint32_t LargestMagnitude(const float* x, size_t n) { return Largest(x, n); }

void UnpackAmxInput(WeightFormat format, const AmxInputs& inputs, size_t token,
                    float* x) {
  const Places places(format);
  const Set set(inputs, token / inputs.set_tokens * inputs.set_tokens);
  const size_t group = (token - set.first) / kAmxTile;
  const size_t tokens = set.GroupTokens(group);
  const size_t column = (token - set.first) % kAmxTile;
  for (size_t i = 0; i < inputs.cols; ++i) {
    const size_t block = i / kAmxBlock, place = i % kAmxBlock;
    const uint16_t* const values =
        set.Group(inputs, group) + block * kAmxBlock * tokens;
    x[block * kAmxBlock + places.element[place]] =
        BF16ToF32(values[2 * (place / 2 * tokens + column) + place % 2]);
  }
}

bool AmxLeavesToken(uint32_t largest) {
  return Outside(largest, kLeast << 16, kMost << 16);
}

bool UnpackAmxRow(const Matrix& weight, size_t row, float* values) {
  const Places places(weight.format);
  const size_t blocks = weight.cols / kAmxBlock;
  uint16_t unpacked[kChunk * kTileValues];
  uint32_t largest = 0;
  for (size_t b = 0; b < blocks; b += kChunk) {
    const size_t count = std::min(kChunk, blocks - b);
    WithAmxFormat(weight.format, [&](auto format) {
      largest = std::max(largest, UnpackRow<decltype(format)::value>(
                                      weight, row, b, b + count, unpacked));
    });
    for (size_t i = 0; i < count * kAmxBlock; ++i) {
      const size_t block = i / kAmxBlock, place = i % kAmxBlock;
      values[(b + block) * kAmxBlock + places.element[place]] =
          BF16ToF32(unpacked[block * kTileValues + place]);
    }
  }
  return Outside(largest, kLeast, kMost);
}

void MultiplyAmx(const Matrix& weight, const AmxInputs& inputs, float* const* y,
                 size_t begin, size_t end, bool* left_rows) {
  WithAmxFormat(weight.format, [&](auto format) {
    Multiply<decltype(format)::value>(weight, inputs, y, begin, end, left_rows);
  });
}

double MultiplyAddsAmx(size_t rounds) { return MultiplyAdds(rounds); }

uint64_t AmxScratchBytes(size_t rows, size_t cols, size_t tokens) {
  const size_t set = std::min(tokens, kAmxSetTokens);
  const size_t panels =
      CeilDiv(std::min(rows, PassRows(cols, set)), kPanelRows);
  return kPanelRows * kChunk * kAmxBlock * sizeof(uint16_t) +
         2 * panels * CeilDiv(set, kAmxTile) * kTileFloats * sizeof(float);
}

}  // namespace ecphory
#endif
