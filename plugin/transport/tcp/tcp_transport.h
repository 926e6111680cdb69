// SPDX-License-Identifier: Apache-2.0
//
// The transport for machines without RDMA, and for tests: framed cells on non-blocking TCP
// sockets, landing in host memory.
//
//   TcpOptions options;
//   options.bind = address_of_the_interface;         // port 0: any
//   auto transport = transport::make_tcp(options);
//
// Each side sends on connections it has opened and reads from those it has accepted, so that two
// sides that begin at the same time need no referee. All of one link's cells and credits to one
// side travel on one connection, made at the first post.
//
//   opener                                acceptor
//     connect, hello {secret of acceptor, id of opener}  ->  proven, joined to the opener's link
//     cells, credits                                     ->  Receiver
//     goodbye, end of stream                             ->  closes
//
// A link that the peer closed stays usable here: the peer may open it again at any time, and finds
// what is posted from then on. Credits for a link closed at the other end are dropped there; a
// cell for it ends the link at its sender, since nobody will ever take it.
//
// A connection that does not prove itself with the secret of the address is dropped, silently but
// for a trace line. The secret travels in the clear: it keeps strangers and strays out, not
// somebody who can read the wire.
#pragma once

#include <cstdint>
#include <memory>

#include "base/socket.h"
#include "base/status.h"
#include "transport/transport.h"

namespace railyard::transport {

struct TcpOptions {
  /// Where to listen and how peers reach this carrier; not the wildcard address.
  net::SocketAddress bind;
  /// How long an accepted connection may take to prove itself.
  int64_t prove_ms = 10'000;
  /// How many connections may be proving themselves at a time; others wait to be accepted.
  uint32_t max_unproven = 64;
  /// How many proven connections may wait for their link to be opened here; others are dropped.
  uint32_t max_held = 1024;
};

Result<std::unique_ptr<Transport>> make_tcp(const TcpOptions& options);

}  // namespace railyard::transport
