/* Shared by the two kinds of linears with bf16 x on a machine with AMX: by tiles (amx_linear.c) and
 * packed weights of few rows (amx_linear_few.c). */
#ifndef BACKEND_CPU_AMX_LINEAR_H
#define BACKEND_CPU_AMX_LINEAR_H

#include "backend/cpu/kernels.h"

enum { AMX_LINEAR_FEW_ROWS = 2 }; // up to this many amx_linear_few.c is faster

// Packed weights times 1 to AMX_LINEAR_FEW_ROWS rows. Denormals count as 0 (MXCSR).
void amx_linear_few(const struct linear_item *item);

/* Whether codes' values, which are exact in bf16, are multiplied as they are: a group's sum is then
 * multiplied by its scale. That rounds less than weights rounded to bf16, and takes fewer
 * instructions. Not so with offsets and groups of 16. */
static inline bool amx_is_unscaled(const struct packed_shape *shape) {
    return shape->num_numbers == 1 && shape->num_groups == 1;
}

#endif
