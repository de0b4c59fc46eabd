/* The table of a machine that has every instruction set, by emulation. */
#include "backend/cpu/kernels.h"

void cpu_isa_table(struct cpu_isa table[CPU_ISA_COUNT]) {
    table[0] = (struct cpu_isa){"scalar", &cpu_kernels_scalar};
    table[1] = (struct cpu_isa){"avx2", &cpu_kernels_avx2};
    table[2] = (struct cpu_isa){"avx512", &cpu_kernels_avx512};
    table[3] = (struct cpu_isa){"avx512-bf16", &cpu_kernels_avx512_bf16};
    table[4] = (struct cpu_isa){"amx", &cpu_kernels_amx};
}
