// The best target that any file is compiled for; files without it take their
// next best.
#define HWY_WANT_AVX3_DL 1
#include "base/highway_config.h"
// Order matters: the configuration above selects what this declares.
#include "hwy/highway.h"
#include "ops/cpu/gemm_amx.h"
#include "ops/cpu/testing.h"
#include "ops/cpu_instructions.h"
#include "ops/ops.h"

namespace ecphory {

std::vector<int64_t> CpuTargetsForTest() {
  // Asked for once: a forced target hides the others.
  static const std::vector<int64_t> targets =
      hwy::SupportedAndGeneratedTargets();
  return targets;
}

const char* CpuTargetNameForTest(int64_t target) {
  return hwy::TargetName(target);
}

void SetCpuTargetForTest(int64_t target) {
  // A better target has a lower bit.
  int64_t allowed = 0;
  for (const int64_t other : CpuTargetsForTest()) {
    if (target != 0 && other >= target) allowed |= other;
  }
  hwy::SetSupportedTargetsForTest(allowed);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

const char* CpuTargetName() {
  const int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;
  return hwy::TargetName(targets & -targets);  // the lowest bit is the best
}

bool CpuOrdersByTokens() { return UsesAmx(); }

std::string CpuInstructions() {
  return std::string(CpuTargetName()) + (UsesAmx() ? ", AMX" : "");
}

}  // namespace ecphory
