#include "backend/cpu/kernels.h"
#include "base/cpu.h"

void cpu_isa_find(struct cpu_isa table[CPU_ISA_COUNT]) {
    struct cpu_features features = cpu_features();
    if (features.neon) table[CPU_ISA_NEON].kernels = &cpu_kernels_neon;
    if (features.neon_dotprod) table[CPU_ISA_NEON_DOTPROD].kernels = &cpu_kernels_neon_dotprod;
}
