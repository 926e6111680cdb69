// SPDX-License-Identifier: Apache-2.0
#include "comm/meeting_seat.h"

#include <poll.h>

#include <algorithm>
#include <limits>

#include "comm/meeting_wire.h"

namespace railyard::comm {
namespace {

/// Nothing tells when a server somewhere else has been started.
constexpr int kTryAgainMs = 100;

Status failure_of(const Answer& answer, int rank) {
  const std::string who = rank_list(answer.ranks);
  const bool self = std::count(answer.ranks.begin(), answer.ranks.end(), rank) != 0;
  switch (answer.kind) {
    case Answer::Kind::kMissing:
      if (self) {
        return Status::error(Code::kRemoteError,
                             "this rank came too late (%s did not come in time; RAILYARD_JOIN_S "
                             "says how long ranks wait)",
                             who.c_str());
      }
      return Status::error(Code::kRemoteError,
                           "%s did not come in time: is railyard loaded there? (RAILYARD_JOIN_S "
                           "says how long to wait)",
                           who.c_str());
    case Answer::Kind::kLost:
      return Status::error(Code::kRemoteError, "the connection to %s was lost", who.c_str());
    case Answer::Kind::kOtherVersion:
      return Status::error(Code::kRemoteError,
                           "the meeting point speaks version %u of railyard's protocol, this rank "
                           "version %u: install the same railyard on all nodes",
                           answer.version, kProtocolVersion);
    case Answer::Kind::kGathered:
      break;
  }
  return Status::error(Code::kRemoteError, "the meeting point gave an answer that makes no sense");
}

}  // namespace

Result<MeetingSeat> MeetingSeat::take(const MeetingPoint& point, int rank, int ranks,
                                      net::Deadline deadline) {
  MeetingSeat seat;
  seat.rank_ = rank;
  seat.ranks_ = ranks;
  Result<UniqueFd> fd = net::connect_to(point.address, deadline);
  while (!fd.ok() && !deadline.passed()) {
    poll(nullptr, 0, std::min(deadline.left_ms(), kTryAgainMs));
    fd = net::connect_to(point.address, deadline);
  }
  if (!fd.ok()) return fd.status();
  seat.fd_ = fd.take();
  net::set_no_delay(seat.fd_.get());
  net::set_keep_alive(seat.fd_.get());
  Hello hello;
  hello.key = point.key;
  hello.meeting = point.meeting;
  hello.rank = static_cast<uint32_t>(rank);
  hello.ranks = static_cast<uint32_t>(ranks);
  const Status sent = net::send_all(seat.fd_.get(), hello.encode(), deadline);
  if (!sent.ok()) return sent;
  return seat;
}

Result<std::vector<wire::Bytes>> MeetingSeat::round(std::span<const std::byte> part,
                                                    net::Deadline deadline) {
  if (part.size() > kMaxPartBytes) {
    return Status::error(Code::kInternal, "a rank's part of a meeting has %zu bytes", part.size());
  }
  // What could not be sent may still be answered: with the reason why the meeting is over.
  [[maybe_unused]] const Status sent = net::send_frame(fd_.get(), part, deadline);
  const uint64_t limit = static_cast<uint64_t>(ranks_) * (kMaxPartBytes + 4) + 1024;
  const Result<wire::Bytes> frame = net::receive_frame(
      fd_.get(),
      static_cast<uint32_t>(std::min<uint64_t>(limit, std::numeric_limits<uint32_t>::max())),
      deadline);
  if (!frame.ok()) {
    return Status::error(frame.status().code(), "the meeting point did not answer: %s",
                         frame.status().message().c_str());
  }
  std::optional<Answer> answer = Answer::decode(*frame);
  if (answer && answer->kind == Answer::Kind::kGathered &&
      answer->parts.size() == static_cast<size_t>(ranks_)) {
    return std::move(answer->parts);
  }
  failed_for_all_ = answer.has_value();
  if (answer) absent_ = answer->ranks;
  return failure_of(answer.value_or(Answer{}), rank_);
}

int MeetingSeat::lowest_present() const {
  if (!failed_for_all_) return rank_;
  uint32_t lowest = 0;
  while (std::count(absent_.begin(), absent_.end(), lowest) != 0) ++lowest;
  return static_cast<int>(lowest);
}

}  // namespace railyard::comm
