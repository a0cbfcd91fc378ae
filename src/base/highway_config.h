// Which Highway targets this engine compiles. Include before any Highway
// header, in every file that includes one.
//
// AVX-512 and AVX2 cover x86 processors since 2013; the scalar fallback runs
// anywhere and is only meant to be right. Each target more costs about a third
// of such a file's build time. Scalable vectors (SVE, RVV) are out: the kernels
// keep vectors in arrays, which sizeless types cannot do.
#pragma once

#define HWY_DISABLED_TARGETS                                                \
  (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | \
   HWY_RVV)
