#include "backend/cpu/kernels.h"
#include "base/cpu.h"

void cpu_isa_table(struct cpu_isa table[CPU_ISA_COUNT]) {
    struct cpu_features features = cpu_features();
    bool bf16 = features.avx512_bf16 && features.avx512_vnni;
    bool amx = features.amx && cpu_amx_request();
    table[0] = (struct cpu_isa){"scalar", &cpu_kernels_scalar};
    table[1] = (struct cpu_isa){"avx2", features.avx2 ? &cpu_kernels_avx2 : NULL};
    table[2] = (struct cpu_isa){"avx512", features.avx512 ? &cpu_kernels_avx512 : NULL};
    table[3] = (struct cpu_isa){"avx512-bf16", bf16 ? &cpu_kernels_avx512_bf16 : NULL};
    table[4] = (struct cpu_isa){"amx", amx ? &cpu_kernels_amx : NULL};
}
