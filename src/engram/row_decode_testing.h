// Test hooks: decode rows on each compiled target this processor supports.
#pragma once

#include <cstdint>
#include <vector>

namespace ecphory::engram {

// Ids of the targets that can run here, best first.
std::vector<int64_t> RowDecodeTargetsForTest();
// "AVX3_DL", "AVX2", "SCALAR", ...
const char* RowDecodeTargetNameForTest(int64_t target);
// From now on rows are decoded on `target`, one of the above; 0 returns to the
// best one. Not while a row is being decoded.
void SetRowDecodeTargetForTest(int64_t target);

}  // namespace ecphory::engram
