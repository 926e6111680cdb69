// SPDX-License-Identifier: Apache-2.0
#include "tagged_output.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <utility>

namespace railyard::emulator {
namespace {

void write_all(int fd, const std::string& text) {
  size_t written = 0;
  while (written < text.size()) {
    ssize_t n = ::write(fd, text.data() + written, text.size() - written);
    if (n >= 0) {
      written += static_cast<size_t>(n);
    } else if (errno == EAGAIN) {
      pollfd room{fd, POLLOUT, 0};
      ::poll(&room, 1, -1);
    } else if (errno != EINTR) {
      return;  // nobody reads our output any more
    }
  }
}

}  // namespace

TaggedOutput::TaggedOutput(int rank, int source, int target)
    : tag_("[" + std::to_string(rank) + "] "), source_(source), target_(target) {
  ::fcntl(source_, F_SETFL, ::fcntl(source_, F_GETFL) | O_NONBLOCK);
}

TaggedOutput::TaggedOutput(TaggedOutput&& other) noexcept
    : tag_(other.tag_),
      source_(std::exchange(other.source_, -1)),
      target_(other.target_),
      pending_(std::move(other.pending_)) {}

TaggedOutput::~TaggedOutput() {
  if (source_ < 0) return;
  flush_lines(true);
  ::close(source_);
}

bool TaggedOutput::pump() {
  char buffer[16384];
  for (;;) {
    ssize_t n = ::read(source_, buffer, sizeof buffer);
    if (n > 0) {
      pending_.append(buffer, static_cast<size_t>(n));
    } else if (n < 0 && errno == EINTR) {
      continue;
    } else {
      bool open = n < 0 && errno == EAGAIN;
      flush_lines(!open);
      return open;
    }
  }
}

void TaggedOutput::flush_lines(bool also_last) {
  std::string out;
  size_t begin = 0;
  for (size_t end; (end = pending_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    out += tag_;
    out.append(pending_, begin, end + 1 - begin);
  }
  pending_.erase(0, begin);
  if (also_last && !pending_.empty()) {
    out += tag_ + pending_ + "\n";
    pending_.clear();
  }
  write_all(target_, out);
}

}  // namespace railyard::emulator
