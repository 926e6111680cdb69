// SPDX-License-Identifier: Apache-2.0
#include "version.h"

namespace railyard::emulator {

int nccl_version() { return EMULATED_NCCL_VERSION; }

}  // namespace railyard::emulator
