/* 8-bit and 4-bit weights by the instructions that every 64-bit ARM has. */
#include "backend/cpu/neon/neon_dots.h"

// A sum of two products is at most 2 * 127 * 127, which 16 bits hold.
static ALWAYS_INLINE int32x4_t multiply(int32x4_t acc, int8x16_t weights, int8x16_t x) {
    int16x8_t low = vmull_s8(vget_low_s8(weights), vget_low_s8(x));
    int16x8_t high = vmull_high_s8(weights, x);
    return vpadalq_s16(acc, vpaddq_s16(low, high));
}

static void int8_dots(const struct linear_dots *dots) {
    neon_dots(dots, multiply);
}

void neon_linear_bytes(const struct linear_item *item) {
    static const struct dots_kernels kernels = {.int8 = int8_dots,
                                                .unpack_int4 = neon_unpack_int4,
                                                .rows_max = NEON_DOTS_ROWS_MAX,
                                                .num_blocks = {1, 2, 2, 1, 1}};
    linear_dots_run(item, &kernels);
}
