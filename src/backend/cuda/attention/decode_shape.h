/* How decode attention is divided and launched. The plan of a step and the kernel must agree on it.
 * It depends on the model's shape and the device. C and CUDA C++ include this file. */
#ifndef BACKEND_CUDA_ATTENTION_DECODE_SHAPE_H
#define BACKEND_CUDA_ATTENTION_DECODE_SHAPE_H

#include "backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    CUDA_DECODE_TILE = 16, // positions that a warp handles at once
    CUDA_DECODE_SPAN_TILES_MIN = 4, // fewest tiles of a span
    CUDA_DECODE_STAGES_MAX = 4, // most tiles in flight per warp
    CUDA_DECODE_WARPS = 4, // attending warps of a block; two blocks share a multiprocessor
    CUDA_DECODE_UNITS_AHEAD = 2, // units of a block whose heads are prepared ahead
    CUDA_DECODE_JOINED = 4, // most queries whose results a block's warps join at once
    // Shared memory of a block besides shared_bytes: 1,024 bytes that the device keeps, and the
    // kernel's static arrays rounded up to lines.
    CUDA_DECODE_RESERVED_BYTES = 1536,

    // Of attention/shared_sm90.cu: rows of an item, a row being a sequence and a head; positions of
    // a tile.
    CUDA_SHARED_ROWS = 128,
    CUDA_SHARED_TILE = 128,
    CUDA_SHARED_SPLITS_MAX = 255, // of a prefix
};

// Shared memory of one unit: a group of queries in padded rows, a key, a value, and the unit's
// description.
#define CUDA_DECODE_UNIT_BYTES(head_dim)                                                           \
    (CUDA_DECODE_GROUP * ((head_dim) + 8) * 2 + (head_dim)*4 + 48)

struct cuda_decode_shape {
    int stages; // tiles in flight per warp
    int num_blocks; // that run at the same time, on all multiprocessors
    int shared_bytes; // dynamic, per block
    int groups; // of up to CUDA_DECODE_GROUP queries that share a kv head
    int queries; // most queries of a group
    int units_per_span; // kv heads x groups
    int num_spans; // most spans that a step's positions are cut into
};

// The part of one sequence inside one span, written by the plan. 16-byte aligned.
struct cuda_decode_item {
    // Positions; split: slot in `partial`, or -1 if the sequence is not cut.
    int32_t row, start, stop, split; // row: the sequence's in the block tables
    // The sequence's values in this step, as attention_prepare uses them.
    int32_t token, position, slot;
    // Its sequence's number in the step, doubled; plus 1 if it ends with the last position.
    int32_t seq_and_end;
};

// A span, 16-byte aligned. The first half repeats its first item's first half, so that a block can
// start to read the cache after one load. `item` is the number of the first item, `end` one past
// the last. item == end: the span and all after it are empty.
struct cuda_decode_span {
    int32_t row, start, stop, split;
    int32_t item, end, unused[2];
};

// Groups of up to CUDA_DECODE_GROUP queries that share a kv head.
static inline int cuda_decode_groups(uint32_t num_heads, uint32_t num_kv_heads) {
    return (int)((num_heads / num_kv_heads + CUDA_DECODE_GROUP - 1) / CUDA_DECODE_GROUP);
}

// For a step where every sequence has one query token: blocks per cluster for
// attention/decode_cluster.cu. 0: attention/decode.cu runs, which needs the work lists.
int cuda_attention_cluster_size(const struct cuda_device_info *info, uint32_t num_seqs,
                                uint32_t num_heads, uint32_t num_kv_heads, uint32_t head_dim);

struct cuda_decode_shape cuda_decode_shape_of(const struct cuda_device_info *info,
                                              uint32_t num_heads, uint32_t num_kv_heads,
                                              uint32_t head_dim, enum dtype kv_dtype);

// Splits of a shared prefix whose items have up to item_tiles tiles each.
static inline uint32_t cuda_shared_splits(const struct shared_prefix *prefix, uint32_t item_tiles) {
    uint32_t tiles = (prefix->num_positions + CUDA_SHARED_TILE - 1) / CUDA_SHARED_TILE;
    return (tiles + item_tiles - 1) / item_tiles;
}
// Items of attention/shared_sm90.cu.
uint32_t cuda_shared_items(const struct shared_prefixes *shared, uint32_t num_heads,
                           uint32_t num_kv_heads, uint32_t item_tiles);
// Most slots in `partial` for the results of shared prefixes in a step.
uint32_t cuda_shared_slots_max(const struct cuda_device_info *info, uint32_t num_heads,
                               uint32_t max_seqs);
// The tiles of an item with which all items are done first, and which leave no more results than
// max_slots. max_slots is at least the number of the prefixes' sequences.
uint32_t cuda_shared_item_tiles(const struct cuda_device_info *info,
                                const struct shared_prefixes *shared, uint32_t num_heads,
                                uint32_t num_kv_heads, uint32_t max_slots);

#ifdef __cplusplus
}
#endif

#endif
