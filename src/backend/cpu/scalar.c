/* The reference kernels in plain C: the simplest code that computes the right thing, for every
 * machine, and what the other instruction sets are tested against. Sums run in index order. */
#include <math.h>
#include <string.h>

#include "backend/cpu/kernels.h"
#include "backend/cpu/sample_weigh.h"
#include "base/dtype.h"

static void load_start(const struct linear_tile *tile, uint32_t row, uint32_t block,
                       float acc[LANES]) {
    const float *from = tile->start ? tile->start : tile->out + row * tile->out_stride;
    memcpy(acc, from + (size_t)block * LANES, LANES * sizeof *acc);
}

static void store_out(const struct linear_tile *tile, uint32_t row, uint32_t block,
                      const float acc[LANES]) {
    memcpy(tile->out + row * tile->out_stride + (size_t)block * LANES, acc, LANES * sizeof *acc);
}

static void scalar_linear_bf16(const struct linear_tile *tile) {
    uint32_t rows = tile->rows;
    for (uint32_t block = 0; block < tile->num_blocks; block++) {
        const uint16_t *w =
            (const uint16_t *)((const char *)tile->weights + block * tile->block_bytes);
        for (uint32_t row = 0; row < rows; row++) {
            float acc[LANES];
            load_start(tile, row, block, acc);
            for (size_t k = 0; k < tile->depth; k += 2) {
                float x0 = tile->x[k * rows + row], x1 = tile->x[(k + 1) * rows + row];
                const uint16_t *pairs = w + k * LANES;
                for (uint32_t lane = 0; lane < LANES; lane++) {
                    acc[lane] += bf16_to_f32(pairs[lane * 2]) * x0;
                    acc[lane] += bf16_to_f32(pairs[lane * 2 + 1]) * x1;
                }
            }
            store_out(tile, row, block, acc);
        }
    }
}

static void scalar_linear_f32(const struct linear_tile *tile) {
    uint32_t rows = tile->rows;
    for (uint32_t block = 0; block < tile->num_blocks; block++) {
        const float *w = (const float *)((const char *)tile->weights + block * tile->block_bytes);
        for (uint32_t row = 0; row < rows; row++) {
            float acc[LANES];
            load_start(tile, row, block, acc);
            for (size_t k = 0; k < tile->depth; k++) {
                float x = tile->x[k * rows + row];
                for (uint32_t lane = 0; lane < LANES; lane++) acc[lane] += w[k * LANES + lane] * x;
            }
            store_out(tile, row, block, acc);
        }
    }
}

// Turns a row's scores into exponentials and moves its running maximum and sum on; returns what the
// values gathered so far must be multiplied by.
static float scalar_softmax(const struct attention_tile *tile, uint32_t row, uint32_t visible) {
    float *scores = tile->scores + (size_t)row * ATTENTION_SPAN;
    float *sum = tile->sum + (size_t)row * LANES;
    float largest = tile->max[row];
    for (uint32_t j = 0; j < visible; j++) largest = fmaxf(largest, scores[j]);
    float shrink = expf(tile->max[row] - largest);
    for (uint32_t lane = 0; lane < LANES; lane++) sum[lane] *= shrink;
    for (uint32_t j = 0; j < visible; j++) {
        scores[j] = expf(scores[j] - largest);
        sum[j % LANES] += scores[j];
    }
    tile->max[row] = largest;
    return shrink;
}

static void scalar_attention(const struct attention_tile *tile) {
    uint32_t head_dim = tile->head_dim;
    for (uint32_t row = 0; row < tile->rows; row++) {
        uint32_t visible = tile->visible[row];
        if (visible == 0) continue;
        float *scores = tile->scores + (size_t)row * ATTENTION_SPAN;
        for (uint32_t chunk = 0; chunk * LANES < visible; chunk++) {
            float *score = scores + (size_t)chunk * LANES;
            memset(score, 0, LANES * sizeof *score);
            for (size_t d = 0; d < head_dim; d++) {
                float q = tile->q[d * tile->rows + row];
                const float *k = tile->k[chunk] + d * LANES;
                for (uint32_t lane = 0; lane < LANES; lane++) score[lane] += q * k[lane];
            }
        }
        float shrink = scalar_softmax(tile, row, visible);
        float *acc = tile->acc + (size_t)row * head_dim;
        for (uint32_t d = 0; d < head_dim; d++) acc[d] *= shrink;
        for (uint32_t j = 0; j < visible; j++) {
            const float *v = tile->v[j / LANES] + (size_t)(j % LANES) * head_dim;
            for (uint32_t d = 0; d < head_dim; d++) acc[d] += scores[j] * v[d];
        }
    }
}

static float scalar_norm_scale(const float *x, uint32_t cols, float eps) {
    float sum = 0;
    for (uint32_t i = 0; i < cols; i++) sum += x[i] * x[i];
    return 1.0f / sqrtf(sum / (float)cols + eps);
}

static void scalar_rms_norm(const float *x, float *residual, const float *weight, float *out,
                            uint32_t cols, float eps) {
    if (residual) {
        for (uint32_t i = 0; i < cols; i++) residual[i] += x[i];
        x = residual;
    }
    float scale = scalar_norm_scale(x, cols, eps);
    for (uint32_t i = 0; i < cols; i++) out[i] = x[i] * scale * weight[i];
}

static void scalar_rope_head(float *head, const float *weight, const float *rope, uint32_t head_dim,
                             float eps) {
    if (weight) scalar_rms_norm(head, NULL, weight, head, head_dim, eps);
    uint32_t half = head_dim / 2;
    for (uint32_t i = 0; i < half; i++) {
        float cosine = rope[i], sine = rope[half + i];
        float a = head[i], b = head[half + i];
        head[i] = a * cosine - b * sine;
        head[half + i] = b * cosine + a * sine;
    }
}

static void scalar_silu_mul(const float *gate, const float *up, float *out, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) out[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
}

static void scalar_pack_bf16(const unsigned char *const rows[LANES], size_t count, uint16_t *out) {
    for (size_t pair = 0; pair < count / 2; pair++) {
        for (uint32_t lane = 0; lane < LANES; lane++) {
            memcpy(out + (pair * LANES + lane) * 2, rows[lane] + pair * 4, 4);
        }
    }
}

const struct cpu_kernels cpu_kernels_scalar = {
    .isa = "scalar",
    .panel_rows = 4,
    .linear_bf16 = scalar_linear_bf16,
    .linear_f32 = scalar_linear_f32,
    .attention = scalar_attention,
    .rms_norm = scalar_rms_norm,
    .rope_head = scalar_rope_head,
    .silu_mul = scalar_silu_mul,
    .pack_bf16 = scalar_pack_bf16,
    .sample_weigh = sample_weigh_scalar,
};
