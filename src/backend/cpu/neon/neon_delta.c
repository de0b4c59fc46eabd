/* Gated delta nets and Mamba-2, some columns or channels in a register. The kernels are in
 * delta_kernels.h. */
#include "backend/cpu/neon/neon_vector.h"

#include "backend/cpu/delta_kernels.h"

void neon_delta_rule(const struct delta_run *run) {
    delta_rule(run);
}

void neon_conv_silu(const float *const *x, const float *taps, size_t stride, const float *bias,
                    float *out, uint32_t count) {
    conv_silu(x, taps, stride, bias, out, count);
}
