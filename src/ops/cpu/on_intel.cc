#include "ops/cpu/on_intel.h"

namespace ecphory {

namespace {

bool OnIntel() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_cpu_init();
  return __builtin_cpu_is("intel") != 0;
#else
  return false;
#endif
}

}  // namespace

const bool kOnIntel = OnIntel();

}  // namespace ecphory
