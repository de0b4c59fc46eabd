/* Attention with 4 positions or dimensions in a register. The kernels are in attention_span.h. */
#include "backend/cpu/neon/neon_vector.h"

#include "backend/cpu/attention/attention_span.h"

void neon_attention_bf16(const struct attention_tile *tile) {
    attention_span(tile, PART_BF16_FIRST);
}

void neon_attention_f32(const struct attention_tile *tile) {
    attention_span(tile, PART_F32);
}

void neon_attention_int8(const struct attention_tile *tile) {
    attention_span(tile, PART_INT8);
}

void neon_attention_e4m3(const struct attention_tile *tile) {
    attention_span(tile, PART_E4M3);
}
