/* Attention with 16 positions or dimensions in a register. The kernels are in attention_span.h. */
#include "backend/cpu/avx512/avx512_vector.h"

#include "backend/cpu/attention/attention_span.h"

void avx512_attention_bf16(const struct attention_tile *tile) {
    attention_span(tile, PART_BF16_FIRST);
}

void avx512_attention_f32(const struct attention_tile *tile) {
    attention_span(tile, PART_F32);
}

void avx512_attention_int8(const struct attention_tile *tile) {
    attention_span(tile, PART_INT8);
}

void avx512_attention_e4m3(const struct attention_tile *tile) {
    attention_span(tile, PART_E4M3);
}
