/* The kernels of x86-64, which kernels_x86.c chooses from. Contracts in kernels.h. A file of
 * kernels is compiled for the features that it needs. */
#ifndef BACKEND_CPU_KERNELS_X86_H
#define BACKEND_CPU_KERNELS_X86_H

#include "backend/cpu/kernels.h"

// AVX2, FMA and F16C.
void avx2_linear_bf16(const struct linear_tile *tile);
void avx2_linear_f32(const struct linear_tile *tile);
void avx2_widen_bf16(const void *weights, uint32_t depth, float *out);
void avx2_unpack(const struct packed_chunk *chunk, enum weight_code code, float *out);
void avx2_pack_codes(const unsigned char *const rows[LANES], size_t first, uint32_t bits,
                     unsigned char *out);
void avx2_pack_numbers(const float *const rows[LANES], size_t first,
                       float out[PACKED_NUMBERS][LANES]);
void avx2_linear_bytes(const struct linear_item *item);
float avx2_narrow_int8(const float *x, uint32_t count, unsigned char *out, size_t stride);
void avx2_attention_bf16(const struct attention_tile *tile);
void avx2_attention_f32(const struct attention_tile *tile);
void avx2_attention_int8(const struct attention_tile *tile);
void avx2_attention_e4m3(const struct attention_tile *tile);
void avx2_rms_norm(const float *x, float *residual, const float *weight, float *out, uint32_t cols,
                   float eps);
void avx2_rope_head(float *head, const float *weight, const float *rope, uint32_t head_dim,
                    float eps);
void avx2_silu_mul(const float *gate, const float *up, float *out, uint32_t count);
void avx2_delta_rule(const struct delta_run *run);
void avx2_conv_silu(const float *const *x, const float *taps, size_t stride, const float *bias,
                    float *out, uint32_t count);
void avx2_pack_bf16(const unsigned char *const rows[LANES], size_t count, uint16_t *out);
void avx2_linear_fixed(const struct linear_item *item);
void avx2_narrow_fixed(const float *x, uint32_t count, uint32_t bits, unsigned char *out,
                       size_t stride);
// AVX-VNNI too.
void avx_vnni_linear_bytes(const struct linear_item *item);
void avx_vnni_linear_fixed(const struct linear_item *item);

// AVX-512 F, BW, DQ and VL.
void avx512_linear_bf16(const struct linear_tile *tile);
void avx512_linear_f32(const struct linear_tile *tile);
void avx512_unpack(const struct packed_chunk *chunk, enum weight_code code, float *out);
float avx512_narrow_int8(const float *x, uint32_t count, unsigned char *out, size_t stride);
void avx512_attention_bf16(const struct attention_tile *tile);
void avx512_attention_f32(const struct attention_tile *tile);
void avx512_attention_int8(const struct attention_tile *tile);
void avx512_attention_e4m3(const struct attention_tile *tile);
void avx512_rms_norm(const float *x, float *residual, const float *weight, float *out,
                     uint32_t cols, float eps);
void avx512_rope_head(float *head, const float *weight, const float *rope, uint32_t head_dim,
                      float eps);
void avx512_silu_mul(const float *gate, const float *up, float *out, uint32_t count);
void avx512_delta_rule(const struct delta_run *run);
void avx512_conv_silu(const float *const *x, const float *taps, size_t stride, const float *bias,
                      float *out, uint32_t count);
void avx512_store_key(const float *k, uint32_t head_dim, uint16_t *keys);
void avx512_store_value(const float *v, uint32_t head_dim, uint16_t *values);
void avx512_pack_bf16(const unsigned char *const rows[LANES], size_t count, uint16_t *out);
// AVX512_VNNI too.
void avx512_vnni_linear_bytes(const struct linear_item *item);
void avx512_vnni_linear_int4_few(const struct linear_item *item);
void avx512_vnni_linear_fixed(const struct linear_item *item);
void avx512_narrow_fixed(const float *x, uint32_t count, uint32_t bits, unsigned char *out,
                         size_t stride);
void avx512_vnni_linear_spans(const struct linear_item *item);
void avx512_narrow_spans(const float *x, uint32_t count, const struct span_row *row);
// AVX512_BF16 too.
void avx512_bf16_linear_pairs(const struct linear_item *item);
void avx512_bf16_narrow(const float *x, float scale, uint32_t count, unsigned char *out,
                        size_t stride);

// Tiles, and AVX-512. Attention needs AVX512_BF16 too, linear_spans AVX512_VNNI.
void amx_linear_bytes(const struct linear_item *item);
void amx_linear_spans(const struct linear_item *item);
void amx_linear_pairs(const struct linear_item *item);
void amx_attention_bf16(const struct attention_tile *tile);
void amx_attention_int8(const struct attention_tile *tile);
void amx_attention_e4m3(const struct attention_tile *tile);
unsigned amx_attention_begin(void);
void amx_attention_end(unsigned before);

// cpu_kernels_add of x86-64.
void cpu_kernels_add_x86(uint32_t features, struct cpu_kernels *out);

#endif
