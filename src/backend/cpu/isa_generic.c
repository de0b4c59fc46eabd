#include "backend/cpu/kernels.h"

void cpu_isa_table(struct cpu_isa table[CPU_ISA_COUNT]) {
    table[0] = (struct cpu_isa){"scalar", &cpu_kernels_scalar};
    table[1] = (struct cpu_isa){"avx2", NULL};
    table[2] = (struct cpu_isa){"avx512", NULL};
    table[3] = (struct cpu_isa){"avx512-bf16", NULL};
    table[4] = (struct cpu_isa){"amx", NULL};
}
