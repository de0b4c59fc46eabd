/* Packed weights as floats: the loops, written once for all instruction sets. The file that
 * includes this has defined, for registers of UNPACK_LANES floats,
 *
 *   unpack_vector                             the type of a register
 *   unpack_table, unpack_table_of(code)       the values of codes of 4 bits
 *   unpack_spread(from, part)                 of 16 outputs' floats, those of a part, each twice
 *   unpack_value(kind, table, codes, line, part)
 *                                             what a part's codes stand for, times a power of two
 *   unpack_scale(kind, table, from, part)     unpack_spread of scales, divided by that power
 *   unpack_scaled(value, scale, offset)       value * scale + offset, rounded once
 *   unpack_split(a, b, even, odd)             stores the even lanes of a and b, and the odd ones
 *
 * A part is UNPACK_LANES neighbouring numbers of a line's 32, of half as many outputs. */
#ifndef BACKEND_CPU_LINEAR_UNPACK_H
#define BACKEND_CPU_LINEAR_UNPACK_H

#include "backend/cpu/linear/packed.h"
#include "base/compiler.h"

// out: [32 inputs][16 outputs]
static ALWAYS_INLINE void unpack_chunk(const struct packed_chunk *chunk, enum unpack_kind kind,
                                       unpack_table table, float *out) {
    enum { OUTPUTS = UNPACK_LANES };
    for (uint32_t half = 0; half < 2; half++) {
        const unsigned char *codes = unpack_half(chunk, half, kind);
        for (uint32_t q = 0; q < PACKED_LANES / OUTPUTS; q++) {
            unpack_vector scale_a = unpack_scale(kind, table, chunk->scales[half], 2 * q);
            unpack_vector scale_b = unpack_scale(kind, table, chunk->scales[half], 2 * q + 1);
            unpack_vector offset_a = unpack_spread(chunk->offsets[half], 2 * q);
            unpack_vector offset_b = unpack_spread(chunk->offsets[half], 2 * q + 1);
            UNROLL for (uint32_t line = 0; line < PACKED_LINES; line++) {
                unpack_vector a = unpack_value(kind, table, codes, line, 2 * q);
                unpack_vector b = unpack_value(kind, table, codes, line, 2 * q + 1);
                a = unpack_scaled(a, scale_a, offset_a);
                b = unpack_scaled(b, scale_b, offset_b);
                float *even = out + ((size_t)half * PACKED_HALF + line * 2) * PACKED_LANES;
                unpack_split(a, b, even + q * OUTPUTS, even + PACKED_LANES + q * OUTPUTS);
            }
        }
    }
}

static ALWAYS_INLINE void unpack_floats(const struct packed_chunk *chunk, enum weight_code code,
                                        float *out) {
    unpack_table table = unpack_table_of(code);
    switch (unpack_kind_of(code)) {
    case UNPACK_4BIT:
        unpack_chunk(chunk, UNPACK_4BIT, table, out);
        break;
    case UNPACK_INT8:
        unpack_chunk(chunk, UNPACK_INT8, table, out);
        break;
    case UNPACK_E4M3:
        unpack_chunk(chunk, UNPACK_E4M3, table, out);
        break;
    }
}

#endif
