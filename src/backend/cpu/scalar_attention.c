/* The reference kernels of attention in plain C: sums in index order, queries and exponentials in
 * float32 whatever the cache holds. */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "backend/cpu/scalar_attention.h"
#include "base/compiler.h"
#include "base/dtype.h"

static ALWAYS_INLINE float key_at(const void *k, size_t d, size_t lane, bool is_bf16) {
    if (is_bf16)
        return bf16_to_f32(((const uint16_t *)k)[(d / 2 * ATTENTION_CHUNK + lane) * 2 + d % 2]);
    return ((const float *)k)[d * ATTENTION_CHUNK + lane];
}

static ALWAYS_INLINE float value_at(const void *v, size_t lane, size_t d, size_t head_dim,
                                    bool is_bf16) {
    if (is_bf16)
        return bf16_to_f32(((const uint16_t *)v)[(lane / 2 * head_dim + d) * 2 + lane % 2]);
    return ((const float *)v)[lane * head_dim + d];
}

// Turns a row's scores into exponentials and moves its running maximum and sum on; returns what the
// values gathered so far must be multiplied by.
static float softmax(const struct attention_tile *tile, uint32_t row, uint32_t visible) {
    float *scores = tile->scores + (size_t)row * ATTENTION_SPAN;
    float *sum = tile->sum + (size_t)row * ATTENTION_SUMS;
    float largest = tile->max[row];
    for (uint32_t j = 0; j < visible; j++) largest = fmaxf(largest, scores[j]);
    float shrink = expf(tile->max[row] - largest);
    for (uint32_t lane = 0; lane < ATTENTION_SUMS; lane++) sum[lane] *= shrink;
    for (uint32_t j = 0; j < visible; j++) {
        scores[j] = expf(scores[j] - largest);
        sum[j % ATTENTION_SUMS] += scores[j];
    }
    tile->max[row] = largest;
    return shrink;
}

static ALWAYS_INLINE void run_span(const struct attention_tile *tile, bool is_bf16) {
    size_t head_dim = tile->head_dim;
    const float *q = tile->q;
    for (uint32_t row = 0; row < tile->rows; row++) {
        uint32_t visible = tile->visible[row];
        if (visible == 0) continue;
        float *scores = tile->scores + (size_t)row * ATTENTION_SPAN;
        for (uint32_t j = 0; j < visible; j++) {
            const void *k = tile->k[j / ATTENTION_CHUNK];
            scores[j] = 0;
            for (size_t d = 0; d < head_dim; d++) {
                scores[j] += q[d * tile->rows + row] * key_at(k, d, j % ATTENTION_CHUNK, is_bf16);
            }
        }
        float shrink = softmax(tile, row, visible);
        float *acc = tile->acc + (size_t)row * head_dim;
        for (size_t d = 0; d < head_dim; d++) acc[d] *= shrink;
        for (uint32_t j = 0; j < visible; j++) {
            const void *v = tile->v[j / ATTENTION_CHUNK];
            for (size_t d = 0; d < head_dim; d++) {
                acc[d] += scores[j] * value_at(v, j % ATTENTION_CHUNK, d, head_dim, is_bf16);
            }
        }
    }
}

void scalar_attention_bf16(const struct attention_tile *tile) {
    run_span(tile, true);
}

void scalar_attention_f32(const struct attention_tile *tile) {
    run_span(tile, false);
}
