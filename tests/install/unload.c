// unload LIBRARY MODEL: opens and closes a memory whose rows come through the
// page cache, lets the library go and sends itself a SIGBUS, which ends the
// program as if the library had never been there.
#include <dlfcn.h>
#include <ecphory/engram.h>
#include <signal.h>
#include <stdio.h>

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  void (*init)(ecphory_engram_options*, size_t);
  ecphory_engram_status (*open)(const char*, const ecphory_engram_options*,
                                ecphory_engram**);
  void (*close)(ecphory_engram**);
  *(void**)&init = dlsym(library, "ecphory_engram_options_init");
  *(void**)&open = dlsym(library, "ecphory_engram_open");
  *(void**)&close = dlsym(library, "ecphory_engram_close");

  ecphory_engram_options options;
  init(&options, sizeof(options));
  options.io_mode = ECPHORY_ENGRAM_IO_BUFFERED;
  ecphory_engram* engram;
  if (open(argv[2], &options, &engram) != ECPHORY_ENGRAM_OK) return 1;
  close(&engram);
  dlclose(library);
  raise(SIGBUS);
  return 0;
}
