/* The scalar kernels that are not in the file of their table. */
#ifndef BACKEND_CPU_SCALAR_H
#define BACKEND_CPU_SCALAR_H

#include "backend/cpu/kernels.h"

void scalar_linear_narrow(const struct linear_item *item);
float scalar_narrow_int8(const float *x, uint32_t count, unsigned char *out, size_t stride);

#endif
