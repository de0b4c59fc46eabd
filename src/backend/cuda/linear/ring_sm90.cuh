/* What linear/batch_sm90.cu, linear/gated_sm90.cu and experts/gemm_sm90.cu share: a ring in shared
 * memory that one thread fills by TMA, and two warpgroups that multiply from it by wgmma
 * (hopper.cuh).
 *
 * A stage of the ring has 64 inputs of two operands: the left one has 128 rows, the right one
 * WIDTH. A warpgroup multiplies 64 rows of the left operand by the first 8 S of the right one. The
 * third warpgroup only copies and gives most of its registers to the other two.
 *
 * Layout: [STAGES]{[128][128 bytes], [WIDTH][128 bytes]}, swizzled as in hopper.cuh. */
#pragma once

#include "backend/cuda/cluster.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/tensor_map.cuh"
#include "backend/cuda/wgmma_products.cuh"

namespace {

constexpr int GROUPS = 2, GROUP_THREADS = 128; // warpgroups that multiply
constexpr int COMPUTING = GROUPS * GROUP_THREADS, THREADS = COMPUTING + GROUP_THREADS;
constexpr int GROUP_ROWS = 64, LEFT_ROWS = GROUPS * GROUP_ROWS;
constexpr int INPUTS = CUDA_RING_INPUTS, INPUTS_BYTES = INPUTS * 2; // per stage: one swizzle width
constexpr int LEFT_BYTES = LEFT_ROWS * INPUTS_BYTES; // per stage
constexpr int COPY_REGISTERS = 40, COMPUTE_REGISTERS = 232; // per thread; the launch gives each 168
constexpr int SHARED_MAX = CUDA_RING_BYTES, STAGES_MAX = 8;

struct ring_params {
    CUtensorMap x, weight; // [rows][in], [out][in]
    const __nv_bfloat16 *bias; // [out] or NULL
    __nv_bfloat16 *out; // [rows][columns]
    int rows, columns; // of out
    int num_steps; // steps of INPUTS inputs
};

// SHARERS: blocks of a cluster that copy to each other's ring. A stage is free when all of them
// have read it. RESERVED: bytes of shared memory for other things.
template <int WIDTH_, int SHARERS_, int RESERVED = 1024> struct ring {
    static constexpr int WIDTH = WIDTH_, SHARERS = SHARERS_;
    static constexpr int STAGE_BYTES = LEFT_BYTES + WIDTH * INPUTS_BYTES;
    static constexpr int FIT = (SHARED_MAX - RESERVED) / STAGE_BYTES;
    static constexpr int STAGES = FIT < STAGES_MAX ? FIT : STAGES_MAX;
    using place = ring_place<STAGES>;
    using sums = float[WIDTH / 8][4]; // of a warpgroup's thread

    struct memory {
        char stages[STAGES][STAGE_BYTES];
        uint64_t full[STAGES], empty[STAGES];
    };
    uint32_t stages, full, empty; // shared addresses

    __device__ __forceinline__ explicit ring(const memory &m)
        : stages(shared_address(m.stages)), full(shared_address(m.full)),
          empty(shared_address(m.empty)) {
    }

    // Run by one thread (rule 7).
    __device__ __forceinline__ void init(const ring_params &p) const {
        prefetch_map(&p.x);
        prefetch_map(&p.weight);
        for (int i = 0; i < STAGES; i++) {
            barrier_init(full + i * 8, 1);
            barrier_init(empty + i * 8, SHARERS * COMPUTING / 32);
        }
        barrier_init_done();
    }

    // Signals all that copy to this stage that this warp has read it (rule 9).
    __device__ __forceinline__ void release(uint32_t barrier) const {
        __syncwarp();
        int lane = threadIdx.x % 32;
        if (SHARERS == 1) {
            if (lane == 0) barrier_arrive(barrier);
        } else {
            if (lane < SHARERS) barrier_arrive_at(at_rank(barrier, lane));
        }
    }

    // c: products of this warpgroup's 64 rows with the first 8 S of the right operand, over the
    // next steps. `at` moves on.
    template <int S>
    __device__ __forceinline__ void multiply(float (&c)[S][4], place &at, int num_steps,
                                             int group) const {
        static_assert(S <= WIDTH / 8, "the right operand has so many rows");
        uint32_t before = 0;
        for (int k = 0; k < num_steps; k++) {
            uint32_t stage = stages + at.stage * STAGE_BYTES;
            uint64_t a = operand(stage + group * GROUP_ROWS * INPUTS_BYTES, 0);
            uint64_t b = operand(stage + LEFT_BYTES, 0);
            barrier_wait(full + at.stage * 8, at.parity, "weights and x of stage", at.stage);
            products_begin();
#pragma unroll
            for (int i = 0; i < INPUTS / 16; i++) {
                multiply_shared(c, a + i * 2, b + i * 2, k > 0 || i > 0);
            }
            products_commit();
            products_wait<1>();
            if (k > 0) release(before);
            before = empty + at.stage * 8;
            at.advance();
        }
        products_wait<0>();
        hold(c);
        release(before);
    }
};

// Runs copy(warp) in the last warpgroup and multiply(warp) in the others.
template <typename COPY, typename MULTIPLY>
__device__ __forceinline__ void run_groups(COPY copy, MULTIPLY multiply) {
    int warp = __shfl_sync(FULL_WARP, threadIdx.x / 32, 0);
    if (warp / 4 == GROUPS) {
        give_registers<COPY_REGISTERS>();
        copy(warp);
    } else {
        take_registers<COMPUTE_REGISTERS>();
        multiply(warp);
    }
}

// The boxes are those of a copy, in rows.
inline ring_params ring_params_of(const cuda_linear_task *args, uint32_t x_box, uint32_t weight_box,
                                  const cuda_device_info *info) {
    uint32_t in = args->linear.in, out = args->linear.out;
    ring_params p = {};
    p.x = tensor_map(args->x, args->rows, in, x_box, CU_TENSOR_MAP_SWIZZLE_128B, info);
    p.weight =
        tensor_map(args->linear.weight, out, in, weight_box, CU_TENSOR_MAP_SWIZZLE_128B, info);
    p.bias = static_cast<const __nv_bfloat16 *>(args->linear.bias);
    p.out = static_cast<__nv_bfloat16 *>(args->out);
    p.rows = static_cast<int>(args->rows);
    p.columns = static_cast<int>(args->is_gated ? out / 2 : out);
    p.num_steps = static_cast<int>((in + INPUTS - 1) / INPUTS);
    return p;
}

// Returns false if the device refuses the launch.
template <typename RING, typename PARAMS>
bool launch_ring(void (*kernel)(PARAMS), const PARAMS &p, int clusters, int size,
                 const cuda_device_info *info, cudaStream_t stream) {
    constexpr int BYTES = sizeof(typename RING::memory);
    return try_launch_clusters(kernel, clusters, size, THREADS, BYTES, info, stream, p);
}

} // namespace
