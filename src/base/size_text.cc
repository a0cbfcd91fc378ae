#include "base/size_text.h"

#include <cstdio>

namespace ecphory {

std::string SizeText(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"kB", "MB", "GB", "TB", "PB", "EB"};
  const std::string exact = std::to_string(bytes) + " bytes";
  if (bytes < 1000) return exact;
  double x = static_cast<double>(bytes) / 1000;
  int unit = 0;
  for (; x >= 999.5; x /= 1000) ++unit;
  char text[64];
  std::snprintf(text, sizeof(text), x < 99.95 ? "%.1f %s (%s)" : "%.0f %s (%s)",
                x, kUnits[unit], exact.c_str());
  return text;
}

}  // namespace ecphory
