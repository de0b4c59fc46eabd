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
    uint8_t highest = 129, lowest = 127; // plus 128; codes of fewer bits leave more to the factors
    for (uint32_t i = 0; i < count; i++) {
        uint8_t value = codes[i] ^ 0x80u;
        highest = value > highest ? value : highest;
        lowest = value < lowest ? value : lowest;
    }
    int above = highest - 128, below = 128 - lowest;
    return (struct range){(float)(above > below ? above : below), 1};
}

// A record's scales and offsets in float, and the largest magnitudes of its values. Loops are over
// outputs, so that compilers make vectors of them.
struct numbers {
    float scales[FIXED_PARTS][LANES], offsets[FIXED_PARTS][LANES];
    float most[LANES]; // of an output's values
    uint32_t num_groups;
};

// Rounds to the nearest even; magnitudes below 2^22.
static int16_t round_even(float value) {
    return (int16_t)(int32_t)(value + 12582912.0f - 12582912.0f);
}

// Writes units, and how many of them 1 is; 0 where factors and offsets are 0.
static void find_units(const struct numbers *n, float units[LANES], float inverse[LANES]) {
    float largest[LANES] = {0}, reach[LANES] = {0}, zero[LANES] = {0};
    for (uint32_t g = 0; g < n->num_groups; g++) {
        for (uint32_t i = 0; i < LANES; i++) {
            float scale = fabsf(n->scales[g][i]);
            float most = scale * n->most[i] + fabsf(n->offsets[g][i]);
            largest[i] = scale > largest[i] ? scale : largest[i];
            reach[i] = most > reach[i] ? most : reach[i];
            zero[i] += most * 0; // or NaN
        }
    }
    for (uint32_t i = 0; i < LANES; i++) {
        bool is_usable = reach[i] >= 0x1p-100f && reach[i] <= 0x1p120f && zero[i] == 0;
        float bound = is_usable ? reach[i] : 1;
        // Rounding a factor moves a weight by up to half the largest value. The largest factor is
        // whole, so that groups with equal scales have no error.
        float limit = WEIGHT_MOST - 1 - n->most[i] / 2;
        float factor = (float)(int32_t)(is_usable ? limit * (largest[i] / bound) : 0);
        float unit = factor >= 1 ? largest[i] / factor : bound / limit;
        inverse[i] = is_usable ? 1 / unit : 0;
        units[i] = is_usable ? unit : reach[i] < 1 && zero[i] == 0 ? 0 : NAN;
    }
}

// Writes [groups][16].
static void round_numbers(float from[][LANES], uint32_t num_groups, const float inverse[LANES],
                          int16_t *out) {
    for (uint32_t g = 0; g < num_groups; g++, out += LANES) {
        for (uint32_t i = 0; i < LANES; i++) {
            out[i] = round_even(inverse[i] > 0 ? from[g][i] * inverse[i] : 0);
        }
    }
}

// Reads an output's numbers, from `at` on.
static void take_numbers(const struct fixed_shape *shape, const struct source_row *row, size_t at,
                         uint32_t lane, struct range range, struct numbers *out) {
    out->most[lane] = range.most;
    for (uint32_t g = 0; g < out->num_groups; g++) {
        out->scales[g][lane] = row->scales[at + g] / range.divisor;
        if (shape->has_offsets) out->offsets[g][lane] = row->offsets[at + g];
    }
}

// A record's codes of an output, as the bytes of its quads one behind the other.
static void pack_codes(enum weight_code code, const unsigned char codes[FIXED_RECORD],
                       unsigned char out[FIXED_RECORD]) {
    if (code == WEIGHT_CODE_INT8) {
        for (uint32_t i = 0; i < FIXED_RECORD; i++) out[i] = codes[i] ^ 0x80u;
        return;
    }
    for (uint32_t i = 0; i < FIXED_RECORD; i += FIXED_CHUNK, out += FIXED_PART) {
        for (uint32_t k = 0; k < FIXED_PART; k++) {
            out[k] = (unsigned char)((codes[i + k] & 15u) | codes[i + FIXED_PART + k] << 4);
        }
    }
}

// The quads of all outputs lie as pairs of bf16 do, so the same kernel puts them side by side.
static void pack_quads(const struct cpu_kernels *kernels, unsigned char packed[LANES][FIXED_RECORD],
                       size_t bytes, unsigned char *out) {
    const unsigned char *rows[LANES];
    for (uint32_t lane = 0; lane < LANES; lane++) rows[lane] = packed[lane];
    size_t whole = bytes / CHUNK_BYTES * CHUNK_BYTES;
    if (whole) kernels->pack_bf16(rows, whole / 2, (uint16_t *)(void *)out);
    for (size_t i = whole; i < bytes; i += 4) {
        for (uint32_t lane = 0; lane < LANES; lane++) {
            memcpy(out + i * LANES + (size_t)lane * 4, packed[lane] + i, 4);
        }
    }
}

static void pack_record(const struct cpu_kernels *kernels, const struct linear *linear,
                        unsigned char *block, uint32_t record,
                        const struct source_row rows[LANES]) {
    const struct fixed_shape *shape = &linear->fixed;
    unsigned char *head = block + record * fixed_record_bytes(shape);
    unsigned char *factors = head + LANES * sizeof(float);
    unsigned char *offsets = factors + shape->factors_bytes;
    uint32_t first = record * FIXED_RECORD, group = shape->parts_per_group * FIXED_PART;
    uint32_t inputs = linear->in - first, depth = linear->depth - first;
    if (inputs > FIXED_RECORD) inputs = FIXED_RECORD;
    if (depth > FIXED_RECORD) depth = FIXED_RECORD;
    struct numbers numbers = {.num_groups = (inputs + group - 1) / group};
    unsigned char packed[LANES][FIXED_RECORD];
    for (uint32_t lane = 0; lane < LANES; lane++) {
        unsigned char padded[FIXED_RECORD];
        const unsigned char *codes = padded;
        if (rows[lane].data && inputs == FIXED_RECORD) {
            codes = rows[lane].data + first;
        } else {
            memset(padded, 0, sizeof padded);
            if (rows[lane].data) memcpy(padded, rows[lane].data + first, inputs);
        }
        pack_codes(shape->code, codes, packed[lane]);
        if (!rows[lane].data) continue;
        take_numbers(shape, &rows[lane], linear->format.group ? first / group : 0, lane,
                     range_of(shape->code, codes, inputs), &numbers);
    }
    float inverse[LANES];
    memset(head, 0, shape->head_bytes);
    find_units(&numbers, (float *)(void *)head, inverse);
    round_numbers(numbers.scales, numbers.num_groups, inverse, (int16_t *)(void *)factors);
    if (shape->has_offsets) {
        round_numbers(numbers.offsets, numbers.num_groups, inverse, (int16_t *)(void *)offsets);
    }
    pack_quads(kernels, packed, (size_t)depth * linear->format.bits / 8, head + shape->head_bytes);
}

void linear_pack_fixed(const struct cpu_kernels *kernels, const struct linear *linear,
                       uint32_t block, const struct source_row rows[LANES]) {
    unsigned char *to = (unsigned char *)linear->weights + block * linear->block_bytes;
    uint32_t num_records = fixed_num_records(linear->depth);
    for (uint32_t record = 0; record < num_records; record++) {
        pack_record(kernels, linear, to, record, rows);
    }
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
