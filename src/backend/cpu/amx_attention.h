/* What the two ways of attention on a machine with tiles share: by tiles, and of few rows. */
#ifndef BACKEND_CPU_AMX_ATTENTION_H
#define BACKEND_CPU_AMX_ATTENTION_H

#include "backend/cpu/avx512_attention.h"

enum {
    AMX_DEPTH = 32, // products of a pair of full tiles
    AMX_FEW_ROWS = 8, // up to which amx_attention_few.c is the faster way
    AMX_SHRINK_AT = ATTENTION_SPAN / 2, // floats: behind a row's exponentials
};

// What a row's values are multiplied by before the span's are added.
static inline float amx_row_shrink(const struct attention_tile *tile, uint32_t row) {
    return tile->scores[(size_t)row * ATTENTION_SPAN + AMX_SHRINK_AT];
}

// Scores against the first `chunks` chunks; values of them, after the softmax. 1 to AMX_FEW_ROWS
// rows. Values at positions that a row does not see are multiplied by 0.
void amx_score_few(const struct attention_tile *tile, uint32_t chunks);
void amx_value_few(const struct attention_tile *tile, uint32_t chunks);

#endif
