#include "backend/cpu/avx512/avx512_unpack.h"

#include "backend/cpu/isa/kernels_x86.h"

void avx512_unpack(const struct packed_chunk *chunk, enum weight_code code, float *out) {
    unpack_floats(chunk, code, out);
}
