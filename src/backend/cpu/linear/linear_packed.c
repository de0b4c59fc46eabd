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

// Fills the head of the record that begins at `chunk`: [groups][scales, then offsets][16]. Inputs
// beyond the end have a scale of 0.
static void pack_head(const struct linear *linear, uint32_t block, uint32_t chunk,
                      const struct source_row rows[LANES]) {
    const struct packed_shape *shape = &linear->packed;
    uint32_t group = linear->format.group, num = shape->num_groups;
    float *out = (void *)(block_of(linear, block) + packed_record_at(shape, chunk));
    for (uint32_t i = 0; i < num; i++) {
        uint32_t first = chunk * PACKED_CHUNK + i * group, g = group ? first / group : 0;
        for (uint32_t lane = 0; lane < LANES; lane++) {
            bool is_there = rows[lane].data && first < linear->in;
            out[i * LANES + lane] = is_there ? rows[lane].scales[g] : 0;
            if (shape->num_numbers == 1) continue;
            out[(num + i) * LANES + lane] = is_there ? rows[lane].offsets[g] : 0;
        }
    }
}

// The low 4 bits of bytes 0, 2, 4 and 6, side by side.
static uint32_t every_other(uint64_t bytes) {
    bytes &= 0x000f000f000f000fu;
    bytes = (bytes | bytes >> 12) & 0x000000ff000000ffu;
    return (uint32_t)(bytes | bytes >> 24) & 0xffffu;
}

// An output's codes of a half.
static void pack_half_4bit(const unsigned char codes[PACKED_HALF], uint32_t lane,
                           unsigned char *out) {
    uint64_t bytes[2];
    memcpy(bytes, codes, sizeof bytes);
    const uint32_t words[2] = {every_other(bytes[0]) | every_other(bytes[1]) << 16,
                               every_other(bytes[0] >> 8) | every_other(bytes[1] >> 8) << 16};
    memcpy(out + lane * sizeof words, words, sizeof words);
}

static void pack_half_8bit(const unsigned char codes[PACKED_HALF], uint32_t lane,
                           unsigned char *out) {
    for (uint32_t line = 0; line < PACKED_LINES; line++) {
        memcpy(out + (size_t)line * PACKED_CHUNK + (size_t)lane * 2, codes + (size_t)line * 2, 2);
    }
}

static void pack_chunk(const struct linear *linear, uint32_t block, uint32_t chunk,
                       const struct source_row rows[LANES]) {
    const struct packed_shape *shape = &linear->packed;
    unsigned char *out = block_of(linear, block) + packed_codes_at(shape, chunk);
    uint32_t first = chunk * PACKED_CHUNK, left = linear->in - first;
    uint32_t count = left < PACKED_CHUNK ? left : (uint32_t)PACKED_CHUNK;
    for (uint32_t lane = 0; lane < LANES; lane++) {
        unsigned char codes[PACKED_CHUNK] = {0};
        if (rows[lane].data) memcpy(codes, rows[lane].data + first, count);
        for (uint32_t half = 0; half < 2; half++) {
            unsigned char *to = out + half * (shape->chunk_bytes / 2);
            if (linear->format.bits == 4) {
                pack_half_4bit(codes + half * PACKED_HALF, lane, to);
            } else {
                pack_half_8bit(codes + half * PACKED_HALF, lane, to);
            }
        }
    }
}

void linear_pack_packed(const struct cpu_kernels *kernels, const struct linear *linear,
                        uint32_t block, const struct source_row rows[LANES]) {
    (void)kernels;
    uint32_t num_chunks = linear->depth / PACKED_CHUNK;
    uint32_t record_mask = (1u << linear->packed.span_shift) - 1;
    for (uint32_t chunk = 0; chunk < num_chunks; chunk++) {
        if ((chunk & record_mask) == 0) pack_head(linear, block, chunk, rows);
        pack_chunk(linear, block, chunk, rows);
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
