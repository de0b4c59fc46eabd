/* Host code that describes a tensor in memory for TMA box copies (sm_90). */
#pragma once

#include <cuda.h>

#include "backend/cuda/kernels.h"

namespace {

// Describes [rows][columns] of bf16. A box is box_rows rows of 128 bytes, the width of a swizzle.
inline CUtensorMap tensor_map(const void *data, uint64_t rows, uint64_t columns, uint32_t box_rows,
                              CUtensorMapSwizzle swizzle, const cuda_device_info *info) {
    CUtensorMap map = {};
    uint64_t shape[2] = {columns, rows}, stride[1] = {columns * 2};
    uint32_t box[2] = {64, box_rows}, steps[2] = {1, 1};
    auto encode = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(info->encode_tensor_map);
    encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void *>(data), shape, stride, box,
           steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
           CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return map;
}

// Describes the weights of gated experts: [num_experts][2][outputs][columns] of bf16, gates before
// ups. A box has 64 columns of `box_rows` rows: 8 gates, their 8 ups, the next 8 gates, ...
// Coordinates: column, 0, 0, output / 8, expert.
inline CUtensorMap gated_tensor_map(const void *data, uint64_t num_experts, uint64_t outputs,
                                    uint64_t columns, uint32_t box_rows,
                                    const cuda_device_info *info) {
    CUtensorMap map = {};
    uint64_t row = columns * 2;
    uint64_t shape[5] = {columns, 8, 2, outputs / 8, num_experts};
    uint64_t stride[4] = {row, outputs * row, 8 * row, 2 * outputs * row};
    uint32_t box[5] = {64, 8, 2, box_rows / 16, 1}, steps[5] = {1, 1, 1, 1, 1};
    auto encode = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(info->encode_tensor_map);
    encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 5, const_cast<void *>(data), shape, stride, box,
           steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
           CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return map;
}

} // namespace
