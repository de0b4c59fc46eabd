/* How decode attention is cut and launched: what the plan of a step and the kernel agree on, from
 * the model's shape, the number of sequences and the device. Included by C and by CUDA C++. */
#ifndef BACKEND_CUDA_ATTENTION_DECODE_SHAPE_H
#define BACKEND_CUDA_ATTENTION_DECODE_SHAPE_H

#include "backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    CUDA_DECODE_TILE = 16, // positions that a warp takes at once
    CUDA_DECODE_SPAN_TILES_MIN = 4, // tiles of a span at least
    CUDA_DECODE_STAGES_MAX = 4, // tiles on their way, per warp
    CUDA_DECODE_WARPS = 4, // of a block that attend; two blocks share a multiprocessor
    CUDA_DECODE_UNITS_AHEAD = 2, // units of a block of which the heads are ready
    CUDA_DECODE_JOINED = 4, // queries at most of which the warps' results are joined at once
    // Of a block's shared memory: 1,024 bytes that the device keeps, and what the kernel has
    // besides shared_bytes, in whole lines.
    CUDA_DECODE_RESERVED_BYTES = 1536,
};

// Of shared memory, a unit: a group of queries in padded rows, a key and a value, and what it is.
#define CUDA_DECODE_UNIT_BYTES(head_dim)                                                           \
    (CUDA_DECODE_GROUP * ((head_dim) + 8) * 2 + (head_dim)*4 + 48)

struct cuda_decode_shape {
    int stages; // tiles on their way, per warp
    int num_blocks; // that run at once, on all multiprocessors
    int shared_bytes; // of a block
    int groups; // of up to CUDA_DECODE_GROUP queries that share a kv head
    int queries; // of a group at most
    int units_per_span; // kv heads x groups
    int num_spans; // the most that a step's positions are cut into
};

// A piece of a sequence, as the plan writes it; 16-byte aligned.
struct cuda_decode_item {
    int32_t seq, start, stop, piece; // positions; place among the pieces in memory, or -1: no other
    int32_t token, position, slot; // the sequence's in this step, as attention_prepare has them
    int32_t is_end; // its last position is the sequence's
};

// A span, 16-byte aligned: its first item's first half, so that a block has all that it needs to
// read the cache after one load; that item's number and the one behind the span's last.
// item == end: it is empty, and so are all behind it.
struct cuda_decode_span {
    int32_t seq, start, stop, piece;
    int32_t item, end, unused[2];
};

// Groups of up to CUDA_DECODE_GROUP queries that share a kv head.
static inline int cuda_decode_groups(uint32_t num_heads, uint32_t num_kv_heads) {
    return (int)((num_heads / num_kv_heads + CUDA_DECODE_GROUP - 1) / CUDA_DECODE_GROUP);
}

// Blocks of a cluster by which attention/decode_cluster.cu attends, in a step where every sequence has one query
// token; 0: attention/decode.cu does, which needs work lists.
int cuda_attention_few_size(const struct cuda_device_info *info, uint32_t num_seqs,
                            uint32_t num_heads, uint32_t num_kv_heads, uint32_t head_dim);

struct cuda_decode_shape cuda_decode_shape_of(const struct cuda_device_info *info,
                                              uint32_t num_heads, uint32_t num_kv_heads,
                                              uint32_t head_dim);

#ifdef __cplusplus
}
#endif

#endif
