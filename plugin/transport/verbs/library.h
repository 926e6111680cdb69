// SPDX-License-Identifier: Apache-2.0
//
// libibverbs, found at run time so that the plugin also loads where it is not installed. The table
// holds exactly the functions railyard calls, each with the symbol version whose structures the
// header describes. Verbs on the data path (ibv_post_send, ibv_poll_cq, …) are inline functions of
// the header that go through the device's own table; they need nothing from here.
//
// Members are named without "ibv_", since the header defines some of those names as macros.
#pragma once

#include <string>

#include <infiniband/verbs.h>

#include "base/status.h"

namespace railyard::verbs {

// clang-format off
#define RY_VERBS_FUNCTIONS(X)                                                                     \
  X(get_device_list, "IBVERBS_1.1", ibv_device**, (int*))                                         \
  X(free_device_list, "IBVERBS_1.1", void, (ibv_device**))                                        \
  X(get_device_name, "IBVERBS_1.1", const char*, (ibv_device*))                                   \
  X(open_device, "IBVERBS_1.1", ibv_context*, (ibv_device*))                                      \
  X(close_device, "IBVERBS_1.1", int, (ibv_context*))                                             \
  X(query_device, "IBVERBS_1.1", int, (ibv_context*, ibv_device_attr*))                           \
  X(query_port, "IBVERBS_1.1", int, (ibv_context*, uint8_t, ibv_port_attr*))                      \
  X(query_gid, "IBVERBS_1.1", int, (ibv_context*, uint8_t, int, union ibv_gid*))                        \
  X(alloc_pd, "IBVERBS_1.1", ibv_pd*, (ibv_context*))                                             \
  X(dealloc_pd, "IBVERBS_1.1", int, (ibv_pd*))                                                    \
  X(reg_mr, "IBVERBS_1.1", ibv_mr*, (ibv_pd*, void*, size_t, int))                                \
  X(dereg_mr, "IBVERBS_1.1", int, (ibv_mr*))                                                      \
  X(create_comp_channel, "IBVERBS_1.0", ibv_comp_channel*, (ibv_context*))                        \
  X(destroy_comp_channel, "IBVERBS_1.0", int, (ibv_comp_channel*))                                \
  X(get_cq_event, "IBVERBS_1.1", int, (ibv_comp_channel*, ibv_cq**, void**))                      \
  X(ack_cq_events, "IBVERBS_1.1", void, (ibv_cq*, unsigned))                                      \
  X(create_cq, "IBVERBS_1.1", ibv_cq*, (ibv_context*, int, void*, ibv_comp_channel*, int))        \
  X(destroy_cq, "IBVERBS_1.1", int, (ibv_cq*))                                                    \
  X(create_srq, "IBVERBS_1.1", ibv_srq*, (ibv_pd*, ibv_srq_init_attr*))                           \
  X(destroy_srq, "IBVERBS_1.1", int, (ibv_srq*))                                                  \
  X(create_qp, "IBVERBS_1.1", ibv_qp*, (ibv_pd*, ibv_qp_init_attr*))                              \
  X(modify_qp, "IBVERBS_1.1", int, (ibv_qp*, ibv_qp_attr*, int))                                  \
  X(destroy_qp, "IBVERBS_1.1", int, (ibv_qp*))                                                    \
  X(get_async_event, "IBVERBS_1.1", int, (ibv_context*, ibv_async_event*))                        \
  X(ack_async_event, "IBVERBS_1.1", void, (ibv_async_event*))                                     \
  X(event_type_str, "IBVERBS_1.1", const char*, (ibv_event_type))                                 \
  X(wc_status_str, "IBVERBS_1.1", const char*, (ibv_wc_status))                                   \
  X(port_state_str, "IBVERBS_1.1", const char*, (ibv_port_state))                                 \
  X(fork_init, "IBVERBS_1.1", int, (void))

/// Null where the installed library is too old for them.
#define RY_VERBS_OPTIONAL_FUNCTIONS(X)                                                            \
  X(reg_mr_iova2, "IBVERBS_1.8", ibv_mr*, (ibv_pd*, void*, size_t, uint64_t, unsigned))           \
  X(query_ece, "IBVERBS_1.10", int, (ibv_qp*, ibv_ece*))                                          \
  X(set_ece, "IBVERBS_1.10", int, (ibv_qp*, ibv_ece*))                                            \
  X(reg_dmabuf_mr, "IBVERBS_1.12", ibv_mr*, (ibv_pd*, uint64_t, size_t, uint64_t, int, int))
// clang-format on

struct Library {
#define RY_MEMBER(name, version, result, arguments) result(*name) arguments = nullptr;
  RY_VERBS_FUNCTIONS(RY_MEMBER)
  RY_VERBS_OPTIONAL_FUNCTIONS(RY_MEMBER)
#undef RY_MEMBER

  /// Opens `soname` for good: the table stays valid till the process ends. kUnavailable, naming
  /// what to install, if the library or one of the functions is missing. Call as often as wanted,
  /// from any thread, always with the same name.
  static Result<const Library*> load(const std::string& soname);
};

}  // namespace railyard::verbs
