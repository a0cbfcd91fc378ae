// Marks what leaves the shared library; everything else is hidden.
#pragma once

#if defined(__GNUC__)
#define ECPHORY_EXPORT [[gnu::visibility("default")]]
#else
#define ECPHORY_EXPORT
#endif
