// What this processor can do at best: the work of the yardsticks to which
// `ecphory bench` holds the operators. All run on the calling thread, at the
// width of the active Highway target.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ecphory {

// Fused multiply-adds on registers, `rounds` times 12 vectors; returns the fp32
// operations done, two a lane.
double MultiplyAdds(size_t rounds);

// The same of products of bf16, by AMX where products run on it, else by
// AVX512_BF16; 0 where the processor or the target has neither.
double MultiplyAddsBf16(size_t rounds);

// Reads every byte of [data, data + bytes), in as many runs side by side as a
// matrix-vector kernel reads rows. `data` is 4-byte aligned.
void ReadBytes(const uint8_t* data, size_t bytes);

// Copies with ordinary stores, `bytes` a multiple of 4. The ranges are 4-byte
// aligned and do not overlap.
void CopyBytes(const uint8_t* from, size_t bytes, uint8_t* to);

// x[i] = -x[i], in place.
void NegateFloats(float* x, size_t n);

}  // namespace ecphory
