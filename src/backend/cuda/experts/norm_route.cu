/* What comes before the experts of 1 to 4 tokens, in one kernel (sm_90 and later): hidden = RMS
 * norm of the residual, the router's product of it, and the choice of experts (experts/choice.cuh).
 * As three kernels each would wait for the one before it and read what that wrote.
 *
 * A cluster of up to 8 blocks takes a token, and a block one or two tiles of 16 experts. Its warps
 * divide the inputs in slices of 32, as in linear/few_rows.cu. The router's weights are in
 * registers and shared memory before the residual is there. Each block norms the token, in the same
 * order, and writes its part of it. The router sees the rounded numbers, as in an op of its own: so
 * experts that are near each other stay in their order. The blocks push their logits into the
 * shared memory of the first one (st.async), where a warp chooses. A token's bits do not depend on
 * other tokens.
 *
 * Bytes: the router's weights, 0.5 MB for 128 experts of 2,048 inputs. The time is that of the
 * chain: residual, squares, products, logits, choices. */
#include "backend/cuda/cluster.cuh"
#include "backend/cuda/experts/choice.cuh"
#include "backend/cuda/hopper.cuh"
#include "backend/cuda/linear/few_rows.cuh"

#include <nv/target>

#pragma nv_diag_suppress 177 // before sm_90 the kernel is empty and nothing here is used

namespace {

constexpr int WARPS = 16, THREADS = WARPS * 32, SLICE = 32;
constexpr int EXPERTS_MAX = CUDA_NORM_ROUTE_EXPERTS;
constexpr int TILES_MAX = 2; // of 16 experts, of a block
constexpr int FEWER = 4, MOST = 6; // slices of a warp
static_assert(MOST * WARPS * SLICE == CUDA_NORM_ROUTE_INPUTS, "all are in registers");

struct norm_route_params {
    choice_params choice;
    const __nv_bfloat16 *weight, *bias; // [num_experts][in], [num_experts] or NULL
    const float *norm; // [in]
    const __nv_bfloat16 *residual; // [tokens][in]
    __nv_bfloat16 *hidden; // likewise
    int32_t *ids; // [tokens][top_k]
    float *weights; // likewise
    int in;
    float eps;
};

struct norm_route_shared {
    float products[WARPS][TILES_MAX * OUTPUTS], squares[WARPS];
    float logits[EXPERTS_MAX]; // of the cluster's first block
    uint64_t pushed;
};

// Where a lane finds the router's weights of a tile.
struct tile_weights {
    const uint4 *low, *high; // NULL: past the last expert
    int first, vectors; // of a row: this lane's first, and all

    __device__ __forceinline__ tile_weights(const norm_route_params &p, int tile, int warp,
                                            int lane) {
        int output = tile * OUTPUTS + lane / 4, others = p.choice.num_experts - output;
        vectors = p.in / 8;
        first = warp * (SLICE / 8) + lane % 4;
        low = reinterpret_cast<const uint4 *>(p.weight) + (size_t)output * vectors;
        high = others > OUTPUTS / 2 ? low + OUTPUTS / 2 * (size_t)vectors : nullptr;
        if (others <= 0) low = nullptr;
    }
    // Vector of slice `a` of the warp.
    __device__ __forceinline__ int at(int a) const {
        return first + a * WARPS * (SLICE / 8);
    }
    __device__ __forceinline__ bool has(const uint4 *row, int a) const {
        return row && at(a) < vectors;
    }
};

// A lane's weights of AHEAD slices: the first tile's in registers, the second one's in shared
// memory, where each lane reads what it copied itself.
template <int AHEAD, int TILES> struct slice_weights {
    uint4 low[AHEAD], high[AHEAD];
    uint32_t second;

    __device__ __forceinline__ void load(const norm_route_params &p, int block, uint32_t memory,
                                         int warp, int lane) {
        const uint4 zeros = make_uint4(0, 0, 0, 0);
        tile_weights from(p, block * TILES, warp, lane);
#pragma unroll
        for (int a = 0; a < AHEAD; a++) {
            low[a] = from.has(from.low, a) ? __ldg(from.low + from.at(a)) : zeros;
            high[a] = from.has(from.high, a) ? __ldg(from.high + from.at(a)) : zeros;
        }
        if constexpr (TILES == 1) return;
        second = memory + threadIdx.x * 16;
        from = tile_weights(p, block * TILES + 1, warp, lane);
#pragma unroll
        for (int i = 0; i < 2 * AHEAD; i++) {
            const uint4 *row = i % 2 ? from.high : from.low;
            uint32_t to = second + i * (THREADS * 16);
            if (from.has(row, i / 2)) {
                copy16_async(to, row + from.at(i / 2));
            } else {
                store_shared16(to, zeros);
            }
        }
        copy_commit();
    }
    __device__ __forceinline__ void add(float (&sums)[TILES][4], int a, uint4 x) const {
        multiply_slice(sums[0], low[a], high[a], x);
        if constexpr (TILES == 2) {
            uint32_t at = second + a * (2 * THREADS * 16);
            multiply_slice(sums[1], load_shared16(at), load_shared16(at + THREADS * 16), x);
        }
    }
};

// A lane's 8 inputs of the warp's slices: lane % 4 of slice lane / 4.
struct lane_inputs {
    int slice, column; // of all of the token
    bool is_there;
    uint4 x;
    float4 a, b; // the norm's weights

    __device__ __forceinline__ lane_inputs(const norm_route_params &p, int ahead, int warp,
                                           int lane)
        : slice(warp + lane / 4 * WARPS), column(slice * SLICE + lane % 4 * 8),
          is_there(lane < ahead * 4 && column < p.in), x(make_uint4(0, 0, 0, 0)), a(), b() {
        if (!is_there) return;
        a = *reinterpret_cast<const float4 *>(p.norm + column);
        b = *reinterpret_cast<const float4 *>(p.norm + column + 4);
    }
    __device__ __forceinline__ void load(const __nv_bfloat16 *residual) {
        if (is_there) x = *reinterpret_cast<const uint4 *>(residual + column);
    }
    __device__ __forceinline__ uint4 normed(float s) const {
        return make_uint4(pack_bf16(bf16_low(x.x) * s * a.x, bf16_high(x.x) * s * a.y),
                          pack_bf16(bf16_low(x.y) * s * a.z, bf16_high(x.y) * s * a.w),
                          pack_bf16(bf16_low(x.z) * s * b.x, bf16_high(x.z) * s * b.y),
                          pack_bf16(bf16_low(x.w) * s * b.z, bf16_high(x.w) * s * b.w));
    }
    __device__ __forceinline__ float squares() const {
        const uint32_t words[4] = {x.x, x.y, x.z, x.w};
        float sum = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            sum += bf16_low(words[i]) * bf16_low(words[i]);
            sum += bf16_high(words[i]) * bf16_high(words[i]);
        }
        return sum;
    }
};

// Keeps the sums of the warp's slices. `own`: the lane's inputs. All 8 columns of a product are the
// token.
template <int AHEAD, int TILES>
__device__ __forceinline__ void multiply_slices(const slice_weights<AHEAD, TILES> &weights,
                                                uint4 own, int warp, int lane,
                                                norm_route_shared &s) {
    float sums[TILES][4] = {};
#pragma unroll
    for (int a = 0; a < AHEAD; a++) {
        int from = a * 4 + lane % 4;
        uint4 x =
            make_uint4(__shfl_sync(FULL_WARP, own.x, from), __shfl_sync(FULL_WARP, own.y, from),
                       __shfl_sync(FULL_WARP, own.z, from), __shfl_sync(FULL_WARP, own.w, from));
        weights.add(sums, a, x);
    }
#pragma unroll
    for (int i = 0; i < TILES && lane % 4 == 0; i++) {
        s.products[warp][i * OUTPUTS + lane / 4] = sums[i][0];
        s.products[warp][i * OUTPUTS + lane / 4 + OUTPUTS / 2] = sums[i][2];
    }
}

template <int PER_LANE, int AHEAD, int TILES>
__device__ __forceinline__ void run_block(const norm_route_params &p, char *memory,
                                          norm_route_shared &s) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    cluster_place c = this_place();
    int token = blockIdx.x / c.size, output = c.rank * (TILES * OUTPUTS) + threadIdx.x;
    bool has_output = threadIdx.x < TILES * OUTPUTS && output < p.choice.num_experts;
    bool chooses = c.rank == 0 && warp == 0;
    uint32_t pushed = shared_address(&s.pushed);
    slice_weights<AHEAD, TILES> weights;
    weights.load(p, c.rank, shared_address(memory), warp, lane);
    lane_inputs inputs(p, AHEAD, warp, lane);
    float bias = has_output && p.bias ? __bfloat162float(p.bias[output]) : 0;
    if (chooses) {
        prefetch_floats(p.choice.bias, p.choice.num_experts, lane);
        prefetch_floats(p.choice.scales, p.choice.num_experts, lane);
    }
    if (chooses && lane == 0) {
        barrier_init(pushed, 1);
        barrier_init_done();
        barrier_expect(pushed, p.choice.num_experts * sizeof(float));
    }
    __syncthreads();
    cluster_arrive();
    wait_for_earlier();
    size_t row = (size_t)token * p.in;
    inputs.load(of_step(p.residual) + row);
    float own_squares = warp_sum(inputs.squares()), squares = 0;
    if (lane == 0) s.squares[warp] = own_squares;
    __syncthreads();
#pragma unroll
    for (int w = 0; w < WARPS; w++) squares += s.squares[w];
    uint4 own = inputs.normed(rsqrtf(squares / p.in + p.eps));
    if constexpr (TILES == 2) copy_wait<0>();
    multiply_slices<AHEAD, TILES>(weights, own, warp, lane, s);
    __syncthreads();
    cluster_wait(); // the first block's barrier is initialised
    if (has_output) {
        float sum = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++) sum += s.products[w][threadIdx.x];
        push(at_rank(shared_address(&s.logits[output]), 0), at_rank(pushed, 0), sum + bias);
    }
    if (inputs.is_there && inputs.slice % c.size == c.rank) {
        *reinterpret_cast<uint4 *>(of_step(p.hidden) + row + inputs.column) = own;
    }
    if (!chooses) return;
    expert_choice<PER_LANE> all;
    all.load_bias(p.choice, lane);
    barrier_wait(pushed, 0, "the cluster's logits");
    size_t first = (size_t)token * p.choice.top_k;
    choose_experts(all, p.choice, s.logits, of_step(p.ids) + first, of_step(p.weights) + first,
                   lane);
}

// So few registers that a block fits beside one of linear/few_rows_ring.cu, the kernel in front.
template <int PER_LANE, int AHEAD, int TILES>
__global__ void __maxnreg__(88) norm_route_kernel(const __grid_constant__ norm_route_params p) {
    extern __shared__ __align__(128) char memory[]; // weights of the second tile
    __shared__ norm_route_shared shared;
    NV_IF_TARGET(NV_PROVIDES_SM_90,
                 (let_next_start(); run_block<PER_LANE, AHEAD, TILES>(p, memory, shared);))
}

template <int PER_LANE, int AHEAD, int TILES>
bool launch(const norm_route_params &p, int tokens, const cuda_device_info *info,
            cudaStream_t stream) {
    constexpr int BYTES = (TILES - 1) * 2 * AHEAD * THREADS * sizeof(uint4);
    auto kernel = norm_route_kernel<PER_LANE, AHEAD, TILES>;
    int size = (p.choice.num_experts + TILES * OUTPUTS - 1) / (TILES * OUTPUTS);
    return try_launch_clusters(kernel, tokens, size, THREADS, BYTES, info, stream, p);
}

} // namespace

extern "C" bool cuda_norm_route_launch(const struct norm_route_args *args,
                                       const struct cuda_linear_view *router,
                                       const struct cuda_device_info *info, cudaStream_t stream) {
    norm_route_params p = {};
    p.choice = choice_params_of(&args->route);
    p.weight = static_cast<const __nv_bfloat16 *>(router->weight);
    p.bias = static_cast<const __nv_bfloat16 *>(router->bias);
    p.norm = args->norm;
    p.residual = static_cast<const __nv_bfloat16 *>(args->residual);
    p.hidden = static_cast<__nv_bfloat16 *>(args->hidden);
    p.ids = args->route.ids;
    p.weights = args->route.weights;
    p.in = static_cast<int>(router->in);
    p.eps = args->eps;
    int tokens = static_cast<int>(args->route.num_tokens);
    bool is_short = p.in <= FEWER * WARPS * SLICE;
    if (p.choice.num_experts <= 128) {
        return is_short ? launch<4, FEWER, 1>(p, tokens, info, stream)
                        : launch<4, MOST, 1>(p, tokens, info, stream);
    }
    return is_short ? launch<8, FEWER, 2>(p, tokens, info, stream)
                    : launch<8, MOST, 2>(p, tokens, info, stream);
}
