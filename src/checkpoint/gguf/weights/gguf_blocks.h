/* The element types of a GGUF file's tensors. All but the plain ones store blocks of 32 or 256
 * elements that share scales. Decoding is exact: each element is the float that the published
 * formula gives, in float32 and in its order of operations. */
#ifndef CHECKPOINT_GGUF_GGUF_BLOCKS_H
#define CHECKPOINT_GGUF_GGUF_BLOCKS_H

#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"

enum { BLOCK_ELEMENTS_MAX = 256 };

struct block_type {
    uint32_t number; // in the file
    const char *name; // "Q4_K"
    uint32_t elements, bytes; // of a block
    enum dtype dtype; // of a plain type; else DTYPE_NONE
    // Decodes whole blocks. NULL: elements are codes of 4 bits times a scale (gguf_codes.h), or the
    // type is known by its name alone.
    void (*decode)(const uint8_t *blocks, size_t num_blocks, float *out);
};

const struct block_type *block_type_of(uint32_t number); // NULL: unknown

#endif
