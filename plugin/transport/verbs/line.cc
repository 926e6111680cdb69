// SPDX-License-Identifier: Apache-2.0
#include "transport/verbs/line.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "transport/verbs/handshake.h"

namespace railyard::verbs {
namespace {

constexpr size_t kLengthBytes = 4;

}  // namespace

Line::Line(UniqueFd fd) : fd_(std::move(fd)) {
  net::set_no_delay(fd_.get());
  net::set_keep_alive(fd_.get());
}

void Line::send(std::span<const std::byte> frame) {
  wire::Writer out;
  out.blob(frame);
  out_.insert(out_.end(), out.bytes().begin(), out.bytes().end());
  flush();
}

void Line::flush() {
  while (wants_to_write() && open()) {
    const ssize_t count = ::send(fd(), out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    // Whatever else went wrong, receive() is going to see it.
    if (count < 0 && errno != EAGAIN) sent_ = out_.size();
    if (count < 0) break;
    sent_ += static_cast<size_t>(count);
  }
  if (wants_to_write()) return;
  out_.clear();
  sent_ = 0;
}

std::optional<wire::Bytes> Line::take_frame() {
  if (in_.size() < kLengthBytes) return std::nullopt;
  const uint32_t length = wire::Reader(in_).u32();
  bad_ = length == 0 || length > kMaxFrameBytes;
  if (bad_ || in_.size() < kLengthBytes + length) return std::nullopt;
  const auto begin = in_.begin() + kLengthBytes;
  wire::Bytes frame(begin, begin + length);
  in_.erase(in_.begin(), begin + length);
  return frame;
}

Result<std::optional<wire::Bytes>> Line::receive() {
  for (;;) {
    if (auto frame = take_frame()) return frame;
    if (bad_) return Status(Code::kRemoteError, "what came is not from railyard");
    std::array<std::byte, 4096> buffer;
    const ssize_t count = recv(fd(), buffer.data(), buffer.size(), 0);
    if (count > 0) {
      in_.insert(in_.end(), buffer.begin(), buffer.begin() + count);
    } else if (count == 0) {
      return Status(Code::kRemoteError, "the connection was closed");
    } else if (errno == EAGAIN) {
      return std::optional<wire::Bytes>();
    } else if (errno != EINTR) {
      return Status(Code::kRemoteError, std::strerror(errno));
    }
  }
}

}  // namespace railyard::verbs
