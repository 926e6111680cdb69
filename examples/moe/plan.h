// SPDX-License-Identifier: Apache-2.0
// Who sends how many rows to whom, derived from the routers' counts alone (pure).
//
// Copies lie in the order of their experts on the sending side (see Routing in compute.h). On the
// receiving side they lie expert by expert, and within an expert in the order of the sending ranks.
// So one message carries what one rank has for one expert, and needs no sorting on either side.
#pragma once

#include <cstdint>
#include <vector>

#include "compute.h"

namespace moe {

struct Message {
  int peer;
  Index row;   // first row in the buffer on this side
  Index rows;  // never zero
};

// What one rank posts in one group of sends and receives.
struct Messages {
  std::vector<Message> sends;
  std::vector<Message> receives;
};

struct ExchangePlan {
  Messages dispatch;                  // copies to their experts
  Messages combine;                   // results back: dispatch turned round
  std::vector<Index> rows_of_expert;  // for each expert of this rank
  Index received_rows = 0;
};

// `sent` [ranks][experts per rank] counts this rank's copies for each expert;
// `received` [ranks][experts per rank] counts each rank's copies for the experts of this rank.
// `rank` makes every rank begin with itself and go on with a peer of its own, so that no
// receiver is everybody's first.
ExchangePlan make_plan(const std::int32_t* sent, const std::int32_t* received, int rank, int ranks,
                       Index experts_per_rank);

}  // namespace moe
