/* Weights that stay packed: a block is filled from the codes of a checkpoint, and an output's
 * weights are read again. The layout is in packed.h, the inner loops are in unpack.h. */
#include <math.h>
#include <string.h>

#include "backend/cpu/linear/linear_packing.h"
#include "backend/cpu/linear/packed.h"
#include "base/dtype.h"

enum { AHEAD_BYTES = 8192 }; // from what is written to what is fetched

bool linear_has_packed(struct weight_format format) {
    uint32_t group = format.group;
    bool is_power = (group & (group - 1)) == 0;
    return format.code < WEIGHT_CODE_COUNT && format.bits == weight_code_bits(format.code) &&
           (group == 0 || (is_power && group >= PACKED_GROUP_MIN && group <= PACKED_GROUP_MAX));
}

static unsigned char *block_of(const struct linear *linear, uint32_t block) {
    return (unsigned char *)linear->weights + block * linear->block_bytes;
}

// The rows of a block. Beyond the last output there are none: what they would have is 0.
struct block_rows {
    const float *scales[LANES], *offsets[LANES];
    const unsigned char *codes[LANES];
    uint32_t count; // of the outputs
};

// Numbers of groups first .. first + 7 of all rows.
struct numbers {
    float scales[PACKED_NUMBERS][LANES], offsets[PACKED_NUMBERS][LANES];
};

// The rest of a row, and of a block's rows, is 0.
static void pack_numbers(const struct cpu_kernels *kernels, const float *const rows[LANES],
                         uint32_t num_rows, uint32_t first, uint32_t count,
                         float out[PACKED_NUMBERS][LANES]) {
    if (num_rows == LANES && count >= PACKED_NUMBERS) {
        kernels->pack_numbers(rows, first, out);
        return;
    }
    memset(out, 0, PACKED_NUMBERS * sizeof *out);
    for (uint32_t i = 0; i < PACKED_NUMBERS && i < count; i++) {
        for (uint32_t lane = 0; lane < num_rows; lane++) out[i][lane] = rows[lane][first + i];
    }
}

// Fills the head of a record: [groups][scales, then offsets][16]. `numbers` has those of 8 groups,
// and is filled where the record begins with the first of 8. Beyond the end scales are 0.
static void pack_head(const struct cpu_kernels *kernels, const struct linear *linear,
                      uint32_t record, const struct block_rows *rows, struct numbers *numbers,
                      unsigned char *to) {
    const struct packed_shape *shape = &linear->packed;
    uint32_t group = linear->format.group, num = shape->num_groups, first = record * num;
    bool has_offsets = shape->num_numbers == 2;
    if (first % PACKED_NUMBERS == 0) {
        uint32_t left = (group ? (linear->in + group - 1) / group : 1) - first;
        pack_numbers(kernels, rows->scales, rows->count, first, left, numbers->scales);
        if (has_offsets) {
            pack_numbers(kernels, rows->offsets, rows->count, first, left, numbers->offsets);
        }
    }
    const size_t bytes = sizeof numbers->scales[0];
    for (uint32_t i = 0; i < num; i++, first++, to += bytes) {
        memcpy(to, numbers->scales[first % PACKED_NUMBERS], bytes);
        if (has_offsets) memcpy(to + num * bytes, numbers->offsets[first % PACKED_NUMBERS], bytes);
    }
}

static void pack_chunk(const struct cpu_kernels *kernels, const struct linear *linear,
                       uint32_t chunk, const struct block_rows *rows, unsigned char *out) {
    uint32_t first = chunk * PACKED_CHUNK, left = linear->in - first;
    if (rows->count == LANES && left >= PACKED_CHUNK) {
        kernels->pack_codes(rows->codes, first, linear->format.bits, out);
        return;
    }
    unsigned char codes[LANES][PACKED_CHUNK] = {0};
    const unsigned char *padded[LANES];
    for (uint32_t lane = 0; lane < LANES; lane++) {
        padded[lane] = codes[lane];
        if (lane >= rows->count) continue;
        memcpy(codes[lane], rows->codes[lane] + first, left < PACKED_CHUNK ? left : PACKED_CHUNK);
    }
    kernels->pack_codes(padded, 0, linear->format.bits, out);
}

// Lines of new memory that another thread has cleared. A store alone would wait for each.
static void fetch(const unsigned char *at, size_t bytes) {
    for (size_t i = 0; i < bytes; i += CHUNK_BYTES) __builtin_prefetch(at + AHEAD_BYTES + i, 1);
}

void linear_pack_packed(const struct cpu_kernels *kernels, const struct linear *linear,
                        uint32_t block, const struct source_row rows[LANES]) {
    struct block_rows block_rows = {.count = 0};
    for (uint32_t lane = 0; lane < LANES && rows[lane].data; lane++, block_rows.count++) {
        block_rows.scales[lane] = rows[lane].scales;
        block_rows.offsets[lane] = rows[lane].offsets;
        block_rows.codes[lane] = rows[lane].data;
    }
    struct numbers numbers;
    const struct packed_shape shape = linear->packed;
    const size_t head_bytes = packed_head_bytes(&shape);
    uint32_t num_chunks = linear->depth / PACKED_CHUNK, shift = shape.span_shift;
    unsigned char *to = block_of(linear, block);
    for (uint32_t chunk = 0; chunk < num_chunks; chunk++, to += shape.chunk_bytes) {
        if ((chunk & ((1u << shift) - 1)) == 0) {
            pack_head(kernels, linear, chunk >> shift, &block_rows, &numbers, to);
            fetch(to, head_bytes);
            to += head_bytes;
        }
        fetch(to, shape.chunk_bytes);
        pack_chunk(kernels, linear, chunk, &block_rows, to);
    }
}

void linear_load_packed(const struct linear *linear, uint32_t output, float *out) {
    const float *values = weight_code_values(linear->format.code);
    uint32_t lane = output % LANES;
    for (uint32_t k = 0; k < linear->in; k++) {
        struct packed_chunk chunk =
            packed_chunk_of(&linear->packed, block_of(linear, output / LANES), k / PACKED_CHUNK);
        struct packed_place place = packed_place_of(linear->format.bits, lane, k % PACKED_CHUNK);
        uint32_t half = k % PACKED_CHUNK / PACKED_HALF;
        unsigned code = chunk.codes[place.byte];
        float value = values                                    ? values[code >> place.shift & 15]
                      : linear->format.code == WEIGHT_CODE_INT8 ? (float)(int8_t)code
                                                                : packed_e4m3((uint8_t)code);
        float weight = fmaf(value, chunk.scales[half][lane], chunk.offsets[half][lane]);
        out[k] = linear->rounds ? bf16_to_f32(f32_to_bf16(weight)) : weight;
    }
}
