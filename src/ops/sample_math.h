// The arithmetic of ops/sample.h: for hosts and devices alike, of operations
// that IEEE 754 defines. It is to be compiled without contraction.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace ecphory {

// A finite logit, and the order that chooses among such.
struct SampleCandidate {
  float logit;
  int32_t id;
};
constexpr bool SampleBetter(const SampleCandidate& a,
                            const SampleCandidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}
constexpr bool SampleLower(const SampleCandidate& a, const SampleCandidate& b) {
  return a.id < b.id;
}

// Of a mass of 1: as many as let all of `vocab` add up.
constexpr int SampleMassBits(size_t vocab) {
  return std::min(40, 63 - static_cast<int>(std::bit_width(vocab)));
}

// 2^bits e^z to the nearest integer, or next to it, for z <= 0.
constexpr uint64_t SampleMass(double z, int bits) {
  constexpr double kLog2E = 1.4426950408889634, kLn2 = 0.6931471805599453;
  constexpr double kOneOver[] = {1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880,
                                 1.0 / 40320,    1.0 / 5040,    1.0 / 720,
                                 1.0 / 120,      1.0 / 24,      1.0 / 6,
                                 1.0 / 2,        1.0,           1.0};
  if (!(z > -45)) return 0;  // 2^63 e^-45 < 0.5
  // e^z = 2^n e^r, |r| <= ln 2 / 2: the series to r^11 is good for 2^-47.
  const int n = static_cast<int>(z * kLog2E - 0.5);
  const double r = z - n * kLn2;
  double e = 0;
  for (const double c : kOneOver) e = e * r + c;
  const int drop = 52 - bits - n;
  if (drop > 62) return 0;
  return (static_cast<uint64_t>(e * 0x1p52) + (uint64_t{1} << (drop - 1))) >>
         drop;
}

// Of a mass of all, the part that the best must reach: at least 1.
constexpr uint64_t SampleShare(float top_p, uint64_t total) {
  const double share = static_cast<double>(top_p) * static_cast<double>(total);
  uint64_t whole = static_cast<uint64_t>(share);
  if (static_cast<double>(whole) < share) ++whole;
  return std::clamp<uint64_t>(whole, 1, total);
}

// floor(total * random / 2^64)
constexpr uint64_t SampleTarget(uint64_t random, uint64_t total) {
  constexpr uint64_t kLow = 0xffffffff;
  const uint64_t a = random >> 32, b = random & kLow;
  const uint64_t c = total >> 32, d = total & kLow;
  const uint64_t middle = a * d + (b * d >> 32);  // cannot overflow
  const uint64_t other = b * c + (middle & kLow);
  return a * c + (middle >> 32) + (other >> 32);
}

}  // namespace ecphory
