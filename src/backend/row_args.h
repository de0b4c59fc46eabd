/* Arguments of ops on rows of activations: backend.h, struct backend_ops. */
#ifndef BACKEND_ROW_ARGS_H
#define BACKEND_ROW_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

// x = cap * tanh(x / cap)
struct softcap_args {
    float *x; // dev [count] in/out
    size_t count;
    float cap;
};

struct gather_rows_args {
    const void *x; // dev [any][cols]
    const int32_t *index; // dev [rows]
    void *out; // dev [rows][cols]
    uint32_t rows, cols;
};

#endif
