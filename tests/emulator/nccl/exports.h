// SPDX-License-Identifier: Apache-2.0
//
// How functions leave the library: as in the real one each body is the strong pncclX, and ncclX is
// a weak second name of it.
#pragma once

#include <nccl.h>

#define RY_WEAK_NAME(name) extern "C" decltype(name) name __attribute__((weak, alias("p" #name)))
