#include "sizes.h"

#include "output.h"

namespace ecphory::cli {

namespace {

std::string Scaled(uint64_t number, const char* const* units) {
  double x = static_cast<double>(number);
  int unit = 0;
  for (; x >= 999.5 && unit < 4; x /= 1000) ++unit;
  if (unit == 0) return std::to_string(number) + units[0];
  return Format(x < 99.95 ? "%.1f%s" : "%.0f%s", x, units[unit]);
}

}  // namespace

std::string Grouped(uint64_t number) {
  std::string digits = std::to_string(number);
  for (size_t at = digits.size(); at > 3;) {
    at -= 3;
    digits.insert(at, ",");
  }
  return digits;
}

std::string HumanBytes(uint64_t bytes) {
  static constexpr const char* kUnits[] = {" B", " kB", " MB", " GB", " TB"};
  return Scaled(bytes, kUnits);
}

std::string HumanRate(double rate) {
  const int decimals = rate < 0.995 ? 2 : rate < 99.95 ? 1 : 0;
  return Format("%.*f", decimals, rate);
}

std::string HumanCount(uint64_t count) {
  static constexpr const char* kUnits[] = {"", " k", " M", " B", " T"};
  return Scaled(count, kUnits);
}

}  // namespace ecphory::cli
