/* The kernels of AVX512_BF16 and VNNI (avx512_dots.c) and of AMX (amx_linear.c), for
 * avx512_tables.c. */
#ifndef BACKEND_CPU_AVX512_DOTS_H
#define BACKEND_CPU_AVX512_DOTS_H

#include <immintrin.h>

#include "backend/cpu/linear_dots.h"

void avx512_dots_linear_narrow(const struct linear_item *item);
void avx512_narrow_bf16(const float *x, float scale, uint32_t count, unsigned char *out,
                        size_t stride);
float avx512_narrow_int8(const float *x, uint32_t count, unsigned char *out, size_t stride);
// One tile; see struct linear_item.
void avx512_unpack_int4(const unsigned char *quads, const unsigned char *scales,
                        unsigned char *out);

void amx_linear_narrow(const struct linear_item *item);

#endif
