// CHECK: stops the program on our own bugs. Never used on outside input.
#pragma once

#include <cstdio>
#include <cstdlib>

#define ECPHORY_CHECK(condition)                                            \
  do {                                                                      \
    if (!(condition)) {                                                     \
      std::fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, \
                   #condition);                                             \
      std::abort();                                                         \
    }                                                                       \
  } while (0)

#ifdef NDEBUG
#define ECPHORY_DCHECK(condition) \
  do {                            \
    if (false) (void)(condition); \
  } while (0)
#else
#define ECPHORY_DCHECK(condition) ECPHORY_CHECK(condition)
#endif
