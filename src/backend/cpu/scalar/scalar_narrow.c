/* The reference kernels of 8-bit and 4-bit weights in plain C. */
#include "backend/cpu/linear/linear_dots.h"
#include "backend/cpu/scalar/scalar.h"

static void int8_dots(const struct linear_dots *dots) {
    for (uint32_t r = 0; r < dots->rows; r++) {
        for (uint32_t b = 0; b < dots->num_blocks; b++) {
            int32_t *sums = (int32_t *)dots->sums + r * dots->sums_stride + (size_t)b * LANES;
            const unsigned char *w = dots->weights + b * dots->block_bytes;
            int32_t acc[LANES] = {0};
            if (!dots->is_first) memcpy(acc, sums, sizeof acc);
            for (size_t c = 0; c < dots->chunks; c++) {
                const unsigned char *x = dots->x + c * dots->x_stride + (size_t)r * CHUNK_BYTES;
                const int8_t *tile = (const int8_t *)w + c * TILE_BYTES;
                for (uint32_t i = 0; i < TILE_BYTES; i++) {
                    acc[i / 4 % LANES] += tile[i] * x[i / CHUNK_BYTES * 4 + i % 4];
                }
            }
            memcpy(sums, acc, sizeof acc);
        }
    }
}

static void unpack_int4(const unsigned char *quads, const unsigned char *scales,
                        unsigned char *out) {
    for (uint32_t i = 0; i < INT4_TILE_BYTES; i++) {
        uint32_t lane = i / 4 % LANES;
        out[i] = (unsigned char)(((quads[i] & 15) - 7) * scales[lane]);
        out[INT4_TILE_BYTES + i] = (unsigned char)(((quads[i] >> 4) - 7) * scales[LANES + lane]);
    }
}

void scalar_linear_bytes(const struct linear_item *item) {
    static const struct dots_kernels kernels = {.int8 = int8_dots,
                                                .unpack_int4 = unpack_int4,
                                                .rows_max = 4,
                                                .num_blocks = {1, 1, 1, 1, 1}};
    linear_dots_run(item, &kernels);
}

float scalar_narrow_int8(const float *x, uint32_t count, unsigned char *out, size_t stride) {
    return narrow_row_int8(x, count, out, stride);
}
