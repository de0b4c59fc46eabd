/* The two passes of sampling over every token of the vocabulary: the largest logit, and logits to
 * weights. There is one implementation per ISA, all with the same bits: 16 partial sums, the same
 * polynomial, no fused multiply-adds (these files are compiled with -ffp-contract=off). */
#ifndef BACKEND_CPU_SAMPLE_WEIGH_H
#define BACKEND_CPU_SAMPLE_WEIGH_H

#include <math.h>
#include <stdint.h>

struct sample_weigh {
    float max; // of the logits, finite
    float inverse_temperature; // > 0
    float weight_min; // smaller weights become 0; at least SAMPLE_WEIGHT_MIN
};

// Just above exp(-87), the smallest result of the exponential. Smaller weights count as 0.
#define SAMPLE_WEIGHT_MIN 2e-38f

enum { SAMPLE_WEIGH_LANES = 16 };

// Logits whose weights are summed at a time; these sums are added in order.
enum { SAMPLE_CHUNK = 512 };

// `log_sum`: log(sum of exp(logit - max)).
static inline float sample_logprob(float logit, float max, double log_sum) {
    return logit > -INFINITY ? (float)((double)logit - (double)max - log_sum) : -INFINITY;
}

// weights[i] = exp((logits[i] - max) * inverse_temperature) within 2 ulp. It is 1 for +inf, 0 for
// NaN and for weights below weight_min. Returns their sum. Arrays: [count], any alignment, not
// overlapping.
double sample_weigh_scalar(const float *logits, float *weights, uint32_t count,
                           const struct sample_weigh *how);
double sample_weigh_avx2(const float *logits, float *weights, uint32_t count,
                         const struct sample_weigh *how); // x86-64 builds only
double sample_weigh_avx512(const float *logits, float *weights, uint32_t count,
                           const struct sample_weigh *how); // x86-64 builds only
double sample_weigh_neon(const float *logits, float *weights, uint32_t count,
                         const struct sample_weigh *how); // builds for 64-bit ARM only

// The end of the vector versions: the elements after the last whole step, whole 16 of which still
// belong to the 16 partial sums. Adds those, then the elements after them.
double sample_weigh_rest(float lanes[SAMPLE_WEIGH_LANES], const float *logits, float *weights,
                         uint32_t count, const struct sample_weigh *how);

// The largest logit; NaN counts as -inf. logits: [count], any alignment.
float sample_max_scalar(const float *logits, uint32_t count);
float sample_max_avx2(const float *logits, uint32_t count); // x86-64 builds only
float sample_max_avx512(const float *logits, uint32_t count); // x86-64 builds only
float sample_max_neon(const float *logits, uint32_t count); // builds for 64-bit ARM only

// The same of 16 partial maxima.
float sample_max_rest(float lanes[SAMPLE_WEIGH_LANES], const float *logits, uint32_t count);

// The exponential's constants. Adding EXP_ROUND, 1.5 * 2^23, rounds a float to an integer, which is
// then in its low bits. ln 2 is in two parts, the first of few bits. The polynomial is Cephes'.
#define EXP_LOWEST -87.0f
#define EXP_LOG2E 1.44269504f
#define EXP_ROUND 12582912.0f
#define EXP_LN2_HIGH 0.693359375f
#define EXP_LN2_LOW -2.12194440e-4f
#define EXP_P0 1.9875691500e-4f
#define EXP_P1 1.3981999507e-3f
#define EXP_P2 8.3334519073e-3f
#define EXP_P3 4.1665795894e-2f
#define EXP_P4 1.6666665459e-1f
#define EXP_P5 5.0000001201e-1f

#endif
