/* 8-bit and 4-bit weights by SDOT, which adds four products of signed bytes to a 32-bit lane. It is
 * optional before ARMv8.4. */
#include "backend/cpu/neon/neon_dots.h"

static ALWAYS_INLINE int32x4_t multiply(int32x4_t acc, int8x16_t weights, int8x16_t x) {
    return vdotq_s32(acc, weights, x);
}

static void int8_dots(const struct linear_dots *dots) {
    neon_dots(dots, multiply);
}

void neon_dotprod_linear_bytes(const struct linear_item *item) {
    static const struct dots_kernels kernels = {.int8 = int8_dots,
                                                .unpack_int4 = neon_unpack_int4,
                                                .rows_max = NEON_DOTS_ROWS_MAX,
                                                .num_blocks = {1, 2, 2, 1, 1}};
    linear_dots_run(item, &kernels);
}
