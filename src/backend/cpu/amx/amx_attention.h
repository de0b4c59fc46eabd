/* Shared by the two kinds of attention on a machine with AMX: by tiles (amx_attention.c) and of few
 * rows (amx_attention_few.c). */
#ifndef BACKEND_CPU_AMX_ATTENTION_H
#define BACKEND_CPU_AMX_ATTENTION_H

#include "backend/cpu/avx512/avx512.h"
#include "base/compiler.h"

enum {
    AMX_DEPTH = 32, // products that one multiplication of full tiles adds to a result
    AMX_SPAN = 128, // positions per online-softmax step
    AMX_FEW_ROWS = 8, // up to this many rows amx_attention_few.c is faster
};

// For 1 to AMX_FEW_ROWS rows: the scores of the first `chunks` chunks and, after the softmax, their
// values added to acc. Values at positions that a row does not see are multiplied by 0, so they
// must be finite.
void amx_score_few(const struct attention_tile *tile, uint32_t chunks);
void amx_value_few(const struct attention_tile *tile, uint32_t chunks);

// The online softmax of up to 32 rows: replaces a row's scores by their exponentials as bf16
// [AMX_SPAN] in the first half of the same memory, and scales sum and acc to a new maximum.
// Exponentials of chunks behind the first `chunks`, which is even, are undefined.
void amx_softmax(const struct attention_tile *tile, uint32_t chunks);

#endif
