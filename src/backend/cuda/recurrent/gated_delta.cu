/* Gated delta nets (recurrent.h): convolution, norms of q and k, the delta rule, the gated norm.
 *
 * tokens_kernel: a block for each sequence and head takes the tokens one by one. A lane has a
 * column of the state, and a warp the columns of its 32 lanes and a fourth of the rows, in
 * registers. Up to CHUNK tokens are convolved into shared memory at once: a warp has q, k or v of
 * some of them. For a token the block sums k S and q S over the warps with one barrier, because
 * S^T q of the new state is g (S^T q) + (q k) delta. Then a warp for each token does the gated
 * norm. decode_kernel does the same where every sequence has one token, and computes the gates of a
 * few: a kernel for their linear and one for the norm in front would take longer.
 *
 * delta_chunks.cuh takes sequences with CUDA_DELTA_CHUNKED_MIN tokens or more. In such a step
 * norm_kernel does the gated norm of all tokens, by a warp for each token and head.
 *
 * A slot: for each head float [DELTA_TAPS - 1][2 key_dim + value_dim], q, k and v of the last
 * tokens before the convolution, oldest first, then [key_dim][value_dim]. Heads with the same q and
 * k have a copy each, so that a block reads and writes only its own.
 * Bytes of a decode: 2 x heads x key_dim x value_dim x 4 for each sequence. */
#include "backend/cuda/recurrent/delta.cuh"

namespace {

constexpr int CHUNK = 16, ROW_WARPS = 4;

// A chunk's data in a block's shared memory.
struct chunk_view {
    float *q, *k; // [chunk][key_dim], not normed
    float *v, *out; // [chunk][value_dim]
    float *squares; // [chunk][2]: sums over q and k
    float *decay, *beta; // [chunk]
    float *sums; // [2][2][ROW_WARPS][columns]: two buffers of k S, q S
    float *products; // [2][ROW_WARPS]: q k
};

__host__ __device__ constexpr int columns_of(int value_dim) {
    return (value_dim + 31) / 32 * 32;
}

// Of a block that takes `chunk` tokens at once.
__host__ __device__ constexpr size_t shared_floats(int chunk, int key_dim, int value_dim) {
    return (size_t)chunk * (2 * key_dim + 2 * value_dim + 4) +
           4 * ROW_WARPS * columns_of(value_dim) + 2 * ROW_WARPS;
}

__device__ __forceinline__ chunk_view view_of(float *shared, int chunk, const delta_params &p) {
    chunk_view view;
    view.q = shared;
    view.k = view.q + chunk * p.key_dim;
    view.v = view.k + chunk * p.key_dim;
    view.out = view.v + chunk * p.value_dim;
    view.squares = view.out + chunk * p.value_dim;
    view.decay = view.squares + 2 * chunk;
    view.beta = view.decay + chunk;
    view.sums = view.beta + chunk;
    view.products = view.sums + 4 * ROW_WARPS * columns_of(p.value_dim);
    return view;
}

// What a warp convolves: q, k or v of every STEP-th token, and the first 128 of its channels or the
// others. HALVES is 2 if heads may have more than 128.
template <int WARPS, int HALVES> struct convolver {
    static constexpr int STEP = (WARPS - 1) / (3 * HALVES); // one warp has the gates
    int part, col, token;
    bool has_channels;
    channels at;
    convolution conv;

    // Reads only weights.
    __device__ __forceinline__ void begin(const delta_params &p, int head) {
        int warp = threadIdx.x / 32, unit = warp % (3 * HALVES);
        part = unit % 3;
        col = unit / 3 * 128 + threadIdx.x % 32 * 4;
        token = warp / (3 * HALVES);
        has_channels = token < STEP && col < (part == PART_V ? p.value_dim : p.key_dim);
        at = channels_of(p, part, head, col);
        if (has_channels) conv.taps = taps_of(p, at);
    }

    // Loads what a slot keeps, for the sequence's first token.
    __device__ __forceinline__ void load_kept(const delta_params &p, const sequence &seq) {
        if (has_channels && token == 0) conv.begin(p, seq, seq.begin, at);
    }

    // The chunk of `count` tokens from `first` on.
    __device__ __forceinline__ void run(const delta_params &p, const sequence &seq,
                                        const chunk_view &view, int first, int count) {
        float *to = part == PART_Q ? view.q : part == PART_K ? view.k : view.v;
        int dim = part == PART_V ? p.value_dim : p.key_dim;
        for (int c = token; c < count && token < STEP; c += STEP) {
            float4 x = make_float4(0, 0, 0, 0);
            if (has_channels) {
                float4 newest = raw_channels(p, seq, first + c, at);
                if (first + c > seq.begin) conv.begin(p, seq, first + c, at);
                x = conv.next(newest);
                *reinterpret_cast<float4 *>(to + c * dim + col) = x;
            }
            if (part == PART_V) continue;
            float square = warp_sum(dot4(x, x));
            if (threadIdx.x % 32) continue;
            if (HALVES == 1) {
                view.squares[2 * c + part] = square;
            } else {
                atomicAdd(&view.squares[2 * c + part], square);
            }
        }
    }

    // Behind the run of a sequence's only token: keeps the last tokens for the next step.
    __device__ __forceinline__ void keep(const delta_params &p, float *slot) const {
        if (!has_channels || token) return;
#pragma unroll
        for (int i = 0; i < KEPT; i++) {
            float *to = kept_of(p, slot, at.head) + i * kept_floats(p.key_dim, p.value_dim);
            *reinterpret_cast<float4 *>(of_step(to) + at.of_kept) = conv.x[i + 1];
        }
    }
};

// The gated norm of four of a head's values.
__device__ __forceinline__ uint2 normed(const delta_params &p, float4 v, uint2 gate, int col,
                                        float scale) {
    float4 g = unpacked(gate), norm = *reinterpret_cast<const float4 *>(p.norm + col);
    return make_uint2(
        pack_bf16(v.x * scale * norm.x * silu(g.x), v.y * scale * norm.y * silu(g.y)),
        pack_bf16(v.z * scale * norm.z * silu(g.z), v.w * scale * norm.w * silu(g.w)));
}

// Four of a head's gates z.
__device__ __forceinline__ uint2 gates_of(const delta_params &p, int token, int head, int col) {
    if (col >= p.value_dim) return make_uint2(0, 0);
    return *reinterpret_cast<const uint2 *>(of_step(p.qkvz) + (size_t)token * p.row + p.channels +
                                            head * p.value_dim + col);
}

__device__ __forceinline__ __nv_bfloat16 *out_of(const delta_params &p, int token, int head) {
    return p.out + ((size_t)token * p.heads + head) * p.value_dim;
}

// A warp writes a token's result, with the gated norm if no other kernel does it.
__device__ __forceinline__ void write_token(const delta_params &p, const float *out, int token,
                                            int head, const uint2 (&gates)[2]) {
    int own = threadIdx.x % 32 * 4;
    float4 v[2];
    float square = 0;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int col = own + half * 128;
        v[half] = make_float4(0, 0, 0, 0);
        if (col < p.value_dim) v[half] = *reinterpret_cast<const float4 *>(out + col);
        square += dot4(v[half], v[half]);
    }
    float scale = rsqrtf(warp_sum(square) / p.value_dim + p.eps);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int col = own + half * 128;
        if (col >= p.value_dim) break;
        float4 x = v[half];
        *reinterpret_cast<uint2 *>(of_step(out_of(p, token, head)) + col) =
            p.norms_tokens ? normed(p, x, gates[half], col, scale)
                           : make_uint2(pack_bf16(x.x, x.y), pack_bf16(x.z, x.w));
    }
}

// A thread's part of a head's state: rows [row_warp * rows, (row_warp + 1) * rows) of one column.
struct place {
    int head, column, columns, row_warp, rows, key_dim, value_dim;
    bool is_column;
    size_t at; // of its first element in the state
};

template <int ROWS, bool IS_WHOLE>
__device__ __forceinline__ place place_of(const delta_params &p) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    place place;
    place.head = blockIdx.x;
    place.key_dim = IS_WHOLE ? 128 : p.key_dim;
    place.value_dim = IS_WHOLE ? 128 : p.value_dim;
    place.columns = columns_of(place.value_dim);
    place.column = warp / ROW_WARPS * 32 + lane;
    place.is_column = IS_WHOLE || place.column < place.value_dim;
    place.row_warp = warp % ROW_WARPS;
    place.rows = IS_WHOLE ? ROWS : place.key_dim / ROW_WARPS;
    place.at = (size_t)place.row_warp * place.rows * place.value_dim + place.column;
    return place;
}

// A token's delta rule: the block's sums with one barrier, the new state, its result to view.out.
template <int ROWS, bool IS_WHOLE>
__device__ __forceinline__ void run_token(const chunk_view &view, const place &place, int c,
                                          int turn, float (&state)[ROWS]) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, columns = place.columns;
    const float *q = view.q + c * place.key_dim + place.row_warp * place.rows;
    const float *k = view.k + c * place.key_dim + place.row_warp * place.rows;
    float k_sum = 0, q_sum = 0, qk = 0;
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        if (!IS_WHOLE && r >= place.rows) break;
        k_sum += k[r] * state[r];
        q_sum += q[r] * state[r];
    }
    // Two buffers: a warp that is a token ahead writes the other one.
    float *sums = view.sums + turn * 2 * ROW_WARPS * columns + place.column;
    float *products = view.products + turn * ROW_WARPS;
    bool has_sums = place.column < columns;
    if (has_sums) {
        sums[place.row_warp * columns] = k_sum;
        sums[(ROW_WARPS + place.row_warp) * columns] = q_sum;
    }
    if (warp < ROW_WARPS) {
        for (int r = lane; r < place.rows; r += 32) qk += q[r] * k[r];
        qk = warp_sum(qk);
        if (lane == 0) products[warp] = qk;
    }
    __syncthreads();
    k_sum = q_sum = qk = 0;
#pragma unroll
    for (int w = 0; w < ROW_WARPS; w++) {
        if (has_sums) k_sum += sums[w * columns];
        if (has_sums) q_sum += sums[(ROW_WARPS + w) * columns];
        qk += products[w];
    }
    float q_scale = rsqrtf(view.squares[2 * c] + L2_EPS) * rsqrtf((float)place.key_dim);
    float k_scale = rsqrtf(view.squares[2 * c + 1] + L2_EPS), decay = view.decay[c];
    float v = place.is_column ? view.v[c * place.value_dim + place.column] : 0;
    float step = k_scale * view.beta[c] * (v - decay * k_scale * k_sum);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        if (!IS_WHOLE && r >= place.rows) break;
        state[r] = decay * state[r] + k[r] * step;
    }
    if (place.row_warp || !place.is_column) return;
    view.out[c * place.value_dim + place.column] = q_scale * (decay * q_sum + qk * step);
}

template <int ROWS>
__device__ __forceinline__ void load_rows(const float *from, float (&state)[ROWS],
                                          const place &place) {
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        bool is_there = from && place.is_column && r < place.rows;
        state[r] = is_there ? from[place.at + (size_t)r * place.value_dim] : 0;
    }
}

template <int ROWS>
__device__ __forceinline__ void store_rows(float *to, const float (&state)[ROWS],
                                           const place &place) {
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        if (!place.is_column || r >= place.rows) continue;
        of_step(to)[place.at + (size_t)r * place.value_dim] = state[r];
    }
}

// Channels for the snapshots behind the sequence's tokens, and for the next step.
__device__ __forceinline__ void keep_all(const delta_params &p, const sequence &seq, int head) {
    for (int i = 0; i < p.num_snapshots; i++) {
        int token = of_step(p.snapshot_token)[i];
        if (token < seq.begin || token >= seq.end) continue;
        keep_tokens(p, seq, token + 1, head, slot_at(p, of_step(p.snapshot_slot)[i]));
    }
    keep_tokens(p, seq, seq.end, head, seq.slot); // last: snapshots read what was there
}

// ROWS: the most rows of a warp. IS_WHOLE: heads of 128 x 128. A larger head has twice the warps.
template <int ROWS, int THREADS, bool IS_WHOLE>
__global__ void __launch_bounds__(THREADS, 1) tokens_kernel(const delta_params p) {
    constexpr int WARPS = THREADS / 32, HALVES = THREADS / 512;
    extern __shared__ float4 tokens_memory[];
    let_next_start();
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    convolver<WARPS, HALVES> convolver;
    convolver.begin(p, blockIdx.x);
    wait_for_earlier();
    const sequence seq = sequence_of(p, blockIdx.y);
    if (seq.is_padding || seq.end - seq.begin >= p.chunked_min) return;
    const chunk_view view = view_of(reinterpret_cast<float *>(tokens_memory), CHUNK, p);
    const place place = place_of<ROWS, IS_WHOLE>(p);
    float state[ROWS];
    load_rows(seq.is_first ? NULL : state_of(p, seq.from, place.head), state, place);
    convolver.load_kept(p, seq);
    bool is_decode = seq.end - seq.begin == 1 && p.num_snapshots == 0;
    int turn = 0;
    for (int first = seq.begin; first < seq.end; first += CHUNK) {
        int count = min(seq.end - first, CHUNK);
        if (HALVES > 1) {
            if (threadIdx.x < 2 * CHUNK) view.squares[threadIdx.x] = 0;
            __syncthreads();
        }
        convolver.run(p, seq, view, first, count);
        if (is_decode) convolver.keep(p, seq.slot);
        if (warp == WARPS - 1 && lane < count) {
            view.decay[lane] = __expf(log_decay(p, first + lane, place.head));
            view.beta[lane] = beta_of(p, first + lane, place.head);
        }
        uint2 gates[2] = {};
        if (warp < count && p.norms_tokens) {
            gates[0] = gates_of(p, first + warp, place.head, lane * 4);
            gates[1] = gates_of(p, first + warp, place.head, lane * 4 + 128);
        }
        __syncthreads();
        for (int c = 0; c < count; c++, turn ^= 1) {
            run_token<ROWS, IS_WHOLE>(view, place, c, turn, state);
            for (int i = 0; i < p.num_snapshots; i++) {
                if (of_step(p.snapshot_token)[i] != first + c) continue;
                float *slot = slot_at(p, of_step(p.snapshot_slot)[i]);
                store_rows(state_of(p, slot, place.head), state, place);
            }
        }
        __syncthreads();
        if (warp < count) {
            write_token(p, view.out + warp * place.value_dim, first + warp, place.head, gates);
        }
        __syncthreads(); // the next chunk overwrites this one
        convolver.begin(p, place.head); // again: its registers are free meanwhile
    }
    store_rows(state_of(p, seq.slot, place.head), state, place);
    if (!is_decode) keep_all(p, seq, place.head);
}
static_assert(CHUNK <= 16, "a block has a warp for each token");

constexpr int DECODE_THREADS = 512, DECODE_WARPS = DECODE_THREADS / 32;

// A head's gates of a token, by all threads: the first half of them has b, the other one a. The
// norm's root is applied to the sums.
struct gate_sums {
    static constexpr int HALF = DECODE_THREADS / 2;
    float w[8]; // of this thread's first inputs, times the norm's weights
    const uint4 *row;

    __device__ __forceinline__ void load(const delta_params &p, float (&to)[8], int i) const {
        uint4 v = __ldg(row + i);
        auto *norm = reinterpret_cast<const float4 *>(p.input_norm) + i * 2;
        float4 a = norm[0], b = norm[1];
        const float norms[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
        for (int k = 0; k < 8; k++) to[k] = bf16_element(v, k) * norms[k];
    }
    // Reads only weights.
    __device__ __forceinline__ void begin(const delta_params &p) {
        int at = threadIdx.x % HALF, is_a = threadIdx.x / HALF;
        row = p.gates_weight + (size_t)(is_a * p.heads + blockIdx.x) * p.gates_vectors;
        if (at < p.gates_vectors) load(p, w, at);
    }
    // sums: shared [2][DECODE_WARPS], of the products and of the squares.
    __device__ __forceinline__ void run(const delta_params &p, int token, float *sums) {
        const uint4 *x = of_step(p.residual) + (size_t)token * p.gates_vectors;
        float sum = 0, square = 0;
        for (int i = threadIdx.x % HALF; i < p.gates_vectors; i += HALF) {
            uint4 v = x[i];
            if (i >= HALF) load(p, w, i);
#pragma unroll
            for (int k = 0; k < 8; k++) {
                float e = bf16_element(v, k);
                sum = fmaf(w[k], e, sum);
                square = fmaf(e, e, square);
            }
        }
        sum = warp_sum(sum);
        square = warp_sum(square);
        if (threadIdx.x % 32) return;
        sums[threadIdx.x / 32] = sum;
        sums[DECODE_WARPS + threadIdx.x / 32] = square;
    }
    // Behind a barrier, by one thread.
    __device__ __forceinline__ static void finish(const delta_params &p, const float *sums,
                                                  const chunk_view &view) {
        float a = 0, b = 0, square = 0;
#pragma unroll
        for (int i = 0; i < DECODE_WARPS / 2; i++) {
            b += sums[i];
            a += sums[DECODE_WARPS / 2 + i];
            square += sums[DECODE_WARPS + i];
        }
        float root = rsqrtf(square / (p.gates_vectors * 8) + p.eps);
        view.decay[0] = __expf(log_decay_of(p, blockIdx.x, a * root));
        view.beta[0] = beta_of(b * root);
    }
};

// For steps in which every sequence has one token. Of heads of 128 x 128 it has so few registers
// and so little shared memory that a block fits beside one of linear/few_rows_ring.cu, the kernel
// in front, and reads the states before that one has ended (rule 5 of handover.cuh).
template <bool IS_WHOLE>
__global__ void __maxnreg__(IS_WHOLE ? 88 : 96)
    decode_kernel(const __grid_constant__ delta_params p) {
    constexpr int ROWS = 32;
    extern __shared__ float4 tokens_memory[];
    __shared__ float sums[2 * DECODE_WARPS];
    let_next_start();
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const sequence seq = sequence_of(p, blockIdx.y);
    if (seq.is_padding || seq.begin == seq.end) return; // rule 4
    const chunk_view view = view_of(reinterpret_cast<float *>(tokens_memory), 1, p);
    const place place = place_of<ROWS, IS_WHOLE>(p);
    float state[ROWS];
    load_rows(seq.is_first ? NULL : state_of(p, seq.from, place.head), state, place);
    convolver<DECODE_WARPS, 1> convolver;
    convolver.begin(p, place.head);
    convolver.load_kept(p, seq);
    gate_sums gate_sums;
    if (!p.gates) gate_sums.begin(p);
    wait_for_earlier();
    convolver.run(p, seq, view, seq.begin, 1);
    convolver.keep(p, seq.slot);
    bool has_gates = warp == DECODE_WARPS - 1 && lane == 0;
    if (!p.gates) {
        gate_sums.run(p, seq.begin, sums);
    } else if (has_gates) {
        view.decay[0] = __expf(log_decay(p, seq.begin, place.head));
        view.beta[0] = beta_of(p, seq.begin, place.head);
    }
    uint2 z[2] = {};
    if (warp == 0) z[0] = gates_of(p, seq.begin, place.head, lane * 4);
    __syncthreads();
    if (!p.gates && has_gates) gate_sums::finish(p, sums, view);
    run_token<ROWS, IS_WHOLE>(view, place, 0, 0,
                              state); // its barrier is in front of the gates' use
    store_rows(state_of(p, seq.slot, place.head), state, place);
    __syncthreads();
    if (warp == 0) write_token(p, view.out, seq.begin, place.head, z);
}

constexpr int NORM_THREADS = 128;

__global__ void __launch_bounds__(NORM_THREADS) norm_kernel(const delta_params p) {
    let_next_start();
    wait_for_earlier();
    int unit = blockIdx.x * (NORM_THREADS / 32) + threadIdx.x / 32;
    if (unit >= p.num_tokens * p.heads) return;
    int token = unit / p.heads, head = unit % p.heads, own = threadIdx.x % 32 * 4;
    __nv_bfloat16 *out = out_of(p, token, head);
    float4 v[2];
    uint2 gates[2];
    float square = 0;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int col = own + half * 128;
        v[half] = make_float4(0, 0, 0, 0);
        gates[half] = gates_of(p, token, head, col);
        if (col < p.value_dim) {
            v[half] = unpacked(*reinterpret_cast<const uint2 *>(of_step(out) + col));
        }
        square += dot4(v[half], v[half]);
    }
    float scale = rsqrtf(warp_sum(square) / p.value_dim + p.eps);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int col = own + half * 128;
        if (col >= p.value_dim) break;
        *reinterpret_cast<uint2 *>(of_step(out) + col) =
            normed(p, v[half], gates[half], col, scale);
    }
}

template <int ROWS, int THREADS, bool IS_WHOLE>
void launch_tokens(const delta_params &p, const cuda_device_info *info, cudaStream_t stream) {
    dim3 grid(static_cast<unsigned>(p.heads), static_cast<unsigned>(p.num_seqs));
    size_t bytes = shared_floats(CHUNK, p.key_dim, p.value_dim) * sizeof(float);
    auto kernel = tokens_kernel<ROWS, THREADS, IS_WHOLE>;
    constexpr int DIM_MAX = ROWS * ROW_WARPS; // of keys and values
    allow_shared_bytes(kernel, shared_floats(CHUNK, DIM_MAX, DIM_MAX) * sizeof(float), info);
    launch_dependent(kernel, grid, THREADS, bytes, info, stream, p);
}

template <bool IS_WHOLE>
void launch_decode(const delta_params &p, const cuda_device_info *info, cudaStream_t stream) {
    dim3 grid(static_cast<unsigned>(p.heads), static_cast<unsigned>(p.num_seqs));
    size_t bytes = shared_floats(1, p.key_dim, p.value_dim) * sizeof(float);
    auto kernel = decode_kernel<IS_WHOLE>;
    prefer_shared_memory(kernel, info);
    launch_dependent(kernel, grid, DECODE_THREADS, bytes, info, stream, p);
}

// Whether decode_kernel takes the step.
bool is_decode(const gated_delta_args *args) {
    const step *step = args->step;
    return step->num_seqs && step->num_tokens == step->num_seqs && step->max_query_len <= 1 &&
           !step->num_snapshots && args->shape.key_dim <= 128 && args->shape.value_dim <= 128;
}

} // namespace

// With more sequences each reads the weights again, and the norm is a kernel of its own anyway.
extern "C" bool cuda_gated_delta_computes_gates(const struct gated_delta_args *args,
                                                const struct cuda_linear_view *gates) {
    constexpr uint32_t SEQUENCES_MAX = CUDA_RING_ROWS;
    return is_decode(args) && args->step->num_seqs <= SEQUENCES_MAX && !gates->bias &&
           gates->code == WEIGHT_CODE_NONE && gates->in % 8 == 0;
}

extern "C" size_t cuda_gated_delta_slot_bytes(const struct gated_delta_shape *shape) {
    size_t floats =
        head_floats(static_cast<int>(shape->key_dim), static_cast<int>(shape->value_dim));
    return (floats * shape->num_heads * sizeof(float) + 63) / 64 * 64;
}

extern "C" void cuda_gated_delta_launch(const struct gated_delta_args *args,
                                        const struct cuda_linear_view *gates,
                                        const struct cuda_device_info *info, cudaStream_t stream) {
    delta_params p = params_of(args);
    if (!p.gates) {
        p.gates_weight = static_cast<const uint4 *>(gates->weight);
        p.residual = static_cast<const uint4 *>(args->residual);
        p.input_norm = args->input_norm;
        p.gates_vectors = static_cast<int>(gates->in / 8);
    }
    bool has_prompts = args->scratch && args->step->max_query_len >= CUDA_DELTA_CHUNKED_MIN &&
                       cuda_delta_chunks_fit(&args->shape, info);
    if (has_prompts) {
        p.chunked_min = CUDA_DELTA_CHUNKED_MIN;
        for (uint32_t from = 0; from < args->step->num_tokens; from += CUDA_DELTA_SEGMENT) {
            cuda_delta_parts_launch(args, from, info, stream);
            cuda_delta_scan_launch(args, from, info, stream);
        }
    }
    p.norms_tokens = !has_prompts;
    if (has_prompts && p.num_seqs == 1) {
        // The only sequence is a prompt.
    } else if (is_decode(args)) {
        auto launch =
            p.key_dim == 128 && p.value_dim == 128 ? launch_decode<true> : launch_decode<false>;
        launch(p, info, stream);
    } else if (p.key_dim == 128 && p.value_dim == 128) {
        launch_tokens<32, 512, true>(p, info, stream);
    } else if (p.key_dim <= 128 && p.value_dim <= 128) {
        launch_tokens<32, 512, false>(p, info, stream);
    } else {
        launch_tokens<64, 1024, false>(p, info, stream);
    }
    if (!has_prompts) return;
    unsigned blocks = static_cast<unsigned>((p.num_tokens * p.heads + NORM_THREADS / 32 - 1) /
                                            (NORM_THREADS / 32));
    launch_dependent(norm_kernel, dim3(blocks), NORM_THREADS, 0, info, stream, p);
}
