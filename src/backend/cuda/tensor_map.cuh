/* Host code that describes a tensor in memory for TMA box copies (sm_90). */
#pragma once

#include <cuda.h>

#include "backend/cuda/launch.cuh"

namespace {

// A tensor of bf16 as the driver describes it, with RANK dimensions, the innermost first. Strides,
// of all dimensions but the innermost, are in bytes.
template <int RANK> struct tensor_shape {
    uint64_t sizes[RANK], strides[RANK - 1];
    uint32_t box[RANK];
};

template <int RANK>
CUtensorMap encode_tensor_map(const void *data, const tensor_shape<RANK> &shape,
                              CUtensorMapSwizzle swizzle, const cuda_device_info *info) {
    CUtensorMap map = {};
    uint32_t steps[RANK];
    for (uint32_t &step : steps) step = 1;
    auto encode = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(info->encode_tensor_map);
    CUresult result =
        encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, RANK, const_cast<void *>(data), shape.sizes,
               shape.strides, shape.box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
               CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    // The runtime's errors have the driver's numbers.
    keep_refusal(info, "a tensor map", static_cast<cudaError_t>(result));
    return map;
}

// Describes [rows][columns] of bf16. A box is box_rows rows of 128 bytes, the width of a swizzle.
inline CUtensorMap tensor_map(const void *data, uint64_t rows, uint64_t columns, uint32_t box_rows,
                              CUtensorMapSwizzle swizzle, const cuda_device_info *info) {
    const tensor_shape<2> shape = {{columns, rows}, {columns * 2}, {64, box_rows}};
    return encode_tensor_map(data, shape, swizzle, info);
}

// Describes the weights of gated experts: [num_experts][2][outputs][columns] of bf16, gates before
// ups. A box has 64 columns of `box_rows` rows: 8 gates, their 8 ups, the next 8 gates, ...
// Coordinates: column, 0, 0, output / 8, expert.
inline CUtensorMap gated_tensor_map(const void *data, uint64_t num_experts, uint64_t outputs,
                                    uint64_t columns, uint32_t box_rows,
                                    const cuda_device_info *info) {
    uint64_t row = columns * 2;
    const tensor_shape<5> shape = {{columns, 8, 2, outputs / 8, num_experts},
                                   {row, outputs * row, 8 * row, 2 * outputs * row},
                                   {64, 8, 2, box_rows / 16, 1}};
    return encode_tensor_map(data, shape, CU_TENSOR_MAP_SWIZZLE_128B, info);
}

} // namespace
