// SPDX-License-Identifier: Apache-2.0
#include "base/service_thread.h"

#include <pthread.h>
#include <signal.h>

#include <system_error>
#include <utility>

namespace railyard {

Result<std::thread> start_service_thread(const char* name, std::function<void()> body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // the new thread inherits it
  std::thread thread;
  int error = 0;
  try {
    thread = std::thread(std::move(body));
  } catch (const std::system_error& refusal) {
    error = refusal.code().value();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0) return Status::system(error, "cannot start thread %s", name);
  pthread_setname_np(thread.native_handle(), name);
  return thread;
}

}  // namespace railyard
