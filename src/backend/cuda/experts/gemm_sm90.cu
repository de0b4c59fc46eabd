/* Grouped matrix products of a mixture of experts on sm_90 with bf16 weights: what experts/gemm.cu
 * computes, by wgmma.
 *
 * A tile of work is an item of experts/sort.cu (up to MOST rows of an expert) and 128 of its weight
 * rows: 128 outputs, or 64 gates and their ups. The weights are the left operand and the rows of x
 * the right one. So a tile of few rows takes a narrow product: an item's rows are rounded up to a
 * multiple of GRANULE only.
 *
 * The two blocks of a cluster have the same item and neighbouring weights. Each copies half of the
 * rows of x to both (linear/ring_sm90.cuh). experts/spread.cu has copied x in the order of experts,
 * so that boxes of a tensor map bring them. A box may have rows of the next expert. They are
 * multiplied and not stored.
 *
 * Weights of gate and up lie in the ring in groups of 8 rows that alternate. So a thread has a gate
 * and the up of the same output.
 *
 * Clusters are persistent and take tiles in turn, so the ring fills for the next tile while results
 * are written. A row's result does not depend on the other rows.
 *
 * Layout: the ring, then for each warpgroup two buffers of 32 rows of results, which turn the
 * results, one output after the other, into rows.
 *
 * Launch: a block per multiprocessor, in pairs; they start early and load their first weights
 * before they wait.
 *
 * Bytes: an expert's weights once for MOST rows, all but the first time from the L2. */
#include "backend/cuda/activation.cuh"
#include "backend/cuda/linear/ring_sm90.cuh"

#include <nv/target>

#pragma nv_diag_suppress 177 // before sm_90 the kernels are empty and nothing here is used

namespace {

constexpr int CLUSTER = 2; // blocks with the same rows of x
constexpr int RESULT_ROWS = 32; // of a buffer
constexpr int RESULT_PITCH = 128 + 16; // bytes; padded so that 8 rows hit different banks
constexpr int RESULT_BYTES = RESULT_ROWS * RESULT_PITCH;
constexpr int RESULTS_BYTES = GROUPS * 2 * RESULT_BYTES;
constexpr int RESULT_BARRIER = 1; // and the next: one for each warpgroup
constexpr int WARP_ROWS = 16; // of weights

struct grouped_params {
    // x: [rows][inputs], sorted by expert; weight: [num_experts * weight_rows][inputs], or as
    // gated_tensor_map has it; bias: [num_experts][weight_rows] or NULL
    ring_params ring;
    const int4 *items; // expert, first row, number of rows
    const int32_t *num_items;
    int column_tiles; // per item and cluster
    enum activation activation;
    bool is_squared; // results are relu_squared: of experts without a gate
};

// MOST: rows of an item; BOX: rows of a box of x.
template <int MOST_, int BOX_, bool GATED_> struct grouped_kind {
    static constexpr int MOST = MOST_, BOX = BOX_, GRANULE = CLUSTER * BOX;
    static constexpr bool GATED = GATED_;
    static constexpr int COLUMNS = GATED ? LEFT_ROWS / 2 : LEFT_ROWS; // of a tile
    static constexpr int GROUP_COLUMNS = COLUMNS / GROUPS; // of a warpgroup
    using ring_type = ring<MOST, CLUSTER, RESULTS_BYTES + 1024>;
    struct memory {
        typename ring_type::memory ring;
        char results[RESULTS_BYTES];
    };
};

// What a block multiplies.
struct grouped_tile {
    int4 item;
    int column; // first of the result
};
template <typename K>
__device__ __forceinline__ grouped_tile tile_of(const grouped_params &p, int number, int rank) {
    int column = (number % p.column_tiles * CLUSTER + rank) * K::COLUMNS;
    // Past the L1: a load before the wait may not find there what an earlier layer left.
    return {__ldcg(&p.items[number / p.column_tiles]), column};
}

// Run by one thread of the block.
template <typename K>
__device__ __forceinline__ void copy_weights(const grouped_params &p, const grouped_tile &t, int k,
                                             uint32_t stage, uint32_t full) {
    int width = (t.item.z + K::GRANULE - 1) / K::GRANULE * K::GRANULE;
    barrier_expect(full, LEFT_BYTES + width * INPUTS_BYTES);
    // With tiles of 64 rows most experts have one item, so their weights are read once. With larger
    // ones the next tiles read them again.
    constexpr bool ONCE = K::MOST == 64;
    int input = k * INPUTS, row = t.item.x * p.ring.columns + t.column;
    if constexpr (K::GATED && ONCE) {
        copy_gated_box(stage, &p.ring.weight, input, t.column / 8, t.item.x, full,
                       evict_first_policy());
    } else if constexpr (K::GATED) {
        copy_gated_box(stage, &p.ring.weight, input, t.column / 8, t.item.x, full);
    } else if constexpr (ONCE) {
        copy_box(stage, &p.ring.weight, input, row, full, evict_first_policy());
    } else {
        copy_box(stage, &p.ring.weight, input, row, full);
    }
}
template <typename K>
__device__ __forceinline__ void copy_rows(const grouped_params &p, const grouped_tile &t, int k,
                                          int rank, uint32_t stage, uint32_t full) {
    int boxes = (t.item.z + K::GRANULE - 1) / K::GRANULE;
    for (int i = rank * boxes; i < (rank + 1) * boxes; i++) {
        copy_box_to_all(stage + LEFT_BYTES + i * K::BOX * INPUTS_BYTES, of_step(&p.ring.x),
                        k * INPUTS, t.item.y + i * K::BOX, full, (1 << CLUSTER) - 1);
    }
}

// Copies a block's tiles. Run by one thread. It reads the items before its wait (rule 3): they are
// complete, because experts/spread.cu lets this kernel start behind its own wait. So the ring is
// full of weights when the rows of x are there.
template <typename K>
__device__ void copy_tiles(const grouped_params &p, const typename K::ring_type &ring, int rank) {
    using R = typename K::ring_type;
    typename R::place at = {0, 1}; // an empty ring counts as read
    int step = gridDim.x / CLUSTER, number = blockIdx.x / CLUSTER, ahead = 0;
    int num_tiles = __ldcg(p.num_items) * p.column_tiles;
    if (number < num_tiles) {
        grouped_tile t = tile_of<K>(p, number, rank);
        ahead = min(p.ring.num_steps, R::STAGES);
        for (int k = 0; k < ahead; k++) {
            copy_weights<K>(p, t, k, ring.stages + k * R::STAGE_BYTES, ring.full + k * 8);
        }
    }
    wait_for_earlier();
    for (; number < num_tiles; number += step) {
        grouped_tile t = tile_of<K>(p, number, rank);
        for (int k = 0; k < p.ring.num_steps; k++, at.advance()) {
            uint32_t full = ring.full + at.stage * 8;
            uint32_t stage = ring.stages + at.stage * R::STAGE_BYTES;
            barrier_wait(ring.empty + at.stage * 8, at.parity, "both blocks to read stage",
                         at.stage);
            if (ahead == 0) copy_weights<K>(p, t, k, stage, full);
            if (ahead > 0) ahead--;
            copy_rows<K>(p, t, k, rank, stage, full);
        }
    }
}

// Stores four 8 x 8 matrices, each column as a row of 16 bytes. A lane gives the address of a row.
__device__ __forceinline__ void store_columns(uint32_t to, const uint32_t (&m)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
                 "r"(m[0]), "r"(m[1]), "r"(m[2]), "r"(m[3])
                 : "memory");
}

// The biases of a lane's two weight rows.
struct lane_biases {
    float low, high;
};
template <typename K>
__device__ __forceinline__ lane_biases biases_of(const grouped_params &p, const grouped_tile &t,
                                                 int group, int warp, int lane) {
    if (!p.ring.bias) return {0, 0};
    constexpr int WARP_COLUMNS = K::GATED ? WARP_ROWS / 2 : WARP_ROWS;
    int column = t.column + group * K::GROUP_COLUMNS + warp * WARP_COLUMNS + lane / 4;
    int per_expert = K::GATED ? 2 * p.ring.columns : p.ring.columns;
    int second = K::GATED ? p.ring.columns : 8; // from the first one on
    const __nv_bfloat16 *bias = p.ring.bias + (size_t)t.item.x * per_expert;
    lane_biases b = {0, 0};
    if (column < p.ring.columns) b.low = __bfloat162float(bias[column]);
    if (column + (K::GATED ? 0 : 8) < p.ring.columns) {
        b.high = __bfloat162float(bias[column + second]);
    }
    return b;
}

// Puts 32 rows of results into a buffer. c: their accumulators, 8 rows each.
template <typename K>
__device__ __forceinline__ void put_results(const float (*c)[4], const grouped_params &p,
                                            lane_biases bias, uint32_t buffer, int warp, int lane) {
    if constexpr (K::GATED) {
        uint32_t m[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            m[j] = pack_bf16(activated(p.activation, c[j][0] + bias.low, c[j][2] + bias.high),
                             activated(p.activation, c[j][1] + bias.low, c[j][3] + bias.high));
        }
        store_columns(buffer + lane * RESULT_PITCH + warp * 16, m);
    } else {
        auto finish = [&](float v) { return p.is_squared ? relu_squared(v) : v; };
#pragma unroll
        for (int j = 0; j < 4; j += 2) {
            uint32_t m[4];
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const float *pair = c[j + k / 2] + k % 2 * 2;
                float added = k % 2 ? bias.high : bias.low;
                m[k] = pack_bf16(finish(pair[0] + added), finish(pair[1] + added));
            }
            int row = (j + lane / 16) * 8 + lane % 8;
            store_columns(buffer + row * RESULT_PITCH + warp * 32 + lane / 8 % 2 * 16, m);
        }
    }
}

// Writes rows `first` to + 31 of the item from a buffer.
template <typename K>
__device__ __forceinline__ void write_rows(const grouped_params &p, const grouped_tile &t,
                                           int first, int group, uint32_t buffer) {
    constexpr int PER_ROW = K::GROUP_COLUMNS / 8; // pieces of 16 bytes
#pragma unroll
    for (int i = 0; i < RESULT_ROWS * PER_ROW / GROUP_THREADS; i++) {
        int piece = i * GROUP_THREADS + threadIdx.x % GROUP_THREADS;
        int local = piece / PER_ROW, row = first + local;
        int column = t.column + group * K::GROUP_COLUMNS + piece % PER_ROW * 8;
        uint4 v = load_shared16(buffer + local * RESULT_PITCH + piece % PER_ROW * 16);
        if (row >= t.item.z || column >= p.ring.columns) continue;
        auto *to = of_step(p.ring.out) + (size_t)(t.item.y + row) * p.ring.columns + column;
        *reinterpret_cast<uint4 *>(to) = v;
    }
}

// Multiplies a tile of up to 8 S rows and writes the results.
template <typename K, int S>
__device__ __forceinline__ void run_tile(const grouped_params &p, const typename K::ring_type &ring,
                                         typename K::ring_type::place &at, const grouped_tile &t,
                                         uint32_t results, int group) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    float c[S][4] = {}; // so that the registers of other widths are free
    lane_biases bias = biases_of<K>(p, t, group, warp, lane);
    ring.multiply(c, at, p.ring.num_steps, group);
    uint32_t buffers = results + group * 2 * RESULT_BYTES;
#pragma unroll
    for (int i = 0; i < S / 4; i++) {
        uint32_t buffer = buffers + i % 2 * RESULT_BYTES;
        put_results<K>(&c[i * 4], p, bias, buffer, warp, lane);
        // A buffer is filled again two turns later, when all have read it.
        named_wait(RESULT_BARRIER + group, GROUP_THREADS);
        write_rows<K>(p, t, i * RESULT_ROWS, group, buffer);
    }
    if (S / 4 % 2) named_wait(RESULT_BARRIER + group, GROUP_THREADS);
}

template <typename K>
__device__ void multiply_tiles(const grouped_params &p, const typename K::ring_type &ring,
                               uint32_t results, int rank, int group) {
    int step = gridDim.x / CLUSTER;
    typename K::ring_type::place at = {};
    wait_for_earlier();
    int num_tiles = *of_step(p.num_items) * p.column_tiles;
    for (int number = blockIdx.x / CLUSTER; number < num_tiles; number += step) {
        grouped_tile t = tile_of<K>(p, number, rank);
        constexpr int S = K::GRANULE / 8, TIMES = K::MOST / K::GRANULE;
        static_assert(TIMES == 2 || TIMES == 4, "the cases here");
        int granules = (t.item.z + K::GRANULE - 1) / K::GRANULE;
        if (granules == 1) {
            run_tile<K, S>(p, ring, at, t, results, group);
        } else if (granules == 2) {
            run_tile<K, 2 * S>(p, ring, at, t, results, group);
        } else if constexpr (TIMES == 4) {
            if (granules == 3) {
                run_tile<K, 3 * S>(p, ring, at, t, results, group);
            } else {
                run_tile<K, 4 * S>(p, ring, at, t, results, group);
            }
        }
    }
}

template <typename K>
__device__ __forceinline__ void run_block(const grouped_params &p, char *memory) {
    auto &m = *reinterpret_cast<typename K::memory *>(memory);
    const typename K::ring_type ring(m.ring);
    if (threadIdx.x == COMPUTING) ring.init(p.ring);
    cluster_arrive();
    cluster_wait();
    let_next_start();
    int rank = this_place().rank;
    auto copy = [&](int) {
        if (threadIdx.x == COMPUTING) copy_tiles<K>(p, ring, rank);
        __syncwarp();
    };
    auto multiply = [&](int warp) {
        multiply_tiles<K>(p, ring, shared_address(m.results), rank, warp / 4);
    };
    run_groups(copy, multiply);
    // No block exits while the other still writes to its shared memory (rule 14).
    cluster_arrive();
    cluster_wait();
}

template <typename K>
__global__ void __launch_bounds__(THREADS, 1)
    grouped_kernel(const __grid_constant__ grouped_params p) {
    NV_IF_TARGET(NV_HAS_FEATURE_SM_90a,
                 (extern __shared__ __align__(1024) char memory[]; run_block<K>(p, memory);))
}

// What a launch multiplies, on the host.
struct grouped_task {
    const cuda_linear_view *weights;
    const void *x;
    uint32_t rows, num_experts, items;
};

template <typename K>
bool launch(grouped_params p, const grouped_task &task, const cuda_device_info *info,
            cudaStream_t stream) {
    constexpr int BYTES = sizeof(typename K::memory), PER_CLUSTER = CLUSTER * K::COLUMNS;
    static_assert(BYTES <= SHARED_MAX, "the ring and the results fit");
    const cuda_linear_view &v = *task.weights;
    p.ring.x = tensor_map(task.x, task.rows, v.in, K::BOX, CU_TENSOR_MAP_SWIZZLE_128B, info);
    p.ring.weight =
        K::GATED ? gated_tensor_map(v.weight, task.num_experts,
                                    static_cast<unsigned>(p.ring.columns), v.in, LEFT_ROWS, info)
                 : tensor_map(v.weight, v.out, v.in, LEFT_ROWS, CU_TENSOR_MAP_SWIZZLE_128B, info);
    p.ring.bias = static_cast<const __nv_bfloat16 *>(v.bias);
    p.column_tiles = (p.ring.columns + PER_CLUSTER - 1) / PER_CLUSTER;
    p.ring.num_steps = static_cast<int>((v.in + INPUTS - 1) / INPUTS);
    uint64_t tiles = (uint64_t)task.items * static_cast<unsigned>(p.column_tiles);
    int clusters = info->num_sms / CLUSTER;
    if (tiles < static_cast<unsigned>(clusters)) clusters = static_cast<int>(tiles);
    auto kernel = grouped_kernel<K>;
    return try_launch_clusters(kernel, clusters, CLUSTER, THREADS, BYTES, info, stream, p);
}

template <bool GATED>
bool launch_tiles(const grouped_params &p, const grouped_task &task, uint32_t tile_rows,
                  const cuda_device_info *info, cudaStream_t stream) {
    switch (tile_rows) {
    case 64:
        return launch<grouped_kind<64, 16, GATED>>(p, task, info, stream);
    case 128:
        return launch<grouped_kind<128, 16, GATED>>(p, task, info, stream);
    default:
        return launch<grouped_kind<256, 32, GATED>>(p, task, info, stream);
    }
}

} // namespace

extern "C" uint32_t cuda_experts_sm90_tile_rows(uint32_t num_rows, uint32_t num_experts) {
    uint32_t mean = num_rows / num_experts;
    if (mean < 40) return 64;
    return mean < 100 ? 128 : 256;
}

extern "C" bool cuda_experts_gemm_sm90_launch(const struct experts_args *args,
                                              const struct cuda_experts_view *view,
                                              const struct cuda_experts_scratch *scratch,
                                              uint32_t tile_rows,
                                              const struct cuda_device_info *info,
                                              cudaStream_t stream) {
    uint32_t rows = args->num_tokens * args->top_k, experts = view->shape.num_experts;
    // At most one tile per expert is not full.
    uint32_t items = rows / tile_rows + (rows < experts ? rows : experts);
    grouped_params p = {};
    p.items = reinterpret_cast<const int4 *>(scratch->items);
    p.num_items = scratch->num_items;
    p.activation = view->activation;
    p.ring.columns = static_cast<int>(view->shape.intermediate);
    p.ring.out = static_cast<__nv_bfloat16 *>(scratch->activated);
    p.is_squared = view->shape.lacks_gate;
    const grouped_task first = {&view->gate_up, scratch->gathered, rows, experts, items};
    bool is_launched = p.is_squared ? launch_tiles<false>(p, first, tile_rows, info, stream)
                                    : launch_tiles<true>(p, first, tile_rows, info, stream);
    if (!is_launched) return false;
    p.is_squared = false;
    p.ring.columns = static_cast<int>(view->shape.hidden);
    p.ring.out = static_cast<__nv_bfloat16 *>(scratch->down);
    return launch_tiles<false>(p, {&view->down, scratch->activated, rows, experts, items},
                               tile_rows, info, stream);
}
