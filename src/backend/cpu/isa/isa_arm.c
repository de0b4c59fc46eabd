#include "backend/cpu/isa/kernels_arm.h"
#include "base/os/cpu.h"

uint32_t cpu_isa_features(void) {
    return cpu_features();
}

void cpu_kernels_add(uint32_t features, struct cpu_kernels *out) {
    cpu_kernels_add_arm(features, out);
}
