// SPDX-License-Identifier: Apache-2.0
#include "simulator.h"

#include <algorithm>
#include <queue>
#include <utility>

namespace scale {
namespace {

/// A cell comes to a link of its path, or, past the end, its credit back to the source.
struct Event {
  double time;
  uint64_t order;  ///< of what happens at the same time
  size_t flow;
  uint64_t cell;
  size_t hop;
};

struct Later {
  bool operator()(const Event& a, const Event& b) const {
    return a.time != b.time ? a.time > b.time : a.order > b.order;
  }
};

}  // namespace

int Simulator::add_link(const Link& link) {
  links_.push_back(link);
  return static_cast<int>(links_.size()) - 1;
}

void Simulator::add(Flow flow) { flows_.push_back(std::move(flow)); }

uint64_t Simulator::cell_size(size_t flow, uint64_t cell) const {
  const Flow& f = flows_[flow];
  return std::min(f.cell_bytes, f.bytes - cell * f.cell_bytes);
}

double Simulator::run() {
  std::priority_queue<Event, std::vector<Event>, Later> events;
  uint64_t order = 0;
  std::vector<Progress> progress(flows_.size());
  std::vector<double> delay(flows_.size()), free_at(links_.size());
  uint64_t most = 0;
  for (size_t i = 0; i < flows_.size(); ++i) {
    const Flow& flow = flows_[i];
    progress[i].cells = (flow.bytes + flow.cell_bytes - 1) / flow.cell_bytes;
    for (const int link : flow.path) delay[i] += links_[static_cast<size_t>(link)].delay_us;
    most = std::max(most, progress[i].cells);
  }
  for (uint64_t cell = 0; cell < most; ++cell) {
    for (size_t i = 0; i < flows_.size(); ++i) {
      const bool allowed = flows_[i].window == 0 || cell < flows_[i].window;
      if (!allowed || cell >= progress[i].cells) continue;
      events.push({0, order++, i, cell, 0});
      ++progress[i].sent;
    }
  }
  double end = 0;
  while (!events.empty()) {
    const Event event = events.top();
    events.pop();
    const Flow& flow = flows_[event.flow];
    Progress& p = progress[event.flow];
    if (event.hop > flow.path.size()) {  // a credit
      if (p.sent < p.cells) events.push({event.time, order++, event.flow, p.sent++, 0});
      continue;
    }
    if (event.hop == flow.path.size()) {
      end = std::max(end, event.time);
      events.push({event.time + delay[event.flow], order++, event.flow, event.cell, event.hop + 1});
      continue;
    }
    const auto at = static_cast<size_t>(flow.path[event.hop]);
    const Link& link = links_[at];
    const auto bytes = static_cast<double>(cell_size(event.flow, event.cell));
    free_at[at] = std::max(free_at[at], event.time) + link.cell_us + bytes / link.bytes_per_us;
    events.push({free_at[at] + link.delay_us, order++, event.flow, event.cell, event.hop + 1});
  }
  return end;
}

}  // namespace scale
