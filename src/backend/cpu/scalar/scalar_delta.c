/* Gated delta nets and Mamba-2 (recurrent.h) in plain C: the vectors of delta_kernels.h are tested
 * against it. */
#include <math.h>
#include <string.h>

#include "backend/cpu/scalar/scalar.h"
#include "backend/recurrent.h"

enum { VALUE_DIM_MAX = 256 };

static void run_token(const struct delta_run *run, uint32_t token) {
    uint32_t keys = run->key_dim, width = run->value_dim;
    const float *q = run->q + (size_t)token * keys, *k = run->k + (size_t)token * keys;
    const float *v = run->v + (size_t)token * width;
    float *out = run->out + (size_t)token * width, delta[VALUE_DIM_MAX] = {0};
    float decay = run->decay[token], beta = run->beta[token];
    for (size_t i = 0; i < keys && !run->takes_all; i++) {
        const float *row = run->state + i * width;
        for (uint32_t j = 0; j < width; j++) delta[j] += k[i] * row[j];
    }
    for (uint32_t j = 0; j < width; j++) delta[j] = beta * (v[j] - decay * delta[j]);
    memset(out, 0, width * sizeof *out);
    for (size_t i = 0; i < keys; i++) {
        float *row = run->state + i * width;
        for (uint32_t j = 0; j < width; j++) {
            row[j] = decay * row[j] + k[i] * delta[j];
            out[j] += q[i] * row[j];
        }
    }
}

void scalar_delta_rule(const struct delta_run *run) {
    for (uint32_t t = 0; t < run->num_tokens; t++) run_token(run, t);
}

void scalar_conv_silu(const float *const *x, const float *taps, size_t stride, const float *bias,
                      float *out, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        float sum = bias ? bias[i] : 0;
        for (uint32_t tap = 0; tap < DELTA_TAPS; tap++) sum += taps[tap * stride + i] * x[tap][i];
        out[i] = sum / (1 + expf(-sum));
    }
}
