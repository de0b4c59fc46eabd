/* Fetching packed weights before they are multiplied. */
#ifndef BACKEND_CPU_LINEAR_PACKED_FETCH_H
#define BACKEND_CPU_LINEAR_PACKED_FETCH_H

#include "backend/cpu/linear/packed.h"

// Fetches what is `ahead` bytes behind a chunk's codes: as many bytes as the chunk has, and those
// of a record's head where the chunk is the first of one. So chunk after chunk no byte is left out.
static ALWAYS_INLINE void packed_fetch(const struct packed_shape *shape, uint32_t chunk,
                                       const unsigned char *codes, uint32_t chunk_bytes,
                                       size_t ahead) {
    const uint32_t in_record = (1u << shape->record_shift) - 1;
    const unsigned char *from = codes + ahead;
    UNROLL for (uint32_t at = 0; at < chunk_bytes; at += 64) __builtin_prefetch(from + at);
    if (chunk & in_record) return;
    for (uint32_t at = 64; at <= shape->head_bytes; at += 64) __builtin_prefetch(from - at);
}

#endif
