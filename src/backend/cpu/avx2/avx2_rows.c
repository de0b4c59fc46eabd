/* Row-wise AVX2 kernels (norms, rotary embedding, SiLU), the packing of weights. */
#include <math.h>

#include "backend/cpu/avx2/avx2.h"
#include "base/compiler.h"

// The first `left` of 8 floats, or all. Masks are for the tail only: a masked store is many times
// as slow on some processors.
static ALWAYS_INLINE __m256 load_left(const float *x, uint32_t left) {
    return left >= HALF ? _mm256_loadu_ps(x) : _mm256_maskload_ps(x, avx2_tail_mask(left));
}

static ALWAYS_INLINE void store_left(float *out, uint32_t left, __m256 value) {
    if (left >= HALF) {
        _mm256_storeu_ps(out, value);
    } else {
        _mm256_maskstore_ps(out, avx2_tail_mask(left), value);
    }
}

// 1 / sqrt(mean(x^2) + eps); four chains of 8 lanes, added in a fixed tree.
static ALWAYS_INLINE float norm_scale(const float *x, uint32_t cols, float eps) {
    __m256 sum[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(),
                     _mm256_setzero_ps()};
    for (uint32_t i = 0; i < cols; i += 4 * HALF) {
        UNROLL for (uint32_t part = 0; part < 4; part++) {
            uint32_t col = i + part * HALF;
            if (col >= cols) break;
            __m256 value = load_left(x + col, cols - col);
            sum[part] = _mm256_fmadd_ps(value, value, sum[part]);
        }
    }
    __m256 total = _mm256_add_ps(_mm256_add_ps(sum[0], sum[1]), _mm256_add_ps(sum[2], sum[3]));
    return 1.0f / sqrtf(avx2_reduce_add(total) / (float)cols + eps);
}

void avx2_rms_norm(const float *x, float *residual, const float *weight, float *out, uint32_t cols,
                   float eps) {
    if (residual) {
        for (uint32_t i = 0; i < cols; i += HALF) {
            __m256 value = load_left(x + i, cols - i);
            store_left(residual + i, cols - i,
                       _mm256_add_ps(load_left(residual + i, cols - i), value));
        }
        x = residual;
    }
    __m256 scale = _mm256_set1_ps(norm_scale(x, cols, eps));
    for (uint32_t i = 0; i < cols; i += HALF) {
        __m256 value = _mm256_mul_ps(load_left(x + i, cols - i), scale);
        store_left(out + i, cols - i, _mm256_mul_ps(value, load_left(weight + i, cols - i)));
    }
}

void avx2_rope_head(float *head, const float *weight, const float *rope, uint32_t head_dim,
                    float eps) {
    if (weight) avx2_rms_norm(head, NULL, weight, head, head_dim, eps);
    uint32_t half = head_dim / 2; // a multiple of 8
    for (uint32_t i = 0; i < half; i += HALF) {
        __m256 cosine = _mm256_loadu_ps(rope + i), sine = _mm256_loadu_ps(rope + half + i);
        __m256 a = _mm256_loadu_ps(head + i), b = _mm256_loadu_ps(head + half + i);
        __m256 a_new = _mm256_fmsub_ps(a, cosine, _mm256_mul_ps(b, sine));
        __m256 b_new = _mm256_fmadd_ps(b, cosine, _mm256_mul_ps(a, sine));
        _mm256_storeu_ps(head + i, a_new);
        _mm256_storeu_ps(head + half + i, b_new);
    }
}

void avx2_silu_mul(const float *gate, const float *up, float *out, uint32_t count) {
    const __m256 one = _mm256_set1_ps(1.0f);
    for (uint32_t i = 0; i < count; i += HALF) {
        __m256 g = load_left(gate + i, count - i);
        __m256 bottom = _mm256_add_ps(one, avx2_exp(_mm256_sub_ps(_mm256_setzero_ps(), g)));
        __m256 value = _mm256_mul_ps(_mm256_div_ps(g, bottom), load_left(up + i, count - i));
        store_left(out + i, count - i, value);
    }
}

// Transposes 8 x 8 pairs: lane l of line p becomes lane p of line l.
static ALWAYS_INLINE void transpose_8x8(__m256i line[8]) {
    __m256i t[8];
    UNROLL for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_epi32(line[i], line[i + 1]);
        t[i + 1] = _mm256_unpackhi_epi32(line[i], line[i + 1]);
    }
    UNROLL for (int i = 0; i < 8; i += 4) {
        line[i] = _mm256_unpacklo_epi64(t[i], t[i + 2]);
        line[i + 1] = _mm256_unpackhi_epi64(t[i], t[i + 2]);
        line[i + 2] = _mm256_unpacklo_epi64(t[i + 1], t[i + 3]);
        line[i + 3] = _mm256_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    UNROLL for (int i = 0; i < 4; i++) {
        t[i] = _mm256_permute2x128_si256(line[i], line[i + 4], 0x20);
        t[i + 4] = _mm256_permute2x128_si256(line[i], line[i + 4], 0x31);
    }
    UNROLL for (int i = 0; i < 8; i++) line[i] = t[i];
}

void avx2_pack_bf16(const unsigned char *const rows[LANES], size_t count, uint16_t *out) {
    for (size_t k = 0; k < count; k += 32, out += 32 * LANES) {
        // Quarters of 8 rows x 8 pairs. Both quarters of a line of 64 bytes are stored one after
        // the other, as streaming stores of half lines are slow.
        UNROLL for (int part = 0; part < 2; part++) {
            __m256i low[8], high[8];
            UNROLL for (int r = 0; r < 8; r++) {
                low[r] = _mm256_loadu_si256((const void *)(rows[r] + k * 2 + part * 32));
                high[r] = _mm256_loadu_si256((const void *)(rows[r + 8] + k * 2 + part * 32));
            }
            transpose_8x8(low);
            transpose_8x8(high);
            UNROLL for (int p = 0; p < 8; p++) {
                uint16_t *line = out + (part * 8 + p) * 2 * LANES;
                _mm256_stream_si256((void *)line, low[p]);
                _mm256_stream_si256((void *)(line + LANES), high[p]);
            }
        }
    }
    _mm_sfence();
}
