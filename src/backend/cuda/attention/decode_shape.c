#include "backend/cuda/attention/decode_shape.h"

enum { ROUNDS_MAX = 4 };
enum { CLUSTER_HEAD_DIM_MAX = 256 }; // of attention/decode_cluster.cu

// The number of spans that loads all blocks most evenly: the units fill whole rounds of blocks as
// well as they can.
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

// Finds the most stages for which `blocks` blocks fit on a multiprocessor. False: not even one
// fits.
static bool fit(struct cuda_decode_shape *shape, const struct cuda_device_info *info,
                uint32_t head_dim, enum dtype kv_dtype, int blocks) {
    int tile_bytes = (int)(2 * cuda_kv_tile_bytes(kv_dtype, head_dim)); // keys and values
    int queries = shape->queries < CUDA_DECODE_JOINED ? shape->queries : CUDA_DECODE_JOINED;
    int joined = CUDA_DECODE_WARPS * queries * (int)(head_dim * sizeof(float));
    int others = joined + CUDA_DECODE_UNITS_AHEAD * CUDA_DECODE_UNIT_BYTES((int)head_dim);
    for (int stages = CUDA_DECODE_STAGES_MAX; stages; stages--) {
        int bytes = stages * CUDA_DECODE_WARPS * tile_bytes + others;
        if (bytes > info->shared_bytes_max - CUDA_DECODE_RESERVED_BYTES) continue;
        // A multiprocessor has 1,024 bytes of shared memory more than a block may have.
        if (blocks * (bytes + CUDA_DECODE_RESERVED_BYTES) > info->shared_bytes_max + 1024) continue;
        shape->stages = stages;
        shape->shared_bytes = bytes;
        shape->num_blocks = blocks * info->num_sms;
        return true;
    }
    return false;
}

int cuda_attention_cluster_size(const struct cuda_device_info *info, uint32_t num_seqs,
                                uint32_t num_heads, uint32_t num_kv_heads, uint32_t head_dim) {
    uint64_t units =
        (uint64_t)num_seqs * num_kv_heads * (uint32_t)cuda_decode_groups(num_heads, num_kv_heads);
    if (head_dim > CLUSTER_HEAD_DIM_MAX) return 0;
    for (int i = 3; i >= 0; i--) {
        if (units <= (uint64_t)info->max_clusters[i]) return 1 << i;
    }
    return 0;
}

struct cuda_decode_shape cuda_decode_shape_of(const struct cuda_device_info *info,
                                              uint32_t num_heads, uint32_t num_kv_heads,
                                              uint32_t head_dim, enum dtype kv_dtype) {
    int group = (int)(num_heads / num_kv_heads);
    struct cuda_decode_shape shape = {0};
    shape.groups = cuda_decode_groups(num_heads, num_kv_heads);
    shape.queries = group < CUDA_DECODE_GROUP ? group : CUDA_DECODE_GROUP;
    shape.units_per_span = (int)num_kv_heads * shape.groups;
    bool fits = fit(&shape, info, head_dim, kv_dtype, 2);
    if (!fits || shape.stages < 2) fit(&shape, info, head_dim, kv_dtype, 1);
    shape.num_spans = num_spans_of(shape.num_blocks, shape.units_per_span);
    return shape;
}

uint32_t cuda_shared_items(const struct shared_prefixes *shared, uint32_t num_heads,
                           uint32_t num_kv_heads, uint32_t item_tiles) {
    uint32_t items = 0;
    for (uint32_t i = 0; i < shared->num; i++) {
        const struct shared_prefix *prefix = &shared->list[i];
        uint32_t rows = prefix->num_seqs * (num_heads / num_kv_heads);
        uint32_t parts = (rows + CUDA_SHARED_ROWS - 1) / CUDA_SHARED_ROWS;
        items += parts * num_kv_heads * cuda_shared_splits(prefix, item_tiles);
    }
    return items;
}

// An item's results are of CUDA_SHARED_ROWS rows. If every multiprocessor has one item, these are
// the first term; the second is for prefixes that are not cut.
uint32_t cuda_shared_slots_max(const struct cuda_device_info *info, uint32_t num_heads,
                               uint32_t max_seqs) {
    return (uint32_t)info->num_sms * CUDA_SHARED_ROWS / num_heads + max_seqs;
}

// Between two counts of tiles that are tried, no prefix is cut differently and items only grow. So
// the first count with each cut is enough.
uint32_t cuda_shared_item_tiles(const struct cuda_device_info *info,
                                const struct shared_prefixes *shared, uint32_t num_heads,
                                uint32_t num_kv_heads, uint32_t max_slots) {
    enum { ENDS = 2 }; // a block's begin and end take as long as so many tiles
    uint32_t best = 1, sms = (uint32_t)info->num_sms;
    uint64_t least = UINT64_MAX;
    for (uint32_t tiles = 1, next; tiles; tiles = next) {
        uint64_t slots = 0;
        next = 0; // every prefix is in one piece
        for (uint32_t i = 0; i < shared->num; i++) {
            const struct shared_prefix *prefix = &shared->list[i];
            uint32_t splits = cuda_shared_splits(prefix, tiles);
            slots += splits > CUDA_SHARED_SPLITS_MAX ? max_slots + UINT64_C(1)
                                                     : (uint64_t)prefix->num_seqs * splits;
            if (splits < 2) continue;
            uint32_t change = (cuda_shared_splits(prefix, 1) - 1) / (splits - 1) + 1;
            if (!next || change < next) next = change;
        }
        uint32_t items = cuda_shared_items(shared, num_heads, num_kv_heads, tiles);
        uint64_t time = (uint64_t)((items + sms - 1) / sms) * (tiles + ENDS);
        if (slots > max_slots || time >= least) continue;
        least = time;
        best = tiles;
    }
    return best;
}
