/* Shared by the two kinds of attention on a machine with AMX: by tiles (amx_attention.c) and of few
 * rows (amx_attention_few.c). */
#ifndef BACKEND_CPU_AMX_ATTENTION_H
#define BACKEND_CPU_AMX_ATTENTION_H

#include "backend/cpu/avx512_attention.h"

enum {
    AMX_DEPTH = 32, // products that one multiplication of full tiles adds to a result
    AMX_FEW_ROWS = 8, // up to this many rows amx_attention_few.c is faster
    AMX_SHRINK_AT = ATTENTION_SPAN / 2, // a row's shrink factor is kept after its exponentials
};

// The factor that scales a row of acc down to the new maximum, before the span's values are added.
static inline float amx_row_shrink(const struct attention_tile *tile, uint32_t row) {
    return tile->scores[(size_t)row * ATTENTION_SPAN + AMX_SHRINK_AT];
}

// For 1 to AMX_FEW_ROWS rows: the scores of the first `chunks` chunks and, after the softmax, their
// values added to acc. Values at positions that a row does not see are multiplied by 0, so they
// must be finite.
void amx_score_few(const struct attention_tile *tile, uint32_t chunks);
void amx_value_few(const struct attention_tile *tile, uint32_t chunks);

#endif
