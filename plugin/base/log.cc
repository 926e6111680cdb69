// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>

namespace railyard::log {
namespace {

std::atomic<Level> current_level{Level::kWarn};
std::atomic<int> sink{STDERR_FILENO};

void write_line(const char* tag, const char* format, va_list args) {
  char line[2048];
  int used = std::snprintf(line, sizeof line, "railyard[%d] %s: ", static_cast<int>(getpid()), tag);
  used += std::vsnprintf(line + used, sizeof line - static_cast<size_t>(used), format, args);
  if (used > static_cast<int>(sizeof line) - 1) used = static_cast<int>(sizeof line) - 1;
  line[used] = '\n';
  const int saved = errno;
  // A full or closed sink must not disturb the program we live in: the result is ignored.
  [[maybe_unused]] const ssize_t written = write(sink.load(), line, static_cast<size_t>(used) + 1);
  errno = saved;
}

}  // namespace

void configure(Level level, const char* file) {
  current_level = level;
  if (file == nullptr || *file == '\0') return;
  const int fd = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd >= 0) {
    sink = fd;
  } else {
    warn("cannot open log file %s; logging to stderr", file);
  }
}

bool enabled(Level level) { return level <= current_level.load(std::memory_order_relaxed); }

void warn(const char* format, ...) {
  if (!enabled(Level::kWarn)) return;
  va_list args;
  va_start(args, format);
  write_line("warning", format, args);
  va_end(args);
}

void info(const char* format, ...) {
  if (!enabled(Level::kInfo)) return;
  va_list args;
  va_start(args, format);
  write_line("info", format, args);
  va_end(args);
}

void trace(const char* format, ...) {
  if (!enabled(Level::kTrace)) return;
  va_list args;
  va_start(args, format);
  write_line("trace", format, args);
  va_end(args);
}

}  // namespace railyard::log
