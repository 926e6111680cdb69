// SPDX-License-Identifier: Apache-2.0
#include "base/fork.h"

#include <pthread.h>

#include "base/unique_fd.h"

namespace railyard {

void close_in_children() {
  [[maybe_unused]] static const int once =
      pthread_atfork(nullptr, nullptr, [] { OwnedFds::close_all(); });
}

}  // namespace railyard
