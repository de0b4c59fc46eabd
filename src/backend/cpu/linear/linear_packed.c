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
    bool has_unit =
        !format.unit || (group && format.unit % group == 0 &&
                         (format.unit & (format.unit - 1)) == 0 && format.unit >= PACKED_UNIT_MIN);
    return format.code < WEIGHT_CODE_COUNT && format.bits == weight_code_bits(format.code) &&
           (group == 0 || (is_power && group >= PACKED_GROUP_MIN && group <= PACKED_GROUP_MAX)) &&
           has_unit && format.unit <= PACKED_UNIT_MAX;
}

static unsigned char *block_of(const struct linear *linear, uint32_t block) {
    return (unsigned char *)linear->weights + block * linear->block_bytes;
}

// The rows of a block. Beyond the last output there are none: what they would have is 0.
struct block_rows {
    const float *scales[LANES], *offsets[LANES];
    const int8_t *scale_multiples[LANES], *offset_multiples[LANES]; // with units
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

// The multiples of one row in the sets of a record, whose first group is `first`.
static void pack_multiples(const struct packed_shape *shape, const int8_t *scales,
                           const int8_t *offsets, uint32_t first, uint32_t num_groups,
                           unsigned char *to) {
    const uint32_t in_set = 1u << shape->set_shift, num_sets = packed_num_sets(shape);
    for (uint32_t set = 0; set < num_sets; set++, first += in_set) {
        unsigned char *bytes = to + (size_t)set * PACKED_LANES * sizeof(uint32_t);
        uint32_t left = first < num_groups ? num_groups - first : 0;
        uint32_t count = left < in_set ? left : in_set;
        memset(bytes, 0, sizeof(uint32_t));
        for (uint32_t i = 0; i < count; i++) bytes[i] = (unsigned char)scales[first + i];
        for (uint32_t i = 0; offsets && i < count; i++) {
            bytes[in_set + i] = (unsigned char)offsets[first + i];
        }
    }
}

// Fills the head of a record with units. Beyond the end multiples are 0.
static void pack_units(const struct linear *linear, uint32_t record, const struct block_rows *rows,
                       unsigned char *to) {
    const struct packed_shape *shape = &linear->packed;
    const uint32_t group = linear->format.group, num_groups = (linear->in + group - 1) / group;
    const uint32_t first = record * (linear->format.unit / group);
    float *units = (float *)(void *)to;
    unsigned char *sets = to + (size_t)shape->num_numbers * PACKED_LANES * sizeof *units;
    memset(to, 0, shape->head_bytes);
    for (uint32_t lane = 0; lane < rows->count; lane++) {
        units[lane] = rows->scales[lane][record];
        if (shape->num_numbers == 2) units[PACKED_LANES + lane] = rows->offsets[lane][record];
        pack_multiples(shape, rows->scale_multiples[lane], rows->offset_multiples[lane], first,
                       num_groups, sets + lane * sizeof(uint32_t));
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
        block_rows.scale_multiples[lane] = rows[lane].scale_multiples;
        block_rows.offset_multiples[lane] = rows[lane].offset_multiples;
        block_rows.codes[lane] = rows[lane].data;
    }
    struct numbers numbers;
    const struct packed_shape shape = linear->packed;
    uint32_t num_chunks = linear->depth / PACKED_CHUNK, shift = shape.record_shift;
    unsigned char *to = block_of(linear, block);
    for (uint32_t chunk = 0; chunk < num_chunks; chunk++, to += shape.chunk_bytes) {
        if ((chunk & ((1u << shift) - 1)) == 0) {
            if (shape.has_units) {
                pack_units(linear, chunk >> shift, &block_rows, to);
            } else {
                pack_head(kernels, linear, chunk >> shift, &block_rows, &numbers, to);
            }
            fetch(to, shape.head_bytes);
            to += shape.head_bytes;
        }
        fetch(to, shape.chunk_bytes);
        pack_chunk(kernels, linear, chunk, &block_rows, to);
    }
}

void linear_load_packed(const struct linear *linear, uint32_t output, float *out) {
    const float *values = weight_code_values(linear->format.code);
    const unsigned char *block = block_of(linear, output / LANES);
    uint32_t lane = output % LANES;
    struct packed_chunk chunk;
    packed_chunk_init(&chunk);
    for (uint32_t k = 0; k < linear->in; k++) {
        if (k % PACKED_CHUNK == 0) {
            packed_chunk_at(&linear->packed, block, k / PACKED_CHUNK, &chunk);
        }
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
