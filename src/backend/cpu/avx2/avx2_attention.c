/* Attention with 8 positions or dimensions in a register, for caches of other
 * numbers than bf16. The kernels are in attention_span.h. */
#include "backend/cpu/avx2/avx2_vector.h"

#include "backend/cpu/attention/attention_span.h"

void avx2_attention_f32(const struct attention_tile *tile) {
    attention_span(tile, PART_F32);
}

void avx2_attention_int8(const struct attention_tile *tile) {
    attention_span(tile, PART_INT8);
}

void avx2_attention_e4m3(const struct attention_tile *tile) {
    attention_span(tile, PART_E4M3);
}
