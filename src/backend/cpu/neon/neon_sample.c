#include <arm_neon.h>
#include <math.h>

#include "backend/cpu/sample/sample_weigh.h"

enum { QUAD = 4, SUMS = SAMPLE_WEIGH_LANES / QUAD }; // floats of a register, registers of sums

// Polynomial step p * r + c, rounded twice as in the other versions.
static inline float32x4_t step(float32x4_t p, float32x4_t r, float c) {
    return vaddq_f32(vmulq_f32(p, r), vdupq_n_f32(c));
}

static inline float32x4_t exp_negative(float32x4_t x) {
    const float32x4_t magic = vdupq_n_f32(EXP_ROUND);
    x = vmaxnmq_f32(x, vdupq_n_f32(EXP_LOWEST)); // NaN gives the other operand
    x = vminq_f32(x, vdupq_n_f32(0));
    float32x4_t shifted = vaddq_f32(vmulq_f32(x, vdupq_n_f32(EXP_LOG2E)), magic);
    float32x4_t n = vsubq_f32(shifted, magic);
    float32x4_t r = vsubq_f32(x, vmulq_f32(n, vdupq_n_f32(EXP_LN2_HIGH)));
    r = vsubq_f32(r, vmulq_f32(n, vdupq_n_f32(EXP_LN2_LOW)));
    float32x4_t p = step(vdupq_n_f32(EXP_P0), r, EXP_P1);
    p = step(p, r, EXP_P2);
    p = step(p, r, EXP_P3);
    p = step(p, r, EXP_P4);
    p = step(p, r, EXP_P5);
    p = vaddq_f32(vmulq_f32(p, vmulq_f32(r, r)), r);
    p = vaddq_f32(p, vdupq_n_f32(1.0f));
    uint32x4_t bits = vaddq_u32(vreinterpretq_u32_f32(shifted), vdupq_n_u32(127));
    return vmulq_f32(p, vreinterpretq_f32_u32(vshlq_n_u32(bits, 23)));
}

double sample_weigh_neon(const float *logits, float *weights, uint32_t count,
                         const struct sample_weigh *how) {
    const float32x4_t max = vdupq_n_f32(how->max), scale = vdupq_n_f32(how->inverse_temperature);
    const float32x4_t least = vdupq_n_f32(how->weight_min);
    float32x4_t sums[SUMS] = {vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0)};
    uint32_t i = 0;
    for (; i + SAMPLE_WEIGH_LANES <= count; i += SAMPLE_WEIGH_LANES) {
        for (uint32_t part = 0; part < SUMS; part++) {
            float32x4_t x = vld1q_f32(logits + i + part * QUAD);
            float32x4_t weight = exp_negative(vmulq_f32(vsubq_f32(x, max), scale));
            uint32x4_t kept = vandq_u32(vreinterpretq_u32_f32(weight), vcgeq_f32(weight, least));
            weight = vreinterpretq_f32_u32(kept);
            vst1q_f32(weights + i + part * QUAD, weight);
            sums[part] = vaddq_f32(sums[part], weight);
        }
    }
    float lanes[SAMPLE_WEIGH_LANES];
    for (uint32_t part = 0; part < SUMS; part++) vst1q_f32(lanes + part * QUAD, sums[part]);
    return sample_weigh_rest(lanes, logits + i, weights + i, count - i, how);
}

// Four maxima, so that a step does not wait for the one before.
float sample_max_neon(const float *logits, uint32_t count) {
    float32x4_t max[SUMS];
    for (int part = 0; part < SUMS; part++) max[part] = vdupq_n_f32(-INFINITY);
    uint32_t i = 0;
    for (; i + SAMPLE_WEIGH_LANES <= count; i += SAMPLE_WEIGH_LANES) {
        for (uint32_t part = 0; part < SUMS; part++) { // NaN gives the other operand
            max[part] = vmaxnmq_f32(max[part], vld1q_f32(logits + i + part * QUAD));
        }
    }
    float lanes[SAMPLE_WEIGH_LANES];
    for (uint32_t part = 0; part < SUMS; part++) vst1q_f32(lanes + part * QUAD, max[part]);
    return sample_max_rest(lanes, logits + i, count - i);
}
