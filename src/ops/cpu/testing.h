// Test hooks: run CpuOps() on each compiled Highway target that this
// processor supports.
#pragma once

#include <cstdint>
#include <vector>

namespace ecphory {

// Ids of the targets that can run here, best first.
std::vector<int64_t> CpuTargetsForTest();
// "AVX3", "AVX2", "SCALAR", ...
const char* CpuTargetNameForTest(int64_t target);
// From now on CpuOps() runs on `target`, one of CpuTargetsForTest(); 0 returns
// to the best one. Not while an operator is running.
void SetCpuTargetForTest(int64_t target);

}  // namespace ecphory
