// SPDX-License-Identifier: Apache-2.0
#include "transport/verbs/survey.h"

#include "transport/verbs/verbs_transport.h"

namespace railyard::verbs {
namespace {

std::string place_text(const Port& port) {
  const std::string id = port.place.bus_id();
  return port.number == 1 ? id : id + " port " + std::to_string(port.number);
}

}  // namespace

Result<Machine> look_around(const Library& library, const Options& options) {
  Result<std::vector<Port>> ports = usable_ports(library, options);
  if (!ports.ok()) return ports.status();
  Machine machine;
  machine.ports = ports.take();
  std::vector<PciPlace> places;
  for (const Port& port : machine.ports) places.push_back(port.place);
  const GpuPlaces gpus = read_gpus(options);
  machine.chosen = choose_nics(places, gpus);
  for (const int index : machine.chosen) {
    const Port& port = machine.ports[static_cast<size_t>(index)];
    Result<std::unique_ptr<Nic>> nic = Nic::open(library, options, port);
    if (!nic.ok()) return nic.status();
    const Distance distance =
        gpus.self < 0 ? Distance::kSystem
                      : distance_between(port.place, gpus.gpus[static_cast<size_t>(gpus.self)]);
    const MemoryChoice here = choose_memory(library, (*nic)->pd(), options, distance);
    machine.memory = machine.nics.empty() ? here : worse_of(machine.memory, here);
    machine.nics.push_back(nic.take());
  }
  return machine;
}

Result<Survey> survey(const Options& options) {
  const Result<const Library*> library = Library::load(options.library);
  if (!library.ok()) return library.status();
  Result<Machine> machine = look_around(**library, options);
  if (!machine.ok()) return machine.status();
  Survey survey;
  for (const Port& port : machine->ports) survey.nics.push_back({port.text(), place_text(port)});
  for (size_t i = 0; i < machine->nics.size(); ++i)
    survey.nics[static_cast<size_t>(machine->chosen[i])].text = machine->nics[i]->describe();
  survey.chosen = machine->chosen;
  survey.staging_on_gpu = machine->memory.staging_on_gpu;
  survey.landing_on_gpu = machine->memory.landing_on_gpu;
  survey.memory = name_of(machine->memory.path);
  survey.why_not_better = machine->memory.why_not_better;
  return survey;
}

}  // namespace railyard::verbs
