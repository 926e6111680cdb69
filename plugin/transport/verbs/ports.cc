// SPDX-License-Identifier: Apache-2.0
#include "transport/verbs/ports.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <tuple>

#include "transport/verbs/hca_filter.h"

namespace railyard::verbs {
namespace {

/// The list of devices, freed with its owner.
class DeviceList {
 public:
  explicit DeviceList(const Library& library)
      : library_(library), devices_(library.get_device_list(&count_)), error_(errno) {}
  ~DeviceList() {
    if (devices_ != nullptr) library_.free_device_list(devices_);
  }
  DeviceList(const DeviceList&) = delete;
  DeviceList& operator=(const DeviceList&) = delete;

  int size() const { return devices_ == nullptr ? 0 : count_; }
  ibv_device* operator[](int i) const { return devices_[i]; }
  int error() const { return devices_ == nullptr ? error_ : 0; }

 private:
  const Library& library_;
  int count_ = 0;
  ibv_device** devices_;
  int error_;
};

PciPlace place_of(const Options& options, const std::string& device) {
  const std::string folder = options.sysfs + "/class/infiniband/" + device;
  PciPlace place = read_place(folder + "/device");
  if (place.path.rfind("pci", 0) != 0) place.path = device;
  return place;
}

/// Adds a device's ports to `ports`, or to `refused` with the reason.
void examine(const Library& library, const Options& options, const HcaFilter& filter,
             const std::string& device, std::vector<Port>* ports, std::string* refused) {
  const auto refuse = [&](const std::string& what) {
    *refused += (refused->empty() ? "" : ", ") + what;
  };
  const Result<Context> context = open_device(library, device);
  if (!context.ok()) return refuse(device + " (" + context.status().message() + ")");
  ibv_device_attr attributes{};
  if (const int error = library.query_device(context->get(), &attributes); error != 0)
    return refuse(device + " (" + std::strerror(error) + ")");
  for (uint8_t number = 1; number <= attributes.phys_port_cnt; ++number) {
    Port port;
    port.device = device;
    port.number = number;
    ibv_port_attr state{};
    if (const int error = library.query_port(context->get(), number, &state); error != 0) {
      refuse(port.text() + " (" + std::strerror(error) + ")");
    } else if (state.link_layer != IBV_LINK_LAYER_INFINIBAND &&
               state.link_layer != IBV_LINK_LAYER_ETHERNET) {
      refuse(port.text() + " (neither InfiniBand nor Ethernet)");
    } else if (state.state != IBV_PORT_ACTIVE) {
      refuse(port.text() + " (" + library.port_state_str(state.state) + ")");
    } else if (!filter.allows(device, number)) {
      refuse(port.text() + " (ruled out by NCCL_IB_HCA)");
    } else {
      port.place = place_of(options, device);
      ports->push_back(std::move(port));
    }
  }
}

auto order_of(const Port& port) {
  const bool pci = port.place.path.rfind("pci", 0) == 0;
  return std::make_tuple(!pci, port.place.bus_id(), port.device, port.number);
}

}  // namespace

Result<std::vector<Port>> usable_ports(const Library& library, const Options& options) {
  if (options.disabled)
    return Status::error(Code::kUnavailable, "RDMA is switched off by NCCL_IB_DISABLE");
  const DeviceList devices(library);
  if (devices.size() == 0)
    return Status::error(Code::kUnavailable,
                         "this machine shows no RDMA device (%s): load the NIC's driver and "
                         "ib_uverbs, give containers /dev/infiniband, or set "
                         "RAILYARD_TRANSPORT=tcp",
                         devices.error() != 0 ? std::strerror(devices.error()) : "empty list");
  const HcaFilter filter = HcaFilter::parse(options.hca);
  std::vector<Port> ports;
  std::string refused;
  for (int i = 0; i < devices.size(); ++i)
    examine(library, options, filter, library.get_device_name(devices[i]), &ports, &refused);
  if (ports.empty())
    return Status::error(Code::kUnavailable,
                         "no RDMA port can be used with NCCL_IB_HCA=\"%s\": %s; correct "
                         "NCCL_IB_HCA, or bring a port up (ip link set INTERFACE up, subnet "
                         "manager, cable)",
                         options.hca.c_str(), refused.c_str());
  std::sort(ports.begin(), ports.end(),
            [](const Port& a, const Port& b) { return order_of(a) < order_of(b); });
  for (size_t i = 0; i < ports.size(); ++i) ports[i].rail = static_cast<int>(i);
  return ports;
}

Result<Context> open_device(const Library& library, const std::string& name) {
  const DeviceList devices(library);
  for (int i = 0; i < devices.size(); ++i) {
    if (name != library.get_device_name(devices[i])) continue;
    errno = 0;
    Context context = own<Context>(library, library.open_device(devices[i]));
    if (!context)
      return Status::error(Code::kUnavailable,
                           "opening RDMA device %s failed: %s; check that /dev/infiniband/uverbs* "
                           "may be read and written",
                           name.c_str(), std::strerror(errno));
    return context;
  }
  return Status::error(Code::kUnavailable, "RDMA device %s is gone", name.c_str());
}

Status verbs_error(int error_number, const std::string& what) {
  const char* text = std::strerror(error_number);
  rlimit limit{};
  if ((error_number != ENOMEM && error_number != EAGAIN && error_number != EPERM) ||
      getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return Status::error(Code::kSystemError, "%s failed: %s", what.c_str(), text);
  return Status::error(Code::kSystemError,
                       "%s failed: %s; this process may lock only %llu KiB of memory: set "
                       "\"ulimit -l unlimited\", LimitMEMLOCK=infinity for a service, or "
                       "--ulimit memlock=-1 for a container",
                       what.c_str(), text, static_cast<unsigned long long>(limit.rlim_cur / 1024));
}

}  // namespace railyard::verbs
