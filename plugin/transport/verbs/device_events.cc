// SPDX-License-Identifier: Apache-2.0
#include "transport/verbs/device_events.h"

#include <set>

#include "base/log.h"
#include "transport/verbs/link.h"

namespace railyard::verbs {
namespace {

enum class Harm { kNone, kMaybe, kLink, kDevice };

struct Meaning {
  Harm harm = Harm::kNone;
  std::string text;
};

Meaning meaning_of(const ibv_async_event& event) {
  const auto port = [&] { return "port " + std::to_string(event.element.port_num); };
  switch (event.event_type) {
    case IBV_EVENT_PORT_ERR:
      return {Harm::kMaybe, port() +
                                " went down; transfers wait, and fail when their retries are "
                                "used up: check cable, switch and interface"};
    case IBV_EVENT_PORT_ACTIVE:
      return {Harm::kNone, port() + " is up"};
    case IBV_EVENT_GID_CHANGE:
      return {Harm::kMaybe, "addresses of " + port() +
                                " changed; links made before keep the old "
                                "ones, and fail if those are gone"};
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_SM_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER:
      return {Harm::kMaybe, "the subnet manager changed " + port() +
                                "; links made before may "
                                "fail"};
    case IBV_EVENT_DEVICE_FATAL:
      return {Harm::kDevice,
              "the device is out of order and all its links are lost: see the "
              "kernel's log"};
    case IBV_EVENT_CQ_ERR:
      return {Harm::kDevice,
              "its completion queue overflowed, which must not happen: please "
              "report this"};
    case IBV_EVENT_SRQ_ERR:
      return {Harm::kDevice,
              "its receive queue failed and all links of the device are lost: see "
              "the kernel's log"};
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_PATH_MIG_ERR:
      return {Harm::kLink,
              "a queue pair failed and its link is lost: see the kernel's log on both "
              "nodes"};
    default:
      return {Harm::kNone, "no harm is known to come of it"};
  }
}

}  // namespace

void read_device_events(Home& home, size_t nic) {
  ibv_async_event event{};
  while (home.library->get_async_event(home.nics[nic]->context(), &event) == 0) {
    const Meaning meaning = meaning_of(event);
    const std::string what = home.nics[nic]->record().name + ": " +
                             home.library->event_type_str(event.event_type) + ": " + meaning.text;
    Link* link = nullptr;
    if (meaning.harm == Harm::kLink) {
      const auto route = home.routes[nic].find(event.element.qp->qp_num);
      if (route != home.routes[nic].end()) link = route->second.link;
    }
    // Before its queue pair is destroyed, which waits for this.
    home.library->ack_async_event(&event);
    if (meaning.harm == Harm::kNone) {
      log::info("verbs: %s", what.c_str());
    } else {
      log::warn("verbs: %s", what.c_str());
    }
    if (link != nullptr) link->fail(Status(Code::kRemoteError, what));
    if (meaning.harm == Harm::kDevice) fail_links_of(home, nic, what);
  }
}

void fail_links_of(Home& home, size_t nic, const std::string& why) {
  std::set<Link*> lost;
  for (const auto& [number, route] : home.routes[nic]) lost.insert(route.link);
  for (Link* link : lost) link->fail(Status(Code::kSystemError, why));
}

}  // namespace railyard::verbs
