// SPDX-License-Identifier: Apache-2.0
//
// Another carrier as this one knows it, and the connections between the two.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "transport/tcp/frame.h"
#include "transport/tcp/incoming.h"
#include "transport/tcp/outgoing.h"
#include "transport/tcp/poller.h"
#include "transport/transport.h"

namespace railyard::transport::tcp {

/// Kept for the life of the transport once met: a peer whose link is closed must be told from one
/// whose link has yet to be opened.
struct Peer {
  Endpoint endpoint;
  std::string name;
  bool known = false;          ///< its link has been opened once; until then connections are held
  std::optional<LinkId> link;  ///< while it is open and not down
  std::unique_ptr<Outgoing> out;              ///< since the first post
  std::vector<std::unique_ptr<Incoming>> in;  ///< more than one after the peer reopened its link
  bool departed = false;  ///< the last connection it opened ended with a goodbye

  /// `out` has ended, but the peer's own connection still stands and may bring more cells and a
  /// goodbye: that one decides whether this is an orderly end or a failure.
  struct Doubt {
    Status why;
    Clock::time_point until;  ///< put off while data comes
  };
  std::optional<Doubt> doubt;

  Status broken(const std::string& fault) const {
    return Status::error(Code::kRemoteError,
                         "lost the link to %s at %s: %s; see whether that process still runs, what "
                         "it logged last, and whether the network between the two is up",
                         name.c_str(), endpoint.at.text().c_str(), fault.c_str());
  }
};

}  // namespace railyard::transport::tcp
