// SPDX-License-Identifier: Apache-2.0
#include "thread.h"

#include <pthread.h>

#include "capture.h"
#include "context.h"

namespace railyard::emulator {
namespace {

thread_local Thread* current = nullptr;

pthread_key_t make_key() {
  pthread_key_t key;
  ::pthread_key_create(&key, [](void* thread) {
    current = nullptr;
    delete static_cast<Thread*>(thread);
  });
  return key;
}

}  // namespace

Thread::~Thread() {
  for (const auto& stream : default_streams) {
    forget_captures_of(*stream);
    stream->queue->close();
  }
}

Thread& this_thread() {
  static const pthread_key_t kKey = make_key();
  if (current == nullptr) {
    current = new Thread;
    ::pthread_setspecific(kKey, current);
  }
  return *current;
}

}  // namespace railyard::emulator
