/* Dummy weights for measuring: about a megabyte of pseudo-random BF16 in an anonymous file. It is
 * mapped back to back into address space as long as the largest matrix. So a model of any size
 * loads without a checkpoint and without memory for one. Each tensor name begins at another place
 * of the pattern. Deterministic. The data handed out is valid until weights_dummy_destroy. */
#ifndef CHECKPOINT_DUMMY_WEIGHTS_DUMMY_H
#define CHECKPOINT_DUMMY_WEIGHTS_DUMMY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/matrix_reader.h"

struct weights_dummy;

MUST_USE enum status weights_dummy_create(struct weights_dummy **out, struct err *err);
void weights_dummy_destroy(struct weights_dummy *dummy); // NULL is fine

// A row-major matrix of `count` BF16 elements, standard deviation 0.02.
MUST_USE enum status weights_dummy_matrix(struct weights_dummy *dummy, const char *name,
                                          uint64_t count, const void **data, struct err *err);
// `count` BF16 elements, all 1 or all 0.
MUST_USE enum status weights_dummy_vector(struct weights_dummy *dummy, bool ones, uint64_t count,
                                          const void **data, struct err *err);

// weights_dummy_codes.c: a matrix in codes, whose weights have a standard deviation near 0.02. The
// caller closes the reader.
MUST_USE enum status weights_dummy_codes(struct matrix_reader **out, const char *name,
                                         struct matrix_form form, struct err *err);

#endif
