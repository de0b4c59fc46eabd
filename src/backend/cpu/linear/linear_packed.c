/* Weights that stay packed: a block is filled from the codes of a checkpoint, and an output's
 * weights are read again. The layout is in packed.h, the inner loops are in unpack.h. */
#include <math.h>
#include <string.h>

#include "backend/cpu/linear/linear_packing.h"
#include "backend/cpu/linear/packed.h"
#include "base/dtype.h"

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

static void pack_numbers(const float *const rows[LANES], uint32_t count, uint32_t group,
                         float out[LANES]) {
    for (uint32_t lane = 0; lane < count; lane++) out[lane] = rows[lane][group];
    for (uint32_t lane = count; lane < LANES; lane++) out[lane] = 0;
}

// Fills the head of the record that begins at `chunk`: [groups][scales, then offsets][16]. Inputs
// beyond the end have a scale of 0.
static void pack_head(const struct linear *linear, uint32_t block, uint32_t chunk,
                      const struct block_rows *rows) {
    const struct packed_shape *shape = &linear->packed;
    uint32_t group = linear->format.group, num = shape->num_groups;
    float *out = (void *)(block_of(linear, block) + packed_record_at(shape, chunk));
    for (uint32_t i = 0; i < num; i++, out += LANES) {
        uint32_t first = chunk * PACKED_CHUNK + i * group, g = group ? first / group : 0;
        uint32_t count = first < linear->in ? rows->count : 0;
        pack_numbers(rows->scales, count, g, out);
        if (shape->num_numbers == 2) pack_numbers(rows->offsets, count, g, out + num * LANES);
    }
}

static void pack_chunk(const struct cpu_kernels *kernels, const struct linear *linear,
                       uint32_t block, uint32_t chunk, const struct block_rows *rows) {
    unsigned char *out = block_of(linear, block) + packed_codes_at(&linear->packed, chunk);
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

void linear_pack_packed(const struct cpu_kernels *kernels, const struct linear *linear,
                        uint32_t block, const struct source_row rows[LANES]) {
    struct block_rows block_rows = {.count = 0};
    for (uint32_t lane = 0; lane < LANES && rows[lane].data; lane++, block_rows.count++) {
        block_rows.scales[lane] = rows[lane].scales;
        block_rows.offsets[lane] = rows[lane].offsets;
        block_rows.codes[lane] = rows[lane].data;
    }
    uint32_t num_chunks = linear->depth / PACKED_CHUNK;
    uint32_t record_mask = (1u << linear->packed.span_shift) - 1;
    for (uint32_t chunk = 0; chunk < num_chunks; chunk++) {
        if ((chunk & record_mask) == 0) pack_head(linear, block, chunk, &block_rows);
        pack_chunk(kernels, linear, block, chunk, &block_rows);
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
