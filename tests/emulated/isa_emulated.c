/* The table of a machine that has every instruction set but AVX2, by emulation. */
#include "backend/cpu/kernels.h"

void cpu_isa_find(struct cpu_isa table[CPU_ISA_COUNT]) {
    table[CPU_ISA_AVX_VNNI].kernels = &cpu_kernels_avx_vnni;
    table[CPU_ISA_AVX512].kernels = &cpu_kernels_avx512;
    table[CPU_ISA_AVX512_BF16].kernels = &cpu_kernels_avx512_bf16;
    table[CPU_ISA_AMX].kernels = &cpu_kernels_amx;
    table[CPU_ISA_NEON].kernels = &cpu_kernels_neon;
    table[CPU_ISA_NEON_DOTPROD].kernels = &cpu_kernels_neon_dotprod;
}
