/* Takes blocks of a GGUF file apart into the form of base/weight_code.h, so that backends can keep
 * the weights in few bits: a code for each element, a scale and perhaps an offset for each group.
 */
#ifndef CHECKPOINT_GGUF_GGUF_CODES_H
#define CHECKPOINT_GGUF_GGUF_CODES_H

#include <stddef.h>
#include <stdint.h>

#include "base/matrix_reader.h"
#include "checkpoint/gguf/weights/gguf_blocks.h"

enum { BLOCK_GROUPS_MAX = 16 }; // in a block

struct block_codes {
    uint32_t number; // of the type, in the file
    struct matrix_form form; // its group divides a block; its unit is a block
    // Of types without units; NULL for others. Reads blocks that follow one another, and writes for
    // each codes [elements], scales [elements / group], and offsets, the same. `offsets` may be
    // NULL where the form has none.
    void (*unpack)(const uint8_t *block, size_t num_blocks, uint8_t *codes, float *scales,
                   float *offsets);
    // Of types with units; NULL for others. out.scales and out.offsets get a unit for each block.
    void (*unpack_units)(const uint8_t *block, size_t num_blocks, struct matrix_codes out);
};

const struct block_codes *block_codes_of(uint32_t number); // NULL: the type's elements are floats
// Unpacks blocks of `block_bytes` bytes each, with floats for each group also where the type has
// units.
void block_codes_floats(const struct block_codes *codes, const uint8_t *block, size_t num_blocks,
                        uint32_t block_bytes, const struct matrix_codes *out);

// Whether block_decode has the type.
bool block_type_is_read(const struct block_type *type);
// Decodes whole blocks to floats: by the type's `decode`, else as codes.
void block_decode(const struct block_type *type, const uint8_t *blocks, size_t num_blocks,
                  float *out);

#endif
