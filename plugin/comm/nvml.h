// SPDX-License-Identifier: Apache-2.0
//
// What only NVIDIA's management library tells: NVLink of a GPU whose neighbours this process does
// not see, and the NVLink clique that may span hosts. The library is optional.
#pragma once

#include <string>

namespace railyard::comm {

struct NvmlFacts {
  bool nvlink = false;  ///< at least one link is up
  std::string fabric;   ///< cluster and clique; empty: none, or not known
};

/// `pci`: bus id as the CUDA driver writes it. Facts stay as above where the library is missing or
/// does not know the GPU.
NvmlFacts ask_nvml(const std::string& pci);

}  // namespace railyard::comm
