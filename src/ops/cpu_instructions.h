// What the processor's operators use here, for people and for tests.
#pragma once

#include <string>

namespace ecphory {

// The Highway target and "AMX" where products run on it: "AVX3_DL, AMX".
std::string CpuInstructions();

// Whether CpuOps() adds up products of bf16 inputs of more than kMaxFewTokens
// tokens in another order than those of fewer: AMX.
bool CpuOrdersByTokens();

}  // namespace ecphory
