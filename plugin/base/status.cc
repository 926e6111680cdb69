// SPDX-License-Identifier: Apache-2.0
#include "base/status.h"

#include <cstdarg>
#include <cstdio>
#include <system_error>

namespace railyard {
namespace {

std::string format_text(const char* format, va_list args) {
  va_list again;
  va_copy(again, args);
  const int length = std::vsnprintf(nullptr, 0, format, again);
  va_end(again);
  std::string text(length > 0 ? static_cast<size_t>(length) : 0, '\0');
  std::vsnprintf(text.data(), text.size() + 1, format, args);
  return text;
}

}  // namespace

Status Status::error(Code code, const char* format, ...) {
  va_list args;
  va_start(args, format);
  Status status(code, format_text(format, args));
  va_end(args);
  return status;
}

Status Status::system(int error_number, const char* format, ...) {
  va_list args;
  va_start(args, format);
  Status status(Code::kSystemError,
                format_text(format, args) + ": " + std::generic_category().message(error_number));
  va_end(args);
  return status;
}

}  // namespace railyard
