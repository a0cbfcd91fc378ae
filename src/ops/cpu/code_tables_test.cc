#include "ops/cpu/code_tables.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace ecphory {
namespace {

// Tables are made once, by whichever kernel comes first: in bf16 products, or
// in a program that does so itself, denormals are zero meanwhile.
TEST(CodeTables, AreTheSameWhereDenormalsAreZero) {
#if defined(__x86_64__)
  constexpr unsigned kFlushToZero = 0x8000, kDenormalsAreZero = 0x40;
  const unsigned saved = _mm_getcsr();
  _mm_setcsr(saved | kFlushToZero | kDenormalsAreZero);
  const CodeTables tables;
  const E4M3Bytes bytes;
  _mm_setcsr(saved);
  const CodeTables ordinary;
  const E4M3Bytes ordinary_bytes;
  EXPECT_EQ(std::memcmp(&tables, &ordinary, sizeof(tables)), 0);
  EXPECT_EQ(std::memcmp(&bytes, &ordinary_bytes, sizeof(bytes)), 0);
#else
  GTEST_SKIP() << "denormals are never zero here";
#endif
}

TEST(CodeTables, HoldEveryCodesValue) {
  const CodeTables tables;
  for (int code = 0; code < 255; ++code) {
    EXPECT_EQ(tables.e8m0[code], std::ldexp(1.0f, code - 127)) << code;
    EXPECT_EQ(tables.e8m0_of_e4m3[code], std::ldexp(1.0f, code - 127 + 8))
        << code;
    if ((code & 127) == 127) continue;
    EXPECT_EQ(tables.e4m3[code], E4M3ToF32(static_cast<uint8_t>(code)));
  }
  EXPECT_TRUE(std::isnan(tables.e8m0[255]));
}

}  // namespace
}  // namespace ecphory
