#include "backend/cpu/kernels.h"
#include "base/cpu.h"

void cpu_isa_find(struct cpu_isa table[CPU_ISA_COUNT]) {
    struct cpu_features features = cpu_features();
    if (features.avx2) table[CPU_ISA_AVX2].kernels = &cpu_kernels_avx2;
    if (features.avx_vnni) table[CPU_ISA_AVX_VNNI].kernels = &cpu_kernels_avx_vnni;
    if (features.avx512) table[CPU_ISA_AVX512].kernels = &cpu_kernels_avx512;
    if (features.avx512_bf16 && features.avx512_vnni) {
        table[CPU_ISA_AVX512_BF16].kernels = &cpu_kernels_avx512_bf16;
    }
    if (features.amx && cpu_amx_request()) table[CPU_ISA_AMX].kernels = &cpu_kernels_amx;
}
