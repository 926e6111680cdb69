// SPDX-License-Identifier: Apache-2.0
//
// How soon the end of a peer is noticed that can no longer say so.
#pragma once

#include "base/socket.h"

namespace railyard::transport::tcp {

/// A host that vanished without a word is noticed after about two minutes; one that only stopped
/// reading is answered for by its kernel and never given up.
inline void keep_alive(int fd) { net::set_keep_alive(fd, {60, 10, 6}); }

}  // namespace railyard::transport::tcp
