// SPDX-License-Identifier: Apache-2.0
// Who this process is in the job, from the variables that torchrun, mpirun or srun set.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace moe {

struct LaunchEnvironment {
  int rank = 0;
  int ranks = 1;
  int local_rank = 0;
  int local_ranks = 1;  // on this node; where ranks are uneven, an estimate
  std::string master_address = "127.0.0.1";
  std::uint16_t store_port = 29500;  // of rank 0's store
};

using GetVariable = std::function<const char*(const char*)>;  // null where unset, as getenv

// torchrun's names come first, since most launchers can set them; then mpirun's, then srun's. With
// none of them the process is a job of its own. Throws a usage error for half-set or senseless
// variables.
LaunchEnvironment read_launch_environment(const GetVariable& get);

// "gpu[03-07,12],login" -> "gpu03"
std::string first_host(std::string_view node_list);

}  // namespace moe
