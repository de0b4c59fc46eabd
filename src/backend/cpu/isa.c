#include "backend/cpu/kernels.h"

void cpu_isa_table(struct cpu_isa table[CPU_ISA_COUNT]) {
    static const char *const names[CPU_ISA_COUNT] = {
        [CPU_ISA_SCALAR] = "scalar",
        [CPU_ISA_AVX2] = "avx2",
        [CPU_ISA_AVX_VNNI] = "avx-vnni",
        [CPU_ISA_AVX512] = "avx512",
        [CPU_ISA_AVX512_BF16] = "avx512-bf16",
        [CPU_ISA_AMX] = "amx",
        [CPU_ISA_NEON] = "neon",
        [CPU_ISA_NEON_DOTPROD] = "neon-dotprod",
    };
    for (int i = 0; i < CPU_ISA_COUNT; i++) table[i] = (struct cpu_isa){names[i], NULL};
    table[CPU_ISA_SCALAR].kernels = &cpu_kernels_scalar;
    cpu_isa_find(table);
}
