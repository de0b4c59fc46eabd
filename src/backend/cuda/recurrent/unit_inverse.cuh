/* The inverse of I + A in shared memory, where A is strictly lower triangular, 64 x 64: first the
 * four blocks on the diagonal, row after row, then twice the blocks below them:
 *   [P  ]^-1   [ P^-1            ]
 *   [B Q]    = [-Q^-1 B P^-1 Q^-1]
 * These products run on tensor cores in TF32, whose rounding is a quarter of bfloat16's. */
#pragma once

#include "backend/cuda/device.cuh"

namespace {

constexpr int INVERSE_SIZE = 64;
constexpr int INVERSE_STRIDE = INVERSE_SIZE + 4; // floats: lanes read 32 different banks

// A lane computes a column of the inverse of a block of 16 on the diagonal, in place. The lanes 16
// to 31 compute the same columns again.
__device__ __forceinline__ void invert_diagonal(float *block) {
    int column = threadIdx.x % 16;
    float x[16];
#pragma unroll
    for (int i = 0; i < 16; i++) {
        float sum = i == column ? 1 : 0;
#pragma unroll
        for (int l = 0; l < i; l++) sum -= block[i * INVERSE_STRIDE + l] * x[l];
        x[i] = sum;
    }
    __syncwarp(); // all columns are read
    if (threadIdx.x % 32 >= 16) return;
#pragma unroll
    for (int i = 0; i < 16; i++) block[i * INVERSE_STRIDE + column] = x[i];
}

// A warp: c[16][8] += a[16][8 steps] b[8 steps][8].
__device__ __forceinline__ void multiply_block(float (&c)[4], const float *a, const float *b,
                                               int steps) {
    int row = threadIdx.x % 32 / 4, col = threadIdx.x % 4;
    for (int k = 0; k < 8 * steps; k += 8) {
        const float *left = a + row * INVERSE_STRIDE + k + col;
        const float *right = b + (k + col) * INVERSE_STRIDE + row;
        const float x[4] = {left[0], left[8 * INVERSE_STRIDE], left[4],
                            left[8 * INVERSE_STRIDE + 4]};
        multiply_tf32(c, x, right[0], right[4 * INVERSE_STRIDE]);
    }
}

__device__ __forceinline__ void store_block(float *to, const float (&c)[4], float factor) {
    float *at = to + threadIdx.x % 32 / 4 * INVERSE_STRIDE + threadIdx.x % 4 * 2;
    at[0] = factor * c[0];
    at[1] = factor * c[1];
    at[8 * INVERSE_STRIDE] = factor * c[2];
    at[8 * INVERSE_STRIDE + 1] = factor * c[3];
}

/* In place, by a block of 256 threads, after a barrier; another one must follow. On return the
 * blocks above the diagonal hold anything. A's elements on and above the diagonal must be 0. */
__device__ __forceinline__ void invert_unit(float *a) {
    constexpr int STRIDE = INVERSE_STRIDE;
    int warp = threadIdx.x / 32;
    if (warp < 4) invert_diagonal(a + warp * 16 * (STRIDE + 1));
    __syncthreads();
    // Blocks of 16 below a diagonal of 16. B P^-1 lies above the diagonal meanwhile.
    float *p = a + warp / 2 * 32 * (STRIDE + 1), *below = p + 16 * STRIDE + warp % 2 * 8;
    float e[4] = {};
    if (warp < 4) {
        float *product = p + 16 + warp % 2 * 8, c[4] = {};
        multiply_block(c, p + 16 * STRIDE, p + warp % 2 * 8, 2);
        store_block(product, c, 1);
        __syncwarp(); // only this warp reads these columns
        multiply_block(e, p + 16 * (STRIDE + 1), product, 2);
    }
    __syncthreads(); // all of B is read
    if (warp < 4) store_block(below, e, -1);
    __syncthreads();
    // The block of 32 below the diagonal: a warp has 16 x 8 of it.
    float *b = a + 32 * STRIDE, *q = b + 32, *product = a + 32, c[4] = {};
    int half = warp / 4, column = warp % 4 * 8, first = column / 16;
    // Above P^-1's diagonal is no zero: the first 16 rows of its last 16 columns are left out.
    multiply_block(c, b + half * 16 * STRIDE + first * 16, a + first * 16 * STRIDE + column,
                   4 - 2 * first);
    store_block(product + half * 16 * STRIDE + column, c, 1);
    __syncthreads();
    float d[4] = {};
    multiply_block(d, q + half * 16 * STRIDE, product + column, 2 + 2 * half);
    store_block(b + half * 16 * STRIDE + column, d, -1);
}

} // namespace
