/* A machine that has every instruction set, by emulation. */
#include "backend/cpu/isa/kernels_arm.h"
#include "backend/cpu/isa/kernels_x86.h"

uint32_t cpu_isa_features(void) {
    return UINT32_MAX;
}

void cpu_kernels_add(uint32_t features, struct cpu_kernels *out) {
    cpu_kernels_add_x86(features, out);
    cpu_kernels_add_arm(features, out);
}
