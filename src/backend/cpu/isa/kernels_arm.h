/* The kernels of 64-bit ARM, which kernels_arm.c chooses from. Contracts in kernels.h. */
#ifndef BACKEND_CPU_KERNELS_ARM_H
#define BACKEND_CPU_KERNELS_ARM_H

#include "backend/cpu/kernels.h"

void neon_linear_bf16(const struct linear_tile *tile);
void neon_linear_f32(const struct linear_tile *tile);
void neon_unpack(const struct packed_chunk *chunk, enum weight_code code, float *out);
void neon_linear_bytes(const struct linear_item *item);
void neon_attention_bf16(const struct attention_tile *tile);
void neon_attention_f32(const struct attention_tile *tile);
void neon_attention_int8(const struct attention_tile *tile);
void neon_attention_e4m3(const struct attention_tile *tile);
void neon_rms_norm(const float *x, float *residual, const float *weight, float *out, uint32_t cols,
                   float eps);
void neon_rope_head(float *head, const float *weight, const float *rope, uint32_t head_dim,
                    float eps);
void neon_silu_mul(const float *gate, const float *up, float *out, uint32_t count);
void neon_delta_rule(const struct delta_run *run);
void neon_conv_silu(const float *const *x, const float *taps, size_t stride, const float *bias,
                    float *out, uint32_t count);
void neon_pack_bf16(const unsigned char *const rows[LANES], size_t count, uint16_t *out);
// SDOT too.
void neon_dotprod_linear_bytes(const struct linear_item *item);

// cpu_kernels_add of 64-bit ARM.
void cpu_kernels_add_arm(uint32_t features, struct cpu_kernels *out);

#endif
