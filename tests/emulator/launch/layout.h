// SPDX-License-Identifier: Apache-2.0
//
// Which node each rank of an emulated cluster is on. Pure.
//
//   parse_layout("2,3,1")                         -> {2, 3, 1}
//   place_ranks({2, 2}, "cyclic", &nodes, &error) -> nodes = {0, 1, 0, 1}
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace railyard::emulator {

/// One rank's place.
struct Place {
  int rank;
  int node;
  int local;        ///< position among the ranks of its node, in rank order
  int local_count;  ///< ranks of its node
};

/// Numbers from 0 upwards, parted by commas; nullopt for anything else.
std::optional<std::vector<int>> parse_numbers(const std::string& text);

/// Places the ranks of nodes that have `gpus[i]` GPUs, one rank a GPU. `order` is "block" (node by
/// node), "cyclic" (one rank to each node that has room, in turn) or the node of every rank, parted
/// by commas; with a list `gpus` may be empty, and the list alone decides.
/// On failure returns no places and says why in `error`.
std::vector<Place> place_ranks(const std::vector<int>& gpus, const std::string& order,
                               std::string* error);

}  // namespace railyard::emulator
