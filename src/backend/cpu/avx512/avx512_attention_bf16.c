/* Attention with 16 positions or dimensions in a register, for caches of bf16, the usual ones. A
 * file of its own, as sanitizers compile it with other options. The kernels are in
 * attention_span.h. */
#include "backend/cpu/avx512/avx512_vector.h"

#include "backend/cpu/attention/attention_span.h"

void avx512_attention_bf16(const struct attention_tile *tile) {
    attention_span(tile, PART_BF16_FIRST);
}
