#include "suggest.h"

#include <algorithm>
#include <cstddef>

namespace ecphory::cli {

size_t EditDistance(const std::string& a, const std::string& b) {
  // Rows i - 2, i - 1 and i of the table of distances between beginnings.
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1),
      row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    before.swap(last);
    last.swap(row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1,
                         last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      const bool swapped =
          i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::string Nearest(const std::string& name,
                    const std::vector<std::string>& known) {
  // Any letter is one step from any other: "-m" is not a slip for "-h".
  if (name.size() == 2 && name[0] == '-') return "";
  // A third of the letters may be wrong; more is another word.
  size_t best = std::max<size_t>(name.size() / 3, 1) + 1;
  std::string nearest;
  for (const std::string& candidate : known) {
    const bool prefix = name.size() > 3 && candidate.rfind(name, 0) == 0;
    const size_t distance = prefix ? 1 : EditDistance(name, candidate);
    if (distance >= best) continue;
    best = distance;
    nearest = candidate;
  }
  return nearest;
}

}  // namespace ecphory::cli
