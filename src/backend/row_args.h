/* Arguments of ops on rows of activations: backend.h, struct backend_ops. */
#ifndef BACKEND_ROW_ARGS_H
#define BACKEND_ROW_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// What makes one number of gate g and up u.
//   silu(g) * u           silu(v) = v / (1 + exp(-v))
//   gelu(g) * u           gelu by its tanh form, Hendrycks and Gimpel 2016:
//                         gelu(v) = v / (1 + exp(-2 sqrt(2 / pi) (v + 0.044715 v^3)))
//   clamped: g / (1 + exp(-1.702 g)) * (u + 1), g at most 7, u from -7 to 7
// The last two have no gate: see activate_args.
enum activation {
    ACTIVATION_SILU,
    ACTIVATION_GELU_TANH,
    ACTIVATION_CLAMPED_SILU,
    ACTIVATION_RELU_SQUARED,
    ACTIVATION_XIELU,
};

#define CLAMPED_SILU_ALPHA 1.702f
#define CLAMPED_SILU_LIMIT 7.0f

// LayerNorm (Ba and others 2016): out = (x - m) / sqrt(mean((x - m)^2) + eps) * weight + bias, with
// m = mean(x). With `residual`: residual += x, then out is the norm of it. With `groups`, only
// where the backend has_grouped_layer_norms, a row begins with so many vectors, each with a norm
// and weights of its own, and there is no residual.
struct layer_norm_args {
    const void *x; // dev [rows][cols], or [rows][stride] with groups
    void *residual; // dev [rows][cols] in/out, or NULL
    const float *weight; // dev [cols], or [groups][cols]
    const float *bias; // dev [cols] or NULL; NULL with groups
    void *out; // as x; may be x when residual is NULL
    uint32_t rows, cols;
    uint32_t groups, stride; // 0: a row is one vector
    float eps;
};

// x = activation(x), of an MLP without a gate:
//   ACTIVATION_GELU_TANH     as in backend.h
//   ACTIVATION_RELU_SQUARED  max(x, 0)^2
//   ACTIVATION_XIELU         xIELU (Huang and Schlag 2024, arXiv 2411.13010): x / 2 plus, above 0,
//                            positive x^2, else negative (exp(min(x, XIELU_EPS)) - 1 - x)
struct activate_args {
    void *x; // dev [count] in/out
    size_t count; // a multiple of 8 on devices other than the CPU
    enum activation activation;
    float positive, negative; // of ACTIVATION_XIELU
};

#define XIELU_EPS (-1e-6f)

// out = ACTIVATION_GELU_TANH of gate and up, which are apart.
struct gelu_mul_args {
    const void *gate; // dev [rows][cols]
    const void *up; // dev [rows][up_stride]: the first cols elements of a row
    void *out; // dev [rows][cols]
    uint32_t rows, cols, up_stride;
};

// x *= sigmoid(gate). A row has a gate for each element, or one for all.
struct sigmoid_mul_args {
    void *x; // dev [rows][cols] in/out
    const void *gate; // dev [rows][gate_stride]: the first cols elements of a row or, per row, one
    uint32_t rows, cols, gate_stride;
    bool is_per_row;
};

// out = factor * x or, with `adds`, out += factor * x.
struct scale_args {
    const void *x; // dev [count]
    void *out; // dev [count]; may be x
    size_t count; // a multiple of 8
    float factor;
    bool adds;
};

// Each row of x times its factor.
struct scale_rows_args {
    void *x; // dev [rows][cols] in/out; cols: a multiple of 8
    const float *factors; // dev [rows]
    uint32_t rows, cols;
};

// x = cap * tanh(x / cap)
struct softcap_args {
    float *x; // dev [count] in/out
    size_t count;
    float cap;
};

// RMS norms of two vectors of each row, of which each rank has a part: of q over all heads, and of
// k. They take two ops. square_sums writes the sums of squares of this rank's parts to `sums`, with
// zeros in the places of other ranks. The caller adds the ranks' sums, element by element, and
// cut_norm norms the parts by the result. Zeros change no number, so all ranks get the same bits
// in any type and in any order of adding.
enum {
    CUT_NORM_VECTORS = 2,
    CUT_NORM_TERMS = 4, // a sum of squares is stored as so many numbers, which are added
    CUT_NORM_SUMS = CUT_NORM_VECTORS * CUT_NORM_TERMS,
};
struct cut_norm_args {
    void *x; // dev [rows][stride]; a row begins with this rank's part of each vector. In place
    uint32_t rows, stride;
    // Of a part; all ranks have the same. Multiples of 8; the second may be 0: there is one vector.
    uint32_t cols[CUT_NORM_VECTORS];
    const float *weights[CUT_NORM_VECTORS]; // dev [cols], of this rank's part
    // dev [count], of which the first are [rows][world_size][CUT_NORM_SUMS], the others zeros
    void *sums;
    size_t count;
    uint32_t rank, world_size;
    float eps;
};

struct gather_rows_args {
    const void *x; // dev [any][cols]
    const int32_t *index; // dev [rows]
    void *out; // dev [rows][cols]
    uint32_t rows, cols;
};

#endif
