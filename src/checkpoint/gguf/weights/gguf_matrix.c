#include "checkpoint/gguf/weights/gguf_matrix.h"

#include <string.h>

enum {
    CHUNK_BYTES = 4096, // of a row, that are read from a file together
    ROWS_BYTES = 65536, // of whole rows
};

static uint64_t row_at(const struct gguf_matrix *m, uint64_t row) {
    uint64_t stored = gguf_stored_at(&m->row_order, row);
    return stored * (m->cols / m->type->elements) * m->type->bytes;
}

// Of columns [col, col + count) how many are stored one after the other.
static size_t joined_cols(const struct gguf_matrix *m, uint64_t col, size_t count) {
    const struct gguf_order *order = &m->col_order;
    if (!order->run) return count;
    uint64_t left =
        col < order->first ? order->first - col : order->run - (col - order->first) % order->run;
    return count < left ? count : (size_t)left;
}

// Decodes the elements of one block from `skip` on.
static size_t decode_part(const struct block_type *type, const uint8_t *block, size_t skip,
                          size_t count, float *out) {
    float values[BLOCK_ELEMENTS_MAX];
    size_t left = type->elements - skip, len = count < left ? count : left;
    block_decode(type, block, 1, values);
    memcpy(out, values + skip, len * sizeof *out);
    return len;
}

// Columns [col, col + count) as they are stored, of the row that begins at byte `begin`.
static enum status read_stored(const struct gguf_matrix *m, uint64_t begin, uint64_t col,
                               size_t count, float *out, struct err *err) {
    const struct block_type *type = m->type;
    uint64_t first = begin + col / type->elements * type->bytes;
    size_t skip = (size_t)(col % type->elements), num_blocks_max = CHUNK_BYTES / type->bytes;
    uint8_t buffer[CHUNK_BYTES];
    while (count) {
        size_t num_blocks = (skip + count + type->elements - 1) / type->elements;
        if (num_blocks > num_blocks_max) num_blocks = num_blocks_max;
        const uint8_t *block =
            byte_source_get(&m->source, first, num_blocks * type->bytes, buffer, err);
        if (!block) return ERR_IO;
        first += num_blocks * type->bytes;
        while (num_blocks) {
            size_t whole = skip ? 0 : count / type->elements;
            if (whole > num_blocks) whole = num_blocks;
            size_t done = whole * type->elements, used = whole ? whole : 1;
            if (whole) {
                block_decode(type, block, whole, out);
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

static enum status read_row(const struct matrix_reader *base, uint64_t row, uint64_t col,
                            size_t count, float *out, struct err *err) {
    const struct gguf_matrix *m = (const struct gguf_matrix *)base;
    uint64_t begin = row_at(m, row);
    enum status status = OK;
    while (count && !status) {
        size_t len = joined_cols(m, col, count);
        status = read_stored(m, begin, gguf_stored_at(&m->col_order, col), len, out, err);
        for (size_t i = 0; i < len && m->has_factor && !status; i++) out[i] *= m->factor;
        col += len;
        out += len;
        count -= len;
    }
    return status;
}

// Blocks side by side: units and multiples if those are wanted, else a scale for each group.
static void unpack(const struct gguf_matrix *m, const uint8_t *block, size_t num_blocks,
                   const struct matrix_codes *out) {
    if (out->scale_multiples) {
        m->codes->unpack_units(block, num_blocks, *out);
    } else {
        block_codes_floats(m->codes, block, num_blocks, m->type->bytes, out);
    }
}

// The numbers of one block.
struct numbers {
    float scales[BLOCK_GROUPS_MAX], offsets[BLOCK_GROUPS_MAX];
    int8_t scale_multiples[BLOCK_GROUPS_MAX], offset_multiples[BLOCK_GROUPS_MAX];
};

// Unpacks one block, with numbers of the kinds that `wanted` has.
static void unpack_one(const struct gguf_matrix *m, const uint8_t *block, uint8_t *codes,
                       const struct matrix_codes *wanted, struct numbers *out) {
    const struct matrix_codes own = {
        .codes = codes,
        .scales = out->scales,
        .offsets = out->offsets,
        .scale_multiples = wanted->scale_multiples ? out->scale_multiples : NULL,
        .offset_multiples = wanted->offset_multiples ? out->offset_multiples : NULL};
    unpack(m, block, 1, &own);
}

// Gives group `group` the numbers of the block's group `from`, without units.
static void put_group(const struct numbers *numbers, uint32_t from, size_t group,
                      const struct matrix_codes *out) {
    if (!out->scale_multiples) {
        out->scales[group] = numbers->scales[from];
        if (out->offsets) out->offsets[group] = numbers->offsets[from];
        return;
    }
    out->scale_multiples[group] = numbers->scale_multiples[from];
    if (out->offset_multiples) out->offset_multiples[group] = numbers->offset_multiples[from];
}

// A block with units has one of each.
static void put_unit(const struct numbers *numbers, size_t unit, const struct matrix_codes *out) {
    out->scales[unit] = numbers->scales[0];
    if (out->offset_multiples) out->offsets[unit] = numbers->offsets[0];
}

// Takes one block apart, of which only some columns are wanted, or in smaller groups. Columns
// [col, col + count) are wanted; `first` is the block's.
static void unpack_part(const struct gguf_matrix *m, const uint8_t *block, uint64_t first,
                        uint64_t col, size_t count, uint32_t group,
                        const struct matrix_codes *out) {
    uint8_t codes[BLOCK_ELEMENTS_MAX];
    struct numbers numbers;
    unpack_one(m, block, codes, out, &numbers);
    uint64_t begin = first > col ? first : col, end = first + m->type->elements;
    if (end > col + count) end = col + count;
    memcpy(out->codes + (begin - col), codes + (begin - first), (size_t)(end - begin));
    // A wanted group lies in one of the block's.
    for (uint64_t i = (begin - col + group - 1) / group; col + i * group < end; i++) {
        uint32_t from = (uint32_t)(col + i * group - first) / m->codes->form.group;
        put_group(&numbers, from, (size_t)i, out);
    }
    if (!out->scale_multiples) return;
    for (uint64_t i = (begin - col + out->unit - 1) / out->unit; col + i * out->unit < end; i++) {
        put_unit(&numbers, (size_t)i, out);
    }
}

// Takes blocks apart, all of which are wanted, and cuts their groups or units into smaller ones.
static void unpack_cut(const struct gguf_matrix *m, const uint8_t *block, size_t num_blocks,
                       uint32_t group, const struct matrix_codes *out) {
    const uint32_t elements = m->type->elements, parts = m->codes->form.group / group;
    for (size_t at = 0; at < num_blocks * elements; at += elements, block += m->type->bytes) {
        struct numbers numbers;
        unpack_one(m, block, out->codes + at, out, &numbers);
        for (uint32_t g = 0; g < elements / group; g++) {
            put_group(&numbers, g / parts, at / group + g, out);
        }
        for (uint32_t u = 0; out->scale_multiples && u < elements / out->unit; u++) {
            put_unit(&numbers, at / out->unit + u, out);
        }
    }
}

// Numbers from column `at` on, the first of a group and a unit.
static struct matrix_codes codes_from(const struct matrix_codes *codes, size_t at, uint32_t group) {
    size_t first = at / group, first_number = codes->scale_multiples ? at / codes->unit : first;
    struct matrix_codes out = *codes;
    out.codes += at;
    out.scales += first_number;
    if (out.offsets) out.offsets += first_number;
    if (out.scale_multiples) out.scale_multiples += first;
    if (out.offset_multiples) out.offset_multiples += first;
    return out;
}

// Takes blocks [block, block + num_blocks) of a row apart. The first may begin before column `col`,
// and the last may end behind the columns that are wanted.
static void unpack_blocks(const struct gguf_matrix *m, const uint8_t *bytes, uint64_t block,
                          size_t num_blocks, uint64_t col, size_t count, uint32_t group,
                          const struct matrix_codes *out) {
    const struct matrix_form *form = &m->codes->form;
    const uint32_t elements = m->type->elements;
    const bool is_cut = form->group != group || (out->scale_multiples && form->unit != out->unit);
    while (num_blocks) {
        uint64_t first = block * elements, end = col + count;
        size_t whole = 0; // blocks
        bool begins = first >= col && (first - col) % group == 0 &&
                      (!out->scale_multiples || (first - col) % out->unit == 0);
        if (begins) whole = (size_t)((end - first) / elements);
        if (whole > num_blocks) whole = num_blocks;
        size_t used = whole ? whole : 1;
        if (!whole) {
            unpack_part(m, bytes, first, col, count, group, out);
        } else {
            size_t at = (size_t)(first - col);
            const struct matrix_codes from = codes_from(out, at, group);
            if (is_cut) {
                unpack_cut(m, bytes, whole, group, &from);
            } else {
                unpack(m, bytes, whole, &from);
            }
        }
        bytes += used * m->type->bytes;
        block += used;
        num_blocks -= used;
    }
}

// Multiplies what was read of some columns by the matrix's factor.
static void multiply_groups(const struct gguf_matrix *m, size_t count, uint32_t group,
                            const struct matrix_codes *out) {
    if (out->scale_multiples) group = out->unit; // units are multiplied
    size_t num_groups = m->has_factor ? (count + group - 1) / group : 0;
    for (size_t i = 0; i < num_groups; i++) {
        out->scales[i] *= m->factor;
        if (out->offsets) out->offsets[i] *= m->factor;
    }
}

static enum status read_stored_codes(const struct gguf_matrix *m, uint64_t begin, uint64_t col,
                                     size_t count, uint32_t group, const struct matrix_codes *out,
                                     struct err *err) {
    const struct block_type *type = m->type;
    uint64_t block = col / type->elements,
             end = (col + count + type->elements - 1) / type->elements;
    uint64_t num_blocks_max = CHUNK_BYTES / type->bytes;
    uint8_t buffer[CHUNK_BYTES];
    while (block < end) {
        size_t num_blocks = (size_t)(end - block < num_blocks_max ? end - block : num_blocks_max);
        const uint8_t *bytes = byte_source_get(&m->source, begin + block * type->bytes,
                                               num_blocks * type->bytes, buffer, err);
        if (!bytes) return ERR_IO;
        unpack_blocks(m, bytes, block, num_blocks, col, count, group, out);
        block += num_blocks;
    }
    return OK;
}

static enum status read_codes(const struct matrix_reader *base, uint64_t row, uint64_t col,
                              size_t count, uint32_t group, const struct matrix_codes *out,
                              struct err *err) {
    const struct gguf_matrix *m = (const struct gguf_matrix *)base;
    uint64_t begin = row_at(m, row);
    enum status status = OK;
    for (size_t at = 0; at < count && !status;) {
        size_t len = joined_cols(m, col + at, count - at);
        const struct matrix_codes part = codes_from(out, at, group);
        status = read_stored_codes(m, begin, gguf_stored_at(&m->col_order, col + at), len, group,
                                   &part, err);
        if (!status) multiply_groups(m, len, group, &part);
        at += len;
    }
    return status;
}

// Whole rows lie side by side, unless they are in another order. Reading each alone took twice as
// long.
static enum status read_code_rows(const struct matrix_reader *base, uint64_t row, uint32_t num_rows,
                                  uint64_t col, size_t count, uint32_t group,
                                  const struct matrix_codes *out, struct err *err) {
    const struct gguf_matrix *m = (const struct gguf_matrix *)base;
    size_t num_blocks = (size_t)(m->cols / m->type->elements);
    size_t row_bytes = num_blocks * m->type->bytes, together = ROWS_BYTES / row_bytes;
    bool is_whole =
        col == 0 && count == m->cols && !m->row_order.run && !m->col_order.run && together > 1;
    uint8_t buffer[ROWS_BYTES];
    for (uint32_t i = 0; i < num_rows && !is_whole; i++) {
        enum status status = read_codes(base, row + i, col, count, group, &out[i], err);
        if (status) return status;
    }
    for (uint32_t i = 0; i < num_rows && is_whole;) {
        size_t rows = num_rows - i < together ? num_rows - i : together;
        const uint8_t *bytes =
            byte_source_get(&m->source, row_at(m, row + i), rows * row_bytes, buffer, err);
        if (!bytes) return ERR_IO;
        for (; rows; rows--, i++, bytes += row_bytes) {
            unpack_blocks(m, bytes, 0, num_blocks, 0, count, group, &out[i]);
            multiply_groups(m, count, group, &out[i]);
        }
    }
    return OK;
}

static void close_matrix(struct matrix_reader *base) {
    (void)base;
}

void gguf_matrix_init(struct gguf_matrix *matrix) {
    matrix->codes = block_codes_of(matrix->type->number);
    matrix->base = (struct matrix_reader){.read = read_row, .close = close_matrix};
    // Runs of columns must hold whole groups.
    uint32_t group = matrix->codes ? matrix->codes->form.group : 0;
    if (!group || matrix->col_order.first % group || matrix->col_order.run % group) return;
    matrix->base.read_codes = read_codes;
    matrix->base.read_code_rows = read_code_rows;
    matrix->base.form = matrix->codes->form;
    // Blocks of which a run of columns has a part are read with a scale for each group.
    uint32_t unit = matrix->base.form.unit;
    if (!unit || !(matrix->col_order.first % unit || matrix->col_order.run % unit)) return;
    matrix->base.form.unit = matrix->base.form.shift = 0;
}
