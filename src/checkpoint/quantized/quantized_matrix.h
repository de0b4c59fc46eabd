/* Matrices whose elements are stored as codes of 2 to 8 bits:
 *
 *   value[r][c] = (decoded(code[r][c]) - zero) * scale[r / block_rows][group of c]
 *   value[r][c] = decoded(code[r][c]) * scale + bias    where groups have biases
 *
 * A row's codes follow each other, the first in the lowest bits. E4M3 and E2M1 are floats: a sign,
 * exponent bits and mantissa bits. E4M3 has no infinity, and 0x7f and 0xff are NaN, which is
 * refused. E2M1 is 0, 0.5, 1, 1.5, 2, 3, 4 or 6 and a sign. All formats of checkpoints are brought
 * into this one (quantized_module.h). */
#ifndef CHECKPOINT_QUANTIZED_QUANTIZED_MATRIX_H
#define CHECKPOINT_QUANTIZED_QUANTIZED_MATRIX_H

#include "base/byte_source.h"
#include "base/matrix_reader.h"

enum matrix_code {
    CODE_E4M3, // 8 bits
    CODE_INT8, // 8 bits, two's complement
    CODE_UINT8, // 8 bits
    CODE_UINT4, // 4 bits
    CODE_E2M1, // 4 bits
    CODE_UINT, // `bits`, which may be in two bytes
    CODE_LEVEL, // 4 bits, an index into `levels`; the first is in a byte's high half
};

struct quantized_matrix {
    const char *name, *path; // of the tensor and its file, for errors; borrowed
    enum matrix_code code;
    uint32_t bits; // of CODE_UINT: 2 to 7
    float levels[16]; // of CODE_LEVEL
    uint64_t rows, cols;
    struct byte_source codes; // [rows][row_bytes]
    size_t row_bytes;
    void *memory; // where the codes are, if they are in memory of the matrix's own; else NULL
    uint64_t block_rows; // rows that share scales
    uint64_t block_cols; // columns of a group, unless `groups` says which group each is in
    uint64_t num_groups; // scales of a row
    float *scales; // [ceil(rows / block_rows)][num_groups]
    uint8_t *zeros; // of each scale; NULL: `zero` for all
    uint8_t zero;
    float *biases; // the same; NULL: none. With biases there are no zeros, and no `groups`
    uint32_t *groups; // [cols], each less than num_groups; NULL: column / block_cols
    struct matrix_form form; // of the reader; without a code where there are `groups`
};

// Takes the matrix's arrays; after an error they are freed.
MUST_USE enum status quantized_matrix_open(struct matrix_reader **out,
                                           const struct quantized_matrix *matrix, struct err *err);
void quantized_matrix_fini(struct quantized_matrix *matrix); // frees the arrays; all-zero is fine
float e4m3_to_f32(uint8_t code); // NaN for 0x7f and 0xff

#endif
