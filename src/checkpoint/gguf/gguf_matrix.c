#include "checkpoint/gguf/gguf_matrix.h"

#include <string.h>

enum { PIECE_BYTES = 4096 }; // that are read from a file together

static uint64_t stored_row(const struct gguf_matrix *m, uint64_t row) {
    if (!m->head_dim) return row;
    uint64_t head = row / m->head_dim, at = row % m->head_dim, half = m->head_dim / 2;
    return head * m->head_dim + at % half * 2 + at / half;
}

// Decodes the elements of one block from `skip` on.
static size_t decode_part(const struct block_type *type, const uint8_t *block, size_t skip,
                          size_t count, float *out) {
    float values[BLOCK_ELEMENTS_MAX];
    size_t left = type->elements - skip, len = count < left ? count : left;
    type->decode(block, 1, values);
    memcpy(out, values + skip, len * sizeof *out);
    return len;
}

static enum status read_row(const struct matrix_reader *base, uint64_t row, uint64_t col,
                            size_t count, float *out, struct err *err) {
    const struct gguf_matrix *m = (const struct gguf_matrix *)base;
    const struct block_type *type = m->type;
    uint64_t row_bytes = m->cols / type->elements * type->bytes;
    uint64_t first = stored_row(m, row) * row_bytes + col / type->elements * type->bytes;
    size_t skip = (size_t)(col % type->elements), num_blocks_max = PIECE_BYTES / type->bytes;
    uint8_t room[PIECE_BYTES];
    while (count) {
        size_t num_blocks = (skip + count + type->elements - 1) / type->elements;
        if (num_blocks > num_blocks_max) num_blocks = num_blocks_max;
        const uint8_t *block =
            byte_source_get(&m->source, first, num_blocks * type->bytes, room, err);
        if (!block) return ERR_IO;
        first += num_blocks * type->bytes;
        while (num_blocks) {
            size_t whole = skip ? 0 : count / type->elements;
            if (whole > num_blocks) whole = num_blocks;
            size_t done = whole * type->elements, used = whole ? whole : 1;
            if (whole) {
                type->decode(block, whole, out);
            } else {
                done = decode_part(type, block, skip, count, out);
                skip = 0;
            }
            block += used * type->bytes;
            num_blocks -= used;
            out += done;
            count -= done;
        }
    }
    return OK;
}

static void close_matrix(struct matrix_reader *base) {
    (void)base;
}

void gguf_matrix_init(struct gguf_matrix *matrix) {
    matrix->base = (struct matrix_reader){.read = read_row, .close = close_matrix};
}
