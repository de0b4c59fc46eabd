/* Shared by the kernels of narrow numbers of all instruction sets: rows of x as bytes, and integer
 * sums as floats. Plain C: the compiler flags of each including file choose the instructions. */
#ifndef BACKEND_CPU_NARROW_H
#define BACKEND_CPU_NARROW_H

#include <math.h>
#include <string.h>

#include "backend/cpu/kernels.h"
#include "base/compiler.h"

// The largest magnitude as bits, which order like the magnitudes; inf and NaN come last.
static ALWAYS_INLINE uint32_t narrow_largest(const float *x, uint32_t count) {
    uint32_t largest = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        bits &= 0x7fffffffu;
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

// Adding 1.5 * 2^23 rounds to the nearest even and leaves the integer in the low bits.
static ALWAYS_INLINE unsigned char narrow_byte(float value) {
    float shifted = value + 12582912.0f;
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    return (unsigned char)(bits ^ 0x80u);
}

// A row's scale: its largest magnitude / `most`, or NaN if a value is not finite. Where *inverse is
// 0, the row counts as zeros: up to `least`, below which most / largest could overflow.
static ALWAYS_INLINE float narrow_scale_to(const float *x, uint32_t count, float most, float least,
                                           float *inverse) {
    uint32_t bits = narrow_largest(x, count);
    float largest;
    memcpy(&largest, &bits, sizeof largest);
    *inverse = largest > least && largest < INFINITY ? most / largest : 0.0f;
    return bits < 0x7f800000u ? largest / most : NAN;
}

static ALWAYS_INLINE float narrow_scale(const float *x, uint32_t count, float *inverse) {
    return narrow_scale_to(x, count, 127.0f, 0x1p-120f, inverse);
}

// The same for codes of e4m3, whose largest is 448.
static ALWAYS_INLINE float narrow_e4m3_scale(const float *x, uint32_t count, float *inverse) {
    return narrow_scale_to(x, count, 448.0f, 0x1p-119f, inverse);
}

// A finite number as e4m3, rounded to the nearest even, at most 448.
static ALWAYS_INLINE unsigned char narrow_e4m3(float value) {
    uint32_t bits, magnitude;
    memcpy(&bits, &value, sizeof bits);
    float positive = fabsf(value);
    if (positive > 448.0f) positive = 448.0f;
    if (positive < 0x1p-6f) { // multiples of 2^-9: adding 1.5 * 2^23 rounds
        float shifted = positive * 0x1p9f + 12582912.0f;
        memcpy(&magnitude, &shifted, sizeof magnitude);
        magnitude &= 0xfu;
    } else {
        memcpy(&magnitude, &positive, sizeof magnitude);
        magnitude = (magnitude + 0x7ffffu + (magnitude >> 20 & 1u)) >> 20;
        magnitude -= (127u - 7u) << 3; // the exponents' biases
    }
    return (unsigned char)((bits >> 24 & 0x80u) | magnitude);
}

static ALWAYS_INLINE float narrow_row_int8(const float *x, uint32_t count, unsigned char *out,
                                           size_t stride) {
    float inverse, scale = narrow_scale(x, count, &inverse);
    for (; count >= CHUNK_BYTES; count -= CHUNK_BYTES, x += CHUNK_BYTES, out += stride) {
        for (uint32_t i = 0; i < CHUNK_BYTES; i++) {
            out[i] = narrow_byte(inverse > 0 ? x[i] * inverse : 0.0f);
        }
    }
    for (uint32_t i = 0; count > 0 && i < CHUNK_BYTES; i++) {
        out[i] = narrow_byte(i < count && inverse > 0 ? x[i] * inverse : 0.0f);
    }
    return scale;
}

// Replaces 16 integer sums of a row by the outputs.
static ALWAYS_INLINE void narrow_finish(const struct linear_item *item, uint32_t row,
                                        uint32_t block, float *sums) {
    float x_scale = item->x_scale[row];
    const float *scale = item->scale + (size_t)block * LANES;
    const float *start = item->start + (size_t)block * LANES;
    const int32_t *sum128 = item->sum128 + (size_t)block * LANES;
    int32_t exact[LANES];
    memcpy(exact, sums, sizeof exact);
    for (uint32_t lane = 0; lane < LANES; lane++) {
        float value = (float)(exact[lane] - sum128[lane]);
        sums[lane] = start[lane] + value * (scale[lane] * x_scale);
    }
}

// Rows of the tile of x that `row` is in.
static ALWAYS_INLINE uint32_t narrow_tile_rows(const struct linear_item *item, uint32_t row) {
    uint32_t left = item->rows - row / TILE_ROWS * TILE_ROWS;
    return left < TILE_ROWS ? left : TILE_ROWS;
}

// Where a block's 4-bit weights are, from some chunk on.
struct narrow_int4 {
    const unsigned char *quads; // [chunks][512]
    const unsigned char *scales; // [chunks][2][16]
};

static ALWAYS_INLINE struct narrow_int4 narrow_int4_of(const struct linear_item *item,
                                                       uint32_t block, uint32_t chunk) {
    const unsigned char *w = item->weights + block * item->block_bytes;
    return (struct narrow_int4){w + (size_t)chunk * INT4_TILE_BYTES,
                                w + (size_t)item->chunks * INT4_TILE_BYTES +
                                    (size_t)chunk * INT4_SCALE_BYTES};
}

#endif
