/* A matrix that is stored in another form than as BF16, F16 or F32 elements. The checkpoint makes a
 * reader for each format that it knows, and backends read through it while they pack their weights.
 * A format is one file: it gives floats and, where its codes fit the form of weight_code.h, codes,
 * which a backend may keep as they are. */
#ifndef BASE_MATRIX_READER_H
#define BASE_MATRIX_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/weight_code.h"

// What the codes of a matrix are.
struct matrix_form {
    enum weight_code code; // WEIGHT_CODE_NONE: it gives only floats
    uint32_t group; // columns that share a scale, counted from column 0; 0: all of a row
    bool has_offsets;
    bool rounds_inputs; // the model is meant to run with rows of x rounded to the codes' type
    // Columns that share a unit, a multiple of `group`. Then scales and offsets can be read as
    // whole multiples of units (struct matrix_codes). 0: they are floats alone.
    uint32_t unit;
    uint32_t shift; // with units: offset = shift * scale + multiple * unit
};

/* Codes of some columns of a row, with a scale and perhaps an offset for each group. A K-quant's
 * are products of a float that 256 columns share, a unit, and a small integer of each group:
 *
 *   scale = scales[column / unit] * scale_multiples[column / group]
 *   offset = shift * scale + offsets[column / unit] * offset_multiples[column / group]
 *
 * These products are exact, unless a factor of the model has rounded the units. The caller sets the
 * multiples to get units and multiples, and leaves them NULL to get scales and offsets. */
struct matrix_codes {
    uint8_t *codes; // [count], one each, also those of 4 bits
    float *scales; // [ceil(count / group)]; group 0: [1]. With multiples [ceil(count / unit)]
    float *offsets; // the same; NULL unless the form has them
    int8_t *scale_multiples; // [ceil(count / group)], or NULL; only where the form has units
    int8_t *offset_multiples; // the same; NULL unless the form has offsets
    uint32_t unit; // with multiples: divides the form's unit; `group` divides it, and it `col`
};

struct matrix_reader {
    // Writes elements [row][col .. col + count) of the whole matrix to `out`. Threads may share a
    // reader.
    enum status (*read)(const struct matrix_reader *reader, uint64_t row, uint64_t col,
                        size_t count, float *out, struct err *err);
    // The same elements as codes, with a scale for every `group` columns from `col` on. `group` and
    // `col` are such that no group has columns of two of the form's; group 0: the form's is 0 too.
    enum status (*read_codes)(const struct matrix_reader *reader, uint64_t row, uint64_t col,
                              size_t count, uint32_t group, const struct matrix_codes *out,
                              struct err *err);
    struct matrix_form form; // without a code, read_codes is NULL
    void (*close)(struct matrix_reader *reader);
    // read_codes of rows [row, row + num_rows) to out[num_rows], which may read a file fewer times.
    // NULL: one row at a time.
    enum status (*read_code_rows)(const struct matrix_reader *reader, uint64_t row,
                                  uint32_t num_rows, uint64_t col, size_t count, uint32_t group,
                                  const struct matrix_codes *out, struct err *err);
};

#endif
