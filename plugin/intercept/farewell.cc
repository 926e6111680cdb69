// SPDX-License-Identifier: Apache-2.0
#include "intercept/farewell.h"

#include "base/log.h"
#include "base/service_thread.h"
#include "intercept/runtime.h"

namespace railyard::intercept {
namespace {

ncclResult_t say_and_wait(Runtime& runtime, const Farewell& farewell) {
  comm::Communicator& communicator = *farewell.communicator;
  if (farewell.destroy) {
    communicator.destroy();
    return ncclSuccess;
  }
  exchange::Engine* const engine = communicator.engine();
  if (engine == nullptr) return ncclSuccess;
  return runtime.last_error.set(runtime.engines.farewell(*engine));
}

}  // namespace

ncclResult_t say(Runtime& runtime, const Farewell& farewell) {
  comm::Communicator::Standing& standing = farewell.communicator->standing;
  if (standing.blocking) {
    const ncclResult_t said = say_and_wait(runtime, farewell);
    // Known until now: another thread may have had to abort what waits here.
    if (farewell.destroy) runtime.manager.unbind(farewell.handle);
    return said;
  }
  if (farewell.destroy) runtime.manager.unbind(farewell.handle);
  standing.leaving = true;
  auto thread = start_service_thread("railyard-leave", [&runtime, farewell] {
    say_and_wait(runtime, farewell);
    farewell.communicator->standing.leaving = false;
  });
  if (thread.ok()) {
    // Nobody is to wait for it: what it uses belongs to it or outlives all threads.
    thread->detach();
    return ncclSuccess;
  }
  log::warn("a communicator ends without a farewell: %s", thread.status().message().c_str());
  farewell.communicator->stop();
  standing.leaving = false;
  return ncclSuccess;
}

}  // namespace railyard::intercept
