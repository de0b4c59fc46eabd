/* A matrix that is stored in another form than as BF16, F16 or F32 elements, read as floats. The
 * checkpoint makes a reader for each format that it knows, and backends read through it while they
 * pack their weights. So a format that is decoded while loading is one file. */
#ifndef BASE_MATRIX_READER_H
#define BASE_MATRIX_READER_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct matrix_reader {
    // Writes elements [row][col .. col + count) of the whole matrix to `out`. Threads may share a
    // reader.
    enum status (*read)(const struct matrix_reader *reader, uint64_t row, uint64_t col,
                        size_t count, float *out, struct err *err);
    void (*close)(struct matrix_reader *reader);
};

#endif
