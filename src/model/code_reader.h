/* Readers that bring a matrix's codes into those of a linear of several matrices. A GGUF file may
 * have q and k in 4 bits and v in 6; then all of them are kept in 8 bits, with a scale and an
 * offset for the smallest group of any. No value changes. */
#ifndef MODEL_CODE_READER_H
#define MODEL_CODE_READER_H

#include "backend/backend.h"

struct code_reader;

// The code that can stand for the values of both; WEIGHT_CODE_NONE: there is none.
enum weight_code weight_code_of_both(enum weight_code a, enum weight_code b);
// The packed format that holds matrices of both: with the smaller groups, and with offsets if one
// has them. WEIGHTS_NATIVE: no code can stand for both.
struct weight_format weight_format_of_both(struct weight_format a, struct weight_format b);
// Gives each slice [count] whose codes are not those of `format` a reader that has them. The caller
// frees *out, an array, when the slices have been read; NULL: none was needed.
MUST_USE enum status code_readers_make(struct code_reader **out, struct matrix_slice *slices,
                                       uint32_t count, struct weight_format format,
                                       struct err *err);

#endif
