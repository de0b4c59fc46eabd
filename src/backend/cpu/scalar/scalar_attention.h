/* The reference kernels of attention, gathered into cpu_kernels_scalar by scalar.c. Contracts in
 * attention_kernels.h. */
#ifndef BACKEND_CPU_SCALAR_ATTENTION_H
#define BACKEND_CPU_SCALAR_ATTENTION_H

#include "backend/cpu/attention/attention_kernels.h"

void scalar_attention_bf16(const struct attention_tile *tile);
void scalar_attention_f32(const struct attention_tile *tile);
void scalar_attention_int8(const struct attention_tile *tile);
void scalar_attention_e4m3(const struct attention_tile *tile);

#endif
