// SPDX-License-Identifier: Apache-2.0
//
// Where ranks meet: one thread per process that serves any number of meetings. A meeting is a
// sequence of rounds; in each, every rank sends a part and gets everybody's. What the parts mean is
// none of the server's business.
//
//   connect, hello {key, meeting, rank, ranks}      a meeting begins with its first rank
//   part ----> … all parts are there … ----> answer, then the next round
//
// 1. A round ends for all ranks alike: all parts, or one failure that names ranks. After a failure
//    there are no further rounds; whoever comes later gets the same answer.
// 2. Nobody waits for ever: a round fails when parts are missing after its time limit, or when the
//    connection of a rank breaks that others wait for.
// 3. What does not prove itself with the key is dropped. So are second connections of a rank, parts
//    out of turn and parts that are too long; the meeting goes on as if they had not come.
//
// Idle, it costs nothing: the thread blocks until somebody connects or a limit passes.
// Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <thread>

#include "base/socket.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "comm/meeting_point.h"

namespace railyard::comm {

struct MeetingServerOptions {
  int64_t come_ms = 20'000;   ///< from the first rank's coming until all parts of round 0 are there
  int64_t round_ms = 40'000;  ///< the same for later rounds, from their first part
  int64_t hello_ms = 10'000;  ///< for a connection to say who it is
  std::optional<Secret> key = {};  ///< one that opens, besides the server's own, from the start
};

class MeetingServer {
 public:
  /// `at`: an address others can reach; port 0 lets the system choose.
  static Result<std::unique_ptr<MeetingServer>> start(const net::SocketAddress& at,
                                                      const MeetingServerOptions& options);
  /// Drops all connections.
  ~MeetingServer();

  /// A fresh meeting. Costs nothing until somebody comes.
  Result<MeetingPoint> new_point() const;
  /// Lets in who has this key, too.
  void admit(const Secret& key);

 private:
  class Loop;
  MeetingServer();

  net::SocketAddress address_;
  Secret key_{};
  std::unique_ptr<Loop> loop_;
  std::thread thread_;
};

}  // namespace railyard::comm
