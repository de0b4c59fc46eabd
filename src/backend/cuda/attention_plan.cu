/* The step's attention work lists, made once for all layers from the lengths alone.
 *
 * Decode: every sequence with one query token is cut into pieces of at most L positions, L such
 * that the whole batch makes about four rounds of work units for the blocks that will run, so that
 * one long sequence fills the device and many short ones are not cut at all. Where there are few
 * sequences L is at least what a block is done with before pieces could be joined.
 * Prefill: every sequence with more query tokens is cut into tiles of query tokens, the last (which
 * see the most positions) first.
 *
 * Launch: one block; sequences in rounds of 1,024 with an exclusive scan over the block. */
#include "backend/cuda/device.cuh"
#include "backend/cuda/kernels.h"

namespace {

constexpr int THREADS = 1024, PIECE = 64, FEW_PIECE = 512;

// Exclusive prefix sum over the block; *total is everybody's sum.
__device__ int block_scan(int value, int *warp_sums, int *total) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, sum = value;
    for (int offset = 1; offset < 32; offset <<= 1) {
        int other = __shfl_up_sync(FULL_WARP, sum, offset);
        if (lane >= offset) sum += other;
    }
    __syncthreads(); // the last scan's sums have been read
    if (lane == 31) warp_sums[warp] = sum;
    __syncthreads();
    int before = 0, all = 0;
    for (int w = 0; w < THREADS / 32; w++) {
        if (w < warp) before += warp_sums[w];
        all += warp_sums[w];
    }
    *total = all;
    return before + sum - value;
}

struct plan_params {
    const int32_t *query_start, *context_len;
    const uint32_t *table_stride;
    int4 *items, *tiles;
    int32_t *counts, *splits;
    int num_seqs, num_units_wanted, tile_tokens, piece_min;
};

__device__ int decode_length(const plan_params &p, int seq) {
    if (seq >= p.num_seqs) return 0;
    return p.query_start[seq + 1] - p.query_start[seq] == 1 ? p.context_len[seq] : 0;
}

__global__ void __launch_bounds__(THREADS) plan_kernel(plan_params p) {
    __shared__ int warp_sums[THREADS / 32];
    int total = 0, round_total;
    for (int first = 0; first < p.num_seqs; first += THREADS) {
        block_scan(decode_length(p, first + threadIdx.x), warp_sums, &round_total);
        total += round_total;
    }
    int piece = (total + p.num_units_wanted - 1) / p.num_units_wanted;
    piece = max((piece + PIECE - 1) / PIECE * PIECE, p.piece_min);

    int num_items = 0, num_slots = 0, num_tiles = 0;
    for (int first = 0; first < p.num_seqs; first += THREADS) {
        int seq = first + threadIdx.x;
        int length = decode_length(p, seq);
        int pieces = (length + piece - 1) / piece;
        int slots = pieces > 1 ? pieces : 0, all_items, all_slots;
        int item = num_items + block_scan(pieces, warp_sums, &all_items);
        int slot = num_slots + block_scan(slots, warp_sums, &all_slots);
        if (slots) {
            p.splits[seq * 2] = slot;
            p.splits[seq * 2 + 1] = slots;
        }
        for (int i = 0; i < pieces; i++) {
            p.items[item + i] =
                make_int4(seq, i * piece, min((i + 1) * piece, length), slots ? slot + i : -1);
        }
        num_items += all_items;
        num_slots += all_slots;

        int queries = seq < p.num_seqs ? p.query_start[seq + 1] - p.query_start[seq] : 0;
        int tiles = queries > 1 ? (queries + p.tile_tokens - 1) / p.tile_tokens : 0, all_tiles;
        int tile = num_tiles + block_scan(tiles, warp_sums, &all_tiles);
        for (int i = 0; i < tiles; i++) {
            int query = (tiles - 1 - i) * p.tile_tokens;
            p.tiles[tile + i] =
                make_int4(seq, p.query_start[seq] + query, p.context_len[seq] - queries + query,
                          min(queries - query, p.tile_tokens));
        }
        num_tiles += all_tiles;
    }
    if (threadIdx.x == 0) {
        p.counts[0] = num_items;
        p.counts[1] = num_tiles;
        p.counts[2] = static_cast<int32_t>(*p.table_stride);
        p.counts[3] = 0;
    }
}

} // namespace

extern "C" void cuda_attention_plan_launch(const struct attention_plan_args *args,
                                           const struct cuda_attention_plan *plan,
                                           uint32_t num_kv_heads,
                                           const struct cuda_device_info *info,
                                           cudaStream_t stream) {
    plan_params p = {};
    p.query_start = args->query_start;
    p.context_len = args->context_len;
    p.table_stride = args->block_table_stride;
    p.items = reinterpret_cast<int4 *>(plan->items);
    p.tiles = reinterpret_cast<int4 *>(plan->tiles);
    p.counts = plan->counts;
    p.splits = plan->splits;
    p.num_seqs = static_cast<int>(args->num_seqs);
    int units = cuda_attention_units_wanted(info);
    p.num_units_wanted = units / static_cast<int>(num_kv_heads);
    if (p.num_units_wanted < 1) p.num_units_wanted = 1;
    p.tile_tokens = static_cast<int>(plan->tile_tokens);
    p.piece_min = cuda_attention_is_few(info, args->num_seqs, num_kv_heads) ? FEW_PIECE : PIECE;
    plan_kernel<<<1, THREADS, 0, stream>>>(p);
}
