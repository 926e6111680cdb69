// SPDX-License-Identifier: Apache-2.0
//
// Exported functions of 2.30 that list NCCL's parameters. The emulated one has none: every key is
// unknown, every handle invalid, and the table empty.
#include <stdint.h>
#include <stdio.h>

#include "exports.h"
#include "result.h"

using namespace railyard::emulator;  // NOLINT: this file only puts C names on things of it

#define RY_PARAMETER(type, name, parameters)                               \
  extern "C" type p##name parameters;                                      \
  extern "C" type name parameters __attribute__((weak, alias("p" #name))); \
  extern "C" type p##name parameters

#define RY_GETTER(name, value)                                                \
  RY_PARAMETER(ncclResult_t, name, (void*, value*)) {                         \
    return fail(ncclInvalidArgument, #name ": the handle is not a live one"); \
  }

RY_PARAMETER(ncclResult_t, ncclParamBind, (void** handle, const char* key)) {
  if (handle == nullptr || key == nullptr) return ncclInvalidArgument;
  return fail(ncclInvalidArgument, "ncclParamBind: there is no parameter %s", key);
}

RY_GETTER(ncclParamGetI8, int8_t)
RY_GETTER(ncclParamGetI16, int16_t)
RY_GETTER(ncclParamGetI32, int32_t)
RY_GETTER(ncclParamGetI64, int64_t)
RY_GETTER(ncclParamGetU8, uint8_t)
RY_GETTER(ncclParamGetU16, uint16_t)
RY_GETTER(ncclParamGetU32, uint32_t)
RY_GETTER(ncclParamGetU64, uint64_t)
RY_GETTER(ncclParamGetStr, const char*)

RY_PARAMETER(ncclResult_t, ncclParamGet, (void*, void*, int, int*)) {
  return fail(ncclInvalidArgument, "ncclParamGet: the handle is not a live one");
}

RY_PARAMETER(ncclResult_t, ncclParamGetParameter,
             (const char* key, const char** value, int* length)) {
  if (key == nullptr || value == nullptr || length == nullptr) return ncclInvalidArgument;
  *value = nullptr;
  *length = 0;
  return fail(ncclInvalidArgument, "ncclParamGetParameter: there is no parameter %s", key);
}

RY_PARAMETER(ncclResult_t, ncclParamGetAllParameterKeys, (const char*** table, int* length)) {
  if (table == nullptr || length == nullptr) return ncclInvalidArgument;
  static const char* none = nullptr;
  *table = &none;
  *length = 0;
  return ncclSuccess;
}

RY_PARAMETER(void, ncclParamDumpAll, ()) { ::puts("=== ncclParam Registry Dump ==="); }
