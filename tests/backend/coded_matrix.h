/* A matrix of codes in memory, behind a reader (base/matrix_reader.h). */
#ifndef CODED_MATRIX_H
#define CODED_MATRIX_H

#include "backend/ops_util.h"

struct coded {
    struct matrix_reader reader;
    uint32_t cols, groups; // groups: of a row
    uint8_t *codes; // [rows][cols]
    float *scales, *offsets; // [rows][groups]
    uint32_t units; // of a row
    float *scale_units, *offset_units; // [rows][units], of forms with units
    int8_t *scale_multiples, *offset_multiples; // [rows][groups], the same
};

// Random codes. Scales and offsets have 11 bits, as half floats do; scales of MXFP4 are powers of
// 2. Units have 8 bits, and their multiples the range of a byte.
struct coded coded_make(uint64_t seed, uint32_t rows, uint32_t cols, struct matrix_form form);
void coded_free(struct coded *m);
// The value that a code stands for, by its definition.
float coded_value(enum weight_code code, uint8_t q);

#endif
