/* Shared by the two kinds of attention on a machine with AMX: by tiles (amx_attention.c) and of few
 * rows (amx_attention_few.c). */
#ifndef BACKEND_CPU_AMX_ATTENTION_H
#define BACKEND_CPU_AMX_ATTENTION_H

#include "backend/cpu/avx512/avx512_vector.h"
#include "base/compiler.h"

enum {
    AMX_DEPTH = 32, // products that one multiplication of full tiles adds to a result
    AMX_SPAN = 128, // positions per online-softmax step
    AMX_FEW_ROWS = 8, // up to this many rows amx_attention_few.c is faster
};

// Turns `count` bf16, a multiple of 16, into floats. `to` may be the same memory.
void amx_widen(const uint16_t *from, size_t count, float *to);

// For 1 to AMX_FEW_ROWS rows, whose queries are floats: the scores of the first `chunks` chunks
// and, after the softmax, their values added to acc. `part` says what K and V are: PART_BF16_FIRST,
// PART_INT8 or PART_E4M3. Values at positions that a row does not see are multiplied by 0, so they
// must be finite.
void amx_score_few(const struct attention_tile *tile, uint32_t chunks, enum vector_part part);
void amx_value_few(const struct attention_tile *tile, uint32_t chunks, enum vector_part part);

// What the positions of a span multiply scores and exponentials by.
struct amx_scales {
    _Alignas(64) float keys[AMX_SPAN], values[AMX_SPAN];
    // 1 / values in bf16, and what that lacks.
    _Alignas(64) uint16_t inverses[AMX_SPAN], rests[AMX_SPAN];
};

// The online softmax of up to 32 rows: replaces a row's scores by their exponentials as bf16
// [AMX_SPAN] in the first half of the same memory, and scales sum and acc to a new maximum.
// Exponentials of chunks behind the first `chunks`, which is even, are undefined. Exponentials are
// multiplied by the scales of values before they are rounded, but not in the sum. NULL: all are 1.
void amx_softmax(const struct attention_tile *tile, uint32_t chunks,
                 const struct amx_scales *scales);

#endif
