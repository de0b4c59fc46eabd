/* Packed weights as fixed-point numbers, for kernels that multiply bytes of x. They take the place
 * of packed.h's layout where a processor has such kernels (cpu_kernels.linear_fixed), for all codes
 * that are whole numbers.
 *
 * 256 inputs of an output are a record. Within it a weight is a whole number of 16 bits,
 *
 *   weight = (value * factor + offset) * unit
 *
 * with a float unit for the record, and a 16-bit factor and offset for each group. The unit is such
 * that the largest weight takes all 16 bits, so factors and offsets are rounded by at most half a
 * unit. x has a float scale for each record too, and bytes. So a record's sum is exact in 32 bits,
 * whatever computes it: few rows sum up codes group by group, many rows multiply the weights' high
 * and low bytes. Then it is multiplied by unit * scale and added to the records before.
 *
 * A block of 16 outputs is a row of records:
 *
 *   units    [16 outputs] float
 *   factors  [groups of the record][16 outputs] int16_t, padded to 64 bytes
 *   offsets  the same, if the format has them
 *   chunks   [inputs / 32]; the last record of a block has only those that it needs
 *
 * A chunk has the codes of 32 inputs, in quads: four neighbouring inputs of an output.
 *
 *   8 bits   [8 quads][16 outputs][4 inputs] bytes, value + 128
 *   4 bits   [4 quads][16 outputs][4 inputs] bytes: inputs 0 .. 15 in the low half of each, inputs
 *            16 .. 31 in the high half */
#ifndef BACKEND_CPU_LINEAR_FIXED_H
#define BACKEND_CPU_LINEAR_FIXED_H

#include <stddef.h>
#include <stdint.h>

#include "backend/weight_format.h"
#include "base/compiler.h"

enum {
    FIXED_LANES = 16, // outputs of a block
    FIXED_RECORD = 256, // inputs
    FIXED_CHUNK = 32,
    FIXED_PART = 16, // the smallest group: half a chunk
    FIXED_PARTS = FIXED_RECORD / FIXED_PART,
    FIXED_CHUNKS = FIXED_RECORD / FIXED_CHUNK,
    FIXED_QUAD_BYTES = FIXED_LANES * 4,
};

// What belongs to the bytes of x, of some rows: the scales of their records, and the sums of each
// group's bytes.
struct fixed_x {
    float *scales; // [records][rows]
    int16_t *sums; // [records][rows][16], of which a record's groups are used
    uint32_t rows;
};

// Floats of such memory for a row of `depth` inputs.
static inline size_t fixed_x_floats(uint32_t depth) {
    return (size_t)((depth + FIXED_RECORD - 1) / FIXED_RECORD) * (1 + FIXED_PARTS / 2);
}

// The memory of `rows` rows.
static inline struct fixed_x fixed_x_of(float *memory, uint32_t depth, uint32_t rows) {
    size_t records = (depth + FIXED_RECORD - 1) / FIXED_RECORD;
    return (struct fixed_x){memory, (int16_t *)(void *)(memory + records * rows), rows};
}

static inline float *fixed_x_scale(const struct fixed_x *x, uint32_t record, uint32_t row) {
    return x->scales + (size_t)record * x->rows + row;
}

static inline int16_t *fixed_x_sums(const struct fixed_x *x, uint32_t record, uint32_t row) {
    return x->sums + ((size_t)record * x->rows + row) * FIXED_PARTS;
}

// Sizes that follow from a format.
struct fixed_shape {
    enum weight_code code;
    uint32_t parts_per_group; // 16: a record is one group
    uint32_t factors_bytes; // of a record, padded
    uint32_t head_bytes; // before the chunks
    uint32_t chunk_bytes;
    bool has_offsets;
};

static inline bool fixed_has_code(enum weight_code code) {
    return code != WEIGHT_CODE_NONE && code != WEIGHT_CODE_E4M3;
}

static inline struct fixed_shape fixed_shape_of(struct weight_format format) {
    uint32_t group = format.group ? format.group : (uint32_t)FIXED_RECORD;
    uint32_t factors = FIXED_RECORD / group * FIXED_LANES * 2, padded = (factors + 63) / 64 * 64;
    return (struct fixed_shape){
        .code = format.code,
        .parts_per_group = group / FIXED_PART,
        .factors_bytes = padded,
        .head_bytes = FIXED_LANES * 4 + padded * (format.has_offsets ? 2 : 1),
        .chunk_bytes = FIXED_CHUNK * FIXED_LANES * format.bits / 8,
        .has_offsets = format.has_offsets,
    };
}

static inline uint32_t fixed_num_records(uint32_t depth) {
    return (depth + FIXED_RECORD - 1) / FIXED_RECORD;
}

static inline size_t fixed_record_bytes(const struct fixed_shape *shape) {
    return shape->head_bytes + (size_t)FIXED_CHUNKS * shape->chunk_bytes;
}

static inline size_t fixed_block_bytes(const struct fixed_shape *shape, uint32_t depth) {
    return (size_t)fixed_num_records(depth) * shape->head_bytes +
           (size_t)(depth / FIXED_CHUNK) * shape->chunk_bytes;
}

struct fixed_record {
    const float *units;
    const int16_t *factors, *offsets; // [groups][16]; offsets: NULL if there are none
    const unsigned char *chunks;
};

static ALWAYS_INLINE struct fixed_record fixed_record_of(const struct fixed_shape *shape,
                                                         const unsigned char *block,
                                                         uint32_t record) {
    const unsigned char *head = block + record * fixed_record_bytes(shape);
    const unsigned char *factors = head + FIXED_LANES * sizeof(float);
    return (struct fixed_record){
        .units = (const void *)head,
        .factors = (const void *)factors,
        .offsets = shape->has_offsets ? (const void *)(factors + shape->factors_bytes) : NULL,
        .chunks = head + shape->head_bytes,
    };
}

// Where the code of input `k` (0 .. 31) of output `lane` is in a chunk.
struct fixed_place {
    uint32_t byte, shift;
};

static inline struct fixed_place fixed_place_of(uint32_t bits, uint32_t lane, uint32_t k) {
    uint32_t half = bits == 4 ? k / FIXED_PART : 0, in = bits == 4 ? k % FIXED_PART : k;
    return (struct fixed_place){in / 4 * FIXED_QUAD_BYTES + lane * 4 + in % 4, half * 4};
}

// What is added to the values of a code, so that they are bytes without a sign. Codes of INT4 are
// such numbers as they are.
static inline int32_t fixed_bias(enum weight_code code) {
    return code == WEIGHT_CODE_INT4 ? 8 : 128;
}

// The values of codes of 4 bits as bytes plus the bias; those of E2M1, which has halves, doubled.
static inline void fixed_table(enum weight_code code, uint8_t out[16]) {
    const float *values = weight_code_values(code);
    float factor = code == WEIGHT_CODE_E2M1 ? 2.0f : 1.0f;
    for (int i = 0; i < 16; i++) {
        int32_t value = values ? (int32_t)(values[i] * factor) : 0;
        out[i] = (uint8_t)(value + fixed_bias(code));
    }
}

#endif
