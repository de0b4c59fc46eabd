/* Linear layers with their surrounding work computed in float64, for tests of the kernels that fuse
 * the two. */
#ifndef CUDA_LINEAR_UTIL_H
#define CUDA_LINEAR_UTIL_H

#include "backend/cuda/cuda_util.h"

// Rounding of the result. It allows the worst case for each number, because a row may have few
// numbers.
#define LINEAR_NMSE (3 * BF16_NMSE)
#define FUSED_EPS 1e-5f // of the norms
// With two kernels both halves are rounded in between, and SiLU of a negative number amplifies
// that.
#define GATED_TWICE_NMSE (6 * LINEAR_NMSE)

// A case. has_norm: tests project_in. has_residual: tests project_out. Otherwise it tests the op
// linear. A gated case without a norm is no op but a struct cuda_linear_task.
struct fused_case {
    uint32_t out, in; // of the matrix
    bool has_norm, is_gated, has_residual, has_bias;
    enum activation activation; // of a gated case
};

// All but the norm are rounded to bfloat16. `columns` is out, or out / 2 for a gated case.
struct fused_inputs {
    float *weight; // [out][in]
    float *bias; // [out]
    float *x; // [rows][in]
    float *norm; // [in]
    float *residual; // [rows][columns]
    float *want; // [rows][columns]; if the case has a norm, for a fused one
    // [rows][columns], for cases with a norm: the norm is a separate kernel, whose result is
    // rounded.
    float *want_normed_first;
};

uint32_t fused_columns(const struct fused_case *c);
struct fused_inputs fused_inputs_make(const struct fused_case *c, uint64_t seed, uint32_t rows);
void fused_inputs_free(struct fused_inputs *v);
// Fails the test if a row of `got` differs from `want` by more than `bound`. It compares row by
// row, so that one wrong row is not lost.
void fused_check(const struct fused_case *c, const float *want, const float *got, uint32_t rows,
                 double bound, const char *what);

// Checks the case's op with each of the row counts; the last must be the largest. Checks project_in
// also with `unadded`. Needs a backend with fusion. Returns for how many of the row counts 1
// to 9 project_in fuses the norm, which shows in `hidden` staying unchanged.
uint32_t fused_check_ops(struct backend *backend, const struct fused_case *c, uint64_t seed,
                         const uint32_t *counts, size_t num_counts);

#endif
