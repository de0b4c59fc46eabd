/* Linears with what surrounds them in a layer, computed in float64, for the tests of the kernels
 * that do it on the way. */
#ifndef CUDA_LINEAR_UTIL_H
#define CUDA_LINEAR_UTIL_H

#include "backend/cuda/cuda_util.h"

// The result's rounding, each number rounded as badly as can be: a row may have few numbers.
#define LINEAR_NMSE (3 * BF16_NMSE)
// Of two kernels: both halves are rounded on their way, and SiLU of a negative number makes more of
// it.
#define GATED_TWICE_NMSE (6 * LINEAR_NMSE)

// With a norm it is project_in's, with a residual project_out's, and else op linear's. Gated without a
// norm it is no op's, but a kernel's task.
struct fused_case {
    uint32_t out, in; // of the matrix
    bool has_norm, is_gated, has_residual, has_bias;
};

// All but norm in bfloat16; `columns` is out, or out / 2 where the case is gated.
struct fused_inputs {
    float *weight; // [out][in]
    float *bias; // [out]
    float *x; // [rows][in]
    float *norm; // [in]
    float *residual; // [rows][columns]
    float *want; // [rows][columns]; with a norm that is taken on the way
    // [rows][columns] where the case has a norm: by rows that are normed and rounded first.
    float *want_normed_first;
};

uint32_t fused_columns(const struct fused_case *c);
struct fused_inputs fused_inputs_make(const struct fused_case *c, uint64_t seed, uint32_t rows);
void fused_inputs_free(struct fused_inputs *v);
// Fails the test where a row of `got` is off `want` by more than `bound`; by row, so that one counts
// fully.
void fused_check(const struct fused_case *c, const float *want, const float *got, uint32_t rows,
                 double bound, const char *what);

// Checks the case's op with each of the row counts, of which the last is the largest; project_in
// also with `unadded`. Needs a backend with fusion. Returns the most rows with which project_in
// takes the norm on the way, seen by `hidden` staying as it was; 17 stands for any more.
uint32_t fused_check_ops(struct backend *backend, const struct fused_case *c, uint64_t seed,
                         const uint32_t *counts, size_t num_counts);

#endif
