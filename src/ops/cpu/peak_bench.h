// What this processor can do at best, as the yardstick of bench/op_bench.cc.
#pragma once

#include <cstddef>

namespace ecphory {

// fp32 operations per second of one core in fused multiply-adds on registers
// (two per lane), at the width of the active Highway target.
double MeasureFmaPeak();

// Bytes per second that one core reads from a buffer of `bytes` bytes.
double MeasureReadBandwidth(size_t bytes);

}  // namespace ecphory
