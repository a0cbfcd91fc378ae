#include "terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

namespace ecphory::cli {

uint32_t TerminalWidth(uint32_t fallback) {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) {
    return fallback;
  }
  return size.ws_col;
}

}  // namespace ecphory::cli
