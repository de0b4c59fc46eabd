/* Instruction sets whose kernels of some ops are those of an earlier one. A test that uses no other
 * ops runs once for both. */
#ifndef SUPPORT_ISA_REPEATS_H
#define SUPPORT_ISA_REPEATS_H

#include "backend/cpu/kernels.h"

enum isa_ops {
    ISA_ATTENTION = 1,
    ISA_FLOAT_WEIGHTS = 2, // linears of bf16, float32 and packed weights, and packing
    ISA_BYTE_WEIGHTS = 4, // linears of int8 and int4 weights
    ISA_ROWS = 8, // norms, activations and sampling
    ISA_ALL_BUT_BYTES = ISA_ATTENTION | ISA_FLOAT_WEIGHTS | ISA_ROWS,
};

// The name of an earlier row of the table that is here and has the kernels of row `index` for all
// of these ops (a set of enum isa_ops). NULL: there is none.
const char *isa_repeats(const struct cpu_isa table[CPU_ISA_COUNT], int index, unsigned ops);

#endif
