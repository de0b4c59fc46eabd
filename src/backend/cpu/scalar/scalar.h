/* The scalar kernels that are not in the file of their table. */
#ifndef BACKEND_CPU_SCALAR_H
#define BACKEND_CPU_SCALAR_H

#include "backend/cpu/kernels.h"

void scalar_linear_bytes(const struct linear_item *item);
void scalar_delta_rule(const struct delta_run *run);
void scalar_conv_silu(const float *const *x, const float *taps, size_t stride, const float *bias,
                      float *out, uint32_t count);
void scalar_store_key(const float *k, uint32_t head_dim, uint16_t *keys);
void scalar_store_value(const float *v, uint32_t head_dim, uint16_t *values);
float scalar_narrow_int8(const float *x, uint32_t count, unsigned char *out, size_t stride);
void scalar_unpack(const struct packed_chunk *chunk, enum weight_code code, float *out);
void scalar_pack_codes(const unsigned char *const rows[LANES], size_t first, uint32_t bits,
                       unsigned char *out);
void scalar_pack_numbers(const float *const rows[LANES], size_t first,
                         float out[PACKED_NUMBERS][LANES]);

#endif
