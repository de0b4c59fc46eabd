/* What the kernels of gated delta nets share: a step's sequences, their channels before and after
 * the convolution, their gates. */
#pragma once

#include <limits.h>

#include "backend/cuda/device.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/recurrent/gated_delta.h"

namespace {

constexpr int KEPT = DELTA_TAPS - 1; // tokens whose channels a slot keeps
constexpr float L2_EPS = 1e-6f; // of the norms of q and k

struct delta_params {
    const int *query_start, *context_len, *table_row, *state_row;
    const int *snapshot_token, *snapshot_slot; // [num_snapshots]
    float *states; // [slots][slot_floats]
    const __nv_bfloat16 *qkvz; // [num_tokens][row]
    const float *gates; // [num_tokens][2 heads]; NULL: decode_kernel computes them
    const uint4 *gates_weight; // [2 heads][gates_vectors]
    const uint4 *residual; // [num_tokens][gates_vectors]
    const float *input_norm; // [8 gates_vectors]
    int gates_vectors;
    __nv_bfloat16 *out; // [num_tokens][heads][value_dim]
    const float *conv, *decay, *dt_bias, *norm;
    size_t slot_floats;
    int key_heads, heads, key_dim, value_dim, channels, row, num_tokens, num_seqs, num_snapshots;
    bool norms_tokens; // tokens_kernel, or decode_kernel, does the gated norm
    int chunked_min; // sequences with so many tokens go through delta_chunks.cuh
    float eps;
};

// Floats of what a slot has of a head: KEPT rows of its q, k and v, and its state.
__host__ __device__ constexpr size_t kept_floats(int key_dim, int value_dim) {
    return (size_t)2 * key_dim + value_dim;
}
__host__ __device__ constexpr size_t head_floats(int key_dim, int value_dim) {
    return KEPT * kept_floats(key_dim, value_dim) + (size_t)key_dim * value_dim;
}

// A sequence of the step.
struct sequence {
    int begin, end; // its tokens
    bool is_first; // it begins with a zero state
    bool is_padding;
    float *slot, *from; // its own, and the one that it goes on from
};

__device__ __forceinline__ float *slot_at(const delta_params &p, int slot) {
    return p.states + (size_t)slot * p.slot_floats;
}

// No kernel behind a step's embedding writes what it reads.
__device__ __forceinline__ sequence sequence_of(const delta_params &p, int s) {
    sequence seq;
    seq.begin = p.query_start[s];
    seq.end = p.query_start[s + 1];
    int start = p.context_len[s] - (seq.end - seq.begin);
    seq.is_first = start == 0;
    seq.is_padding = start < 0;
    seq.slot = slot_at(p, p.table_row[s]);
    seq.from = p.state_row ? slot_at(p, p.state_row[s]) : seq.slot;
    return seq;
}

// Where a slot has a head's kept rows, and its state.
__device__ __forceinline__ float *kept_of(const delta_params &p, float *slot, int head) {
    return slot + head * head_floats(p.key_dim, p.value_dim);
}
__device__ __forceinline__ float *state_of(const delta_params &p, float *slot, int head) {
    return kept_of(p, slot, head) + KEPT * kept_floats(p.key_dim, p.value_dim);
}

__device__ __forceinline__ float4 unpacked(uint2 x) {
    return make_float4(bf16_low(x.x), bf16_high(x.x), bf16_low(x.y), bf16_high(x.y));
}

enum part { PART_Q, PART_K, PART_V };

// Four channels of a head.
struct channels {
    int of_token; // in a row of qkvz, and of the taps
    int head, of_kept; // in a row of what is kept of the head
};

// The channels `col` .. col + 3 of a head's q, k or v; col is a multiple of 4.
__device__ __forceinline__ channels channels_of(const delta_params &p, int part, int head,
                                                int col) {
    int key_head = head / (p.heads / p.key_heads), keys = p.key_heads * p.key_dim;
    channels c;
    c.head = head;
    c.of_kept = part * p.key_dim + col;
    c.of_token = part == PART_V ? 2 * keys + head * p.value_dim + col
                                : part * keys + key_head * p.key_dim + col;
    return c;
}

// Channels of token t, which may be one before the step.
__device__ __forceinline__ float4 raw_channels(const delta_params &p, const sequence &seq, int t,
                                               const channels &c) {
    if (t >= seq.begin) {
        return unpacked(
            *reinterpret_cast<const uint2 *>(of_step(p.qkvz) + (size_t)t * p.row + c.of_token));
    }
    if (seq.is_first) return make_float4(0, 0, 0, 0);
    const float *kept = kept_of(p, seq.from, c.head);
    return *reinterpret_cast<const float4 *>(
        kept + (t - seq.begin + KEPT) * kept_floats(p.key_dim, p.value_dim) + c.of_kept);
}

struct tap_weights {
    float4 w[DELTA_TAPS];
};

__device__ __forceinline__ tap_weights taps_of(const delta_params &p, const channels &c) {
    tap_weights taps;
#pragma unroll
    for (int i = 0; i < DELTA_TAPS; i++) {
        taps.w[i] = *reinterpret_cast<const float4 *>(p.conv + (size_t)i * p.channels + c.of_token);
    }
    return taps;
}

// The convolution over four channels. It goes from token to token.
struct convolution {
    tap_weights taps;
    float4 x[DELTA_TAPS]; // the tokens before, the oldest first

    // From token t on.
    __device__ __forceinline__ void begin(const delta_params &p, const sequence &seq, int t,
                                          const channels &c) {
#pragma unroll
        for (int i = 1; i < DELTA_TAPS; i++) {
            x[i] = raw_channels(p, seq, t + i - DELTA_TAPS, c);
        }
    }

    // Of the next token.
    __device__ __forceinline__ float4 next(float4 newest) {
        float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
        for (int i = 0; i < DELTA_TAPS; i++) {
            x[i] = i < KEPT ? x[i + 1] : newest;
            sum.x += taps.w[i].x * x[i].x;
            sum.y += taps.w[i].y * x[i].y;
            sum.z += taps.w[i].z * x[i].z;
            sum.w += taps.w[i].w * x[i].w;
        }
        return make_float4(silu(sum.x), silu(sum.y), silu(sum.z), silu(sum.w));
    }
};

// The block's threads keep a head's channels of the last tokens before `end` in a slot. A thread
// has the same channels in every call.
__device__ __forceinline__ void keep_tokens(const delta_params &p, const sequence &seq, int end,
                                            int head, float *slot) {
    int cols = static_cast<int>(kept_floats(p.key_dim, p.value_dim));
    for (int i = threadIdx.x * 4; i < cols; i += blockDim.x * 4) {
        int part = i < p.key_dim ? PART_Q : i < 2 * p.key_dim ? PART_K : PART_V;
        const channels c = channels_of(p, part, head, i - part * p.key_dim);
        float4 kept[KEPT];
#pragma unroll
        for (int k = 0; k < KEPT; k++) kept[k] = raw_channels(p, seq, end + k - KEPT, c);
#pragma unroll
        for (int k = 0; k < KEPT; k++) {
            float *to = kept_of(p, slot, head) + k * cols + i;
            *reinterpret_cast<float4 *>(of_step(to)) = kept[k];
        }
    }
}

__device__ __forceinline__ float dot4(float4 a, float4 b) {
    return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
}

// ln of a head's g, of the gate a.
__device__ __forceinline__ float log_decay_of(const delta_params &p, int head, float a) {
    a += p.dt_bias[head];
    float softplus = a > 20 ? a : log1pf(__expf(a));
    return -p.decay[head] * softplus;
}

// The same for token t.
__device__ __forceinline__ float log_decay(const delta_params &p, int t, int head) {
    return log_decay_of(p, head, of_step(p.gates)[(size_t)t * 2 * p.heads + p.heads + head]);
}

__device__ __forceinline__ float beta_of(float b) {
    return __fdividef(1, 1 + __expf(fminf(-b, 88)));
}
__device__ __forceinline__ float beta_of(const delta_params &p, int t, int head) {
    return beta_of(of_step(p.gates)[(size_t)t * 2 * p.heads + head]);
}

inline delta_params params_of(const gated_delta_args *args) {
    const gated_delta_shape *shape = &args->shape;
    const step *step = args->step;
    delta_params p = {};
    p.query_start = step->query_start;
    p.context_len = step->context_len;
    p.table_row = step->table_row;
    p.state_row = step->state_row;
    p.snapshot_token = step->snapshot_token;
    p.snapshot_slot = step->snapshot_slot;
    p.num_snapshots = static_cast<int>(step->num_snapshots);
    p.states = static_cast<float *>(args->states);
    p.qkvz = static_cast<const __nv_bfloat16 *>(args->qkvz);
    p.gates = args->gates;
    p.out = static_cast<__nv_bfloat16 *>(args->out);
    p.conv = args->conv;
    p.decay = args->decay;
    p.dt_bias = args->dt_bias;
    p.norm = args->norm;
    p.slot_floats = cuda_gated_delta_slot_bytes(shape) / sizeof(float);
    p.key_heads = static_cast<int>(shape->num_key_heads);
    p.heads = static_cast<int>(shape->num_heads);
    p.key_dim = static_cast<int>(shape->key_dim);
    p.value_dim = static_cast<int>(shape->value_dim);
    p.channels = static_cast<int>(gated_delta_channels(shape));
    p.row = p.channels + p.heads * p.value_dim;
    p.num_tokens = static_cast<int>(step->num_tokens);
    p.num_seqs = static_cast<int>(step->num_seqs);
    p.chunked_min = INT_MAX;
    p.eps = args->eps;
    return p;
}

} // namespace
