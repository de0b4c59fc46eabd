#include "backend/cpu/sample/sample_weigh.h"

#include <math.h>
#include <string.h>

// exp(x). x > 0 counts as 0; NaN and x below EXP_LOWEST count as EXP_LOWEST.
static float exp_negative(float x) {
    float clamped = x > EXP_LOWEST ? x : EXP_LOWEST;
    clamped = clamped < 0.0f ? clamped : 0.0f;
    float shifted = clamped * EXP_LOG2E + EXP_ROUND;
    float n = shifted - EXP_ROUND;
    float r = clamped - n * EXP_LN2_HIGH;
    r = r - n * EXP_LN2_LOW;
    float p = EXP_P0;
    p = p * r + EXP_P1;
    p = p * r + EXP_P2;
    p = p * r + EXP_P3;
    p = p * r + EXP_P4;
    p = p * r + EXP_P5;
    p = p * (r * r) + r + 1.0f;
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 127u) << 23;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}

static float weigh_one(float logit, const struct sample_weigh *how) {
    float weight = exp_negative((logit - how->max) * how->inverse_temperature);
    return weight >= how->weight_min ? weight : 0.0f;
}

double sample_weigh_rest(float lanes[SAMPLE_WEIGH_LANES], const float *logits, float *weights,
                         uint32_t count, const struct sample_weigh *how) {
    uint32_t whole = count / SAMPLE_WEIGH_LANES * SAMPLE_WEIGH_LANES;
    for (uint32_t i = 0; i < whole; i++) {
        weights[i] = weigh_one(logits[i], how);
        lanes[i % SAMPLE_WEIGH_LANES] += weights[i];
    }
    double sum = 0;
    for (int lane = 0; lane < SAMPLE_WEIGH_LANES; lane++) sum += (double)lanes[lane];
    for (uint32_t i = whole; i < count; i++) {
        weights[i] = weigh_one(logits[i], how);
        sum += (double)weights[i];
    }
    return sum;
}

double sample_weigh_scalar(const float *logits, float *weights, uint32_t count,
                           const struct sample_weigh *how) {
    float lanes[SAMPLE_WEIGH_LANES] = {0};
    return sample_weigh_rest(lanes, logits, weights, count, how);
}

float sample_max_rest(float lanes[SAMPLE_WEIGH_LANES], const float *logits, uint32_t count) {
    uint32_t whole = count / SAMPLE_WEIGH_LANES * SAMPLE_WEIGH_LANES;
    for (uint32_t i = 0; i < whole; i += SAMPLE_WEIGH_LANES) {
        for (uint32_t lane = 0; lane < SAMPLE_WEIGH_LANES; lane++) {
            float logit = logits[i + lane];
            lanes[lane] = logit > lanes[lane] ? logit : lanes[lane]; // false for NaN
        }
    }
    float max = -INFINITY;
    for (int lane = 0; lane < SAMPLE_WEIGH_LANES; lane++) {
        max = lanes[lane] > max ? lanes[lane] : max;
    }
    for (uint32_t i = whole; i < count; i++) max = logits[i] > max ? logits[i] : max;
    return max;
}

float sample_max_scalar(const float *logits, uint32_t count) {
    float lanes[SAMPLE_WEIGH_LANES];
    for (int lane = 0; lane < SAMPLE_WEIGH_LANES; lane++) lanes[lane] = -INFINITY;
    return sample_max_rest(lanes, logits, count);
}
