/* How this backend lays out packed weights (weight_format.h). A block of 16 outputs is a row of
 * records. A record has the inputs of a group, or of 32 if groups are smaller:
 *
 *   scales [groups of the record][16 outputs] float
 *   offsets, the same, if there are any
 *   chunks [inputs / 32]
 *
 * With units a record has the inputs that share one:
 *
 *   units [16 outputs] float, and those of offsets, if there are any
 *   multiples [sets][16 outputs] of 32 bits: the bytes are multiples of four groups or, with
 *             offsets, of two groups' scales and of their offsets
 *   chunks [inputs / 32]
 *
 * Shifts and a factor make floats of a set, which takes fewer bytes from memory than the floats.
 *
 * A chunk has the codes of 32 inputs: a half of the first 16, and one of the others. Of a half, two
 * neighbouring inputs of an output lie side by side, as the products of bf16 pairs want them. These
 * 32 numbers are called a line; a half has 8 of them.
 *
 *   8 bits   [8 lines][16 outputs][2 inputs] bytes
 *   4 bits   [16 outputs][2 inputs] of 32 bits, which have a code of each of the 8 lines, the first
 *            in the low bits. So one shift gives a line, and x86 looks codes up in registers by the
 *            low bits of each lane. */
#ifndef BACKEND_CPU_LINEAR_PACKED_H
#define BACKEND_CPU_LINEAR_PACKED_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "backend/weight_format.h"
#include "base/compiler.h"

enum {
    PACKED_LANES = 16, // outputs of a block
    PACKED_CHUNK = 32, // inputs
    PACKED_HALF = 16,
    PACKED_LINES = PACKED_HALF / 2, // of a half
    PACKED_ONE_GROUP = 31, // span_shift of a row with one scale
};

// Sizes that follow from a format.
struct packed_shape {
    enum weight_code code;
    uint32_t chunk_bytes, head_bytes; // of a chunk, and of a record before its chunks
    uint32_t span_shift; // a group has 1 << span_shift chunks; 0: a chunk has one group or two
    uint32_t record_shift; // a record has 1 << record_shift chunks
    uint32_t num_groups; // of a chunk: 1, or 2 of 16 inputs
    uint32_t num_numbers; // for each group and output: 1 scale, or also an offset
    bool has_units;
    uint32_t set_shift; // a set has the multiples of 1 << set_shift groups
    float shift; // with units and offsets: of a group's scale in its offset
};

/* How kernels of bf16 may multiply packed weights.
 *
 *   rounded    a weight, value * scale + offset, becomes bf16 and is multiplied as such
 *   unscaled   the codes' values, which are exact in bf16, are multiplied; a group's sum is then
 *              multiplied by its scale. That rounds less, and takes fewer instructions.
 *
 * Codes of 4 bits are unscaled, in groups of 32 or more and without offsets. Where bytes_too, so
 * are those of 8. */
static inline bool packed_is_unscaled(const struct packed_shape *shape, bool bytes_too) {
    return (bytes_too || weight_code_bits(shape->code) == 4) && shape->num_numbers == 1 &&
           shape->num_groups == 1;
}

// Whether a row of weights is one group.
static inline bool packed_is_one_group(const struct packed_shape *shape) {
    return shape->span_shift == PACKED_ONE_GROUP;
}

// 32 inputs of a block.
struct packed_chunk {
    const unsigned char *codes;
    const float *scales[2], *offsets[2]; // [16] each, of both halves
    // With units: a set of multiples, and the floats of its four bytes. The next chunk may have
    // the same set.
    const uint32_t *set; // [16]
    CACHE_ALIGNED float own[4][PACKED_LANES];
};

// Sets of multiples of a record.
static inline uint32_t packed_num_sets(const struct packed_shape *shape) {
    uint32_t groups = (shape->num_groups << shape->record_shift) >> shape->span_shift;
    return (groups + (1u << shape->set_shift) - 1) >> shape->set_shift;
}

static inline struct packed_shape packed_shape_of(struct weight_format format) {
    uint32_t span = 0;
    while ((uint64_t)PACKED_CHUNK << span < format.group) span++;
    if (!format.group) span = PACKED_ONE_GROUP;
    uint32_t record = span;
    while ((uint64_t)PACKED_CHUNK << record < format.unit) record++;
    struct packed_shape shape = {
        .code = format.code,
        .chunk_bytes = PACKED_CHUNK * PACKED_LANES * format.bits / 8,
        .span_shift = span,
        .record_shift = record,
        .num_groups = format.group && format.group < PACKED_CHUNK ? 2 : 1,
        .num_numbers = format.has_offsets ? 2 : 1,
        .has_units = format.unit != 0,
        .set_shift = format.has_offsets ? 1 : 2,
        .shift = format.has_offsets ? (float)format.shift : 0,
    };
    uint32_t floats = shape.num_groups * shape.num_numbers; // of an output
    if (shape.has_units) floats = shape.num_numbers + packed_num_sets(&shape);
    shape.head_bytes = floats * PACKED_LANES * (uint32_t)sizeof(float);
    return shape;
}

static inline size_t packed_block_bytes(const struct packed_shape *shape, uint32_t num_chunks) {
    size_t num_records = num_chunks ? ((num_chunks - 1) >> shape->record_shift) + 1 : 0;
    return num_records * shape->head_bytes + (size_t)num_chunks * shape->chunk_bytes;
}

// Where the record of a chunk begins in its block.
static inline size_t packed_record_at(const struct packed_shape *shape, uint32_t chunk) {
    size_t record = chunk >> shape->record_shift;
    return record * shape->head_bytes + (record << shape->record_shift) * shape->chunk_bytes;
}

// Where a chunk's codes begin in its block: behind the heads of all records up to its own.
static inline size_t packed_codes_at(const struct packed_shape *shape, uint32_t chunk) {
    return ((size_t)(chunk >> shape->record_shift) + 1) * shape->head_bytes +
           (size_t)chunk * shape->chunk_bytes;
}

// out[lane] = units[lane] times the multiple in a byte of its word, which has a sign.
static ALWAYS_INLINE void packed_multiply(const uint32_t *set, uint32_t byte, const float *units,
                                          float *restrict out) {
    for (uint32_t lane = 0; lane < PACKED_LANES; lane++) {
        int32_t multiple = (int32_t)(set[lane] << (24 - 8 * byte)) >> 24;
        out[lane] = units[lane] * (float)multiple;
    }
}

// Makes floats of a set. `units`: of its record.
static ALWAYS_INLINE void packed_use_set(const struct packed_shape *shape, const float *units,
                                         const uint32_t *set, struct packed_chunk *out) {
    const float *last = shape->num_numbers == 2 ? units + PACKED_LANES : units;
    packed_multiply(set, 0, units, out->own[0]);
    packed_multiply(set, 1, units, out->own[1]);
    packed_multiply(set, 2, last, out->own[2]);
    packed_multiply(set, 3, last, out->own[3]);
    out->set = set;
    if (shape->shift == 0) return;
    for (uint32_t lane = 0; lane < PACKED_LANES; lane++) {
        out->own[2][lane] += out->own[0][lane] * shape->shift;
        out->own[3][lane] += out->own[1][lane] * shape->shift;
    }
}

// Before the first packed_chunk_at.
static ALWAYS_INLINE void packed_chunk_init(struct packed_chunk *chunk) {
    chunk->set = NULL;
}

// Chunks that follow one another share work.
static ALWAYS_INLINE void packed_chunk_at(const struct packed_shape *shape,
                                          const unsigned char *block, uint32_t chunk,
                                          struct packed_chunk *out) {
    // An offset of -0 changes no bit of what it is added to.
    static const float none[PACKED_LANES] = {-0.0f, -0.0f, -0.0f, -0.0f, -0.0f, -0.0f,
                                             -0.0f, -0.0f, -0.0f, -0.0f, -0.0f, -0.0f,
                                             -0.0f, -0.0f, -0.0f, -0.0f};
    const float *head = (const void *)(block + packed_record_at(shape, chunk));
    size_t second = shape->num_groups == 2 ? (size_t)PACKED_LANES : 0;
    const float *scales = head, *offsets = head + (size_t)shape->num_groups * PACKED_LANES;
    if (shape->has_units) {
        uint32_t in_record = chunk & ((1u << shape->record_shift) - 1);
        uint32_t group = in_record * shape->num_groups >> shape->span_shift;
        uint32_t byte = group & ((1u << shape->set_shift) - 1);
        size_t at = (size_t)shape->num_numbers + (group >> shape->set_shift);
        const void *set = head + at * PACKED_LANES;
        if (set != out->set) packed_use_set(shape, head, set, out);
        scales = out->own[byte];
        offsets = scales + ((size_t)PACKED_LANES << shape->set_shift);
    }
    bool has_offsets = shape->num_numbers == 2;
    out->codes = block + packed_codes_at(shape, chunk);
    out->scales[0] = scales;
    out->scales[1] = scales + second;
    out->offsets[0] = has_offsets ? offsets : none;
    out->offsets[1] = has_offsets ? offsets + second : none;
}

// Where the code of input `k` (0 .. 31) of output `lane` is in a chunk.
struct packed_place {
    uint32_t byte, shift;
};

static inline struct packed_place packed_place_of(uint32_t bits, uint32_t lane, uint32_t k) {
    uint32_t half = k / PACKED_HALF, line = k % PACKED_HALF / 2, at = lane * 2 + k % 2;
    uint32_t half_bytes = PACKED_HALF * PACKED_LANES * bits / 8;
    if (bits == 8) return (struct packed_place){half * half_bytes + line * 32 + at, 0};
    return (struct packed_place){half * half_bytes + at * 4 + line / 2, line % 2 * 4};
}

// Exact for subnormals too: the bits are those of a float whose exponent is 120 too small.
static inline float packed_e4m3(uint8_t code) {
    uint32_t bits = (code & 0x7fu) << 20 | (code & 0x80u) << 24;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value * 0x1p120f;
}

// Codes that are decoded in the same way.
enum unpack_kind { UNPACK_4BIT, UNPACK_INT8, UNPACK_E4M3 };

static inline enum unpack_kind unpack_kind_of(enum weight_code code) {
    return weight_code_bits(code) == 4 ? UNPACK_4BIT
           : code == WEIGHT_CODE_E4M3  ? UNPACK_E4M3
                                       : UNPACK_INT8;
}

static ALWAYS_INLINE const unsigned char *unpack_half(const struct packed_chunk *chunk,
                                                      uint32_t half, enum unpack_kind kind) {
    uint32_t bits = kind == UNPACK_4BIT ? 4 : 8;
    return chunk->codes + half * (PACKED_HALF * PACKED_LANES * bits / 8);
}

#endif
