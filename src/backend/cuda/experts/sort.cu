/* Sorts the (token, slot) pairs of a call by expert, and makes the list of tiles for the grouped
 * matrix products. Counts and positions do not depend on the order in which threads run: the sort
 * is stable (by expert, then by pair) and the same every time.
 *
 * Launch: a block per expert, independent of the others; it starts early. Each counts all ids,
 * adds up the rows and tiles of the experts before it, and writes its own tiles and pairs. A warp
 * handles the same contiguous range of the pairs for counting and for placing. It reads num_experts
 * x pairs x 4 bytes from the L2, and keeps a bit for each pair: whether it is the expert's. A scan
 * over blocks would read less, but needs more launches. */
#include "backend/cuda/device.cuh"
#include "backend/cuda/launch.cuh"

namespace {

constexpr int WARPS = 32; // as many as lanes, so that a warp can hold one number per warp
constexpr int THREADS = WARPS * 32;
constexpr size_t DEFAULT_BYTES = 36 * 1024; // that a launch may take without asking
constexpr int STATIC_BYTES = (CUDA_EXPERTS_MAX + 3 * WARPS) * sizeof(int); // of sort_kernel
constexpr int PER_LANE = 4, GROUP = 32 * PER_LANE; // pairs that a warp looks at at once

struct sort_params {
    const int32_t *ids; // [num_pairs], aligned to 16 bytes
    int32_t *source, *position;
    int4 *items; // expert, first row, number of rows, 0
    int32_t *num_items;
    int num_pairs, top_k, num_experts, tile_rows;
};

struct range {
    int begin, end; // groups of one warp
};

// The sum over the block, returned in every thread. `parts` [WARPS] may be reused after the next
// barrier.
__device__ __forceinline__ int block_sum(int value, int *parts) {
    value = __reduce_add_sync(FULL_WARP, value);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    return __reduce_add_sync(FULL_WARP, parts[threadIdx.x % 32]);
}

// The ids of four pairs; -1 past the last one.
__device__ __forceinline__ int4 load_ids(const sort_params &p, int first) {
    const int32_t *ids = of_step(p.ids) + first;
    if (first + PER_LANE <= p.num_pairs) return __ldg(reinterpret_cast<const int4 *>(ids));
    int left = p.num_pairs - first;
    return make_int4(left > 0 ? __ldg(ids) : -1, left > 1 ? __ldg(ids + 1) : -1,
                     left > 2 ? __ldg(ids + 2) : -1, left > 3 ? __ldg(ids + 3) : -1);
}

// Adds the pairs of the range to counts, and notes which belong to the expert: bit `lane` of
// votes[group][i] is pair group * GROUP + lane * PER_LANE + i. Returns how many do.
__device__ __forceinline__ int count_pairs(const sort_params &p, range range, int expert,
                                           int *counts, uint4 *votes) {
    int lane = threadIdx.x % 32, own = 0;
#pragma unroll 4
    for (int group = range.begin; group < range.end; group++) {
        int4 ids = load_ids(p, group * GROUP + lane * PER_LANE);
        if (ids.x >= 0) atomicAdd(&counts[ids.x], 1);
        if (ids.y >= 0) atomicAdd(&counts[ids.y], 1);
        if (ids.z >= 0) atomicAdd(&counts[ids.z], 1);
        if (ids.w >= 0) atomicAdd(&counts[ids.w], 1);
        uint4 v = {
            __ballot_sync(FULL_WARP, ids.x == expert), __ballot_sync(FULL_WARP, ids.y == expert),
            __ballot_sync(FULL_WARP, ids.z == expert), __ballot_sync(FULL_WARP, ids.w == expert)};
        if (lane == 0) votes[group] = v;
        own += __popc(v.x) + __popc(v.y) + __popc(v.z) + __popc(v.w);
    }
    return own;
}

// Places those pairs of the range that belong to the expert in rows from `row` on.
__device__ __forceinline__ void place_pairs(const sort_params &p, range range, int row,
                                            const uint4 *votes) {
    unsigned lane = threadIdx.x % 32, lower = (1u << lane) - 1;
    for (int group = range.begin; group < range.end; group++) {
        uint4 v = votes[group];
        const unsigned masks[PER_LANE] = {v.x, v.y, v.z, v.w};
        if (!(v.x | v.y | v.z | v.w)) continue;
        int at = row;
#pragma unroll
        for (int i = 0; i < PER_LANE; i++) at += __popc(masks[i] & lower);
#pragma unroll
        for (int i = 0; i < PER_LANE; i++) {
            row += __popc(masks[i]);
            if (!(masks[i] >> lane & 1)) continue;
            int pair = group * GROUP + static_cast<int>(lane) * PER_LANE + i;
            of_step(p.source)[at] = pair / p.top_k;
            of_step(p.position)[pair] = at++;
        }
    }
}

__device__ __forceinline__ int tiles_of(const sort_params &p, int rows) {
    return (rows + p.tile_rows - 1) / p.tile_rows;
}

// An expert's rows are divided evenly among its tiles, in quarters of a tile. A tile that is not
// full takes less time, but more for each of its rows.
__device__ __forceinline__ int rows_of_tile(const sort_params &p, int rows, int tiles) {
    int quarter = p.tile_rows / 4, mean = (rows + tiles - 1) / tiles;
    return (mean + quarter - 1) / quarter * quarter;
}

__global__ void __launch_bounds__(THREADS) sort_kernel(sort_params p) {
    extern __shared__ uint4 votes[]; // [groups]
    __shared__ int counts[CUDA_EXPERTS_MAX], own[WARPS], row_parts[WARPS], tile_parts[WARPS];
    let_next_start();
    wait_for_earlier();
    int expert = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int i = threadIdx.x; i < p.num_experts; i += THREADS) counts[i] = 0;
    __syncthreads();
    int groups = (p.num_pairs + GROUP - 1) / GROUP, per_warp = (groups + WARPS - 1) / WARPS;
    int begin = min(warp * per_warp, groups);
    range range = {begin, min(begin + per_warp, groups)};
    int mine = count_pairs(p, range, expert, counts, votes);
    if (lane == 0) own[warp] = mine;
    __syncthreads();
    int rows = 0, tiles = 0;
    for (int i = threadIdx.x; i < expert; i += THREADS) {
        rows += counts[i];
        tiles += tiles_of(p, counts[i]);
    }
    int first_row = block_sum(rows, row_parts), first_item = block_sum(tiles, tile_parts);
    int num_rows = counts[expert], num_tiles = tiles_of(p, num_rows);
    int tile_rows = num_tiles ? rows_of_tile(p, num_rows, num_tiles) : 0;
    for (int i = threadIdx.x; i < num_tiles; i += THREADS) {
        int at = i * tile_rows;
        of_step(p.items)[first_item + i] =
            make_int4(expert, first_row + at, min(num_rows - at, tile_rows), 0);
    }
    bool is_last = expert == p.num_experts - 1;
    if (is_last && threadIdx.x == 0) *of_step(p.num_items) = first_item + num_tiles;
    int before = __reduce_add_sync(FULL_WARP, lane < warp ? own[lane] : 0);
    place_pairs(p, range, first_row + before, votes);
}

} // namespace

extern "C" void cuda_experts_sort_launch(const struct experts_args *args,
                                         const struct cuda_experts_view *view,
                                         const struct cuda_experts_scratch *scratch,
                                         uint32_t tile_rows, const struct cuda_device_info *info,
                                         cudaStream_t stream) {
    sort_params p = {};
    p.ids = args->ids;
    p.source = scratch->source;
    p.position = scratch->position;
    p.items = reinterpret_cast<int4 *>(scratch->items);
    p.num_items = scratch->num_items;
    p.num_pairs = static_cast<int>(args->num_tokens * args->top_k);
    p.top_k = static_cast<int>(args->top_k);
    p.num_experts = static_cast<int>(view->shape.num_experts);
    p.tile_rows = static_cast<int>(tile_rows);
    size_t bytes = (size_t)((p.num_pairs + GROUP - 1) / GROUP) * sizeof(uint4);
    if (bytes > DEFAULT_BYTES) {
        allow_shared_bytes(sort_kernel, info->shared_bytes_max - STATIC_BYTES, info);
    }
    launch_dependent(sort_kernel, dim3(view->shape.num_experts), THREADS, bytes, info, stream, p);
}
