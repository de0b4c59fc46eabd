/* Grouped matrix products of a mixture of experts on sm_90 whose weights are packed
 * (linear/packed.h): what experts/gemm.cu computes, by wgmma.
 *
 * A tile of work is an item of experts/sort.cu (up to WIDTH rows of an expert) and 128 of its
 * outputs; if gated, 64 gates and their ups. linear/packed_products_sm90.cuh multiplies them. The
 * rows of x are sorted by expert, so that boxes of a tensor map bring them. A box may have rows of
 * the next expert. They are multiplied and not stored.
 *
 * Each block walks over its share of the tiles. The ring of x continues across tiles, and the codes
 * of the next tile are loaded before the results of this one are written.
 *
 * Layout: the ring, then the sums [WIDTH][PITCH].
 *
 * Bytes: each tile's codes. Tiles of an expert follow each other, so all but the first reading of
 * its codes come from the L2. */
#include "backend/cuda/activation.cuh"
#include "backend/cuda/linear/packed_products_sm90.cuh"

#include <nv/target>

#pragma nv_diag_suppress 177 // before sm_90 the kernels are empty and nothing here is used

namespace {

struct grouped_params {
    CUtensorMap x; // [rows][inputs], sorted by expert
    packed_weights weights; // of all experts
    const __nv_bfloat16 *bias; // [num_experts][weight_rows] or NULL
    const int4 *items; // expert, first row, number of rows
    const int32_t *num_items;
    __nv_bfloat16 *out; // [rows][columns]
    int columns; // of the result
    int weight_rows; // of an expert: columns, or 2 x columns for gate and up
    int column_tiles; // per item
    bool is_gated;
    enum activation activation;
};

template <int WIDTH> struct grouped_memory {
    typename x_ring<WIDTH>::memory ring;
    float sums[WIDTH * PITCH];
};

// Run by one thread.
template <typename R>
__device__ void copy_tiles(const grouped_params &p, const R &ring, int num_tiles) {
    typename R::place at = {0, 1}; // an empty ring counts as read
    for (int tile = blockIdx.x; tile < num_tiles; tile += gridDim.x) {
        int row = of_step(p.items)[tile / p.column_tiles].y;
        for (int step = 0; step < p.weights.blocks * 2; step++) {
            ring.copy(at, &p.x, step * INPUTS, row);
        }
    }
}

// The first of a warp's outputs among the rows of all experts' weights.
__device__ __forceinline__ int first_output(const grouped_params &p, int tile, int warp) {
    int expert = of_step(p.items)[tile / p.column_tiles].x, number = tile % p.column_tiles;
    int column = number * (p.is_gated ? OUTPUTS / 2 : OUTPUTS);
    int second = column + (p.is_gated ? p.columns : OUTPUTS / 2);
    return expert * p.weight_rows + (warp / 4 ? second : column) + warp % 4 * OUTPUTS_OF_WARP;
}

// Writes the tile's results. A thread takes eight columns at a time.
__device__ __forceinline__ void write_tile(const grouped_params &p, int tile, uint32_t sums) {
    int4 item = of_step(p.items)[tile / p.column_tiles];
    int outputs = p.is_gated ? OUTPUTS / 2 : OUTPUTS, per_row = outputs / 8;
    const __nv_bfloat16 *bias = p.bias ? p.bias + (size_t)item.x * p.weight_rows : nullptr;
#pragma unroll 2
    for (int i = threadIdx.x; i < item.z * per_row; i += COMPUTING) {
        int row = i / per_row, local = i % per_row * 8;
        int column = tile % p.column_tiles * outputs + local;
        if (column >= p.columns) continue;
        uint32_t from = sums + (row * PITCH + local) * 4;
        float v[8];
        load_sums(v, from, 1);
        if (bias) add8(v, bias + column);
        if (p.is_gated) {
            float up[8];
            load_sums(up, from + OUTPUTS / 2 * 4, 1);
            if (bias) add8(up, bias + p.columns + column);
#pragma unroll
            for (int j = 0; j < 8; j++) v[j] = activated(p.activation, v[j], up[j]);
        }
        auto *to = of_step(p.out) + (size_t)(item.y + row) * p.columns + column;
        *reinterpret_cast<uint4 *>(to) = pack_bf16(v);
    }
}

template <typename K, typename R>
__device__ void multiply_tiles(const grouped_params &p, const R &ring, float *sums, int num_tiles,
                               int warp) {
    int lane = threadIdx.x % 32, tile = blockIdx.x;
    typename R::place at = {0, 0};
    packed_products<K, R> products = {};
    if (tile < num_tiles) {
        products.begin(p.weights, first_output(p, tile, warp), 0, p.weights.blocks, lane);
    }
    while (tile < num_tiles) {
        float found[R::WIDTH / 8][4] = {};
        products.multiply(found, p.weights, ring, at, 0, p.weights.blocks, lane);
        int next = tile + gridDim.x;
        if (next < num_tiles) {
            products.begin(p.weights, first_output(p, next, warp), 0, p.weights.blocks, lane);
        }
        named_wait(GROUP_BARRIER, COMPUTING); // the results before are written
        write_sums(found, sums, warp / 4);
        named_wait(GROUP_BARRIER, COMPUTING);
        write_tile(p, tile, shared_address(sums));
        tile = next;
    }
}

template <typename K, int WIDTH>
__device__ __forceinline__ void run_block(const grouped_params &p, char *memory) {
    using R = x_ring<WIDTH>;
    auto &m = *reinterpret_cast<grouped_memory<WIDTH> *>(memory);
    const R ring(m.ring);
    if (threadIdx.x == COMPUTING) ring.init(&p.x);
    __syncthreads();
    let_next_start();
    wait_for_earlier();
    int num_tiles = *of_step(p.num_items) * p.column_tiles;
    auto copy = [&](int) {
        if (threadIdx.x == COMPUTING) copy_tiles(p, ring, num_tiles);
        __syncwarp();
    };
    auto multiply = [&](int warp) { multiply_tiles<K>(p, ring, m.sums, num_tiles, warp); };
    run_groups(copy, multiply);
}

template <typename K, int WIDTH>
__global__ void __launch_bounds__(THREADS, 1)
    packed_grouped_kernel(const __grid_constant__ grouped_params p) {
    NV_IF_TARGET(NV_HAS_FEATURE_SM_90a,
                 (extern __shared__ __align__(1024) char memory[]; run_block<K, WIDTH>(p, memory);))
}

// The arguments of launch(): the operands and how many work items there are.
struct grouped_task {
    const cuda_linear_view *weights;
    const void *x;
    uint32_t rows, inputs, tile_rows, items;
};

template <typename K, int WIDTH>
void launch(grouped_params p, const grouped_task &task, const cuda_device_info *info,
            cudaStream_t stream) {
    constexpr int BYTES = sizeof(grouped_memory<WIDTH>);
    static_assert(BYTES <= SHARED_MAX, "the ring and the sums fit");
    auto kernel = packed_grouped_kernel<K, WIDTH>;
    allow_shared_bytes(kernel, BYTES, info);
    p.x = tensor_map(task.x, task.rows, task.inputs, WIDTH, CU_TENSOR_MAP_SWIZZLE_128B, info);
    uint64_t tiles = (uint64_t)task.items * static_cast<unsigned>(p.column_tiles);
    uint64_t blocks = static_cast<unsigned>(info->num_sms);
    launch_dependent(kernel, dim3(static_cast<unsigned>(tiles < blocks ? tiles : blocks)), THREADS,
                     BYTES, info, stream, p);
}

void launch_task(grouped_params p, const grouped_task &task, const cuda_device_info *info,
                 cudaStream_t stream) {
    int outputs = p.is_gated ? OUTPUTS / 2 : OUTPUTS;
    p.weights = packed_weights_of(*task.weights);
    p.bias = static_cast<const __nv_bfloat16 *>(task.weights->bias);
    p.column_tiles = (p.columns + outputs - 1) / outputs;
    with_kind(*task.weights, [&](auto kind) {
        using K = decltype(kind);
        if (task.tile_rows == 32) return launch<K, 32>(p, task, info, stream);
        if (task.tile_rows == 64) return launch<K, 64>(p, task, info, stream);
        return launch<K, 128>(p, task, info, stream);
    });
}

} // namespace

extern "C" uint32_t cuda_experts_packed_tile_rows(uint32_t num_rows, uint32_t num_experts) {
    uint32_t mean = num_rows / num_experts;
    if (mean < 24) return 32;
    return mean < 64 ? 64 : 128;
}

extern "C" void cuda_experts_packed_gemm_launch(const struct experts_args *args,
                                                const struct cuda_experts_view *view,
                                                const struct cuda_experts_scratch *scratch,
                                                uint32_t tile_rows,
                                                const struct cuda_device_info *info,
                                                cudaStream_t stream) {
    uint32_t rows = args->num_tokens * args->top_k, experts = view->shape.num_experts;
    uint32_t used = rows < experts ? rows : experts; // each has at most one tile that is not full
    grouped_params p = {};
    p.items = reinterpret_cast<const int4 *>(scratch->items);
    p.num_items = scratch->num_items;
    p.activation = view->activation;
    p.is_gated = true;
    p.columns = static_cast<int>(view->shape.intermediate);
    p.weight_rows = 2 * p.columns;
    p.out = static_cast<__nv_bfloat16 *>(scratch->activated);
    launch_task(p,
                {&view->gate_up, scratch->gathered, rows, view->shape.hidden, tile_rows,
                 rows / tile_rows + used},
                info, stream);
    p.is_gated = false;
    p.columns = static_cast<int>(view->shape.hidden);
    p.weight_rows = p.columns;
    p.out = static_cast<__nv_bfloat16 *>(scratch->down);
    launch_task(p,
                {&view->down, scratch->activated, rows, view->shape.intermediate, tile_rows,
                 rows / tile_rows + used},
                info, stream);
}
