#include "output.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>

#include "interrupt.h"
#include "utf8.h"

namespace ecphory::cli {

namespace {

Status g_output_status;  // the first failure of Print
bool g_output_closed = false;

Status WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n >= 0) {
      text.remove_prefix(static_cast<size_t>(n));
    } else if (errno != EINTR) {
      g_output_closed = errno == EPIPE;
      return ErrnoError(errno, "standard output");
    }
  }
  return {};
}

}  // namespace

Status Print(std::string_view text) {
  if (g_output_status.ok()) g_output_status = WriteAll(STDOUT_FILENO, text);
  return g_output_status;
}

Status PrintLines(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    shown += OneLine(text.substr(0, end));
    if (end < text.size()) shown += '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return Print(shown);
}

Status PrintJson(const Json& json) {
  return Print(json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

bool OutputClosed() { return g_output_closed; }

std::string Format(const char* format, ...) {
  va_list args;
  va_start(args, format);
  va_list measure;
  va_copy(measure, args);
  const int length = std::vsnprintf(nullptr, 0, format, measure);
  va_end(measure);
  std::string text(static_cast<size_t>(length), '\0');
  // One more byte than the string holds: its own terminator.
  std::vsnprintf(text.data(), text.size() + 1, format, args);
  va_end(args);
  return text;
}

Result<std::string> ReadStandardInput(size_t max_bytes) {
  std::string text;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t n = read(STDIN_FILENO, buffer, sizeof(buffer));
    if (n == 0) return text;
    if (n < 0) {
      if (errno == EINTR && !Interrupted()) continue;
      if (errno == EINTR) return Cancelled("while reading standard input");
      return ErrnoError(errno, "standard input");
    }
    text.append(buffer, static_cast<size_t>(n));
    if (text.size() > max_bytes) {
      return OutOfRange("standard input: more than %zu bytes of text",
                        max_bytes);
    }
  }
}

}  // namespace ecphory::cli
