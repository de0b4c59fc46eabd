/* Sorts the (token, slot) pairs of a call by expert, and makes the list of tiles for the grouped
 * matrix products. Counts and positions do not depend on the order in which threads run: the sort
 * is stable (by expert, then by pair) and the same every time.
 *
 * Launch: a block per expert, independent of the others; it starts early. Each counts all ids,
 * adds up the rows and tiles of the experts before it, and writes its own tiles and pairs. A warp
 * handles the same contiguous range of the pairs for counting and for placing. It reads num_experts
 * x pairs x 4 bytes twice, from the L2. A scan over blocks would read less, but needs more
 * launches. */
#include "backend/cuda/device.cuh"
#include "backend/cuda/launch.cuh"

namespace {

constexpr int WARPS = 32; // as many as lanes, so that a warp can hold one number per warp
constexpr int THREADS = WARPS * 32;

struct sort_params {
    const int32_t *ids; // [num_pairs]
    int32_t *source, *position;
    int4 *items; // expert, first row, number of rows, 0
    int32_t *num_items;
    int num_pairs, top_k, num_experts, tile_rows;
};

struct range {
    int begin, end; // pairs of one warp
};

// The sum over the block, returned in every thread. `parts` [WARPS] may be reused after the next
// barrier.
__device__ __forceinline__ int block_sum(int value, int *parts) {
    value = __reduce_add_sync(FULL_WARP, value);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    return __reduce_add_sync(FULL_WARP, parts[threadIdx.x % 32]);
}

// Adds the pairs of the range to counts. Returns how many of them belong to the expert.
__device__ __forceinline__ int count_pairs(const sort_params &p, range range, int expert,
                                           int *counts) {
    int own = 0;
#pragma unroll 4
    for (int pair = range.begin + threadIdx.x % 32; pair < range.end; pair += 32) {
        int id = __ldg(&of_step(p.ids)[pair]);
        atomicAdd(&counts[id], 1);
        own += id == expert;
    }
    return __reduce_add_sync(FULL_WARP, own);
}

// Places those pairs of the range that belong to the expert in rows from `row` on.
__device__ __forceinline__ void place_pairs(const sort_params &p, range range, int expert,
                                            int row) {
    int lane = threadIdx.x % 32;
#pragma unroll 4
    // The whole warp loops together, for the ballot.
    for (int base = range.begin; base < range.end; base += 32) {
        int pair = base + lane;
        bool is_mine = pair < range.end && __ldg(&of_step(p.ids)[pair]) == expert;
        unsigned votes = __ballot_sync(FULL_WARP, is_mine);
        if (is_mine) {
            int at = row + __popc(votes & ((1u << lane) - 1));
            of_step(p.source)[at] = pair / p.top_k;
            of_step(p.position)[pair] = at;
        }
        row += __popc(votes);
    }
}

__device__ __forceinline__ int tiles_of(const sort_params &p, int rows) {
    return (rows + p.tile_rows - 1) / p.tile_rows;
}

__global__ void __launch_bounds__(THREADS) sort_kernel(sort_params p) {
    __shared__ int counts[CUDA_EXPERTS_MAX], own[WARPS], row_parts[WARPS], tile_parts[WARPS];
    let_next_start();
    wait_for_earlier();
    int expert = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int i = threadIdx.x; i < p.num_experts; i += THREADS) counts[i] = 0;
    __syncthreads();
    int pairs = (p.num_pairs + WARPS - 1) / WARPS, begin = min(warp * pairs, p.num_pairs);
    range range = {begin, min(begin + pairs, p.num_pairs)};
    int mine = count_pairs(p, range, expert, counts);
    if (lane == 0) own[warp] = mine;
    __syncthreads();
    int rows = 0, tiles = 0;
    for (int i = threadIdx.x; i < expert; i += THREADS) {
        rows += counts[i];
        tiles += tiles_of(p, counts[i]);
    }
    int first_row = block_sum(rows, row_parts), first_item = block_sum(tiles, tile_parts);
    int num_rows = counts[expert], num_tiles = tiles_of(p, num_rows);
    for (int i = threadIdx.x; i < num_tiles; i += THREADS) {
        int at = i * p.tile_rows;
        of_step(p.items)[first_item + i] =
            make_int4(expert, first_row + at, min(num_rows - at, p.tile_rows), 0);
    }
    bool is_last = expert == p.num_experts - 1;
    if (is_last && threadIdx.x == 0) *of_step(p.num_items) = first_item + num_tiles;
    int before = __reduce_add_sync(FULL_WARP, lane < warp ? own[lane] : 0);
    place_pairs(p, range, expert, first_row + before);
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
    launch_dependent(sort_kernel, dim3(view->shape.num_experts), THREADS, 0, info, stream, p);
}
