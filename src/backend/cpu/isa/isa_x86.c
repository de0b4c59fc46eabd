#include "backend/cpu/isa/kernels_x86.h"
#include "base/os/cpu.h"

uint32_t cpu_isa_features(void) {
    const uint32_t tiles = CPU_AMX_INT8 | CPU_AMX_BF16;
    uint32_t features = cpu_features();
    return features & tiles && !cpu_amx_request() ? features & ~tiles : features;
}

void cpu_kernels_add(uint32_t features, struct cpu_kernels *out) {
    cpu_kernels_add_x86(features, out);
}
