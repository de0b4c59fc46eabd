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

} // namespace
