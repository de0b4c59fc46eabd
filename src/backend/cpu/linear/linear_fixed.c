/* Fixed-point weights (fixed.h): a block is filled from the codes of a checkpoint, and an output's
 * weights are read again. */
#include <math.h>
#include <string.h>

#include "backend/cpu/linear/fixed.h"
#include "backend/cpu/linear/linear_packing.h"

enum { WEIGHT_MOST = 32767 }; // of a weight's whole number

// The largest magnitude of a code's value, as fixed_table has them, and what values are divided by.
struct range {
    float most, divisor;
};

static struct range range_of(enum weight_code code, const unsigned char *codes, uint32_t count) {
    switch (code) {
    case WEIGHT_CODE_INT4:
        return (struct range){8, 1};
    case WEIGHT_CODE_E2M1:
        return (struct range){12, 2};
    case WEIGHT_CODE_IQ4:
        return (struct range){127, 1};
    default:
        break;
    }
    uint8_t most = 1; // codes of fewer bits leave more of them to the factors
    for (uint32_t i = 0; i < count; i++) {
        uint8_t sign = (uint8_t)-(codes[i] >> 7), magnitude = (uint8_t)((codes[i] ^ sign) - sign);
        most = magnitude > most ? magnitude : most;
    }
    return (struct range){most, 1};
}

// Rounds to the nearest even; magnitudes below 2^22.
static int16_t round_even(float value) {
    return (int16_t)(value + 12582912.0f - 12582912.0f);
}

// Of an output's record: its unit, factors and offsets, which lie 16 apart.
static void pack_numbers(const float *scales, const float *offsets, uint32_t num_groups,
                         struct range range, float *unit, int16_t *factors, int16_t *ends) {
    float largest = 0, most = 0; // of scales; of weights
    for (uint32_t g = 0; g < num_groups; g++) {
        float scale = fabsf(scales[g]) / range.divisor, offset = offsets ? fabsf(offsets[g]) : 0;
        float reach = scale * range.most + offset;
        if (scale > largest) largest = scale;
        if (!(reach <= most)) most = reach; // also if it is NaN
    }
    *unit = most == 0 || most < 0x1p-100f ? 0 : NAN;
    if (!(most >= 0x1p-100f && most <= 0x1p120f)) return; // factors and offsets are 0
    // Rounding a factor moves a weight by up to half the largest value. The largest factor is whole,
    // so that groups with equal scales have no error.
    float limit = WEIGHT_MOST - 1 - range.most / 2;
    float factor = floorf(limit * (largest / most));
    *unit = factor >= 1 ? largest / factor : most / limit;
    for (uint32_t g = 0; g < num_groups; g++) {
        factors[(size_t)g * LANES] = round_even(scales[g] / range.divisor / *unit);
        if (offsets) ends[(size_t)g * LANES] = round_even(offsets[g] / *unit);
    }
}

// An output's codes of half a chunk, from `codes` on.
static void pack_quads(enum weight_code code, const unsigned char codes[FIXED_CHUNK],
                       unsigned char *out) {
    for (uint32_t i = 0; i < FIXED_CHUNK && code == WEIGHT_CODE_INT8; i += 4) {
        uint32_t quad;
        memcpy(&quad, codes + i, sizeof quad);
        quad ^= 0x80808080u;
        memcpy(out + (size_t)i / 4 * FIXED_QUAD_BYTES, &quad, sizeof quad);
    }
    for (uint32_t i = 0; i < FIXED_PART && code != WEIGHT_CODE_INT8; i += 4) {
        uint32_t low, high;
        memcpy(&low, codes + i, sizeof low);
        memcpy(&high, codes + FIXED_PART + i, sizeof high);
        low = (low & 0x0f0f0f0fu) | (high & 0x0f0f0f0fu) << 4;
        memcpy(out + (size_t)i / 4 * FIXED_QUAD_BYTES, &low, sizeof low);
    }
}

static void pack_record(const struct linear *linear, unsigned char *block, uint32_t record,
                        const struct source_row rows[LANES]) {
    const struct fixed_shape *shape = &linear->fixed;
    unsigned char *head = block + record * fixed_record_bytes(shape);
    unsigned char *factors = head + LANES * sizeof(float), *chunks = head + shape->head_bytes;
    unsigned char *offsets = factors + shape->factors_bytes;
    uint32_t first = record * FIXED_RECORD, group = shape->parts_per_group * FIXED_PART;
    uint32_t inputs = linear->in - first, depth = linear->depth - first;
    if (inputs > FIXED_RECORD) inputs = FIXED_RECORD;
    if (depth > FIXED_RECORD) depth = FIXED_RECORD;
    memset(head, 0, shape->head_bytes);
    for (uint32_t lane = 0; lane < LANES; lane++) {
        unsigned char codes[FIXED_RECORD] = {0};
        if (rows[lane].data) {
            size_t at = linear->format.group ? first / group : 0;
            const float *of_offsets = shape->has_offsets ? rows[lane].offsets + at : NULL;
            memcpy(codes, rows[lane].data + first, inputs);
            pack_numbers(rows[lane].scales + at, of_offsets, (inputs + group - 1) / group,
                         range_of(shape->code, codes, inputs), (float *)(void *)head + lane,
                         (int16_t *)(void *)factors + lane, (int16_t *)(void *)offsets + lane);
        }
        for (uint32_t k = 0; k < depth; k += FIXED_CHUNK) {
            unsigned char *to = chunks + k / FIXED_CHUNK * (size_t)shape->chunk_bytes;
            pack_quads(shape->code, codes + k, to + (size_t)lane * 4);
        }
    }
}

void linear_pack_fixed(const struct cpu_kernels *kernels, const struct linear *linear,
                       uint32_t block, const struct source_row rows[LANES]) {
    (void)kernels;
    unsigned char *to = (unsigned char *)linear->weights + block * linear->block_bytes;
    uint32_t num_records = fixed_num_records(linear->depth);
    for (uint32_t record = 0; record < num_records; record++) pack_record(linear, to, record, rows);
}

void linear_load_fixed(const struct linear *linear, uint32_t output, float *out) {
    const struct fixed_shape *shape = &linear->fixed;
    const unsigned char *block =
        (const unsigned char *)linear->weights + output / LANES * linear->block_bytes;
    uint32_t lane = output % LANES, group = shape->parts_per_group * FIXED_PART;
    uint8_t table[16];
    fixed_table(shape->code, table);
    for (uint32_t k = 0; k < linear->in; k++) {
        struct fixed_record record = fixed_record_of(shape, block, k / FIXED_RECORD);
        uint32_t in = k % FIXED_RECORD;
        struct fixed_place place = fixed_place_of(linear->format.bits, lane, in % FIXED_CHUNK);
        unsigned code = record.chunks[in / FIXED_CHUNK * shape->chunk_bytes + place.byte];
        if (linear->format.bits == 4) code = table[code >> place.shift & 15];
        size_t at = (size_t)(in / group) * LANES + lane;
        int32_t whole = ((int32_t)code - fixed_bias(shape->code)) * record.factors[at];
        if (record.offsets) whole += record.offsets[at];
        out[k] = (float)whole * record.units[lane];
    }
}
