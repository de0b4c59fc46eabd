#include "backend/cpu/kernels.h"

void cpu_isa_find(struct cpu_isa table[CPU_ISA_COUNT]) {
    (void)table;
}
