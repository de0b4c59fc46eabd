/* The online softmax, shared by the attention kernels of AVX-512 and of its extensions. */
#ifndef BACKEND_CPU_AVX512_ATTENTION_H
#define BACKEND_CPU_AVX512_ATTENTION_H

#include "backend/cpu/avx512.h"
#include "base/compiler.h"

// Returns the row's largest score among the positions it sees. The other scores become -inf.
static ALWAYS_INLINE float avx512_mask_row(const struct attention_tile *tile, uint32_t row) {
    uint32_t visible = tile->visible[row];
    float *scores = tile->scores + (size_t)row * ATTENTION_SPAN;
    const __m512 lowest = _mm512_set1_ps(-__builtin_inff());
    __m512 top = lowest;
    UNROLL for (uint32_t c = 0; c < ATTENTION_CHUNKS; c++) {
        uint32_t left = visible > c * LANES ? visible - c * LANES : 0;
        __mmask16 mask = avx512_first_lanes(left);
        __m512 score = _mm512_loadu_ps(scores + (size_t)c * LANES);
        score = _mm512_mask_mov_ps(lowest, mask, score);
        _mm512_storeu_ps(scores + (size_t)c * LANES, score);
        top = _mm512_max_ps(top, score);
    }
    return _mm512_reduce_max_ps(top);
}

// Scales a row of acc to the new maximum.
static ALWAYS_INLINE void avx512_shrink_row(const struct attention_tile *tile, uint32_t row,
                                            float shrink) {
    if (shrink == 1.0f) return; // the maximum is the same, as usual
    const __m512 factor = _mm512_set1_ps(shrink);
    float *acc = tile->acc + (size_t)row * tile->head_dim;
    for (uint32_t d = 0; d < tile->head_dim; d += LANES) {
        _mm512_storeu_ps(acc + d, _mm512_mul_ps(_mm512_loadu_ps(acc + d), factor));
    }
}

// The online softmax of all rows. `finish_row` makes exponentials of a row's masked scores and
// scales its sum and acc to the new maximum, which is in tile->max by then.
static ALWAYS_INLINE void avx512_softmax_span(const struct attention_tile *tile,
                                              void (*finish_row)(const struct attention_tile *tile,
                                                                 uint32_t row, float shrink)) {
    // 16 rows in the lanes of one register, as each row is a long chain of dependent steps.
    for (uint32_t begin = 0; begin < tile->rows; begin += LANES) {
        float before[LANES] = {0}, top[LANES] = {0}, shrink[LANES];
        uint32_t left = tile->rows - begin, rows = left < LANES ? left : LANES;
        for (uint32_t i = 0; i < rows; i++) {
            uint32_t row = begin + i;
            before[i] = tile->max[row];
            top[i] = tile->visible[row] ? avx512_mask_row(tile, row) : before[i];
        }
        __m512 old = _mm512_loadu_ps(before);
        __m512 largest = _mm512_max_ps(_mm512_loadu_ps(top), old);
        _mm512_storeu_ps(top, largest);
        _mm512_storeu_ps(shrink, avx512_exp(_mm512_sub_ps(old, largest)));
        for (uint32_t i = 0; i < rows; i++) {
            uint32_t row = begin + i;
            tile->max[row] = top[i];
            if (tile->visible[row]) finish_row(tile, row, shrink[i]);
        }
    }
}

#endif
