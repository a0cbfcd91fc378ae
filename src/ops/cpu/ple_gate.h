// What the passes of CpuPleGate() hand to each other.
#pragma once

namespace ecphory {

// Of one token and stream; 0 where shut.
struct PleGateScales {
  float gate;  // times the value: what is added to the stream
  float norm;  // times the value: the convolution's input before its weight
};

}  // namespace ecphory
