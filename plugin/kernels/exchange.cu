// SPDX-License-Identifier: Apache-2.0
//
// The exchange kernel as a GPU runs it.
#include "kernels/exchange.cuh"

extern "C" __global__ void railyard_exchange(const railyard::kernels::CommTable* table,
                                             const railyard::kernels::ExchangeWork* work) {
  railyard::kernels::exchange(table, work);
}
