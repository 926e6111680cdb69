// SPDX-License-Identifier: Apache-2.0
//
// The NCCL functions that railyard.map lets out: a program that railyard is preloaded into reaches
// these instead of NCCL's own. Nothing happens before the first call.
#include "intercept/dispatch.h"

using railyard::intercept::dispatch;
using railyard::intercept::Group;
using railyard::intercept::last_error;
using railyard::intercept::Life;
using railyard::intercept::NcclLibrary;

// Declared here for headers of older releases, which lack some.
#define RY_EXPORT(returned, name, handler, parameters, arguments)                                 \
  extern "C" __attribute__((visibility("default"))) returned name parameters;                     \
  returned name parameters {                                                                      \
    return dispatch<&NcclLibrary::name, &handler, returned>(NcclLibrary::reached_from(RY_CALLER), \
                                                            RY_CALLER RY_UNPACK arguments);       \
  }
#define RY_HANDLED(name, first, handler, parameters, arguments) \
  RY_EXPORT(ncclResult_t, name, handler, parameters, arguments)
#define RY_TEXT(name, first, handler, parameters, arguments) \
  RY_EXPORT(const char*, name, handler, parameters, arguments)
RY_NCCL_FUNCTIONS(RY_HANDLED, RY_TEXT, RY_NO_ROW, RY_NO_ROW)
