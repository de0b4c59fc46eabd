/* Exchanges in a quad of lanes, which share a row of a matrix instruction's sums. */
#pragma once

#include "backend/cuda/device.cuh"

namespace {

// Transposes 4 x 4 words in a quad of lanes: word w of lane q and word q of lane w are exchanged.
__device__ __forceinline__ void transpose_quad(uint32_t (&v)[4], int lane) {
    uint32_t r0 = __shfl_xor_sync(FULL_WARP, lane & 1 ? v[0] : v[1], 1);
    uint32_t r1 = __shfl_xor_sync(FULL_WARP, lane & 1 ? v[2] : v[3], 1);
    if (lane & 1) {
        v[0] = r0, v[2] = r1;
    } else {
        v[1] = r0, v[3] = r1;
    }
    r0 = __shfl_xor_sync(FULL_WARP, lane & 2 ? v[0] : v[2], 2);
    r1 = __shfl_xor_sync(FULL_WARP, lane & 2 ? v[1] : v[3], 2);
    if (lane & 2) {
        v[0] = r0, v[1] = r1;
    } else {
        v[2] = r0, v[3] = r1;
    }
}

} // namespace
