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
