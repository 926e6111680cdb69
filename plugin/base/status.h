// SPDX-License-Identifier: Apache-2.0
//
// How functions say that something went wrong. Nothing in railyard throws on purpose; a function
// that can fail returns a Status, or a Result<T> when it also yields a value.
//
//   Result<int> parsed = parse(text);
//   if (!parsed.ok()) return parsed.status();
//   use(*parsed);
//
// A message says what failed, where, and what the reader can do about it. Whoever decides what a
// failure means logs it; nobody above logs it again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace railyard {

/// What has to be given up because of a failure.
enum class Code : uint8_t {
  kOk,
  kInvalidArgument,  ///< this call: an argument is wrong
  kInvalidUsage,     ///< this call: wrong at this moment or in this combination
  kUnavailable,      ///< this feature: something the machine does not offer
  kSystemError,      ///< this operation: a system call or resource failed
  kDeviceError,      ///< this operation: the CUDA driver reported a failure
  kRemoteError,      ///< this link or peer: another process or the network failed
  kAborted,          ///< this communicator: somebody ended it on purpose
  kInternal,         ///< railyard's own mistake
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  /// Formats as printf does.
  [[gnu::format(printf, 2, 3)]] static Status error(Code code, const char* format, ...);
  /// Like error(kSystemError, …) with ": " and the text of `error_number` at the end.
  [[gnu::format(printf, 2, 3)]] static Status system(int error_number, const char* format, ...);

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

/// A value, or the Status (never ok) that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT: implicit on purpose
  Result(Status status) : status_(std::move(status)) {}  // NOLINT: implicit on purpose

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }
  /// REQUIRES: ok().
  T take() { return std::move(*value_); }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace railyard
