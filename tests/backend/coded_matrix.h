/* A matrix of codes in memory, behind a reader (base/matrix_reader.h). */
#ifndef CODED_MATRIX_H
#define CODED_MATRIX_H

#include "backend/ops_util.h"

struct coded {
    struct matrix_reader reader;
    uint32_t cols, groups; // groups: of a row
    uint8_t *codes; // [rows][cols]
    float *scales, *offsets; // [rows][groups]
};

// Random codes. Scales and offsets have 11 bits, as half floats do; scales of MXFP4 are powers of
// 2.
struct coded coded_make(uint64_t seed, uint32_t rows, uint32_t cols, struct matrix_form form);
void coded_free(struct coded *m);
// The value that a code stands for, by its definition.
float coded_value(enum weight_code code, uint8_t q);

#endif
