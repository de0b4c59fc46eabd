/* Grouped matrix products of a mixture of experts: activated = silu(x gate^T) * (x up^T), then down
 * = activated down^T, with biases and another activation where the model has them. Both run over a
 * list of tiles (expert, first row, rows) that experts/sort.cu makes on the device. So a recorded
 * graph serves whatever the router chooses.
 *
 * Flops: rows x 6 x hidden x intermediate. Bytes: the weights of every expert that has rows, once
 * per tile; all but the first read come from the L2. Few rows per expert (decode) are limited by
 * reading the weights, many (prefill) by the tensor cores.
 *
 * Launch: blocks of 4 warps, as many as fit on the device; they start early. Each walks over its
 * share of (tile, columns). cp.async fills a ring of STAGES slices of 64 along the inner dimension.
 * The ring continues across tiles: the next tile's first slices load while the last slices of this
 * one are multiplied. Tiles have 16, 32, 64 or 128 rows, chosen by the mean number of rows per
 * expert, which the host knows.
 *
 * In gate_up, groups of eight weight rows alternate between gate and up. So a thread's two
 * neighbouring accumulators are gate and up of the same output, and SiLU needs no exchange.
 *
 * Each value is one accumulator over the inner index in ascending order, for every tile size and
 * every position in a tile. So its bits do not depend on the other rows or their number. */
#include "backend/cuda/activation.cuh"
#include "backend/cuda/launch.cuh"

namespace {

constexpr int THREADS = 128;
constexpr int DEPTH = 64; // of a slice: 8 chunks of 16 bytes per row
constexpr int CHUNKS = DEPTH / 8;
constexpr int LOAD_ROWS = THREADS / CHUNKS; // rows that the block copies at once

struct gemm_params {
    const uint4 *x; // [any][vectors]
    const int32_t *source; // [rows] row of x; NULL: row i itself
    const uint4 *weight; // [num_experts][weight_rows][vectors]
    const __nv_bfloat16 *bias; // [num_experts][weight_rows] or NULL
    const int4 *items; // expert, first row, number of rows
    const int32_t *num_items;
    __nv_bfloat16 *out; // [rows][columns]
    int vectors; // of 8 along the inner dimension
    int columns; // of the result
    int weight_rows; // of an expert: columns, or 2 x columns for gate and up
    int column_tiles; // per item
    enum activation activation;
    bool is_squared; // results are relu_squared: of experts without a gate
};

// Copies 16 bytes, or stores zeros if !is_there. `global` must be a valid address in both cases.
__device__ __forceinline__ void copy16_or_zero(uint32_t shared, const void *global, bool is_there) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared),
                 "l"(global), "r"(is_there ? 16 : 0)
                 : "memory");
}

// Byte offset of a chunk in rows of 128 bytes, swizzled so that one column of 8 rows hits different
// banks.
__device__ __forceinline__ uint32_t offset_of(int row, int chunk) {
    return static_cast<uint32_t>((row * CHUNKS + (chunk ^ (row & 7))) * 16);
}

// One thread's copies: chunk threadIdx.x % 8 of rows threadIdx.x / 8, + 16, ...
template <int ROWS, int COLUMNS, bool GATED> struct loader {
    static constexpr int ROW_LOADS = ROWS / LOAD_ROWS, WEIGHT_LOADS = COLUMNS / LOAD_ROWS;
    static constexpr int WEIGHT_STEP = GATED ? LOAD_ROWS / 2 : LOAD_ROWS;

    int tile, chunk;
    int row_at[ROW_LOADS]; // row in x; -1 past the item's last row
    const uint4 *weight; // this thread's first weight row
    int weights_left; // number of weight rows from that one on

    __device__ __forceinline__ void begin_tile(const gemm_params &p) {
        int4 item = of_step(p.items)[tile / p.column_tiles];
        int first = static_cast<int>(threadIdx.x) / CHUNKS;
        chunk = static_cast<int>(threadIdx.x) % CHUNKS;
#pragma unroll
        for (int i = 0; i < ROW_LOADS; i++) {
            int row = first + i * LOAD_ROWS;
            row_at[i] = -1;
            if (row >= item.z) continue;
            row_at[i] = p.source ? of_step(p.source)[item.y + row] : item.y + row;
        }
        int n = tile % p.column_tiles * (GATED ? COLUMNS / 2 : COLUMNS);
        int part = GATED ? first / 8 : 0; // 0 gate, 1 up
        n += GATED ? first % 8 : first;
        weights_left = p.columns - n;
        // Past the last column nothing is read, but the address must stay within the expert's
        // weights.
        int in_expert = part * p.columns + min(n, p.columns - 1);
        weight = p.weight + ((size_t)item.x * p.weight_rows + in_expert) * p.vectors;
    }

    __device__ __forceinline__ void start(const gemm_params &p) {
        tile = static_cast<int>(blockIdx.x);
        begin_tile(p);
    }

    // Starts the copies of one slice into `stage` and moves to the slice after it.
    __device__ __forceinline__ void load(const gemm_params &p, uint32_t stage, int num_tiles) {
        int first = static_cast<int>(threadIdx.x) / CHUNKS;
        int swizzled = static_cast<int>(threadIdx.x) % CHUNKS;
        bool has_chunk = chunk < p.vectors;
        int at = has_chunk ? chunk : 0;
#pragma unroll
        for (int i = 0; i < WEIGHT_LOADS; i++) {
            bool is_there = has_chunk && i * WEIGHT_STEP < weights_left;
            const uint4 *from = weight + (is_there ? (size_t)i * WEIGHT_STEP * p.vectors + at : 0);
            copy16_or_zero(stage + ROWS * DEPTH * 2 + offset_of(first + i * LOAD_ROWS, swizzled),
                           from, is_there);
        }
#pragma unroll
        for (int i = 0; i < ROW_LOADS; i++) {
            bool is_there = has_chunk && row_at[i] >= 0;
            const uint4 *from = of_step(p.x) + (is_there ? (size_t)row_at[i] * p.vectors + at : 0);
            copy16_or_zero(stage + offset_of(first + i * LOAD_ROWS, swizzled), from, is_there);
        }
        chunk += CHUNKS;
        if (chunk - swizzled < p.vectors) return;
        tile += static_cast<int>(gridDim.x);
        if (tile < num_tiles) begin_tile(p);
    }
};

// A block's ROWS x COLUMNS are divided among WARPS_DOWN x (4 / WARPS_DOWN) warps.
template <int ROWS, int COLUMNS, int WARPS_DOWN, int STAGES, bool GATED> struct gemm {
    static constexpr int WARPS_ACROSS = THREADS / 32 / WARPS_DOWN;
    static constexpr int ROW_TILES = ROWS / WARPS_DOWN / 16;
    static constexpr int PAIRS = COLUMNS / WARPS_ACROSS / 16; // of 8 columns
    static constexpr int STAGE_BYTES = (ROWS + COLUMNS) * DEPTH * 2;
    static constexpr int BYTES = STAGES * STAGE_BYTES;

    float sums[ROW_TILES][PAIRS][2][4];

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < ROW_TILES; i++) {
#pragma unroll
            for (int j = 0; j < PAIRS; j++) {
#pragma unroll
                for (int k = 0; k < 8; k++) sums[i][j][k / 4][k % 4] = 0.0f;
            }
        }
    }

    __device__ __forceinline__ void multiply_slice(uint32_t stage) {
        int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        int row = warp % WARPS_DOWN * ROW_TILES * 16 + (lane & 15);
        int column = warp / WARPS_DOWN * PAIRS * 16 + (lane & 7) + (lane >> 4) * 8;
#pragma unroll
        for (int k = 0; k < DEPTH / 16; k++) {
            uint32_t a[ROW_TILES][4], b[4];
#pragma unroll
            for (int i = 0; i < ROW_TILES; i++) {
                load_matrix4(a[i], stage + offset_of(row + i * 16, k * 2 + (lane >> 4)));
            }
#pragma unroll
            for (int j = 0; j < PAIRS; j++) {
                load_matrix4(b, stage + ROWS * DEPTH * 2 +
                                    offset_of(column + j * 16, k * 2 + ((lane >> 3) & 1)));
#pragma unroll
                for (int i = 0; i < ROW_TILES; i++) {
                    multiply(sums[i][j][0], a[i], b[0], b[1]);
                    multiply(sums[i][j][1], a[i], b[2], b[3]);
                }
            }
        }
    }

    // Two neighbouring columns of one row.
    __device__ __forceinline__ void store_pair(const gemm_params &p, int row, int column, float low,
                                               float high) {
        if (column >= p.columns) return;
        *reinterpret_cast<uint32_t *>(&of_step(p.out)[(size_t)row * p.columns + column]) =
            pack_bf16(low, high);
    }

    static __device__ __forceinline__ float activate(const gemm_params &p, float gate, float up) {
        return activated(p.activation, gate, up);
    }

    static __device__ __forceinline__ float finish(const gemm_params &p, float v) {
        return p.is_squared ? relu_squared(v) : v;
    }

    // The bias of column n of an expert's first or second half; past the last column any.
    static __device__ __forceinline__ float bias_of(const gemm_params &p, int expert, int half,
                                                    int n) {
        if (!p.bias || n >= p.columns) return 0.0f;
        return __bfloat162float(p.bias[(size_t)expert * p.weight_rows + half * p.columns + n]);
    }

    __device__ __forceinline__ void store(const gemm_params &p, int tile) {
        int4 item = of_step(p.items)[tile / p.column_tiles];
        int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        constexpr int PAIR_COLUMNS = GATED ? 8 : 16;
        int column =
            (tile % p.column_tiles * WARPS_ACROSS + warp / WARPS_DOWN) * PAIRS * PAIR_COLUMNS +
            lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < ROW_TILES * 2; i++) { // the two halves of 8 rows
            int row = (warp % WARPS_DOWN * ROW_TILES * 2 + i) * 8 + lane / 4, at = i % 2 * 2;
            if (row >= item.z) continue;
#pragma unroll
            for (int j = 0; j < PAIRS; j++) {
                const float *left = sums[i / 2][j][0], *right = sums[i / 2][j][1];
                int n = column + j * PAIR_COLUMNS;
                if (GATED) {
                    float values[2];
#pragma unroll
                    for (int k = 0; k < 2; k++) {
                        values[k] = activate(p, left[at + k] + bias_of(p, item.x, 0, n + k),
                                             right[at + k] + bias_of(p, item.x, 1, n + k));
                    }
                    store_pair(p, item.y + row, n, values[0], values[1]);
                } else {
                    store_pair(p, item.y + row, n, finish(p, left[at] + bias_of(p, item.x, 0, n)),
                               finish(p, left[at + 1] + bias_of(p, item.x, 0, n + 1)));
                    store_pair(p, item.y + row, n + 8,
                               finish(p, right[at] + bias_of(p, item.x, 0, n + 8)),
                               finish(p, right[at + 1] + bias_of(p, item.x, 0, n + 9)));
                }
            }
        }
    }

    __device__ __forceinline__ void run(const gemm_params &p, uint32_t memory) {
        int num_tiles = *of_step(p.num_items) * p.column_tiles;
        if (static_cast<int>(blockIdx.x) >= num_tiles) return;
        int my_tiles = (num_tiles - 1 - static_cast<int>(blockIdx.x)) / static_cast<int>(gridDim.x);
        int slices = (p.vectors + CHUNKS - 1) / CHUNKS, steps = (my_tiles + 1) * slices;
        loader<ROWS, COLUMNS, GATED> source;
        source.start(p);
        clear();
        for (int step = 0; step < STAGES - 1; step++) {
            if (step < steps) source.load(p, memory + step * STAGE_BYTES, num_tiles);
            copy_commit(); // also commits empty groups: copy_wait counts groups
        }
        int tile = static_cast<int>(blockIdx.x), slice = 0, full = 0, empty = STAGES - 1;
        for (int step = 0; step < steps; step++) {
            copy_wait<STAGES - 2>();
            __syncthreads(); // all copies have arrived, and all threads have read `empty`
            if (step + STAGES - 1 < steps) {
                source.load(p, memory + empty * STAGE_BYTES, num_tiles);
            }
            copy_commit();
            multiply_slice(memory + full * STAGE_BYTES);
            full = full + 1 == STAGES ? 0 : full + 1;
            empty = empty + 1 == STAGES ? 0 : empty + 1;
            if (++slice < slices) continue;
            store(p, tile);
            clear();
            slice = 0;
            tile += static_cast<int>(gridDim.x);
        }
    }
};

template <int ROWS, int COLUMNS, int WARPS_DOWN, int STAGES, bool GATED>
__global__ void __launch_bounds__(THREADS, 2) gemm_kernel(gemm_params p) {
    extern __shared__ __align__(128) char memory[];
    let_next_start();
    wait_for_earlier();
    gemm<ROWS, COLUMNS, WARPS_DOWN, STAGES, GATED> g;
    g.run(p, shared_address(memory));
}

template <int ROWS, int COLUMNS, int WARPS_DOWN, int STAGES, bool GATED>
void launch(gemm_params p, uint32_t items, const struct cuda_device_info *info,
            cudaStream_t stream) {
    constexpr int BYTES = gemm<ROWS, COLUMNS, WARPS_DOWN, STAGES, GATED>::BYTES;
    constexpr int RESERVED = 1024; // shared memory that the system takes per block
    constexpr int COLUMNS_OUT = GATED ? COLUMNS / 2 : COLUMNS;
    auto kernel = gemm_kernel<ROWS, COLUMNS, WARPS_DOWN, STAGES, GATED>;
    allow_shared_bytes(kernel, BYTES, info);
    p.column_tiles = (p.columns + COLUMNS_OUT - 1) / COLUMNS_OUT;
    int per_sm = (info->shared_bytes_max + RESERVED) / (BYTES + RESERVED);
    uint64_t blocks = (uint64_t)info->num_sms * static_cast<unsigned>(per_sm > 1 ? per_sm : 1);
    uint64_t tiles = (uint64_t)items * static_cast<unsigned>(p.column_tiles);
    if (blocks > tiles) blocks = tiles;
    launch_dependent(kernel, dim3(static_cast<unsigned>(blocks)), THREADS, BYTES, info, stream, p);
}

template <bool GATED>
void launch_tiles(const gemm_params &p, uint32_t tile_rows, uint32_t items,
                  const struct cuda_device_info *info, cudaStream_t stream) {
    switch (tile_rows) {
    case 16:
        return launch<16, 64, 1, 4, GATED>(p, items, info, stream);
    case 32:
        return launch<32, 64, 1, 4, GATED>(p, items, info, stream);
    case 64:
        return launch<64, 128, 2, 3, GATED>(p, items, info, stream);
    default:
        return launch<128, 128, 2, 3, GATED>(p, items, info, stream);
    }
}

} // namespace

extern "C" uint32_t cuda_experts_tile_rows(uint32_t num_rows, uint32_t num_experts) {
    uint32_t mean = num_rows / num_experts;
    if (mean < 8) return 16;
    if (mean < 24) return 32;
    return mean < 64 ? 64 : 128;
}

extern "C" void cuda_experts_gemm_launch(const struct experts_args *args,
                                         const struct cuda_experts_view *view,
                                         const struct cuda_experts_scratch *scratch,
                                         uint32_t tile_rows, const struct cuda_device_info *info,
                                         cudaStream_t stream) {
    uint32_t rows = args->num_tokens * args->top_k, experts = view->shape.num_experts;
    uint32_t items =
        // At most one tile per expert is not full.
        rows / tile_rows + (rows < experts ? rows : experts);
    gemm_params p = {};
    p.items = reinterpret_cast<const int4 *>(scratch->items);
    p.num_items = scratch->num_items;
    p.x = static_cast<const uint4 *>(args->x);
    p.source = scratch->source;
    p.weight = static_cast<const uint4 *>(view->gate_up.weight);
    p.bias = static_cast<const __nv_bfloat16 *>(view->gate_up.bias);
    p.activation = view->activation;
    p.out = static_cast<__nv_bfloat16 *>(scratch->activated);
    p.vectors = static_cast<int>(view->shape.hidden / 8);
    p.columns = static_cast<int>(view->shape.intermediate);
    p.is_squared = view->shape.lacks_gate;
    p.weight_rows = p.is_squared ? p.columns : 2 * p.columns;
    if (p.is_squared) {
        launch_tiles<false>(p, tile_rows, items, info, stream);
    } else {
        launch_tiles<true>(p, tile_rows, items, info, stream);
    }
    p.is_squared = false;
    p.x = static_cast<const uint4 *>(scratch->activated);
    p.source = nullptr;
    p.weight = static_cast<const uint4 *>(view->down.weight);
    p.bias = static_cast<const __nv_bfloat16 *>(view->down.bias);
    p.out = static_cast<__nv_bfloat16 *>(scratch->down);
    p.vectors = static_cast<int>(view->shape.intermediate / 8);
    p.columns = static_cast<int>(view->shape.hidden);
    p.weight_rows = p.columns;
    launch_tiles<false>(p, tile_rows, items, info, stream);
}
