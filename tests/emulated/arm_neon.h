/* The emulated kernels of 64-bit ARM include this instead of the compiler's header (see
 * CMakeLists.txt here): SIMDe's portable code, and what SIMDe lacks. */
#ifndef EMULATED_ARM_NEON_H
#define EMULATED_ARM_NEON_H

#define SIMDE_ENABLE_NATIVE_ALIASES
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#include <simde/arm/neon.h>
#pragma GCC diagnostic pop

#define EMULATED static inline __attribute__((unused))

EMULATED float32x4_t vfmsq_f32(float32x4_t a, float32x4_t b, float32x4_t c) {
    return vfmaq_f32(a, vnegq_f32(b), c);
}

EMULATED float32x4_t vdivq_f32(float32x4_t a, float32x4_t b) {
    float top[4], bottom[4];
    vst1q_f32(top, a);
    vst1q_f32(bottom, b);
    for (int i = 0; i < 4; i++) top[i] /= bottom[i];
    return vld1q_f32(top);
}

#endif
