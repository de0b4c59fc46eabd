/* Rows of a checkpoint's matrix times a factor, for factors that become part of the weights. Codes
 * stay as they are, and their scales and offsets are multiplied. */
#ifndef MODEL_LOAD_SCALED_ROWS_H
#define MODEL_LOAD_SCALED_ROWS_H

#include "backend/backend.h"

struct scaled_rows {
    struct matrix_reader base;
    struct matrix_slice from;
    float factor;
};

// Makes *slice one of rows that are read through *out, which borrows what the slice had.
void scaled_rows_init(struct scaled_rows *out, struct matrix_slice *slice, float factor);

#endif
