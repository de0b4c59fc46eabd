/* Host code that describes a tensor in memory for TMA box copies (sm_90). */
#pragma once

#include <cuda.h>

#include "backend/cuda/kernels.h"

namespace {

// Describes [rows][columns] of elements of `bytes`. A box is box_rows rows of box_columns.
inline CUtensorMap tensor_map_of(CUtensorMapDataType type, uint32_t bytes, const void *data,
                                 uint64_t rows, uint64_t columns, uint32_t box_rows,
                                 uint32_t box_columns, CUtensorMapSwizzle swizzle,
                                 const cuda_device_info *info) {
    CUtensorMap map = {};
    uint64_t shape[2] = {columns, rows}, stride[1] = {columns * bytes};
    uint32_t box[2] = {box_columns, box_rows}, steps[2] = {1, 1};
    auto encode = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(info->encode_tensor_map);
    encode(&map, type, 2, const_cast<void *>(data), shape, stride, box, steps,
           CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
           CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return map;
}

// Of bf16. A row of a box has 128 bytes, the width of a swizzle.
inline CUtensorMap tensor_map(const void *data, uint64_t rows, uint64_t columns, uint32_t box_rows,
                              CUtensorMapSwizzle swizzle, const cuda_device_info *info) {
    return tensor_map_of(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, data, rows, columns, box_rows, 64,
                         swizzle, info);
}

} // namespace
