// SPDX-License-Identifier: Apache-2.0
//
// One rank's side of a meeting. Thread-bound.
//
//   Result<MeetingSeat> seat = MeetingSeat::take(point, rank, ranks, Deadline::after_s(20));
//   auto everybodys = seat->round(mine, Deadline::after_s(60));   // by rank; as often as agreed
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/socket.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "base/wire.h"
#include "comm/meeting_point.h"

namespace railyard::comm {

class MeetingSeat {
 public:
  /// The server may be started later than this is called.
  static Result<MeetingSeat> take(const MeetingPoint& point, int rank, int ranks,
                                  net::Deadline deadline);

  /// Says `part` and waits for everybody's, which come by rank. A failure names the ranks that are
  /// missing or lost; the meeting is over then, for all ranks.
  Result<std::vector<wire::Bytes>> round(std::span<const std::byte> part, net::Deadline deadline);

  /// After a failure: the lowest rank that is neither missing nor lost, as far as this one knows.
  int lowest_present() const;
  /// Whether the last failure was the server's answer, which all ranks get alike; otherwise this
  /// rank alone does not know how the round ended.
  bool failed_for_all() const { return failed_for_all_; }

 private:
  UniqueFd fd_;
  int rank_ = 0, ranks_ = 0;
  bool failed_for_all_ = false;
  std::vector<uint32_t> absent_;
};

}  // namespace railyard::comm
