/* Shared by the two kinds of linears with bf16 x on a machine with AMX: by tiles (amx_linear.c) and
 * packed weights of few rows (amx_linear_few.c). */
#ifndef BACKEND_CPU_AMX_LINEAR_H
#define BACKEND_CPU_AMX_LINEAR_H

#include "backend/cpu/kernels.h"

enum { AMX_LINEAR_FEW_ROWS = 2 }; // up to this many amx_linear_few.c is faster

// Packed weights times 1 to AMX_LINEAR_FEW_ROWS rows. Denormals count as 0 (MXCSR).
void amx_linear_few(const struct linear_item *item);

static inline bool amx_is_unscaled(const struct packed_shape *shape) {
    return packed_is_unscaled(shape, true);
}

#endif
