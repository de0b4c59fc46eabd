/* Packed weights in plain C (linear/unpack.h): the reference of the other instruction sets. */
#include <math.h>

#include "backend/cpu/linear/packed.h"
#include "backend/cpu/scalar/scalar.h"

#define UNPACK_LANES 1
typedef float unpack_vector;
typedef const float *unpack_table;

static ALWAYS_INLINE unpack_table unpack_table_of(enum weight_code code) {
    return weight_code_values(code);
}

static ALWAYS_INLINE unpack_vector unpack_spread(const float *from, uint32_t part) {
    return from[part / 2];
}

static ALWAYS_INLINE unpack_vector unpack_value(enum unpack_kind kind, unpack_table table,
                                                const unsigned char *codes, uint32_t line,
                                                uint32_t part) {
    if (kind == UNPACK_4BIT) return table[codes[part * 4 + line / 2] >> (line % 2 * 4) & 15];
    unsigned char code = codes[line * 32 + part];
    if (kind == UNPACK_INT8) return (float)(int8_t)code;
    return packed_e4m3(code);
}

static ALWAYS_INLINE unpack_vector unpack_scale(enum unpack_kind kind, unpack_table table,
                                                const float *from, uint32_t part) {
    (void)kind, (void)table;
    return unpack_spread(from, part);
}

static ALWAYS_INLINE unpack_vector unpack_scaled(unpack_vector value, unpack_vector scale,
                                                 unpack_vector offset) {
    return fmaf(value, scale, offset);
}

static ALWAYS_INLINE void unpack_split(unpack_vector a, unpack_vector b, float *even, float *odd) {
    *even = a;
    *odd = b;
}

#include "backend/cpu/linear/unpack.h"

void scalar_unpack(const struct packed_chunk *chunk, enum weight_code code, float *out) {
    unpack_floats(chunk, code, out);
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

void scalar_pack_codes(const unsigned char *const rows[LANES], size_t first, uint32_t bits,
                       unsigned char *out) {
    size_t half_bytes = (size_t)PACKED_HALF * PACKED_LANES * bits / 8;
    for (uint32_t half = 0; half < 2; half++, first += PACKED_HALF, out += half_bytes) {
        for (uint32_t lane = 0; lane < LANES; lane++) {
            if (bits == 4) {
                pack_half_4bit(rows[lane] + first, lane, out);
            } else {
                pack_half_8bit(rows[lane] + first, lane, out);
            }
        }
    }
}

void scalar_pack_numbers(const float *const rows[LANES], size_t first,
                         float out[PACKED_NUMBERS][LANES]) {
    for (uint32_t lane = 0; lane < LANES; lane++) {
        for (uint32_t i = 0; i < PACKED_NUMBERS; i++) out[i][lane] = rows[lane][first + i];
    }
}
