/* The kernels of gated delta nets and Mamba-2 with vectors: include it after the vectors of an
 * instruction set (avx2_vector.h and others).
 *
 * Columns of the state do not touch each other. So a block of columns, which stays in the first
 * cache, goes through all tokens before the next block does. That changes no bit. */
#ifndef BACKEND_CPU_DELTA_KERNELS_H
#define BACKEND_CPU_DELTA_KERNELS_H

#include "backend/cpu/kernels.h"
#include "backend/recurrent.h"
#include "base/compiler.h"

enum { DELTA_VECTORS = 4 };

// One token: beta (v - g S^T k), of the columns from `col` on, then S = g S + k times that, and
// out = S^T q.
static ALWAYS_INLINE void delta_token(const struct delta_run *run, uint32_t token, uint32_t col,
                                      uint32_t vectors) {
    uint32_t keys = run->key_dim, width = run->value_dim;
    const float *q = run->q + (size_t)token * keys, *k = run->k + (size_t)token * keys;
    const float *v = run->v + (size_t)token * width + col;
    float *out = run->out + (size_t)token * width + col, *state = run->state + col;
    vector decay = vector_set(run->decay[token]), beta = vector_set(run->beta[token]);
    vector sum[2][DELTA_VECTORS], delta[DELTA_VECTORS], result[DELTA_VECTORS];
    UNROLL for (uint32_t i = 0; i < vectors; i++) {
        sum[0][i] = sum[1][i] = result[i] = vector_zero();
    }
    for (uint32_t row = 0; row < keys && !run->takes_all; row += 2) {
        UNROLL for (uint32_t half = 0; half < 2; half++) {
            vector factor = vector_set(k[row + half]);
            const float *from = state + (size_t)(row + half) * width;
            UNROLL for (uint32_t i = 0; i < vectors; i++) {
                vector part = vector_load(from + i * VECTOR_LANES);
                sum[half][i] = vector_fma(factor, part, sum[half][i]);
            }
        }
    }
    UNROLL for (uint32_t i = 0; i < vectors; i++) {
        vector known = vector_mul(decay, vector_add(sum[0][i], sum[1][i]));
        delta[i] = vector_mul(beta, vector_sub(vector_load(v + i * VECTOR_LANES), known));
    }
    for (uint32_t row = 0; row < keys; row++) {
        vector key = vector_set(k[row]), query = vector_set(q[row]);
        float *at = state + (size_t)row * width;
        UNROLL for (uint32_t i = 0; i < vectors; i++) {
            vector kept = vector_mul(decay, vector_load(at + i * VECTOR_LANES));
            vector now = vector_fma(key, delta[i], kept);
            vector_store(at + i * VECTOR_LANES, now);
            result[i] = vector_fma(query, now, result[i]);
        }
    }
    UNROLL for (uint32_t i = 0; i < vectors; i++) vector_store(out + i * VECTOR_LANES, result[i]);
}

static ALWAYS_INLINE void delta_rule(const struct delta_run *run) {
    uint32_t col = 0;
    for (; col + DELTA_VECTORS * VECTOR_LANES <= run->value_dim;
         col += DELTA_VECTORS * VECTOR_LANES) {
        for (uint32_t t = 0; t < run->num_tokens; t++) delta_token(run, t, col, DELTA_VECTORS);
    }
    for (; col < run->value_dim; col += VECTOR_LANES) {
        for (uint32_t t = 0; t < run->num_tokens; t++) delta_token(run, t, col, 1);
    }
}

static ALWAYS_INLINE void conv_silu(const float *const *x, const float *taps, size_t stride,
                                    const float *bias, float *out, uint32_t count) {
    for (uint32_t i = 0; i < count; i += VECTOR_LANES) {
        vector sum = vector_mul(vector_load(taps + i), vector_load(x[0] + i));
        if (bias) sum = vector_add(vector_load(bias + i), sum);
        UNROLL for (uint32_t tap = 1; tap < DELTA_TAPS; tap++) {
            sum = vector_fma(vector_load(taps + tap * stride + i), vector_load(x[tap] + i), sum);
        }
        vector bottom = vector_add(vector_set(1), vector_exp(vector_sub(vector_zero(), sum)));
        vector_store(out + i, vector_div(sum, bottom));
    }
}

#endif
