/* Makes a step's attention work lists from the sequences' lengths, once for all layers.
 *
 * Decode: the sequences with one query token are laid end to end, in tiles of 16 positions. That
 * row of tiles is cut into spans of equal length, as many as load all blocks evenly
 * (attention/decode_shape.h). A sequence that a cut divides is in splits.
 * attention/decode_cluster.cu, for steps of few decodes, needs no lists. With a window only the
 * tiles count that the query sees. Those of a prefix that attention/shared_sm90.cu takes do not
 * count either, but its splits have slots behind the sequence's own.
 *
 * Prefill: every sequence with more query tokens is cut into tiles of query tokens. The last tile
 * sees the most positions and comes first. If prompts are read from a copy in bf16
 * (attention/copy_codes.cu), the copy's blocks are dealt out here, sequence by sequence.
 *
 * Launch: one block with a thread per sequence, in rounds of 1,024. Positions in the lists come
 * from an exclusive scan over the block. */
#include "backend/cuda/attention/decode_shape.h"
#include "backend/cuda/attention/window.cuh"
#include "backend/cuda/device.cuh"
#include "backend/cuda/kernel_table.h"

namespace {

constexpr int THREADS_MAX = 1024, TILE = CUDA_DECODE_TILE;

// Exclusive prefix sum over the block. *total is the sum of all threads' values.
__device__ int block_scan(int value, int *warp_sums, int *total) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, sum = value;
    for (int offset = 1; offset < 32; offset <<= 1) {
        int other = __shfl_up_sync(FULL_WARP, sum, offset);
        if (lane >= offset) sum += other;
    }
    __syncthreads(); // the previous call's sums have been read
    if (lane == 31) warp_sums[warp] = sum;
    __syncthreads();
    int before = 0, all = 0;
    for (int w = 0; w < blockDim.x / 32; w++) {
        if (w < warp) before += warp_sums[w];
        all += warp_sums[w];
    }
    *total = all;
    return before + sum - value;
}

struct plan_params {
    const int32_t *query_start, *context_len, *slot_mapping, *table_row;
    cuda_decode_item *items;
    int4 *tiles, *copies; // copies NULL: prompts are read from the cache
    cuda_decode_span *spans;
    int32_t *counts;
    int4 *splits;
    int num_seqs, tile_tokens, table_stride;
    seen_window window;
    int num_spans, span_tiles_min; // as in attention/decode_shape.h
    const int32_t *prefix_of; // as in backend/shared_prefix.h; NULL: no prefix is shared
    int prefix_tiles[SHARED_PREFIXES_MAX], prefix_splits[SHARED_PREFIXES_MAX];
};

// The prefix that a decode shares; -1: none.
__device__ int prefix_of(const plan_params &p, int seq) {
    return p.prefix_of ? p.prefix_of[seq] : -1;
}

// The first tile that is left to a decode.
__device__ int first_tile(const plan_params &p, int seq) {
    int prefix = prefix_of(p, seq);
    if (prefix >= 0) return p.prefix_tiles[prefix];
    return p.window.size ? p.window.first_seen(p.context_len[seq] - 1) / TILE : 0;
}

// The splits of a decode's shared prefix.
__device__ int prefix_splits_of(const plan_params &p, int seq) {
    int prefix = prefix_of(p, seq);
    return prefix >= 0 ? p.prefix_splits[prefix] : 0;
}

// The slots that a decode in so many splits needs, and its shared prefix.
__device__ int num_slots_of(const plan_params &p, int seq, int num_splits) {
    if (!num_splits) return 0; // not a decode
    return (num_splits > 1 ? num_splits : 0) + prefix_splits_of(p, seq);
}

// Number of tiles of a decode sequence. 0: not a decode.
__device__ int decode_tiles(const plan_params &p, int seq) {
    if (seq >= p.num_seqs || p.query_start[seq + 1] - p.query_start[seq] != 1) return 0;
    return (p.context_len[seq] + TILE - 1) / TILE - first_tile(p, seq);
}

// Writes a sequence's splits as items from number `item` on. If there are several, their slots
// start at `slot`. `begin` is its first tile, counted over all sequences.
__device__ void write_items(const plan_params &p, int seq, int begin, int tiles, int span_tiles,
                            int item, int slot) {
    int first = begin / span_tiles, num_splits = (begin + tiles - 1) / span_tiles - first + 1;
    int row = p.table_row[seq], unseen = first_tile(p, seq) * TILE;
    if (num_splits > 1 || p.prefix_of) {
        int behind = slot + (num_splits > 1 ? num_splits : 0);
        p.splits[seq] = make_int4(slot, num_splits, behind, prefix_splits_of(p, seq));
    }
    cuda_decode_item one = {};
    one.row = row;
    one.token = p.query_start[seq];
    one.position = p.context_len[seq] - 1;
    one.slot = p.slot_mapping[one.token];
    for (int i = 0; i < num_splits; i++) {
        one.start = unseen + max((first + i) * span_tiles - begin, 0) * TILE;
        one.stop = min(unseen + ((first + i + 1) * span_tiles - begin) * TILE, p.context_len[seq]);
        one.split = num_splits > 1 ? slot + i : -1;
        one.seq_and_end = 2 * seq + (i + 1 == num_splits);
        p.items[item + i] = one;
        if ((first + i) * span_tiles < begin) continue; // not its span's first item
        cuda_decode_span &span = p.spans[first + i];
        span.row = one.row, span.start = one.start, span.stop = one.stop, span.split = one.split;
        span.item = item + i;
        if (first + i > 0) p.spans[first + i - 1].end = item + i;
    }
}

__device__ void plan_decodes(const plan_params &p, int *warp_sums) {
    int total = 0, sum;
    for (int first = 0; first < p.num_seqs; first += blockDim.x) {
        block_scan(decode_tiles(p, first + threadIdx.x), warp_sums, &sum);
        total += sum;
    }
    int span_tiles = max((total + p.num_spans - 1) / p.num_spans, p.span_tiles_min);

    int num_tiles = 0, num_items = 0, num_slots = 0;
    for (int first = 0; first < p.num_seqs; first += blockDim.x) {
        int seq = first + threadIdx.x, tiles = decode_tiles(p, seq);
        int begin = num_tiles + block_scan(tiles, warp_sums, &sum);
        num_tiles += sum;
        int num_splits = tiles ? (begin + tiles - 1) / span_tiles - begin / span_tiles + 1 : 0;
        int item = num_items + block_scan(num_splits, warp_sums, &sum);
        num_items += sum;
        int slot = num_slots + block_scan(num_slots_of(p, seq, num_splits), warp_sums, &sum);
        num_slots += sum;
        if (tiles) write_items(p, seq, begin, tiles, span_tiles, item, slot);
    }
    int num_spans = (num_tiles + span_tiles - 1) / span_tiles;
    if (threadIdx.x == 0 && num_spans) p.spans[num_spans - 1].end = num_items;
    for (int i = num_spans + threadIdx.x; i < p.num_spans; i += blockDim.x) {
        p.spans[i].item = p.spans[i].end = 0;
    }
}

// The blocks of a copy that a sequence needs.
struct copied_blocks {
    int seen; // first position that a query sees
    int first, count; // the block with that position; 0: it has none

    __device__ copied_blocks(const plan_params &p, int context_len, int queries) {
        seen = p.window.size ? p.window.first_seen(context_len - queries) : 0;
        first = seen / CUDA_KV_COPY_BLOCK;
        count = (context_len + CUDA_KV_COPY_BLOCK - 1) / CUDA_KV_COPY_BLOCK - first;
    }
    __device__ void write(const plan_params &p, int seq, int at) const {
        int table = p.table_row[seq] * p.table_stride;
        for (int i = 0; i < count; i++) {
            p.copies[at + i] =
                make_int4(table, (first + i) * CUDA_KV_COPY_BLOCK, p.context_len[seq], seen);
        }
    }
};

// Returns the number of prefill tiles.
__device__ int plan_prefills(const plan_params &p, int *warp_sums) {
    int num_tiles = 0, num_copies = 0, sum;
    for (int first = 0; first < p.num_seqs; first += blockDim.x) {
        int seq = first + threadIdx.x;
        int queries = seq < p.num_seqs ? p.query_start[seq + 1] - p.query_start[seq] : 0;
        int tiles = queries > 1 ? (queries + p.tile_tokens - 1) / p.tile_tokens : 0;
        int tile = num_tiles + block_scan(tiles, warp_sums, &sum);
        num_tiles += sum;
        int row = tiles ? p.table_row[seq] : 0;
        if (p.copies) {
            copied_blocks copied(p, tiles ? p.context_len[seq] : 0, queries);
            int at = num_copies + block_scan(tiles ? copied.count : 0, warp_sums, &sum);
            num_copies += sum;
            if (tiles) copied.write(p, seq, at);
            row = at - copied.first;
        }
        for (int i = 0; i < tiles; i++) {
            int query = (tiles - 1 - i) * p.tile_tokens;
            p.tiles[tile + i] =
                make_int4(row, p.query_start[seq] + query, p.context_len[seq] - queries + query,
                          min(queries - query, p.tile_tokens));
        }
    }
    if (threadIdx.x == 0) p.counts[4] = num_copies;
    return num_tiles;
}

__global__ void __launch_bounds__(THREADS_MAX) plan_kernel(plan_params p) {
    __shared__ int warp_sums[THREADS_MAX / 32];
    plan_decodes(p, warp_sums);
    int num_tiles = plan_prefills(p, warp_sums);
    if (threadIdx.x) return;
    p.counts[0] = num_tiles;
    p.counts[1] = p.table_stride;
    p.counts[2] = 0;
    p.counts[3] = p.copies ? 1 : p.table_stride;
}

} // namespace

extern "C" void cuda_attention_plan_launch(const struct step *step,
                                           const struct cuda_attention_plan *plan,
                                           uint32_t kv_group, const struct cuda_device_info *info,
                                           cudaStream_t stream) {
    struct cuda_decode_shape shape = cuda_decode_shape_of(info, plan->num_heads, plan->num_kv_heads,
                                                          plan->head_dim, plan->kv_dtype);
    plan_params p = {};
    p.query_start = step->query_start;
    p.context_len = step->context_len;
    p.slot_mapping = step_slots(step, kv_group);
    p.table_row = step->table_row;
    p.table_stride = static_cast<int>(step->table_stride);
    p.items = reinterpret_cast<cuda_decode_item *>(plan->items);
    p.tiles = reinterpret_cast<int4 *>(plan->tiles);
    p.copies = plan->num_copies ? reinterpret_cast<int4 *>(plan->copies) : nullptr;
    p.spans = reinterpret_cast<cuda_decode_span *>(plan->spans);
    p.counts = plan->counts;
    p.splits = reinterpret_cast<int4 *>(plan->splits);
    p.num_seqs = static_cast<int>(step->num_seqs);
    p.tile_tokens = static_cast<int>(plan->tile_tokens);
    p.window = {static_cast<int>(plan->window), (plan->extras & FEATURE_CHUNKS) != 0};
    p.num_spans = shape.num_spans;
    p.span_tiles_min = CUDA_DECODE_SPAN_TILES_MIN;
    if (plan->shared_tiles) p.prefix_of = step->shared.prefix_of;
    for (uint32_t i = 0; p.prefix_of && i < step->shared.num; i++) {
        const shared_prefix *prefix = &step->shared.list[i];
        p.prefix_tiles[i] = static_cast<int>(prefix->num_positions) / TILE;
        p.prefix_splits[i] = static_cast<int>(cuda_shared_splits(prefix, plan->shared_tiles));
    }
    int threads = p.num_seqs > 0 ? (p.num_seqs + 31) / 32 * 32 : 32;
    if (threads > THREADS_MAX) threads = THREADS_MAX;
    plan_kernel<<<1, threads, 0, stream>>>(p);
}
