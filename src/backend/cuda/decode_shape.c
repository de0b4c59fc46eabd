#include "backend/cuda/decode_shape.h"

enum {
    STAGES_MAX = 4,
    ROUNDS_MAX = 4,
    FEW_WARPS = 8, // a block for every sequence and kv head runs at once
    WARPS = 4,
    FEW_SPAN_TILES = 32, // joining pieces takes as long as 512 positions
    SPAN_TILES = 4,
    SEQS_ROUNDED = 16, // sequences of recorded steps
};

static int tile_bytes(uint32_t head_dim) {
    return (int)(2 * CUDA_DECODE_TILE * head_dim * sizeof(uint16_t)); // keys and values
}

// Spans such that all blocks have as much to do: units fill whole rounds of blocks as well as they
// can.
static int num_spans_of(int num_blocks, int units_per_span) {
    int best = 1, best_idle = num_blocks, best_rounds = 1;
    for (int rounds = 1; rounds <= ROUNDS_MAX; rounds++) {
        int spans = rounds * num_blocks / units_per_span;
        int idle = rounds * num_blocks - spans * units_per_span;
        if (spans && idle * best_rounds < best_idle * rounds) {
            best = spans;
            best_idle = idle;
            best_rounds = rounds;
        }
    }
    return best;
}

// As many tiles on their way as `blocks` blocks of a multiprocessor have room for; false: not one.
static bool fit(struct cuda_decode_shape *shape, const struct cuda_device_info *info,
                uint32_t head_dim, int blocks) {
    int joined = shape->warps * CUDA_DECODE_GROUP * (int)(head_dim * sizeof(float));
    for (int stages = STAGES_MAX; stages; stages--) {
        int bytes = stages * shape->warps * tile_bytes(head_dim) + joined;
        // The device keeps 1,024 bytes of each block, also of the one of shared_bytes_max.
        if (blocks * (bytes + CUDA_DECODE_RESERVED_BYTES) > info->shared_bytes_max + 1024) continue;
        shape->stages = stages;
        shape->shared_bytes = bytes;
        shape->num_blocks = blocks * info->num_sms;
        return true;
    }
    return false;
}

// Where a block for every sequence and kv head runs at once, blocks have twice the warps. The count
// of sequences is taken as recorded steps round it, so that those and others agree.
struct cuda_decode_shape cuda_decode_shape_of(const struct cuda_device_info *info,
                                              uint32_t num_seqs, uint32_t num_heads,
                                              uint32_t num_kv_heads, uint32_t head_dim) {
    uint32_t rounded = num_seqs;
    if (num_seqs > 8) rounded = (num_seqs + SEQS_ROUNDED - 1) / SEQS_ROUNDED * SEQS_ROUNDED;
    int group = (int)(num_heads / num_kv_heads);
    struct cuda_decode_shape shape = {0};
    shape.groups = (group + CUDA_DECODE_GROUP - 1) / CUDA_DECODE_GROUP;
    shape.units_per_span = (int)num_kv_heads * shape.groups;
    shape.is_aligned = rounded * num_kv_heads <= (uint32_t)info->num_sms;
    shape.span_tiles_min = shape.is_aligned ? FEW_SPAN_TILES : SPAN_TILES;
    shape.warps = FEW_WARPS;
    bool fits = shape.is_aligned && fit(&shape, info, head_dim, 1);
    if (!fits || shape.stages < 2) {
        shape.warps = WARPS;
        fits = fit(&shape, info, head_dim, 2);
        if (!fits || shape.stages < 2) fit(&shape, info, head_dim, 1);
    }
    shape.num_spans = num_spans_of(shape.num_blocks, shape.units_per_span);
    return shape;
}
