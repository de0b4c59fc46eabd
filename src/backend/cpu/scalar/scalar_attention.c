/* The reference kernels of attention in plain C: sums in index order, queries and exponentials in
 * float32 whatever the cache holds. */
#include <math.h>
#include <string.h>

#include "backend/cpu/linear/packed.h"
#include "backend/cpu/scalar/scalar_attention.h"
#include "base/compiler.h"
#include "base/dtype.h"

// What the cache holds.
enum kind { KIND_BF16, KIND_F32, KIND_INT8, KIND_E4M3 };

// Number (i, lane) of a chunk of lines of `lanes` numbers; i is the index that is summed over.
static ALWAYS_INLINE float number_at(const void *chunk, size_t i, size_t lane, size_t lanes,
                                     enum kind kind) {
    switch (kind) {
    case KIND_BF16:
        return bf16_to_f32(((const uint16_t *)chunk)[(i / 2 * lanes + lane) * 2 + i % 2]);
    case KIND_INT8:
        return ((const int8_t *)chunk)[i * lanes + lane];
    case KIND_E4M3:
        return packed_e4m3(((const uint8_t *)chunk)[i * lanes + lane]) / ATTENTION_E4M3_FACTOR;
    case KIND_F32:
        break;
    }
    return ((const float *)chunk)[i * lanes + lane];
}

// The scale of position j of the span, of its key or value.
static ALWAYS_INLINE float scale_at(const void *const chunks[], uint32_t j, size_t head_dim,
                                    enum kind kind) {
    if (kind != KIND_INT8 && kind != KIND_E4M3) return 1.0f;
    return attention_scales(chunks[j / ATTENTION_CHUNK], head_dim)[j % ATTENTION_CHUNK];
}

// Turns a row's scores into exponentials and moves its running maximum and sum on; returns what the
// values gathered so far must be multiplied by.
static float softmax(const struct attention_tile *tile, uint32_t row) {
    uint32_t hidden = tile->hidden[row], visible = tile->visible[row];
    float *scores = tile->scores + (size_t)row * ATTENTION_SPAN;
    float *sum = tile->sum + (size_t)row * ATTENTION_SUMS;
    float largest = tile->max[row];
    for (uint32_t j = hidden; j < visible; j++) largest = fmaxf(largest, scores[j]);
    float shrink = expf(tile->max[row] - largest);
    for (uint32_t lane = 0; lane < ATTENTION_SUMS; lane++) sum[lane] *= shrink;
    for (uint32_t j = hidden; j < visible; j++) {
        scores[j] = expf(scores[j] - largest);
        sum[j % ATTENTION_SUMS] += scores[j];
    }
    tile->max[row] = largest;
    return shrink;
}

static ALWAYS_INLINE void run_span(const struct attention_tile *tile, enum kind kind) {
    size_t head_dim = tile->head_dim;
    const float *q = tile->q;
    for (uint32_t row = 0; row < tile->rows; row++) {
        uint32_t hidden = tile->hidden[row], visible = tile->visible[row];
        if (hidden == visible) continue;
        float *scores = tile->scores + (size_t)row * ATTENTION_SPAN;
        for (uint32_t j = hidden; j < visible; j++) {
            const void *k = tile->k[j / ATTENTION_CHUNK];
            scores[j] = 0;
            for (size_t d = 0; d < head_dim; d++) {
                scores[j] += q[d * attention_padded_rows(tile->rows) + row] *
                             number_at(k, d, j % ATTENTION_CHUNK, ATTENTION_CHUNK, kind);
            }
            scores[j] *= scale_at(tile->k, j, head_dim, kind);
            if (tile->softcap != 0) scores[j] = tile->softcap * tanhf(scores[j] / tile->softcap);
        }
        float shrink = softmax(tile, row);
        float *acc = tile->acc + (size_t)row * head_dim;
        for (size_t d = 0; d < head_dim; d++) acc[d] *= shrink;
        for (uint32_t j = hidden; j < visible; j++) {
            const void *v = tile->v[j / ATTENTION_CHUNK];
            float p = scores[j] * scale_at(tile->v, j, head_dim, kind);
            for (size_t d = 0; d < head_dim; d++) {
                acc[d] += p * number_at(v, j % ATTENTION_CHUNK, d, head_dim, kind);
            }
        }
    }
}

void scalar_attention_bf16(const struct attention_tile *tile) {
    run_span(tile, KIND_BF16);
}

void scalar_attention_f32(const struct attention_tile *tile) {
    run_span(tile, KIND_F32);
}

void scalar_attention_int8(const struct attention_tile *tile) {
    run_span(tile, KIND_INT8);
}

void scalar_attention_e4m3(const struct attention_tile *tile) {
    run_span(tile, KIND_E4M3);
}
