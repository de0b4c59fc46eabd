/* Row-wise AVX-512 kernels (norms, rotary embedding, SiLU) and the packing of weights. */
#include <math.h>
#include <string.h>

#include "backend/cpu/avx512/avx512.h"
#include "backend/cpu/linear/narrow.h"
#include "base/compiler.h"

// 1 / sqrt(mean(x^2) + eps); four chains of 16 lanes, added in a fixed tree.
static ALWAYS_INLINE float norm_scale(const float *x, uint32_t cols, float eps) {
    __m512 sum[4] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(),
                     _mm512_setzero_ps()};
    for (uint32_t i = 0; i < cols; i += 4 * LANES) {
        UNROLL for (uint32_t part = 0; part < 4; part++) {
            uint32_t col = i + part * LANES;
            if (col >= cols) break;
            __m512 value = _mm512_maskz_loadu_ps(avx512_first_lanes(cols - col), x + col);
            sum[part] = _mm512_fmadd_ps(value, value, sum[part]);
        }
    }
    __m512 total = _mm512_add_ps(_mm512_add_ps(sum[0], sum[1]), _mm512_add_ps(sum[2], sum[3]));
    return 1.0f / sqrtf(_mm512_reduce_add_ps(total) / (float)cols + eps);
}

static ALWAYS_INLINE void rms_norm(const float *x, float *residual, const float *weight, float *out,
                                   uint32_t cols, float eps) {
    if (residual) {
        for (uint32_t i = 0; i < cols; i += LANES) {
            __mmask16 mask = avx512_first_lanes(cols - i);
            __m512 value = _mm512_maskz_loadu_ps(mask, x + i);
            value = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, residual + i), value);
            _mm512_mask_storeu_ps(residual + i, mask, value);
        }
        x = residual;
    }
    __m512 scale = _mm512_set1_ps(norm_scale(x, cols, eps));
    for (uint32_t i = 0; i < cols; i += LANES) {
        __mmask16 mask = avx512_first_lanes(cols - i);
        __m512 value = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, x + i), scale);
        value = _mm512_mul_ps(value, _mm512_maskz_loadu_ps(mask, weight + i));
        _mm512_mask_storeu_ps(out + i, mask, value);
    }
}

void avx512_rms_norm(const float *x, float *residual, const float *weight, float *out,
                     uint32_t cols, float eps) {
    rms_norm(x, residual, weight, out, cols, eps);
}

static ALWAYS_INLINE void rope_head(float *head, const float *weight, const float *rope,
                                    uint32_t head_dim, float eps) {
    if (weight) rms_norm(head, NULL, weight, head, head_dim, eps);
    uint32_t half = head_dim / 2;
    for (uint32_t i = 0; i < half; i += LANES) {
        __mmask16 mask = avx512_first_lanes(half - i);
        __m512 cosine = _mm512_maskz_loadu_ps(mask, rope + i);
        __m512 sine = _mm512_maskz_loadu_ps(mask, rope + half + i);
        __m512 a = _mm512_maskz_loadu_ps(mask, head + i);
        __m512 b = _mm512_maskz_loadu_ps(mask, head + half + i);
        __m512 a_new = _mm512_fmsub_ps(a, cosine, _mm512_mul_ps(b, sine));
        __m512 b_new = _mm512_fmadd_ps(b, cosine, _mm512_mul_ps(a, sine));
        _mm512_mask_storeu_ps(head + i, mask, a_new);
        _mm512_mask_storeu_ps(head + half + i, mask, b_new);
    }
}

void avx512_rope_head(float *head, const float *weight, const float *rope, uint32_t head_dim,
                      float eps) {
    // The usual sizes without masks and loops.
    if (head_dim == 128) {
        rope_head(head, weight, rope, 128, eps);
    } else if (head_dim == 64) {
        rope_head(head, weight, rope, 64, eps);
    } else {
        rope_head(head, weight, rope, head_dim, eps);
    }
}

void avx512_silu_mul(const float *gate, const float *up, float *out, uint32_t count) {
    const __m512 one = _mm512_set1_ps(1.0f);
    for (uint32_t i = 0; i < count; i += LANES) {
        __mmask16 mask = avx512_first_lanes(count - i);
        __m512 g = _mm512_maskz_loadu_ps(mask, gate + i);
        __m512 bottom = _mm512_add_ps(one, avx512_exp(_mm512_sub_ps(_mm512_setzero_ps(), g)));
        __m512 value = _mm512_mul_ps(_mm512_div_ps(g, bottom), _mm512_maskz_loadu_ps(mask, up + i));
        _mm512_mask_storeu_ps(out + i, mask, value);
    }
}

// 16 floats as bf16 in the low halves of the lanes, rounded as f32_to_bf16 does.
static ALWAYS_INLINE __m512i round_bf16(__m512 value) {
    __m512i bits = _mm512_castps_si512(value), high = _mm512_srli_epi32(bits, 16);
    __mmask16 is_nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    __m512i up = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    up = _mm512_srli_epi32(up, 16);
    return _mm512_mask_or_epi32(up, is_nan, high, _mm512_set1_epi32(0x40));
}

void avx512_store_key(const float *k, uint32_t head_dim, uint16_t *keys) {
    for (uint32_t d = 0; d < head_dim; d += LANES) {
        // Pairs of the key: the even lanes take their neighbour into their high halves.
        __m512i low = round_bf16(_mm512_loadu_ps(k + d));
        __m512i pairs = _mm512_or_si512(low, _mm512_srli_epi64(low, 16));
        uint64_t lanes[LANES / 2];
        _mm512_storeu_si512(lanes, pairs);
        for (uint32_t i = 0; i < LANES / 2; i++) {
            memcpy(keys + (size_t)(d + 2 * i) * LANES, &lanes[i], sizeof(uint32_t));
        }
    }
}

void avx512_store_value(const float *v, uint32_t head_dim, uint16_t *values) {
    for (uint32_t d = 0; d < head_dim; d += LANES) {
        __m512i value = round_bf16(_mm512_loadu_ps(v + d));
        _mm512_mask_storeu_epi16(values + (size_t)d * 2, 0x55555555u, value);
    }
}

// Transposes 16 x 16 pairs: lane l of line p becomes lane p of line l.
static ALWAYS_INLINE void transpose_16x16(__m512i line[16]) {
    __m512i t[16];
    UNROLL for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(line[i], line[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(line[i], line[i + 1]);
    }
    UNROLL for (int i = 0; i < 16; i += 4) {
        line[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        line[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        line[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        line[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    // line[4 g + c] holds, in its four quarters q, rows 4g..4g+3 of column 4 q + c.
    UNROLL for (int c = 0; c < 4; c++) {
        t[c] = _mm512_shuffle_i32x4(line[c], line[4 + c], 0x88);
        t[4 + c] = _mm512_shuffle_i32x4(line[c], line[4 + c], 0xdd);
        t[8 + c] = _mm512_shuffle_i32x4(line[8 + c], line[12 + c], 0x88);
        t[12 + c] = _mm512_shuffle_i32x4(line[8 + c], line[12 + c], 0xdd);
    }
    UNROLL for (int c = 0; c < 4; c++) {
        line[c] = _mm512_shuffle_i32x4(t[c], t[8 + c], 0x88);
        line[8 + c] = _mm512_shuffle_i32x4(t[c], t[8 + c], 0xdd);
        line[4 + c] = _mm512_shuffle_i32x4(t[4 + c], t[12 + c], 0x88);
        line[12 + c] = _mm512_shuffle_i32x4(t[4 + c], t[12 + c], 0xdd);
    }
}

void avx512_pack_bf16(const unsigned char *const rows[LANES], size_t count, uint16_t *out) {
    for (size_t k = 0; k < count; k += 32, out += 32 * LANES) {
        __m512i line[16];
        UNROLL for (int r = 0; r < 16; r++) line[r] = _mm512_loadu_si512(rows[r] + k * 2);
        transpose_16x16(line);
        // Streaming stores: a line is not read again soon, and need not be read before it is
        // written.
        UNROLL for (int p = 0; p < 16; p++) {
            _mm512_stream_si512((void *)(out + p * 2 * LANES), line[p]);
        }
    }
    _mm_sfence();
}

float avx512_narrow_int8(const float *x, uint32_t count, unsigned char *out, size_t stride) {
    return narrow_row_int8(x, count, out, stride);
}
