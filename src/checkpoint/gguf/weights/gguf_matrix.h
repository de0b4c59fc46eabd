/* Reads a matrix of a GGUF file, of any element type, as floats, and one in blocks as codes. */
#ifndef CHECKPOINT_GGUF_GGUF_MATRIX_H
#define CHECKPOINT_GGUF_GGUF_MATRIX_H

#include "base/byte_source.h"
#include "base/matrix_reader.h"
#include "checkpoint/gguf/weights/gguf_blocks.h"
#include "checkpoint/gguf/weights/gguf_codes.h"
#include "checkpoint/gguf/weights/gguf_order.h"

struct gguf_matrix {
    struct matrix_reader base; // set by gguf_matrix_init, as `codes` is
    const struct block_codes *codes; // of the type; NULL: it has none
    const struct block_type *type;
    struct byte_source source;
    uint64_t cols; // a multiple of the type's block
    bool has_factor;
    float factor; // of all elements
    struct gguf_order row_order;
    struct gguf_order col_order;
};

// Nothing is to be freed: the owner keeps the struct and what it borrows until it is not read.
void gguf_matrix_init(struct gguf_matrix *matrix);

#endif
