/* The emulated kernels include this instead of the compiler's header (see CMakeLists.txt here).
 * SIMDe's portable code gives AVX2 and AVX-512. This file adds what SIMDe lacks and what must be
 * right to the bit: tiles and bf16 dot products as Intel's manual defines them. Each file that
 * includes this has tiles of its own. They refuse what the processor refuses. */
#ifndef EMULATED_IMMINTRIN_H
#define EMULATED_IMMINTRIN_H

#define SIMDE_ENABLE_NATIVE_ALIASES
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#include <simde/x86/avx2.h>
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>
#include <simde/x86/fma.h>
#pragma GCC diagnostic pop

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/check.h"
#include "base/dtype.h"

#define __mmask8 simde__mmask8
#define __mmask16 simde__mmask16
#define __mmask32 simde__mmask32
#define __mmask64 simde__mmask64
#undef _MM_FROUND_NO_EXC
#define _MM_FROUND_NO_EXC SIMDE_MM_FROUND_NO_EXC

#define EMULATED static inline __attribute__((unused))

EMULATED __m512 emulated_maskz_loadu_ps(__mmask16 mask, const float *from) {
    float value[16] = {0};
    for (int i = 0; i < 16; i++) {
        if (mask >> i & 1) value[i] = from[i];
    }
    return _mm512_loadu_ps(value);
}

EMULATED void emulated_mask_storeu_ps(float *to, __mmask16 mask, __m512 from) {
    float value[16];
    _mm512_storeu_ps(value, from);
    for (int i = 0; i < 16; i++) {
        if (mask >> i & 1) to[i] = value[i];
    }
}

// The sum or maximum, halving the vector again and again, as compilers do it.
EMULATED float emulated_reduce(__m512 from, int is_max) {
    float value[16];
    _mm512_storeu_ps(value, from);
    for (int half = 8; half; half /= 2) {
        for (int i = 0; i < half; i++) {
            float other = value[i + half];
            value[i] = !is_max ? value[i] + other : value[i] > other ? value[i] : other;
        }
    }
    return value[0];
}

// One rounding: the sum is exact in double but for the rarest cases.
EMULATED __m512 emulated_fmadd(__m512 a, __m512 b, __m512 c) {
    float x[16], y[16], z[16];
    _mm512_storeu_ps(x, a), _mm512_storeu_ps(y, b), _mm512_storeu_ps(z, c);
    for (int i = 0; i < 16; i++) z[i] = (float)((double)x[i] * (double)y[i] + (double)z[i]);
    return _mm512_loadu_ps(z);
}

// SIMDe's own is off by an ulp or two.
EMULATED __m512 emulated_maskz_scalef(__mmask16 mask, __m512 from, __m512 power) {
    float value[16], exponent[16];
    _mm512_storeu_ps(value, from);
    _mm512_storeu_ps(exponent, power);
    for (int i = 0; i < 16; i++) {
        value[i] = mask >> i & 1 ? ldexpf(value[i], (int)floorf(exponent[i])) : 0;
    }
    return _mm512_loadu_ps(value);
}

// x - floor(x), the only kind that the kernels use.
EMULATED __m512 emulated_reduce_down(__m512 from) {
    float value[16];
    _mm512_storeu_ps(value, from);
    for (int i = 0; i < 16; i++) value[i] -= floorf(value[i]);
    return _mm512_loadu_ps(value);
}

// Two of a's quarters, then two of b's.
EMULATED __m512 emulated_shuffle_quarters(__m512 a, __m512 b, unsigned which) {
    float from[2][16], to[16];
    _mm512_storeu_ps(from[0], a);
    _mm512_storeu_ps(from[1], b);
    for (unsigned i = 0; i < 4; i++) {
        memcpy(to + 4 * i, from[i / 2] + 4 * (which >> 2 * i & 3u), 4 * sizeof(float));
    }
    return _mm512_loadu_ps(to);
}

#undef _mm512_shuffle_f32x4
#define _mm512_shuffle_f32x4(a, b, which) emulated_shuffle_quarters(a, b, which)
#undef _mm512_reduce_ps
#define _mm512_reduce_ps(v, rounding) emulated_reduce_down(v)
#undef _mm512_scalef_ps
#define _mm512_scalef_ps(v, power) emulated_maskz_scalef(0xffff, v, power)
#undef _mm512_maskz_scalef_ps
#define _mm512_maskz_scalef_ps(mask, v, power) emulated_maskz_scalef(mask, v, power)
#undef _mm512_maskz_loadu_ps
#define _mm512_maskz_loadu_ps(mask, from) emulated_maskz_loadu_ps(mask, from)
#undef _mm512_mask_storeu_ps
#define _mm512_mask_storeu_ps(to, mask, from) emulated_mask_storeu_ps(to, mask, from)
#undef _mm512_reduce_add_ps
#define _mm512_reduce_add_ps(v) emulated_reduce(v, 0)
#undef _mm512_reduce_max_ps
#define _mm512_reduce_max_ps(v) emulated_reduce(v, 1)
#undef _mm512_stream_si512
#define _mm512_stream_si512(to, v) _mm512_storeu_si512(to, v)
#undef _mm512_fmadd_ps
#define _mm512_fmadd_ps(a, b, c) emulated_fmadd(a, b, c)
#undef _mm512_fmsub_ps
#define _mm512_fmsub_ps(a, b, c) emulated_fmadd(a, b, _mm512_sub_ps(_mm512_setzero_ps(), c))
#undef _mm512_fnmadd_ps
#define _mm512_fnmadd_ps(a, b, c) emulated_fmadd(_mm512_sub_ps(_mm512_setzero_ps(), a), b, c)

EMULATED float emulated_bf16(const unsigned char *at) {
    uint16_t half;
    memcpy(&half, at, sizeof half);
    uint32_t bits = (uint32_t)half << 16;
    if ((bits & 0x7f800000u) == 0) bits &= 0x80000000u; // subnormals count as zeros
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// Results that are subnormal become zeros.
EMULATED float emulated_flush(double exact) {
    float value = (float)exact;
    return fabsf(value) < 0x1p-126f ? copysignf(0.0f, value) : value;
}

EMULATED float emulated_bf16_fma(float sum, const unsigned char *a, const unsigned char *b) {
    double product = (double)emulated_bf16(a) * (double)emulated_bf16(b);
    return emulated_flush(product + (double)sum);
}

EMULATED __m512 emulated_dpbf16(__m512 acc, __m512i a, __m512i b) {
    float sum[16];
    unsigned char x[64], y[64];
    _mm512_storeu_ps(sum, acc);
    memcpy(x, &a, sizeof x);
    memcpy(y, &b, sizeof y);
    for (int i = 0; i < 16; i++) {
        sum[i] = emulated_bf16_fma(sum[i], x + 4 * i + 2, y + 4 * i + 2);
        sum[i] = emulated_bf16_fma(sum[i], x + 4 * i, y + 4 * i);
    }
    return _mm512_loadu_ps(sum);
}

EMULATED __m512i emulated_cvtepu8_epi32(__m128i from) {
    unsigned char narrow[16];
    int32_t wide[16];
    memcpy(narrow, &from, sizeof narrow);
    for (int i = 0; i < 16; i++) wide[i] = narrow[i];
    return _mm512_loadu_si512(wide);
}

EMULATED __m512i emulated_cvtepi8_epi32(__m128i from) {
    int8_t narrow[16];
    int32_t wide[16];
    memcpy(narrow, &from, sizeof narrow);
    for (int i = 0; i < 16; i++) wide[i] = narrow[i];
    return _mm512_loadu_si512(wide);
}

EMULATED __m512 emulated_cvtepi32_ps(__m512i from) {
    int32_t value[16];
    float wide[16];
    memcpy(value, &from, sizeof value);
    for (int i = 0; i < 16; i++) wide[i] = (float)value[i];
    return _mm512_loadu_ps(wide);
}

EMULATED uint16_t emulated_to_bf16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40u);
    if ((bits & 0x7f800000u) == 0) return (uint16_t)(bits >> 16 & 0x8000u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

EMULATED __m512 emulated_cvtph_ps(__m256i from) {
    uint16_t half[16];
    float value[16];
    memcpy(half, &from, sizeof half);
    for (int i = 0; i < 16; i++) value[i] = f16_to_f32(half[i]);
    return _mm512_loadu_ps(value);
}

EMULATED __m512i emulated_cvtne2ps_pbh(__m512 high, __m512 low) {
    float value[32];
    uint16_t half[32];
    _mm512_storeu_ps(value, low);
    _mm512_storeu_ps(value + 16, high);
    for (int i = 0; i < 32; i++) half[i] = emulated_to_bf16(value[i]);
    return _mm512_loadu_si512(half);
}

EMULATED __m256i emulated_cvtneps_pbh(__m512 from) {
    float value[16];
    uint16_t half[16];
    _mm512_storeu_ps(value, from);
    for (int i = 0; i < 16; i++) half[i] = emulated_to_bf16(value[i]);
    return _mm256_loadu_si256((const __m256i *)half);
}

EMULATED __m512i emulated_cvtepu16_epi32(__m256i from) {
    uint16_t narrow[16];
    uint32_t wide[16];
    memcpy(narrow, &from, sizeof narrow);
    for (int i = 0; i < 16; i++) wide[i] = narrow[i];
    return _mm512_loadu_si512(wide);
}

// Numbers beyond an integer's range, and NaN, become the least one.
EMULATED __m512i emulated_cvtps_epi32(__m512 from) {
    float values[16];
    int32_t numbers[16];
    _mm512_storeu_ps(values, from);
    for (int i = 0; i < 16; i++) {
        bool fits = values[i] >= -0x1p31f && values[i] < 0x1p31f;
        numbers[i] = fits ? (int32_t)rintf(values[i]) : INT32_MIN;
    }
    return _mm512_loadu_si512(numbers);
}

EMULATED __m512i emulated_srai_epi32(__m512i from, unsigned count) {
    int32_t numbers[16];
    _mm512_storeu_si512(numbers, from);
    for (int i = 0; i < 16; i++) numbers[i] >>= count;
    return _mm512_loadu_si512(numbers);
}

EMULATED __mmask32 emulated_cmpeq_epi16_mask(__m512i a, __m512i b) {
    uint16_t left[32], right[32];
    __mmask32 mask = 0;
    memcpy(left, &a, sizeof left);
    memcpy(right, &b, sizeof right);
    for (int i = 0; i < 32; i++) mask |= (__mmask32)(left[i] == right[i]) << i;
    return mask;
}

EMULATED void emulated_mask_storeu_epi16(uint16_t *to, __mmask32 mask, __m512i from) {
    uint16_t value[32];
    memcpy(value, &from, sizeof value);
    for (int i = 0; i < 32; i++) {
        if (mask >> i & 1) to[i] = value[i];
    }
}

#undef _mm512_mask_storeu_epi16
#define _mm512_mask_storeu_epi16(to, mask, from) emulated_mask_storeu_epi16(to, mask, from)
#undef _mm512_cvtneps_pbh
#define _mm512_cvtneps_pbh(from) emulated_cvtneps_pbh(from)
#undef _mm512_cvtepu16_epi32
#define _mm512_cvtepu16_epi32(from) emulated_cvtepu16_epi32(from)
#undef _mm512_cvtps_epi32
#define _mm512_cvtps_epi32(from) emulated_cvtps_epi32(from)
#undef _mm512_srai_epi32
#define _mm512_srai_epi32(from, count) emulated_srai_epi32(from, count)
#undef _mm512_cmpeq_epi16_mask
#define _mm512_cmpeq_epi16_mask(a, b) emulated_cmpeq_epi16_mask(a, b)
#undef _mm512_cvtepu8_epi32
#define _mm512_cvtepu8_epi32(from) emulated_cvtepu8_epi32(from)
#undef _mm512_cvtepi8_epi32
#define _mm512_cvtepi8_epi32(from) emulated_cvtepi8_epi32(from)
#undef _mm512_cvtepi32_ps
#define _mm512_cvtepi32_ps(from) emulated_cvtepi32_ps(from)
#undef __m512bh
#define __m512bh __m512i
#undef _mm512_dpbf16_ps
#define _mm512_dpbf16_ps(acc, a, b) emulated_dpbf16(acc, a, b)
#undef _mm512_cvtph_ps
#define _mm512_cvtph_ps(from) emulated_cvtph_ps(from)
#undef _mm512_cvtne2ps_pbh
#define _mm512_cvtne2ps_pbh(high, low) emulated_cvtne2ps_pbh(high, low)

// Four products of bytes of `a`, not negative, and signed bytes of `b` are added to each lane.
EMULATED __m256i emulated_dpbusd(__m256i acc, __m256i a, __m256i b) {
    int32_t sum[8];
    unsigned char x[32];
    int8_t y[32];
    memcpy(sum, &acc, sizeof sum);
    memcpy(x, &a, sizeof x);
    memcpy(y, &b, sizeof y);
    for (int i = 0; i < 32; i++) sum[i / 4] += x[i] * y[i];
    return _mm256_loadu_si256((const __m256i *)sum);
}

#define _mm256_dpbusd_avx_epi32(acc, a, b) emulated_dpbusd(acc, a, b)
#define _mm256_dpwssd_avx_epi32(acc, a, b) _mm256_add_epi32(acc, _mm256_madd_epi16(a, b))

struct emulated_tiles {
    unsigned char configured, rows[8];
    uint16_t row_bytes[8];
    unsigned char data[8][16][64];
};
static __attribute__((unused)) _Thread_local struct emulated_tiles emulated_tiles;

EMULATED void emulated_tile_loadconfig(const void *from) {
    const unsigned char *config = from;
    memset(&emulated_tiles, 0, sizeof emulated_tiles);
    CHECK(config[0] == 1 && config[1] == 0, "palette=%u", config[0]);
    emulated_tiles.configured = 1;
    for (int i = 0; i < 16; i++) {
        uint16_t bytes;
        memcpy(&bytes, config + 16 + 2 * i, sizeof bytes);
        CHECK(config[48 + i] <= (i < 8 ? 16 : 0) && bytes <= (i < 8 ? 64 : 0), "tile=%d", i);
        CHECK((config[48 + i] == 0) == (bytes == 0), "tile=%d", i);
        if (i < 8) emulated_tiles.rows[i] = config[48 + i], emulated_tiles.row_bytes[i] = bytes;
    }
}

EMULATED void emulated_tile_use(int tile) {
    CHECK(emulated_tiles.configured && emulated_tiles.rows[tile], "tile=%d", tile);
}

EMULATED void emulated_tile_zero(int tile) {
    emulated_tile_use(tile);
    memset(emulated_tiles.data[tile], 0, sizeof emulated_tiles.data[tile]);
}

EMULATED void emulated_tile_load(int tile, const void *from, size_t stride) {
    emulated_tile_zero(tile);
    for (size_t row = 0; row < emulated_tiles.rows[tile]; row++) {
        memcpy(emulated_tiles.data[tile][row], (const char *)from + row * stride,
               emulated_tiles.row_bytes[tile]);
    }
}

EMULATED void emulated_tile_store(int tile, void *to, size_t stride) {
    emulated_tile_use(tile);
    for (size_t row = 0; row < emulated_tiles.rows[tile]; row++) {
        memcpy((char *)to + row * stride, emulated_tiles.data[tile][row],
               emulated_tiles.row_bytes[tile]);
    }
}

EMULATED void emulated_tile_check(int sum, int a, int b) {
    emulated_tile_use(sum), emulated_tile_use(a), emulated_tile_use(b);
    CHECK(emulated_tiles.rows[sum] == emulated_tiles.rows[a], "tile=%d", sum);
    CHECK(emulated_tiles.row_bytes[sum] == emulated_tiles.row_bytes[b], "tile=%d", sum);
    CHECK(emulated_tiles.row_bytes[a] == 4 * emulated_tiles.rows[b], "tile=%d", a);
}

// Even and odd numbers of the depth are summed apart, beginning with 0. Then both are added to the
// sum.
EMULATED void emulated_tile_dpbf16ps(int sum, int a, int b) {
    emulated_tile_check(sum, a, b);
    for (int row = 0; row < emulated_tiles.rows[sum]; row++) {
        for (int col = 0; col < emulated_tiles.row_bytes[sum] / 4; col++) {
            float even = 0, odd = 0, total;
            for (int k = 0; k < emulated_tiles.rows[b]; k++) {
                const unsigned char *x = &emulated_tiles.data[a][row][4 * k];
                const unsigned char *w = &emulated_tiles.data[b][k][4 * col];
                even = emulated_bf16_fma(even, x, w);
                odd = emulated_bf16_fma(odd, x + 2, w + 2);
            }
            unsigned char *to = &emulated_tiles.data[sum][row][4 * col];
            memcpy(&total, to, sizeof total);
            total =
                emulated_flush((double)total + (double)emulated_flush((double)even + (double)odd));
            memcpy(to, &total, sizeof total);
        }
    }
}

// Products of bytes. Those of `a` are signed, or not.
EMULATED void emulated_tile_dpb(int sum, int a, int b, int is_signed) {
    emulated_tile_check(sum, a, b);
    for (int row = 0; row < emulated_tiles.rows[sum]; row++) {
        for (int col = 0; col < emulated_tiles.row_bytes[sum] / 4; col++) {
            int32_t total;
            unsigned char *to = &emulated_tiles.data[sum][row][4 * col];
            memcpy(&total, to, sizeof total);
            for (int k = 0; k < emulated_tiles.row_bytes[a]; k++) {
                unsigned char x = emulated_tiles.data[a][row][k];
                total += (is_signed ? (int8_t)x : x) *
                         (int8_t)emulated_tiles.data[b][k / 4][4 * col + k % 4];
            }
            memcpy(to, &total, sizeof total);
        }
    }
}

EMULATED void emulated_tile_release(void) {
    memset(&emulated_tiles, 0, sizeof emulated_tiles);
}

#define _tile_loadconfig(from) emulated_tile_loadconfig(from)
#define _tile_release() emulated_tile_release()
#define _tile_zero(tile) emulated_tile_zero(tile)
#define _tile_loadd(tile, from, stride) emulated_tile_load(tile, from, stride)
#define _tile_stream_loadd(tile, from, stride) emulated_tile_load(tile, from, stride)
#define _tile_stored(tile, to, stride) emulated_tile_store(tile, to, stride)
#define _tile_dpbf16ps(sum, a, b) emulated_tile_dpbf16ps(sum, a, b)
#define _tile_dpbusd(sum, a, b) emulated_tile_dpb(sum, a, b, 0)
#define _tile_dpbssd(sum, a, b) emulated_tile_dpb(sum, a, b, 1)

#endif
