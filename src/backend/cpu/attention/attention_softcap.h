/* The cap of scores, for the instruction set whose header of vectors was included before
 * (attention_span.h says what that has). */
#ifndef BACKEND_CPU_ATTENTION_ATTENTION_SOFTCAP_H
#define BACKEND_CPU_ATTENTION_ATTENTION_SOFTCAP_H

#include "base/compiler.h"

// tanh x within 4e-7 of its size: x P(x^2) / Q(x^2), fitted to 2e-8 for |x| < 9. NaN gives NaN.
static ALWAYS_INLINE vector vector_tanh(vector x) {
    static const float p[] = {0x1.ca2cf2p-9f, 0x1.120b2ep-3f, 0x1.0p+0f};
    static const float q[] = {0x1.5886aep-12f, 0x1.a7f828p-6f, 0x1.de5ae0p-2f, 0x1.0p+0f};
    x = vector_clamp(x, -9.0f, 9.0f);
    vector square = vector_mul(x, x);
    vector top = vector_fma(vector_set(0x1.cadf16p-27f), square, vector_set(0x1.59c43cp-16f));
    vector bottom = vector_set(0x1.a181bep-21f);
    UNROLL for (int i = 0; i < 3; i++) top = vector_fma(top, square, vector_set(p[i]));
    UNROLL for (int i = 0; i < 4; i++) bottom = vector_fma(bottom, square, vector_set(q[i]));
    return vector_div(vector_mul(x, top), bottom);
}

// scores = softcap * tanh(scores / softcap); `count` is a multiple of 16.
static void softcap_scores(float *scores, uint32_t count, float softcap) {
    const vector cap = vector_set(softcap), inverse = vector_set(1.0f / softcap);
    for (uint32_t i = 0; i < count; i += VECTOR_LANES) {
        vector score = vector_mul(vector_load(scores + i), inverse);
        vector_store(scores + i, vector_mul(vector_tanh(score), cap));
    }
}

#endif
