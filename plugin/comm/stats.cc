// SPDX-License-Identifier: Apache-2.0
#include "comm/stats.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/file_template.h"
#include "base/log.h"
#include "base/unique_fd.h"
#include "comm/communicator.h"

namespace railyard::comm {
namespace {

void append(const std::string& file_template, int rank, const std::string& line) {
  if (file_template.empty()) return;
  FileTemplateValues values = file_template_values();
  values.rank = rank;
  const std::string path = expand_file_template(file_template, values);
  const UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!file.valid() ||
      write(file.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    log::warn("cannot write statistics to %s: %s (RAILYARD_STATS)", path.c_str(),
              std::strerror(errno));
  }
}

}  // namespace

std::string statistics_line(const Identity& identity, const std::string& transport,
                            const exchange::Statistics& statistics,
                            const transport::Counters& counters) {
  std::string line = "{\"transport\": \"" + transport + "\"";
  const auto add = [&line](const char* name, uint64_t value) {
    line += std::string(", \"") + name + "\": " + std::to_string(value);
  };
  const kernels::Traffic& traffic = statistics.traffic;
  add("rank", static_cast<uint64_t>(identity.rank));
  add("ranks", static_cast<uint64_t>(identity.ranks));
  add("nodes", static_cast<uint64_t>(identity.nodes));
  add("exchanges", statistics.exchanges);
  add("phase1_bytes", traffic.phase1_bytes);
  add("phase1_messages", traffic.phase1_messages);
  add("phase2_bytes", traffic.phase2_bytes);
  add("phase2_messages", traffic.phase2_messages);
  add("local_bytes", traffic.local_bytes);
  add("local_messages", traffic.local_messages);
  add("self_bytes", traffic.self_bytes);
  add("self_messages", traffic.self_messages);
  add("transport_cells_sent", counters.cells_sent);
  add("transport_cell_bytes_sent", counters.cell_bytes_sent);
  add("transport_cells_received", counters.cells_received);
  add("transport_cells_dropped", counters.cells_dropped);
  add("transport_credits_sent", counters.credits_sent);
  add("transport_credits_received", counters.credits_received);
  return line + "}\n";
}

std::string left_line(int rank, int ranks, const std::string& why) {
  std::string line = "{\"rank\": " + std::to_string(rank) +
                     ", \"ranks\": " + std::to_string(ranks) + ", \"left\": \"";
  for (const char c : why) {
    if (c == '"' || c == '\\') line += '\\';
    line += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return line + "\"}\n";
}

void write_statistics(const Identity& identity, exchange::Gpu& gpu,
                      const exchange::Statistics& statistics) {
  append(identity.stats_file, identity.rank,
         statistics_line(identity, gpu.transport().name(), statistics, gpu.carrier().counters()));
}

void write_left(const std::string& file, int rank, int ranks, const std::string& why) {
  append(file, rank, left_line(rank, ranks, why));
}

}  // namespace railyard::comm
