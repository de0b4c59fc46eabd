/* Mamba-2 (recurrent.h): a convolution, a state that forgets and takes B (d x)^T, S^T C, the gate.
 *
 * scan_kernel: a block for each sequence and 32 columns of a head takes the tokens one by one. A
 * warp has 8 columns of the state: a lane has a fourth of the rows of one, in registers. So the
 * state needs no other lane, and S^T C is two shuffles away, which the next token does not wait
 * for. Up to CHUNK tokens' x, B and C are in shared memory at once; those of the next chunk are on
 * their way meanwhile. In a step of few decodes the block convolves them itself. In others
 * conv_kernel has done that for all tokens before: heads of a group share B and C.
 * keep_kernel runs last, because it overwrites channels that the others read.
 *
 * A slot: float [DELTA_TAPS - 1][channels], those of the last tokens before the convolution, oldest
 * first, then [state_dim][head_dim] of each head.
 * Bytes of a decode: 2 x heads x state_dim x head_dim x 4 for each sequence. A prompt is bound by
 * the multiply-adds, 2 x state_dim x head_dim for each token and head. */
#include "backend/cuda/device.cuh"
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/recurrent/sequences.cuh"

namespace {

constexpr int KEPT = DELTA_TAPS - 1, WIDTH = 4; // channels of a thread
constexpr int CONV_THREADS = 128;
// Decodes of a step whose channels scan_kernel convolves: each block of a head does so for itself.
constexpr unsigned CONVOLVED_ALONE_MAX = 8;
// Of scan_kernel.
constexpr int CHUNK = 16, COLUMNS = 32, WARP_COLUMNS = 8, ROW_GROUPS = 32 / WARP_COLUMNS;
constexpr int THREADS = COLUMNS / WARP_COLUMNS * 32;

struct mamba_params {
    const int *query_start, *context_len, *table_row, *state_row;
    const int *snapshot_token, *snapshot_slot; // [num_snapshots]
    float *states; // [slots][slot_floats]
    const __nv_bfloat16 *xbcz; // [num_tokens][row]
    const __nv_bfloat16 *convolved; // [num_tokens][channels]; NULL: scan_kernel does it
    const float *dt; // [num_tokens][heads]
    __nv_bfloat16 *out; // [num_tokens][heads * head_dim]
    const float *conv, *conv_bias; // [DELTA_TAPS][channels], [channels]
    const float *decay, *dt_bias, *skip; // [heads]
    size_t slot_floats;
    int groups, heads, state_dim, head_dim;
    int channels, row, num_tokens, num_seqs, num_snapshots;
    float dt_min, dt_max;
};

struct mamba_sequence {
    int begin, end, start; // its tokens, and the position of the first; start < 0: padding
    float *slot; // its own
    const float *from; // the one that it goes on from
};

__device__ __forceinline__ float *slot_at(const mamba_params &p, int slot) {
    return p.states + (size_t)slot * p.slot_floats;
}

__device__ __forceinline__ mamba_sequence sequence_at(const mamba_params &p, int s) {
    mamba_sequence seq;
    seq.begin = of_step(p.query_start)[s];
    seq.end = of_step(p.query_start)[s + 1];
    seq.start = of_step(p.context_len)[s] - (seq.end - seq.begin);
    int own = of_step(p.table_row)[s];
    seq.slot = slot_at(p, own);
    seq.from = p.state_row ? slot_at(p, of_step(p.state_row)[s]) : seq.slot;
    return seq;
}

__device__ __forceinline__ float4 unpacked(uint2 v) {
    return make_float4(bf16_low(v.x), bf16_high(v.x), bf16_low(v.y), bf16_high(v.y));
}

__device__ __forceinline__ uint2 packed(float4 v) {
    return make_uint2(pack_bf16(v.x, v.y), pack_bf16(v.z, v.w));
}

// WIDTH channels of token t, which may be one before the step.
__device__ __forceinline__ float4 channels_of(const mamba_params &p, const mamba_sequence &seq,
                                              int t, int channel) {
    if (t >= seq.begin) {
        return unpacked(
            *reinterpret_cast<const uint2 *>(of_step(p.xbcz) + (size_t)t * p.row + channel));
    }
    if (seq.start == 0) return make_float4(0, 0, 0, 0);
    return *reinterpret_cast<const float4 *>(of_step(seq.from) +
                                             (t - seq.begin + KEPT) * p.channels + channel);
}

// The same behind the convolution.
__device__ __forceinline__ float4 convolved_of(const mamba_params &p, const mamba_sequence &seq,
                                               int t, int channel) {
    float4 sum = *reinterpret_cast<const float4 *>(p.conv_bias + channel);
#pragma unroll
    for (int tap = 0; tap < DELTA_TAPS; tap++) {
        float4 x = channels_of(p, seq, t + tap - KEPT, channel);
        float4 w = *reinterpret_cast<const float4 *>(p.conv + (size_t)tap * p.channels + channel);
        sum.x += w.x * x.x;
        sum.y += w.y * x.y;
        sum.z += w.z * x.z;
        sum.w += w.w * x.w;
    }
    return make_float4(silu(sum.x), silu(sum.y), silu(sum.z), silu(sum.w));
}

__global__ void __launch_bounds__(CONV_THREADS)
    conv_kernel(const __grid_constant__ mamba_params p, __nv_bfloat16 *out) {
    let_next_start();
    wait_for_earlier();
    int channel = (blockIdx.x * CONV_THREADS + threadIdx.x) * WIDTH;
    if (channel >= p.channels) return;
    for (int t = blockIdx.y; t < p.num_tokens; t += gridDim.y) {
        const mamba_sequence seq = sequence_at(p, find_sequence(p, t));
        if (seq.start < 0) continue;
        *reinterpret_cast<uint2 *>(of_step(out) + (size_t)t * p.channels + channel) =
            packed(convolved_of(p, seq, t, channel));
    }
}

// A block's part of a head, and a thread's part of that.
struct place {
    int head, group, first; // the block's first column
    int columns; // of the block, a multiple of 16
    int column, rows, first_row; // of the thread; column: in the block
    bool is_column;
    size_t at; // of its first element in a slot
};

__device__ __forceinline__ place place_of(const mamba_params &p) {
    int parts = (p.head_dim + COLUMNS - 1) / COLUMNS, lane = threadIdx.x % 32;
    place place;
    place.head = blockIdx.x / parts;
    place.group = place.head / (p.heads / p.groups);
    place.first = blockIdx.x % parts * COLUMNS;
    place.columns = min(p.head_dim - place.first, COLUMNS);
    place.column = threadIdx.x / 32 * WARP_COLUMNS + lane % WARP_COLUMNS;
    place.is_column = place.column < place.columns;
    place.rows = p.state_dim / ROW_GROUPS;
    place.first_row = lane / WARP_COLUMNS * place.rows;
    place.at = (size_t)KEPT * p.channels +
               ((size_t)place.head * p.state_dim + place.first_row) * p.head_dim + place.first +
               place.column;
    return place;
}

// A chunk's x, B and C of a block: for each token the columns, then both of the group. Behind the
// rows of a lane GAP floats are free, so that the four row groups are in different banks.
constexpr int GAP = 4;

struct chunk_loader {
    int per_token, first_x, first_b, first_c, columns, state_dim, rows;

    __device__ __forceinline__ chunk_loader(const mamba_params &p, const place &place) {
        columns = place.columns;
        state_dim = p.state_dim;
        rows = place.rows;
        first_x = place.head * p.head_dim + place.first;
        first_b = p.heads * p.head_dim + place.group * p.state_dim;
        first_c = first_b + p.groups * p.state_dim;
        per_token = (columns + 2 * state_dim) / WIDTH;
    }

    // The channel of unit i of a token, of which `at` is the place in shared memory.
    __device__ __forceinline__ int channel_of(int i, int *at) const {
        int x = i * WIDTH, b = x - columns, c = b - state_dim;
        *at = x < columns ? x : COLUMNS + b + b / rows * GAP;
        return x < columns ? first_x + x : b < state_dim ? first_b + b : first_c + c;
    }
};

template <int ROWS>
__device__ __forceinline__ void load_state(const float *slot, const mamba_params &p,
                                           const place &place, float (&state)[ROWS]) {
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        bool is_there = slot && place.is_column && r < place.rows;
        state[r] = is_there ? of_step(slot)[place.at + (size_t)r * p.head_dim] : 0;
    }
}

template <int ROWS>
__device__ __forceinline__ void store_state(float *slot, const mamba_params &p, const place &place,
                                            const float (&state)[ROWS]) {
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        if (!place.is_column || r >= place.rows) continue;
        of_step(slot)[place.at + (size_t)r * p.head_dim] = state[r];
    }
}

// A chunk's results, gated.
__device__ __forceinline__ void write_chunk(const mamba_params &p, const place &place,
                                            const float *chunk, int pitch, int first, int count) {
    int units = place.columns / WIDTH;
    for (int i = threadIdx.x; i < count * units; i += THREADS) {
        int t = first + i / units, col = i % units * WIDTH;
        size_t at = (size_t)place.head * p.head_dim + place.first + col;
        float4 v = *reinterpret_cast<const float4 *>(chunk + i / units * pitch + col);
        float4 z = unpacked(*reinterpret_cast<const uint2 *>(of_step(p.xbcz) + (size_t)t * p.row +
                                                             p.channels + at));
        v = make_float4(v.x * silu(z.x), v.y * silu(z.y), v.z * silu(z.z), v.w * silu(z.w));
        *reinterpret_cast<uint2 *>(of_step(p.out) + (size_t)t * p.heads * p.head_dim + at) =
            packed(v);
    }
}

__device__ __forceinline__ float softplus(float x) {
    return x > 20 ? x : log1pf(__expf(x));
}

// ROWS: the most rows of a lane. IS_WHOLE: states of 4 x ROWS rows.
template <int ROWS, bool IS_WHOLE>
__global__ void __launch_bounds__(THREADS) scan_kernel(const __grid_constant__ mamba_params p) {
    constexpr int STATES = ROWS * ROW_GROUPS;
    // [CHUNK] of the block's x, which becomes its result, then B and C.
    __shared__ __align__(16) float chunk[CHUNK][COLUMNS + 2 * (STATES + ROW_GROUPS * GAP)];
    __shared__ float decays[CHUNK], steps[CHUNK];
    constexpr int UNITS = (CHUNK * (COLUMNS + 2 * STATES) / WIDTH + THREADS - 1) / THREADS;
    let_next_start();
    place place = place_of(p);
    if (IS_WHOLE) place.rows = ROWS;
    const int row_pitch = place.rows + GAP;
    const chunk_loader loader(p, place);
    float skip = p.skip[place.head], decay = p.decay[place.head], bias = p.dt_bias[place.head];
    wait_for_earlier();
    const mamba_sequence seq = sequence_at(p, blockIdx.y);
    if (seq.start < 0) return;
    float state[ROWS];
    load_state(seq.start == 0 ? NULL : seq.from, p, place, state);
    uint2 ahead[UNITS];
    auto fetch = [&](int first) { // of convolved tokens
        int count = min(seq.end - first, CHUNK) * loader.per_token;
#pragma unroll
        for (int u = 0; u < UNITS; u++) {
            int i = u * THREADS + threadIdx.x, at;
            if (i >= count) break;
            int channel = loader.channel_of(i % loader.per_token, &at);
            size_t t = first + i / loader.per_token;
            ahead[u] =
                *reinterpret_cast<const uint2 *>(of_step(p.convolved) + t * p.channels + channel);
        }
    };
    if (p.convolved) fetch(seq.begin);
    for (int first = seq.begin; first < seq.end; first += CHUNK) {
        int count = min(seq.end - first, CHUNK);
        int units = count * loader.per_token, at;
        for (int i = threadIdx.x; i < units && !p.convolved; i += THREADS) {
            int channel = loader.channel_of(i % loader.per_token, &at), t = i / loader.per_token;
            *reinterpret_cast<float4 *>(&chunk[t][at]) = convolved_of(p, seq, first + t, channel);
        }
#pragma unroll
        for (int u = 0; u < UNITS; u++) {
            int i = u * THREADS + threadIdx.x;
            if (i >= units || !p.convolved) break;
            loader.channel_of(i % loader.per_token, &at);
            *reinterpret_cast<float4 *>(&chunk[i / loader.per_token][at]) = unpacked(ahead[u]);
        }
        if (threadIdx.x < count) {
            float dt = of_step(p.dt)[(size_t)(first + threadIdx.x) * p.heads + place.head];
            float step = fminf(fmaxf(softplus(dt + bias), p.dt_min), p.dt_max);
            steps[threadIdx.x] = step;
            decays[threadIdx.x] = __expf(-decay * step);
        }
        __syncthreads();
        if (p.convolved && first + CHUNK < seq.end) fetch(first + CHUNK);
        for (int c = 0; c < count; c++) {
            const float *b = &chunk[c][COLUMNS + place.first_row / place.rows * row_pitch];
            float x = place.is_column ? chunk[c][place.column] : 0, sum = 0;
            float given = steps[c] * x, kept = decays[c];
#pragma unroll
            for (int r = 0; r < ROWS; r += 4) {
                if (!IS_WHOLE && r >= place.rows) break;
                float4 in = *reinterpret_cast<const float4 *>(b + r);
                float4 out = *reinterpret_cast<const float4 *>(b + ROW_GROUPS * row_pitch + r);
                state[r] = kept * state[r] + in.x * given;
                state[r + 1] = kept * state[r + 1] + in.y * given;
                state[r + 2] = kept * state[r + 2] + in.z * given;
                state[r + 3] = kept * state[r + 3] + in.w * given;
                sum += out.x * state[r] + out.y * state[r + 1];
                sum += out.z * state[r + 2] + out.w * state[r + 3];
            }
#pragma unroll
            for (int mask = WARP_COLUMNS; mask < 32; mask *= 2) {
                sum += __shfl_xor_sync(FULL_WARP, sum, mask);
            }
            if (place.first_row == 0 && place.is_column) {
                chunk[c][place.column] = sum + skip * x;
            }
            for (int i = 0; i < p.num_snapshots; i++) {
                if (of_step(p.snapshot_token)[i] != first + c) continue;
                store_state(slot_at(p, of_step(p.snapshot_slot)[i]), p, place, state);
            }
        }
        __syncthreads();
        write_chunk(p, place, &chunk[0][0], sizeof chunk[0] / sizeof(float), first, count);
        __syncthreads(); // the next chunk overwrites this one
    }
    store_state(seq.slot, p, place, state);
}

// Writes the channels of the last tokens before `end` to a slot. All are read before.
__device__ __forceinline__ void keep(const mamba_params &p, const mamba_sequence &seq, int end,
                                     float *slot, int channel) {
    float4 rows[KEPT];
#pragma unroll
    for (int row = 0; row < KEPT; row++) rows[row] = channels_of(p, seq, end + row - KEPT, channel);
#pragma unroll
    for (int row = 0; row < KEPT; row++) {
        *reinterpret_cast<float4 *>(of_step(slot) + row * p.channels + channel) = rows[row];
    }
}

__global__ void __launch_bounds__(CONV_THREADS)
    keep_kernel(const __grid_constant__ mamba_params p) {
    let_next_start();
    wait_for_earlier();
    int channel = (blockIdx.x * CONV_THREADS + threadIdx.x) * WIDTH;
    if (channel >= p.channels) return;
    for (int s = blockIdx.y; s < p.num_seqs; s += gridDim.y) {
        const mamba_sequence seq = sequence_at(p, s);
        if (seq.start < 0) continue;
        for (int i = 0; i < p.num_snapshots; i++) {
            int token = of_step(p.snapshot_token)[i];
            if (token < seq.begin || token >= seq.end) continue;
            keep(p, seq, token + 1, slot_at(p, of_step(p.snapshot_slot)[i]), channel);
        }
        keep(p, seq, seq.end, seq.slot, channel);
    }
}

mamba_params params_of(const struct mamba_args *args) {
    const struct step *step = args->step;
    const struct mamba_shape *shape = &args->shape;
    mamba_params p = {};
    p.query_start = step->query_start;
    p.context_len = step->context_len;
    p.table_row = step->table_row;
    p.state_row = step->state_row;
    p.snapshot_token = step->snapshot_token;
    p.snapshot_slot = step->snapshot_slot;
    p.states = static_cast<float *>(args->states);
    p.xbcz = static_cast<const __nv_bfloat16 *>(args->xbcz);
    p.dt = args->dt;
    p.out = static_cast<__nv_bfloat16 *>(args->out);
    p.conv = args->conv;
    p.conv_bias = args->conv_bias;
    p.decay = args->decay;
    p.dt_bias = args->dt_bias;
    p.skip = args->skip;
    p.slot_floats = cuda_mamba_slot_bytes(shape) / sizeof(float);
    p.groups = static_cast<int>(shape->num_groups);
    p.heads = static_cast<int>(shape->num_heads);
    p.state_dim = static_cast<int>(shape->state_dim);
    p.head_dim = static_cast<int>(shape->head_dim);
    p.channels = static_cast<int>(mamba_channels(shape));
    p.row = p.channels + p.heads * p.head_dim;
    p.num_tokens = static_cast<int>(step->num_tokens);
    p.num_seqs = static_cast<int>(step->num_seqs);
    p.num_snapshots = static_cast<int>(step->num_snapshots);
    p.dt_min = args->dt_min;
    p.dt_max = args->dt_max;
    return p;
}

} // namespace

extern "C" size_t cuda_mamba_slot_bytes(const struct mamba_shape *shape) {
    size_t state = (size_t)shape->num_heads * shape->state_dim * shape->head_dim;
    size_t floats = state + (size_t)KEPT * mamba_channels(shape);
    return (floats * sizeof(float) + 63) / 64 * 64;
}

extern "C" void cuda_mamba_launch(const struct mamba_args *args,
                                  const struct cuda_device_info *info, cudaStream_t stream) {
    mamba_params p = params_of(args);
    const struct step *step = args->step;
    unsigned blocks = static_cast<unsigned>((p.channels / WIDTH + CONV_THREADS - 1) / CONV_THREADS);
    unsigned seqs = step->num_seqs < 65535 ? step->num_seqs : 65535;
    if (step->max_query_len > 1 || step->num_tokens > CONVOLVED_ALONE_MAX) {
        unsigned tokens = step->num_tokens < 65535 ? step->num_tokens : 65535;
        auto convolved = static_cast<__nv_bfloat16 *>(args->scratch);
        launch_dependent(conv_kernel, dim3(blocks, tokens), CONV_THREADS, 0, info, stream, p,
                         convolved);
        p.convolved = convolved;
    }
    int parts = (p.head_dim + COLUMNS - 1) / COLUMNS;
    dim3 grid(static_cast<unsigned>(p.heads * parts), static_cast<unsigned>(p.num_seqs));
    auto kernel = p.state_dim == 128   ? scan_kernel<32, true>
                  : p.state_dim <= 128 ? scan_kernel<32, false>
                                       : scan_kernel<64, false>;
    launch_dependent(kernel, grid, THREADS, 0, info, stream, p);
    launch_dependent(keep_kernel, dim3(blocks, seqs), CONV_THREADS, 0, info, stream, p);
}
