/* Experts for 1 to 4 tokens whose weights are bf16, without sorting or tiles. Each token reads only
 * the weights of its own experts, once.
 *
 * The first kernel computes activated[pair] = silu(gate x) * (up x), or another activation; without
 * a gate max(up x, 0)^2. The second computes out = sum over slots of weight * (down activated),
 * slots ascending, or adds it to out. Biases are added to the sums. An expert that all tokens share
 * is one more slot, the last; the first kernel computes its weight too. Bytes: pairs x 3 x hidden x
 * intermediate x 2, without a gate 2 of the 3; two tokens with the same expert share its weights in
 * the L2.
 *
 * Launch: both start early. In the first a warp takes a row of gate and the same row of up, slots
 * along y, the shared expert first: its blocks load weights before the wait. In the second a warp
 * takes an output column, tokens along y. A lane takes 8 weights at a time. Float32 sums run over
 * the same lanes and slots in the same order for any number of tokens. The first kernel lets the
 * second start after its own wait, so the second reads the chosen experts and loads their weights
 * before it waits (rule 3 of handover.cuh). */
#include "backend/cuda/activation.cuh"
#include "backend/cuda/launch.cuh"

namespace {

constexpr int WARPS = 4;
constexpr int PART = 4; // vectors of a lane that are loaded together, of a row of gate and of up
constexpr int DOWN_AHEAD = 8; // slots per pass

struct few_tokens_params {
    const uint4 *gate_up; // [num_experts][2 * intermediate][hidden / 8]
    const uint4 *down; // [num_experts][hidden][intermediate / 8]
    const uint4 *x; // [num_tokens][hidden / 8]
    const int32_t *ids; // [num_tokens][top_k]
    const float *weights; // [num_tokens][top_k]
    const __nv_bfloat16 *gate_up_bias; // [num_experts][2 * intermediate] or NULL
    const __nv_bfloat16 *down_bias; // [num_experts][hidden] or NULL
    __nv_bfloat16 *activated; // [num_tokens][slots][intermediate]
    __nv_bfloat16 *out; // [num_tokens][hidden]
    // The expert that all tokens share; NULL: there is none.
    const uint4 *shared_gate_up, *shared_down;
    const uint4 *shared_gate; // [hidden / 8]; its weight is 1 if this is NULL
    float *shared_weights; // [num_tokens]
    int num_tokens, top_k, hidden, intermediate;
    int slots; // top_k, and the shared expert's
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

// Weights go past the L1. The instruction is volatile, so a lane's loads stay in front of what uses
// them, and all of them are on their way together.
__device__ __forceinline__ uint4 load_weights(const uint4 *from) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from));
    return v;
}

// A warp takes a row of gate and the same row of up, or of up alone, pairs along y. 12 blocks fit
// on a multiprocessor: all of one token of Qwen3-30B-A3B, 1,536 on 132, run at once.
template <bool GATED>
__global__ void __launch_bounds__(WARPS * 32, 12) few_tokens_gate_up_kernel(few_tokens_params p) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int n = blockIdx.x * WARPS + warp, pair = blockIdx.y;
    wait_for_earlier();
    let_next_start();
    if (n >= p.intermediate) return;
    int vectors = p.hidden / 8;
    size_t expert = (size_t)of_step(p.ids)[pair] * (GATED ? 2 : 1);
    const uint4 *gate = p.gate_up + (expert * p.intermediate + n) * vectors;
    const uint4 *up = GATED ? gate + (size_t)p.intermediate * vectors : gate;
    const uint4 *x = of_step(p.x) + (size_t)(pair / p.top_k) * vectors;
    float gate_sum = 0.0f, up_sum = 0.0f;
    int i = lane;
#pragma unroll 1
    for (; i + (PART - 1) * 32 < vectors; i += PART * 32) {
        uint4 g[PART], u[PART];
#pragma unroll
        for (int k = 0; k < PART; k++) {
            if (GATED) g[k] = load_weights(&gate[i + k * 32]);
            u[k] = load_weights(&up[i + k * 32]);
        }
#pragma unroll
        for (int k = 0; k < PART; k++) {
            uint4 v = __ldg(&x[i + k * 32]);
            if (GATED) gate_sum = dot8(g[k], v, gate_sum);
            up_sum = dot8(u[k], v, up_sum);
        }
    }
#pragma unroll 1
    for (; i < vectors; i += 32) {
        uint4 v = __ldg(&x[i]);
        if (GATED) gate_sum = dot8(load_weights(&gate[i]), v, gate_sum);
        up_sum = dot8(load_weights(&up[i]), v, up_sum);
    }
    if (GATED) gate_sum = warp_sum(gate_sum);
    up_sum = warp_sum(up_sum);
    if (lane) return;
    if (GATED && p.gate_up_bias) {
        const __nv_bfloat16 *bias = p.gate_up_bias + (size_t)p.ids[pair] * 2 * p.intermediate;
        gate_sum += __bfloat162float(bias[n]);
        up_sum += __bfloat162float(bias[p.intermediate + n]);
    }
    float value = GATED ? activated(p.activation, gate_sum, up_sum) : relu_squared(up_sum);
    of_step(p.activated)[(size_t)pair * p.intermediate + n] = __float2bfloat16(value);
}

// What a lane loads of a row of gate and of the same row of up, together.
struct row_part {
    uint4 gate[PART], up[PART];

    __device__ __forceinline__ void load(const uint4 *gates, const uint4 *ups, int i, int vectors) {
#pragma unroll
        for (int k = 0; k < PART; k++) {
            if (i + k * 32 >= vectors) break;
            gate[k] = load_weights(&gates[i + k * 32]);
            up[k] = load_weights(&ups[i + k * 32]);
        }
    }
    __device__ __forceinline__ void add(float &gate_sum, float &up_sum, const uint4 *x, int i,
                                        int vectors) const {
#pragma unroll
        for (int k = 0; k < PART; k++) {
            if (i + k * 32 >= vectors) break;
            uint4 v = __ldg(&x[i + k * 32]);
            gate_sum = dot8(gate[k], v, gate_sum);
            up_sum = dot8(up[k], v, up_sum);
        }
    }
};

// A warp of a block behind those of rows computes the shared expert's weight of a token.
__device__ __forceinline__ void find_shared_weight(const few_tokens_params &p, int token,
                                                   int lane) {
    const uint4 *x = of_step(p.x) + (size_t)token * (p.hidden / 8);
    float sum = 0.0f;
    for (int i = lane; i < p.hidden / 8; i += 32) {
        sum = dot8(__ldg(&p.shared_gate[i]), __ldg(&x[i]), sum);
    }
    sum = warp_sum(sum);
    if (lane == 0) of_step(p.shared_weights)[token] = 1.0f / (1.0f + expf(-sum));
}

// The same where tokens share an expert: the first num_tokens of y are its rows, whose weights a
// lane loads before the wait. Without a shared expert the kernel above is 1.3 % faster.
__global__ void __launch_bounds__(WARPS * 32) shared_gate_up_kernel(few_tokens_params p) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, vectors = p.hidden / 8;
    int n = blockIdx.x * WARPS + warp, pair = blockIdx.y - p.num_tokens;
    bool is_shared = pair < 0, is_there = n < p.intermediate;
    const uint4 *gate = p.shared_gate_up + (size_t)n * vectors;
    const uint4 *up = gate + (size_t)p.intermediate * vectors;
    row_part part;
    if (is_shared && is_there) part.load(gate, up, lane, vectors);
    wait_for_earlier();
    let_next_start();
    int token = is_shared ? static_cast<int>(blockIdx.y) : pair / p.top_k;
    if (!is_there) {
        bool is_next = n == (p.intermediate + WARPS - 1) / WARPS * WARPS; // of the block behind
        if (is_shared && is_next && p.shared_gate) find_shared_weight(p, token, lane);
        return;
    }
    const uint4 *x = of_step(p.x) + (size_t)token * vectors;
    if (!is_shared) {
        gate = p.gate_up + ((size_t)of_step(p.ids)[pair] * 2 * p.intermediate + n) * vectors;
        up = gate + (size_t)p.intermediate * vectors;
        part.load(gate, up, lane, vectors);
    }
    float gate_sum = 0.0f, up_sum = 0.0f;
    for (int i = lane; i < vectors;) {
        part.add(gate_sum, up_sum, x, i, vectors);
        i += PART * 32;
        if (i < vectors) part.load(gate, up, i, vectors);
    }
    gate_sum = warp_sum(gate_sum);
    up_sum = warp_sum(up_sum);
    if (lane) return;
    if (!is_shared && p.gate_up_bias) {
        const __nv_bfloat16 *bias = p.gate_up_bias + (size_t)p.ids[pair] * 2 * p.intermediate;
        gate_sum += __bfloat162float(bias[n]);
        up_sum += __bfloat162float(bias[p.intermediate + n]);
    }
    float value = activated(p.activation, gate_sum, up_sum);
    int row = token * p.slots + (is_shared ? p.top_k : pair % p.top_k);
    of_step(p.activated)[(size_t)row * p.intermediate + n] = __float2bfloat16(value);
}

// One vector of the output's row for each of AHEAD slots. Slots past the last repeat the last one,
// and their sums are ignored: without branches all loads are in flight together.
template <int AHEAD> struct slot_vectors {
    const uint4 *row[AHEAD];
    int expert[AHEAD]; // -1: the shared one
    uint4 v[AHEAD];

    // `first`: the first slot of the pass, of a token.
    __device__ __forceinline__ void choose(const few_tokens_params &p, int token, int first,
                                           int n) {
        size_t vectors = p.intermediate / 8;
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            int slot = min(first + k, p.slots - 1);
            expert[k] = slot < p.top_k ? p.ids[token * p.top_k + slot] : -1;
            row[k] = expert[k] < 0 ? p.shared_down + n * vectors
                                   : p.down + ((size_t)expert[k] * p.hidden + n) * vectors;
        }
    }
    __device__ __forceinline__ void load(const few_tokens_params &p, int i) {
        if (i >= p.intermediate / 8) return;
#pragma unroll
        for (int k = 0; k < AHEAD; k++) v[k] = load_weights(row[k] + i);
    }
    // The vectors from 32 on, to the L2.
    __device__ __forceinline__ void prefetch_others(const few_tokens_params &p, int lane) const {
        for (int i = 32 + lane * 8; i < p.intermediate / 8; i += 32 * 8) {
#pragma unroll
            for (int k = 0; k < AHEAD; k++) prefetch_l2(row[k] + i);
        }
    }
};

__device__ __forceinline__ float weight_of(const few_tokens_params &p, int token, int slot) {
    if (slot < p.top_k) return of_step(p.weights)[token * p.top_k + slot];
    return p.shared_gate ? of_step(p.shared_weights)[token] : 1.0f;
}

// Adds weight * (down activated) of up to AHEAD slots to a lane's sum. `slots` has this lane's
// first vectors.
template <int AHEAD>
__device__ __forceinline__ float add_slots(const few_tokens_params &p, slot_vectors<AHEAD> &slots,
                                           int token, int first, int n, int lane, float out) {
    int vectors = p.intermediate / 8, left = p.slots - first;
    const auto *x = reinterpret_cast<const uint4 *>(of_step(p.activated)) +
                    (size_t)(token * p.slots + first) * vectors;
    float sums[AHEAD] = {}, weights[AHEAD];
#pragma unroll
    for (int k = 0; k < AHEAD; k++) weights[k] = weight_of(p, token, first + min(k, left - 1));
    for (int i = lane; i < vectors;) {
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            sums[k] = dot8(slots.v[k], __ldg(&x[min(k, left - 1) * vectors + i]), sums[k]);
        }
        slots.load(p, i += 32);
    }
    if (p.down_bias && lane == 0) {
        for (int k = 0; k < AHEAD; k++) {
            if (slots.expert[k] < 0) continue;
            sums[k] += __bfloat162float(p.down_bias[(size_t)slots.expert[k] * p.hidden + n]);
        }
    }
#pragma unroll
    for (int k = 0; k < AHEAD; k++) out = k < left ? fmaf(weights[k], sums[k], out) : out;
    return out;
}

template <int AHEAD>
__global__ void __launch_bounds__(WARPS * 32)
    few_tokens_down_kernel(const __grid_constant__ few_tokens_params p, bool is_added) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int n = blockIdx.x * WARPS + warp, token = blockIdx.y;
    bool is_there = n < p.hidden;
    slot_vectors<AHEAD> slots;
    if (is_there) {
        slots.choose(p, token, 0, n);
        slots.load(p, lane);
        slots.prefetch_others(p, lane);
    }
    let_next_start();
    wait_for_earlier();
    if (!is_there) return;
    __nv_bfloat16 *to = of_step(p.out) + (size_t)token * p.hidden + n;
    float before = is_added && lane == 0 ? __bfloat162float(*to) : 0.0f;
    float out = 0.0f;
    for (int first = 0; first < p.slots; first += AHEAD) {
        if (first) slots.choose(p, token, first, n), slots.load(p, lane);
        out = add_slots(p, slots, token, first, n, lane, out);
    }
    out = warp_sum(out);
    if (lane == 0) *to = __float2bfloat16(before + out);
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
    p.num_tokens = static_cast<int>(args->num_tokens);
    p.top_k = static_cast<int>(args->top_k);
    p.hidden = static_cast<int>(view->shape.hidden);
    p.intermediate = static_cast<int>(view->shape.intermediate);
    p.shared_gate_up = static_cast<const uint4 *>(view->shared_gate_up.weight);
    p.shared_down = static_cast<const uint4 *>(view->shared_down.weight);
    p.shared_gate = static_cast<const uint4 *>(view->shared_gate.weight);
    p.shared_weights = reinterpret_cast<float *>(scratch->source); // not used otherwise here
    p.slots = p.top_k + (p.shared_down ? 1 : 0);
    dim3 first((view->shape.intermediate + WARPS - 1) / WARPS, args->num_tokens * p.slots);
    if (p.shared_gate) first.x++;
    auto gate_up = p.shared_down            ? shared_gate_up_kernel
                   : view->shape.lacks_gate ? few_tokens_gate_up_kernel<false>
                                            : few_tokens_gate_up_kernel<true>;
    launch_dependent(gate_up, first, WARPS * 32, 0, info, stream, p);
    dim3 second((view->shape.hidden + WARPS - 1) / WARPS, args->num_tokens);
    auto down = p.slots == DOWN_AHEAD + 1 ? few_tokens_down_kernel<DOWN_AHEAD + 1>
                                          : few_tokens_down_kernel<DOWN_AHEAD>;
    launch_dependent(down, second, WARPS * 32, 0, info, stream, p, args->is_added);
}
