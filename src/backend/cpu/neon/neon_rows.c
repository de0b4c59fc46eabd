/* Row-wise NEON kernels (norms, rotary embedding, SiLU) and the packing of weights. */
#include <math.h>

#include "backend/cpu/neon/neon.h"

// 1 / sqrt(mean(x^2) + eps); four chains of 4 lanes, added in a fixed tree.
static float norm_scale(const float *x, uint32_t cols, float eps) {
    float32x4_t sum[4] = {vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0)};
    for (uint32_t i = 0; i < cols; i += 4 * QUAD) {
        UNROLL for (uint32_t part = 0; part < 4; part++) {
            uint32_t col = i + part * QUAD;
            if (col >= cols) break;
            float32x4_t value = neon_load(x + col, cols - col);
            sum[part] = vfmaq_f32(sum[part], value, value);
        }
    }
    float32x4_t total = vaddq_f32(vaddq_f32(sum[0], sum[1]), vaddq_f32(sum[2], sum[3]));
    return 1.0f / sqrtf(vaddvq_f32(total) / (float)cols + eps);
}

void neon_rms_norm(const float *x, float *residual, const float *weight, float *out, uint32_t cols,
                   float eps) {
    if (residual) {
        for (uint32_t i = 0; i < cols; i += QUAD) {
            float32x4_t value = neon_load(residual + i, cols - i);
            neon_store(residual + i, vaddq_f32(value, neon_load(x + i, cols - i)), cols - i);
        }
        x = residual;
    }
    float32x4_t scale = vdupq_n_f32(norm_scale(x, cols, eps));
    for (uint32_t i = 0; i < cols; i += QUAD) {
        float32x4_t value = vmulq_f32(neon_load(x + i, cols - i), scale);
        neon_store(out + i, vmulq_f32(value, neon_load(weight + i, cols - i)), cols - i);
    }
}

void neon_rope_head(float *head, const float *weight, const float *rope, uint32_t head_dim,
                    float eps) {
    if (weight) neon_rms_norm(head, NULL, weight, head, head_dim, eps);
    uint32_t half = head_dim / 2; // a multiple of 8
    for (uint32_t i = 0; i < half; i += QUAD) {
        float32x4_t cosine = vld1q_f32(rope + i), sine = vld1q_f32(rope + half + i);
        float32x4_t a = vld1q_f32(head + i), b = vld1q_f32(head + half + i);
        vst1q_f32(head + i, vfmsq_f32(vmulq_f32(a, cosine), b, sine));
        vst1q_f32(head + half + i, vfmaq_f32(vmulq_f32(a, sine), b, cosine));
    }
}

void neon_silu_mul(const float *gate, const float *up, float *out, uint32_t count) {
    for (uint32_t i = 0; i < count; i += QUAD) {
        float32x4_t g = neon_load(gate + i, count - i);
        float32x4_t bottom = vaddq_f32(vdupq_n_f32(1.0f), neon_exp(vnegq_f32(g)));
        float32x4_t value = vmulq_f32(vdivq_f32(g, bottom), neon_load(up + i, count - i));
        neon_store(out + i, value, count - i);
    }
}

// Transposes 4 x 4 pairs: lane l of line p becomes lane p of line l.
static ALWAYS_INLINE void transpose_4x4(uint32x4_t line[4]) {
    uint32x4_t low01 = vzip1q_u32(line[0], line[2]), high01 = vzip2q_u32(line[0], line[2]);
    uint32x4_t low23 = vzip1q_u32(line[1], line[3]), high23 = vzip2q_u32(line[1], line[3]);
    line[0] = vzip1q_u32(low01, low23);
    line[1] = vzip2q_u32(low01, low23);
    line[2] = vzip1q_u32(high01, high23);
    line[3] = vzip2q_u32(high01, high23);
}

void neon_pack_bf16(const unsigned char *const rows[LANES], size_t count, uint16_t *out) {
    for (size_t k = 0; k < count; k += 2 * QUAD, out += 2 * QUAD * LANES) {
        UNROLL for (uint32_t lane = 0; lane < LANES; lane += QUAD) {
            uint32x4_t line[QUAD];
            UNROLL for (uint32_t r = 0; r < QUAD; r++) {
                line[r] = vreinterpretq_u32_u8(vld1q_u8(rows[lane + r] + k * 2));
            }
            transpose_4x4(line);
            UNROLL for (uint32_t pair = 0; pair < QUAD; pair++) {
                vst1q_u16(out + (pair * LANES + lane) * 2, vreinterpretq_u16_u32(line[pair]));
            }
        }
    }
}
