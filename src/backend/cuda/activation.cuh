/* What makes one number of gate and up: enum activation of backend.h, in float32. */
#pragma once

#include "backend/cuda/device.cuh"

namespace {

__device__ __forceinline__ float gelu_mul(float gate, float up) {
    float slope = 1.59576912f * (1 + 0.044715f * gate * gate); // 2 sqrt(2 / pi)
    return __fdividef(gate, 1 + __expf(fminf(-gate * slope, 88))) * up;
}

__device__ __forceinline__ float relu_squared(float v) {
    float positive = v < 0 ? 0 : v; // unlike fmaxf this keeps NaN
    return positive * positive;
}

__device__ __forceinline__ float activated(enum activation activation, float gate, float up) {
    if (activation == ACTIVATION_CLAMPED_SILU) return clamped_silu_mul(gate, up);
    if (activation == ACTIVATION_GELU_TANH) return gelu_mul(gate, up);
    return silu(gate) * up;
}

} // namespace
