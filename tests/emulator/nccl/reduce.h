// SPDX-License-Identifier: Apache-2.0
//
// NCCL's data types and reductions on the CPU. Pure.
//
// Sources are combined in the order given. Floating types of 8 and 16 bits are summed in fp32 and
// rounded once, to nearest even; fp8 saturates. Integers wrap.
#pragma once

#include <cstdint>
#include <vector>

#include <nccl.h>

namespace railyard::emulator {

/// 0 for what is no data type.
size_t type_size(ncclDataType_t type);

/// target[i] = sources[0][i] op sources[1][i] op …, for ncclAvg divided by the number of sources.
/// `target` may be one of the sources.
void reduce(ncclDataType_t type, ncclRedOp_t op, const std::vector<const void*>& sources,
            uint64_t count, void* target);

/// target[i] = source[i] * *scalar, in the type's own precision.
void scale(ncclDataType_t type, const void* source, const void* scalar, uint64_t count,
           void* target);

/// Conversions of the narrow floating types, by bit pattern.
float half_to_float(uint16_t bits);
uint16_t float_to_half(float value);
float bfloat_to_float(uint16_t bits);
uint16_t float_to_bfloat(float value);
float e4m3_to_float(uint8_t bits);
uint8_t float_to_e4m3(float value);
float e5m2_to_float(uint8_t bits);
uint8_t float_to_e5m2(float value);

}  // namespace railyard::emulator
