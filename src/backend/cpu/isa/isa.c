#include "backend/cpu/kernels.h"
#include "base/os/cpu.h"

enum {
    AVX512 = CPU_AVX2 | CPU_AVX512,
    // Named, it multiplies pairs of bf16 even where floats are faster.
    AVX512_BF16 = AVX512 | CPU_AVX512_VNNI | CPU_AVX512_BF16 | CPU_FAST_BF16,
};

static const struct {
    const char *name;
    uint32_t features;
} isas[CPU_ISA_COUNT] = {
    [CPU_ISA_SCALAR] = {"scalar", 0},
    [CPU_ISA_AVX2] = {"avx2", CPU_AVX2},
    [CPU_ISA_AVX_VNNI] = {"avx-vnni", CPU_AVX2 | CPU_AVX_VNNI},
    [CPU_ISA_AVX512] = {"avx512", AVX512},
    [CPU_ISA_AVX512_VNNI] = {"avx512-vnni", AVX512 | CPU_AVX512_VNNI},
    [CPU_ISA_AVX512_BF16] = {"avx512-bf16", AVX512_BF16},
    [CPU_ISA_AMX] = {"amx", AVX512_BF16 | CPU_AMX_INT8 | CPU_AMX_BF16},
    [CPU_ISA_NEON] = {"neon", CPU_NEON},
    [CPU_ISA_NEON_DOTPROD] = {"neon-dotprod", CPU_NEON | CPU_NEON_DOTPROD},
};

void cpu_kernels_choose(uint32_t features, struct cpu_kernels *out) {
    *out = cpu_kernels_scalar;
    cpu_kernels_add(features, out);
}

void cpu_isa_table(struct cpu_isa table[CPU_ISA_COUNT]) {
    uint32_t here = cpu_isa_features() | CPU_FAST_BF16; // which no kernel needs to run
    for (int i = 0; i < CPU_ISA_COUNT; i++) {
        uint32_t features = isas[i].features;
        table[i].name = isas[i].name;
        table[i].features = features;
        table[i].is_here = (features & here) == features;
        cpu_kernels_choose(features & here, &table[i].kernels);
    }
}
