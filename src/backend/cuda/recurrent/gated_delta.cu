/* Gated delta nets (recurrent.h): convolution, norms of q and k, the delta rule, the gated norm.
 *
 * delta_kernel: a block of 4 warps for each sequence, head and COLUMNS columns of its state, which
 * do not touch other columns. A lane has a column, and a warp a fourth of the rows, in registers.
 * Tokens go through in chunks: first each warp convolves and norms some tokens of the chunk into
 * shared memory, then the block takes them in order. For a token it sums k S and q S over the warps
 * with one barrier, because S^T q of the new state is g (S^T q) + (q k) delta.
 *
 * finish_kernel: a warp for each token and head does the gated norm, in place. Further blocks keep
 * the last tokens' channels for the next step. They must come after delta_kernel, of which several
 * blocks read the channels kept before.
 *
 * A slot: float [DELTA_TAPS - 1][channels], oldest first, then [heads][key_dim][value_dim].
 * Bytes of a decode: 2 x heads x key_dim x value_dim x 4 for each sequence. */
#include "backend/cuda/device.cuh"
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"

namespace {

constexpr int WARPS = 4, THREADS = WARPS * 32, COLUMNS = 32, CHUNK = 16, KEPT = DELTA_TAPS - 1;
constexpr float L2_EPS = 1e-6f; // of the norms of q and k

struct delta_params {
    const int *query_start, *context_len, *table_row, *state_row;
    const int *snapshot_token, *snapshot_slot; // [num_snapshots]
    float *states; // [slots][slot_floats]
    const __nv_bfloat16 *qkvz; // [num_tokens][row]
    const float *gates; // [num_tokens][2 heads]
    __nv_bfloat16 *out; // [num_tokens][heads][value_dim]
    const float *conv, *decay, *dt_bias, *norm;
    size_t slot_floats;
    int key_heads, heads, key_dim, value_dim, channels, row, num_tokens, num_seqs, num_snapshots;
    float eps;
};

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

__device__ __forceinline__ sequence sequence_of(const delta_params &p, int s) {
    sequence seq;
    seq.begin = of_step(p.query_start)[s];
    seq.end = of_step(p.query_start)[s + 1];
    int start = of_step(p.context_len)[s] - (seq.end - seq.begin);
    seq.is_first = start == 0;
    seq.is_padding = start < 0;
    seq.slot = slot_at(p, of_step(p.table_row)[s]);
    seq.from = p.state_row ? slot_at(p, of_step(p.state_row)[s]) : seq.slot;
    return seq;
}

// A channel of token t, which may be one before the step.
__device__ __forceinline__ float raw_channel(const delta_params &p, const sequence &seq, int t,
                                             int channel) {
    if (t >= seq.begin) return __bfloat162float(of_step(p.qkvz)[(size_t)t * p.row + channel]);
    if (seq.is_first) return 0;
    return of_step(seq.from)[(size_t)(t - seq.begin + KEPT) * p.channels + channel];
}

__device__ __forceinline__ float convolved(const delta_params &p, const sequence &seq, int t,
                                           int channel) {
    float sum = 0;
#pragma unroll
    for (int tap = 0; tap < DELTA_TAPS; tap++) {
        sum += p.conv[(size_t)tap * p.channels + channel] *
               raw_channel(p, seq, t + tap - KEPT, channel);
    }
    return silu(sum);
}

// What a block needs of a chunk's tokens, in shared memory.
struct chunk_view {
    float *q, *k; // [CHUNK][key_dim], normed
    float *v; // [CHUNK][COLUMNS]
    float *decay, *beta, *qk; // [CHUNK]
    float *sums; // [2][2][WARPS][COLUMNS]
};

__host__ __device__ inline size_t shared_floats(int key_dim) {
    return (size_t)CHUNK * (2 * key_dim + COLUMNS + 3) + 4 * WARPS * COLUMNS;
}

__device__ __forceinline__ chunk_view view_of(float *shared, int key_dim) {
    chunk_view view;
    view.q = shared;
    view.k = view.q + CHUNK * key_dim;
    view.sums = view.k + CHUNK * key_dim;
    view.v = view.sums + 4 * WARPS * COLUMNS;
    view.decay = view.v + CHUNK * COLUMNS;
    view.beta = view.decay + CHUNK;
    view.qk = view.beta + CHUNK;
    return view;
}

// A warp writes token t's part of a chunk, at place c.
__device__ __forceinline__ void prepare_token(const delta_params &p, const sequence &seq,
                                              const chunk_view &view, int t, int c, int head,
                                              int column) {
    int lane = threadIdx.x % 32, dim = p.key_dim, key_head = head / (p.heads / p.key_heads);
    float *q = view.q + c * dim, *k = view.k + c * dim;
    float q_square = 0, k_square = 0, product = 0;
    for (int i = lane; i < dim; i += 32) {
        q[i] = convolved(p, seq, t, key_head * dim + i);
        k[i] = convolved(p, seq, t, (p.key_heads + key_head) * dim + i);
        q_square += q[i] * q[i];
        k_square += k[i] * k[i];
        product += q[i] * k[i];
    }
    float q_scale = rsqrtf(warp_sum(q_square) + L2_EPS) * rsqrtf((float)dim);
    float k_scale = rsqrtf(warp_sum(k_square) + L2_EPS);
    product = warp_sum(product) * q_scale * k_scale;
    for (int i = lane; i < dim; i += 32) {
        q[i] *= q_scale;
        k[i] *= k_scale;
    }
    int value = head * p.value_dim + column;
    view.v[c * COLUMNS + lane] =
        column < p.value_dim ? convolved(p, seq, t, 2 * p.key_heads * dim + value) : 0;
    if (lane) return;
    const float *gates = of_step(p.gates) + (size_t)t * 2 * p.heads;
    float a = gates[p.heads + head] + p.dt_bias[head];
    float softplus = a > 20 ? a : log1pf(__expf(a));
    view.decay[c] = __expf(-p.decay[head] * softplus);
    view.beta[c] = __fdividef(1, 1 + __expf(fminf(-gates[head], 88)));
    view.qk[c] = product;
}

template <int ROWS, bool IS_WHOLE>
__device__ __forceinline__ void store_state(float *to, const float (&state)[ROWS], int rows,
                                            int value_dim, bool is_column) {
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        if (is_column && (IS_WHOLE || r < rows)) of_step(to)[(size_t)r * value_dim] = state[r];
    }
}

// ROWS: rows of a warp, of which `rows` are there.
template <int ROWS, bool IS_WHOLE>
__global__ void __launch_bounds__(THREADS) delta_kernel(const delta_params p) {
    extern __shared__ float shared[];
    let_next_start();
    wait_for_earlier();
    const sequence seq = sequence_of(p, blockIdx.z);
    if (seq.is_padding) return;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, head = blockIdx.x;
    int column = blockIdx.y * COLUMNS + lane, rows = IS_WHOLE ? ROWS : p.key_dim / WARPS;
    bool is_column = column < p.value_dim;
    const chunk_view view = view_of(shared, p.key_dim);
    size_t at =
        (size_t)KEPT * p.channels + ((size_t)head * p.key_dim + warp * rows) * p.value_dim + column;
    float state[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        bool is_there = is_column && !seq.is_first && (IS_WHOLE || r < rows);
        state[r] = is_there ? of_step(seq.from)[at + (size_t)r * p.value_dim] : 0;
    }
    int turn = 0;
    for (int first = seq.begin; first < seq.end; first += CHUNK) {
        int count = min(seq.end - first, CHUNK);
        for (int c = warp; c < count; c += WARPS) {
            prepare_token(p, seq, view, first + c, c, head, column);
        }
        __syncthreads();
        for (int c = 0; c < count; c++, turn ^= 1) {
            const float *q = view.q + c * p.key_dim + warp * rows;
            const float *k = view.k + c * p.key_dim + warp * rows;
            float k_sum = 0, q_sum = 0;
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                if (!IS_WHOLE && r >= rows) break;
                k_sum += k[r] * state[r];
                q_sum += q[r] * state[r];
            }
            // Two buffers: a warp that is a token ahead writes the other one.
            float *sums = view.sums + turn * 2 * WARPS * COLUMNS;
            sums[warp * COLUMNS + lane] = k_sum;
            sums[(WARPS + warp) * COLUMNS + lane] = q_sum;
            __syncthreads();
            k_sum = q_sum = 0;
#pragma unroll
            for (int w = 0; w < WARPS; w++) {
                k_sum += sums[w * COLUMNS + lane];
                q_sum += sums[(WARPS + w) * COLUMNS + lane];
            }
            float decay = view.decay[c];
            float delta = view.beta[c] * (view.v[c * COLUMNS + lane] - decay * k_sum);
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                if (!IS_WHOLE && r >= rows) break;
                state[r] = decay * state[r] + k[r] * delta;
            }
            if (warp == 0 && is_column) {
                of_step(p.out)[((size_t)(first + c) * p.heads + head) * p.value_dim + column] =
                    __float2bfloat16(decay * q_sum + view.qk[c] * delta);
            }
            for (int i = 0; i < p.num_snapshots; i++) {
                if (of_step(p.snapshot_token)[i] != first + c) continue;
                store_state<ROWS, IS_WHOLE>(slot_at(p, of_step(p.snapshot_slot)[i]) + at, state,
                                            rows, p.value_dim, is_column);
            }
        }
        __syncthreads(); // the next chunk overwrites this one
    }
    store_state<ROWS, IS_WHOLE>(seq.slot + at, state, rows, p.value_dim, is_column);
}

// The norm of a token's head, by a warp.
__device__ __forceinline__ void norm_head(const delta_params &p, int token, int head) {
    int lane = threadIdx.x % 32;
    __nv_bfloat16 *out = p.out + ((size_t)token * p.heads + head) * p.value_dim;
    const __nv_bfloat16 *z =
        p.qkvz + (size_t)token * p.row + p.channels + (size_t)head * p.value_dim;
    float square = 0;
    for (int i = lane; i < p.value_dim; i += 32) {
        float value = __bfloat162float(of_step(out)[i]);
        square += value * value;
    }
    float scale = rsqrtf(warp_sum(square) / p.value_dim + p.eps);
    for (int i = lane; i < p.value_dim; i += 32) {
        float value = __bfloat162float(of_step(out)[i]) * scale * p.norm[i];
        of_step(out)[i] = __float2bfloat16(value * silu(__bfloat162float(of_step(z)[i])));
    }
}

// Keeps the last tokens of a channel before `end` in a slot.
__device__ __forceinline__ void keep_tokens(const delta_params &p, const sequence &seq, int end,
                                            int channel, float *slot) {
    float kept[KEPT];
#pragma unroll
    for (int i = 0; i < KEPT; i++) kept[i] = raw_channel(p, seq, end + i - KEPT, channel);
#pragma unroll
    for (int i = 0; i < KEPT; i++) of_step(slot)[(size_t)i * p.channels + channel] = kept[i];
}

__device__ __forceinline__ void keep_channel(const delta_params &p, int s, int channel) {
    const sequence seq = sequence_of(p, s);
    if (seq.is_padding || channel >= p.channels) return;
    for (int i = 0; i < p.num_snapshots; i++) {
        int token = of_step(p.snapshot_token)[i];
        if (token < seq.begin || token >= seq.end) continue;
        keep_tokens(p, seq, token + 1, channel, slot_at(p, of_step(p.snapshot_slot)[i]));
    }
    keep_tokens(p, seq, seq.end, channel, seq.slot); // last: snapshots read what was there
}

__global__ void __launch_bounds__(THREADS)
    finish_kernel(const delta_params p, int norm_blocks, int channel_blocks) {
    let_next_start();
    wait_for_earlier();
    int block = blockIdx.x;
    if (block >= norm_blocks) {
        block -= norm_blocks;
        keep_channel(p, block / channel_blocks, block % channel_blocks * THREADS + threadIdx.x);
        return;
    }
    int unit = block * WARPS + threadIdx.x / 32;
    if (unit < p.num_tokens * p.heads) norm_head(p, unit / p.heads, unit % p.heads);
}

} // namespace

extern "C" size_t cuda_gated_delta_slot_bytes(const struct gated_delta_shape *shape) {
    size_t state = (size_t)shape->num_heads * shape->key_dim * shape->value_dim;
    size_t bytes = (state + (size_t)KEPT * gated_delta_channels(shape)) * sizeof(float);
    return (bytes + 63) / 64 * 64;
}

extern "C" void cuda_gated_delta_launch(const struct gated_delta_args *args,
                                        const struct cuda_device_info *info, cudaStream_t stream) {
    const struct gated_delta_shape *shape = &args->shape;
    const struct step *step = args->step;
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
    p.eps = args->eps;
    dim3 grid(shape->num_heads, (shape->value_dim + COLUMNS - 1) / COLUMNS, step->num_seqs);
    auto kernel = p.key_dim == 128  ? delta_kernel<32, true>
                  : p.key_dim < 128 ? delta_kernel<32, false>
                                    : delta_kernel<64, false>;
    launch_dependent(kernel, grid, THREADS, shared_floats(p.key_dim) * sizeof(float), info, stream,
                     p);
    int norm_blocks = (p.num_tokens * p.heads + WARPS - 1) / WARPS;
    int channel_blocks = (p.channels + THREADS - 1) / THREADS;
    launch_dependent(finish_kernel,
                     dim3(static_cast<unsigned>(norm_blocks + p.num_seqs * channel_blocks)),
                     THREADS, 0, info, stream, p, norm_blocks, channel_blocks);
}
