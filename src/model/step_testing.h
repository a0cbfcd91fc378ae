// Texts that steps draw by themselves, for tests of their Engram rows.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "ecphory/session.h"

namespace ecphory::testing {

// `count` tokens, of which each is the best one after those before it.
inline std::vector<int32_t> GreedyText(
    const std::shared_ptr<const Model>& model, size_t count) {
  const auto session = Session::Create(model, {}).value();
  std::vector<int32_t> text = {5};
  while (text.size() < count) {
    text.push_back(session
                       ->Step(text.back(), {.temperature = 0}, 0,
                              /*goes_on=*/false)
                       .value());
  }
  return text;
}

// The first position from `from` on whose last row in the last Engram layer no
// position before it reads, and that row.
struct FirstReader {
  FirstReader(const Model& model, const std::vector<int32_t>& text, size_t from)
      : at(from) {
    const auto all = model.EngramRows(text, {}).value();
    const auto rows = [&](size_t i) { return all[i].back().rows; };
    const auto reads = [&](size_t i) {
      return std::ranges::count(rows(i), rows(at).back()) > 0;
    };
    for (size_t i = 0; i < at && at + 1 < text.size();) {
      i = reads(i) ? (++at, 0) : i + 1;
    }
    EXPECT_LT(at + 1, text.size());
    row = rows(at).back();
  }
  size_t at;
  uint64_t row = 0;
};

}  // namespace ecphory::testing
