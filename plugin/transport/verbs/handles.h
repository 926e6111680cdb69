// SPDX-License-Identifier: Apache-2.0
//
// Owned verbs objects, destroyed when their owner goes. A failing destruction is logged: it means
// that something made from the object is still alive.
#pragma once

#include <cstring>
#include <memory>

#include "base/log.h"
#include "transport/verbs/library.h"

namespace railyard::verbs {

template <typename T, int (*Library::*destroy)(T*)>
struct Destroyer {
  const Library* library = nullptr;
  void operator()(T* object) const {
    if (const int error = (library->*destroy)(object); error != 0)
      log::warn("a verbs object could not be destroyed: %s", std::strerror(error));
  }
};

template <typename T, int (*Library::*destroy)(T*)>
using Handle = std::unique_ptr<T, Destroyer<T, destroy>>;

using Context = Handle<ibv_context, &Library::close_device>;
using ProtectionDomain = Handle<ibv_pd, &Library::dealloc_pd>;
using MemoryRegion = Handle<ibv_mr, &Library::dereg_mr>;
using CompletionChannel = Handle<ibv_comp_channel, &Library::destroy_comp_channel>;
using CompletionQueue = Handle<ibv_cq, &Library::destroy_cq>;
using SharedReceiveQueue = Handle<ibv_srq, &Library::destroy_srq>;
using QueuePairHandle = Handle<ibv_qp, &Library::destroy_qp>;

template <typename H>
H own(const Library& library, typename H::element_type* object) {
  return H(object, typename H::deleter_type{&library});
}

}  // namespace railyard::verbs
