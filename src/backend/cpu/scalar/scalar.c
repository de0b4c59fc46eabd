/* The reference kernels in plain C: the simplest code that computes the right thing, for every
 * machine, and what the other instruction sets are tested against. Sums run in index order. */
#include <math.h>
#include <string.h>

#include "backend/cpu/kernels.h"
#include "backend/cpu/sample/sample_weigh.h"
#include "backend/cpu/scalar/scalar.h"
#include "backend/cpu/scalar/scalar_attention.h"
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

void scalar_store_key(const float *k, uint32_t head_dim, uint16_t *keys) {
    for (size_t d = 0; d < head_dim; d += 2) {
        keys[d * LANES] = f32_to_bf16(k[d]);
        keys[d * LANES + 1] = f32_to_bf16(k[d + 1]);
    }
}

void scalar_store_value(const float *v, uint32_t head_dim, uint16_t *values) {
    for (size_t d = 0; d < head_dim; d++) values[d * 2] = f32_to_bf16(v[d]);
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
    .unpack = scalar_unpack,
    .pack_codes = scalar_pack_codes,
    .pack_numbers = scalar_pack_numbers,
    .linear_bytes = scalar_linear_bytes,
    .narrow_int8 = scalar_narrow_int8,
    .attention_bf16 = ATTENTION_BY_SPANS(4, scalar_attention_bf16),
    .attention_f32 = ATTENTION_BY_SPANS(4, scalar_attention_f32),
    .attention_int8 = ATTENTION_BY_SPANS(4, scalar_attention_int8),
    .attention_e4m3 = ATTENTION_BY_SPANS(4, scalar_attention_e4m3),
    .rms_norm = scalar_rms_norm,
    .rope_head = scalar_rope_head,
    .silu_mul = scalar_silu_mul,
    .delta_rule = scalar_delta_rule,
    .conv_silu = scalar_conv_silu,
    .store_key = scalar_store_key,
    .store_value = scalar_store_value,
    .pack_bf16 = scalar_pack_bf16,
    .sample_weigh = sample_weigh_scalar,
    .sample_max = sample_max_scalar,
};
