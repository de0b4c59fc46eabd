/* Experts for 1 to 4 tokens whose weights are bf16, without sorting or tiles. Each token reads only
 * the weights of its own experts, once.
 *
 * The first kernel computes activated[pair] = silu(gate x) * (up x), or another activation. The
 * second computes out = sum over slots of weight * (down activated), slots ascending. Biases are
 * added to the sums. Bytes: pairs x 3 x hidden x intermediate x 2; two tokens with the same expert
 * share its weights in the L2.
 *
 * Launch: both start early. First a warp per row of gate and the same row of up, pairs along y.
 * Then a warp per output column, tokens along y. A lane takes 8 weights per iteration. Float32 sums
 * run over the same lanes and slots in the same order for any number of tokens. The first kernel
 * lets the second start after its own wait, so the second reads the chosen experts and loads their
 * weights before it waits (rule 3 of handover.cuh). */
#include "backend/cuda/activation.cuh"
#include "backend/cuda/launch.cuh"

namespace {

constexpr int WARPS = 4;
constexpr int GATE_UP_AHEAD = 4; // 128 bytes in flight per lane: 4 loads of gate, 4 of up
constexpr int DOWN_AHEAD = 8; // slots per pass

struct few_tokens_params {
    const uint4 *gate_up; // [num_experts][2 * intermediate][hidden / 8]
    const uint4 *down; // [num_experts][hidden][intermediate / 8]
    const uint4 *x; // [num_tokens][hidden / 8]
    const int32_t *ids; // [num_tokens][top_k]
    const float *weights; // [num_tokens][top_k]
    const __nv_bfloat16 *gate_up_bias; // [num_experts][2 * intermediate] or NULL
    const __nv_bfloat16 *down_bias; // [num_experts][hidden] or NULL
    __nv_bfloat16 *activated; // [num_tokens][top_k][intermediate]
    __nv_bfloat16 *out; // [num_tokens][hidden]
    int top_k, hidden, intermediate;
    enum activation activation;
};

__device__ __forceinline__ void prefetch_l2(const void *line) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(line) : "memory");
}

__device__ __forceinline__ float dot8(uint4 a, uint4 b, float sum) {
    const uint32_t x[4] = {a.x, a.y, a.z, a.w}, y[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        sum = fmaf(bf16_low(x[i]), bf16_low(y[i]), sum);
        sum = fmaf(bf16_high(x[i]), bf16_high(y[i]), sum);
    }
    return sum;
}

__global__ void __launch_bounds__(WARPS * 32) few_tokens_gate_up_kernel(few_tokens_params p) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int n = blockIdx.x * WARPS + warp, pair = blockIdx.y;
    wait_for_earlier();
    let_next_start();
    if (n >= p.intermediate) return;
    int vectors = p.hidden / 8;
    const uint4 *gate =
        p.gate_up + ((size_t)of_step(p.ids)[pair] * 2 * p.intermediate + n) * vectors;
    const uint4 *up = gate + (size_t)p.intermediate * vectors;
    const uint4 *x = of_step(p.x) + (size_t)(pair / p.top_k) * vectors;
    float gate_sum = 0.0f, up_sum = 0.0f;
    int i = lane;
    for (; i + (GATE_UP_AHEAD - 1) * 32 < vectors; i += GATE_UP_AHEAD * 32) {
        uint4 g[GATE_UP_AHEAD], u[GATE_UP_AHEAD];
#pragma unroll
        for (int k = 0; k < GATE_UP_AHEAD; k++) {
            g[k] = __ldg(&gate[i + k * 32]);
            u[k] = __ldg(&up[i + k * 32]);
        }
#pragma unroll
        for (int k = 0; k < GATE_UP_AHEAD; k++) {
            uint4 v = __ldg(&x[i + k * 32]);
            gate_sum = dot8(g[k], v, gate_sum);
            up_sum = dot8(u[k], v, up_sum);
        }
    }
    for (; i < vectors; i += 32) {
        uint4 v = __ldg(&x[i]);
        gate_sum = dot8(__ldg(&gate[i]), v, gate_sum);
        up_sum = dot8(__ldg(&up[i]), v, up_sum);
    }
    gate_sum = warp_sum(gate_sum);
    up_sum = warp_sum(up_sum);
    if (lane) return;
    if (p.gate_up_bias) {
        const __nv_bfloat16 *bias = p.gate_up_bias + (size_t)p.ids[pair] * 2 * p.intermediate;
        gate_sum += __bfloat162float(bias[n]);
        up_sum += __bfloat162float(bias[p.intermediate + n]);
    }
    float value = activated(p.activation, gate_sum, up_sum);
    of_step(p.activated)[(size_t)pair * p.intermediate + n] = __float2bfloat16(value);
}

// One vector of the output's row for each of DOWN_AHEAD slots. Slots past the last repeat the last
// one, and their sums are ignored: without branches all loads are in flight together.
struct slot_vectors {
    int expert[DOWN_AHEAD];
    uint4 v[DOWN_AHEAD];

    __device__ __forceinline__ void choose(const few_tokens_params &p, int first, int left) {
#pragma unroll
        for (int k = 0; k < DOWN_AHEAD; k++) expert[k] = p.ids[first + min(k, left - 1)];
    }
    __device__ __forceinline__ const uint4 *at(const few_tokens_params &p, int k, int n,
                                               int i) const {
        return p.down + ((size_t)expert[k] * p.hidden + n) * (p.intermediate / 8) + i;
    }
    __device__ __forceinline__ void load(const few_tokens_params &p, int n, int i) {
        if (i >= p.intermediate / 8) return;
#pragma unroll
        for (int k = 0; k < DOWN_AHEAD; k++) v[k] = __ldg(at(p, k, n, i));
    }
    // The vectors from 32 on, to the L2.
    __device__ __forceinline__ void prefetch_others(const few_tokens_params &p, int n,
                                                    int lane) const {
        for (int i = 32 + lane * 8; i < p.intermediate / 8; i += 32 * 8) {
#pragma unroll
            for (int k = 0; k < DOWN_AHEAD; k++) prefetch_l2(at(p, k, n, i));
        }
    }
};

// Adds weight * (down activated) of up to DOWN_AHEAD slots to a lane's sum. `slots` has this lane's
// first vectors.
__device__ __forceinline__ float add_slots(const few_tokens_params &p, slot_vectors &slots,
                                           int first, int left, int n, int lane, float out) {
    int vectors = p.intermediate / 8;
    const auto *x = reinterpret_cast<const uint4 *>(of_step(p.activated)) + (size_t)first * vectors;
    float sums[DOWN_AHEAD] = {}, weights[DOWN_AHEAD];
#pragma unroll
    for (int k = 0; k < DOWN_AHEAD; k++) {
        weights[k] = of_step(p.weights)[first + min(k, left - 1)];
    }
    for (int i = lane; i < vectors;) {
#pragma unroll
        for (int k = 0; k < DOWN_AHEAD; k++) {
            sums[k] = dot8(slots.v[k], __ldg(&x[min(k, left - 1) * vectors + i]), sums[k]);
        }
        slots.load(p, n, i += 32);
    }
    if (p.down_bias && lane == 0) {
        for (int k = 0; k < DOWN_AHEAD; k++) {
            sums[k] += __bfloat162float(p.down_bias[(size_t)slots.expert[k] * p.hidden + n]);
        }
    }
#pragma unroll
    for (int k = 0; k < DOWN_AHEAD; k++) out = k < left ? fmaf(weights[k], sums[k], out) : out;
    return out;
}

__global__ void __launch_bounds__(WARPS * 32) few_tokens_down_kernel(few_tokens_params p) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int n = blockIdx.x * WARPS + warp, first = blockIdx.y * p.top_k;
    bool is_there = n < p.hidden;
    slot_vectors slots;
    if (is_there) {
        slots.choose(p, first, p.top_k);
        slots.load(p, n, lane);
        slots.prefetch_others(p, n, lane);
    }
    let_next_start();
    wait_for_earlier();
    if (!is_there) return;
    float out = 0.0f;
    for (int slot = 0; slot < p.top_k; slot += DOWN_AHEAD) {
        if (slot) slots.choose(p, first + slot, p.top_k - slot), slots.load(p, n, lane);
        out = add_slots(p, slots, first + slot, p.top_k - slot, n, lane, out);
    }
    out = warp_sum(out);
    if (lane == 0) of_step(p.out)[(size_t)blockIdx.y * p.hidden + n] = __float2bfloat16(out);
}

} // namespace

extern "C" void cuda_experts_few_tokens_launch(const struct experts_args *args,
                                               const struct cuda_experts_view *view,
                                               const struct cuda_experts_scratch *scratch,
                                               const struct cuda_device_info *info,
                                               cudaStream_t stream) {
    few_tokens_params p = {};
    p.gate_up = static_cast<const uint4 *>(view->gate_up.weight);
    p.down = static_cast<const uint4 *>(view->down.weight);
    p.x = static_cast<const uint4 *>(args->x);
    p.ids = args->ids;
    p.weights = args->weights;
    p.gate_up_bias = static_cast<const __nv_bfloat16 *>(view->gate_up.bias);
    p.down_bias = static_cast<const __nv_bfloat16 *>(view->down.bias);
    p.activation = view->activation;
    p.activated = static_cast<__nv_bfloat16 *>(scratch->activated);
    p.out = static_cast<__nv_bfloat16 *>(args->out);
    p.top_k = static_cast<int>(args->top_k);
    p.hidden = static_cast<int>(view->shape.hidden);
    p.intermediate = static_cast<int>(view->shape.intermediate);
    dim3 first((view->shape.intermediate + WARPS - 1) / WARPS, args->num_tokens * args->top_k);
    dim3 second((view->shape.hidden + WARPS - 1) / WARPS, args->num_tokens);
    launch_dependent(few_tokens_gate_up_kernel, first, WARPS * 32, 0, info, stream, p);
    launch_dependent(few_tokens_down_kernel, second, WARPS * 32, 0, info, stream, p);
}
