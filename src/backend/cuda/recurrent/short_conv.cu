/* Gated short convolutions (recurrent.h): out[t] = c[t] * sum of taps[i] * (b x)[t - 2 + i].
 *
 * tokens_kernel: a thread has 8 channels of one token, and computes the products b x of the two
 * tokens before it anew, or reads them from the slot where the step does not have them. keep_kernel
 * runs behind it, because it overwrites slots that the first reads: a thread has 8 channels of one
 * sequence, writes its snapshots, then its slot.
 *
 * Bytes of a prompt: up to 8 x tokens x channels x 2, most of them from L2. A slot is float
 * [SHORT_CONV_TAPS - 1][channels]. Launch: blocks of 128 threads along the channels, tokens along
 * y; sequences along y. */
#include "backend/cuda/device.cuh"
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/recurrent/sequences.cuh"

namespace {

constexpr int THREADS = 128, KEPT = SHORT_CONV_TAPS - 1, WIDTH = 8;

struct conv_params {
    const int *query_start, *context_len, *table_row, *state_row;
    const int *snapshot_token, *snapshot_slot; // [num_snapshots]
    float *states; // [slots][slot_floats]
    const __nv_bfloat16 *bcx; // [num_tokens][3 channels]
    const float *taps; // [SHORT_CONV_TAPS][channels]
    __nv_bfloat16 *out; // [num_tokens][channels]
    size_t slot_floats;
    int channels, num_tokens, num_seqs, num_snapshots;
};

struct conv_sequence {
    int begin, end, start; // its tokens, and the position of the first; start < 0: padding
    int slot, from; // its own, and the one that it goes on from
};

__device__ __forceinline__ conv_sequence sequence_at(const conv_params &p, int s) {
    conv_sequence seq;
    seq.begin = of_step(p.query_start)[s];
    seq.end = of_step(p.query_start)[s + 1];
    seq.start = of_step(p.context_len)[s] - (seq.end - seq.begin);
    seq.slot = of_step(p.table_row)[s];
    seq.from = p.state_row ? of_step(p.state_row)[s] : seq.slot;
    return seq;
}

__device__ __forceinline__ void unpack(const __nv_bfloat16 *from, float (&out)[WIDTH]) {
    uint4 v = *reinterpret_cast<const uint4 *>(of_step(from));
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        out[2 * i] = bf16_low(words[i]);
        out[2 * i + 1] = bf16_high(words[i]);
    }
}

__device__ __forceinline__ void load_floats(const float *from, float (&out)[WIDTH]) {
    float4 a = reinterpret_cast<const float4 *>(from)[0];
    float4 b = reinterpret_cast<const float4 *>(from)[1];
    const float all[WIDTH] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
    for (int i = 0; i < WIDTH; i++) out[i] = all[i];
}

__device__ __forceinline__ void store_floats(float *to, const float (&x)[WIDTH]) {
    reinterpret_cast<float4 *>(to)[0] = make_float4(x[0], x[1], x[2], x[3]);
    reinterpret_cast<float4 *>(to)[1] = make_float4(x[4], x[5], x[6], x[7]);
}

// b x of token t, which may be one before the step.
__device__ __forceinline__ void products_of(const conv_params &p, const conv_sequence &seq, int t,
                                            int channel, float (&out)[WIDTH]) {
    if (t >= seq.begin) {
        const __nv_bfloat16 *row = p.bcx + (size_t)t * 3 * p.channels + channel;
        float x[WIDTH];
        unpack(row, out);
        unpack(row + 2 * p.channels, x);
#pragma unroll
        for (int i = 0; i < WIDTH; i++) out[i] *= x[i];
    } else if (seq.start > 0) {
        const float *slot = p.states + (size_t)seq.from * p.slot_floats;
        load_floats(of_step(slot) + (size_t)(t - seq.begin + KEPT) * p.channels + channel, out);
    } else {
#pragma unroll
        for (int i = 0; i < WIDTH; i++) out[i] = 0;
    }
}

__global__ void __launch_bounds__(THREADS) tokens_kernel(conv_params p) {
    let_next_start();
    wait_for_earlier();
    int channel = (blockIdx.x * THREADS + threadIdx.x) * WIDTH;
    if (channel >= p.channels) return;
    for (int t = blockIdx.y; t < p.num_tokens; t += gridDim.y) {
        const conv_sequence seq = sequence_at(p, find_sequence(p, t));
        float sum[WIDTH] = {};
#pragma unroll
        for (int tap = 0; tap < SHORT_CONV_TAPS; tap++) {
            float products[WIDTH], weights[WIDTH];
            products_of(p, seq, t + tap - KEPT, channel, products);
            load_floats(p.taps + (size_t)tap * p.channels + channel, weights);
#pragma unroll
            for (int i = 0; i < WIDTH; i++) sum[i] += weights[i] * products[i];
        }
        float c[WIDTH];
        unpack(p.bcx + ((size_t)t * 3 + 1) * p.channels + channel, c);
        uint4 *out = reinterpret_cast<uint4 *>(of_step(p.out) + (size_t)t * p.channels + channel);
        *out = make_uint4(
            pack_bf16(c[0] * sum[0], c[1] * sum[1]), pack_bf16(c[2] * sum[2], c[3] * sum[3]),
            pack_bf16(c[4] * sum[4], c[5] * sum[5]), pack_bf16(c[6] * sum[6], c[7] * sum[7]));
    }
}

// Writes the products of the two tokens that end with `last` to a slot. Both are read before.
__device__ __forceinline__ void keep(const conv_params &p, const conv_sequence &seq, int last,
                                     int slot, int channel) {
    float rows[KEPT][WIDTH];
#pragma unroll
    for (int row = 0; row < KEPT; row++) {
        products_of(p, seq, last + 1 + row - KEPT, channel, rows[row]);
    }
#pragma unroll
    for (int row = 0; row < KEPT; row++) {
        float *to = p.states + (size_t)slot * p.slot_floats + (size_t)row * p.channels + channel;
        store_floats(of_step(to), rows[row]);
    }
}

__global__ void __launch_bounds__(THREADS) keep_kernel(conv_params p) {
    let_next_start();
    wait_for_earlier();
    int channel = (blockIdx.x * THREADS + threadIdx.x) * WIDTH;
    if (channel >= p.channels) return;
    for (int s = blockIdx.y; s < p.num_seqs; s += gridDim.y) {
        const conv_sequence seq = sequence_at(p, s);
        if (seq.start < 0) continue;
        for (int i = 0; i < p.num_snapshots; i++) {
            int token = of_step(p.snapshot_token)[i];
            if (token < seq.begin || token >= seq.end) continue;
            keep(p, seq, token, of_step(p.snapshot_slot)[i], channel);
        }
        keep(p, seq, seq.end - 1, seq.slot, channel);
    }
}

} // namespace

extern "C" void cuda_short_conv_launch(const struct short_conv_args *args,
                                       const struct cuda_device_info *info, cudaStream_t stream) {
    const struct step *step = args->step;
    conv_params p = {};
    p.query_start = step->query_start;
    p.context_len = step->context_len;
    p.table_row = step->table_row;
    p.state_row = step->state_row;
    p.snapshot_token = step->snapshot_token;
    p.snapshot_slot = step->snapshot_slot;
    p.states = args->states;
    p.bcx = static_cast<const __nv_bfloat16 *>(args->bcx);
    p.taps = args->taps;
    p.out = static_cast<__nv_bfloat16 *>(args->out);
    p.slot_floats = short_conv_floats(args->channels);
    p.channels = static_cast<int>(args->channels);
    p.num_tokens = static_cast<int>(step->num_tokens);
    p.num_seqs = static_cast<int>(step->num_seqs);
    p.num_snapshots = static_cast<int>(step->num_snapshots);
    unsigned blocks = (args->channels / WIDTH + THREADS - 1) / THREADS;
    unsigned tokens = step->num_tokens < 65535 ? step->num_tokens : 65535;
    unsigned seqs = step->num_seqs < 65535 ? step->num_seqs : 65535;
    launch_dependent(tokens_kernel, dim3(blocks, tokens), THREADS, 0, info, stream, p);
    launch_dependent(keep_kernel, dim3(blocks, seqs), THREADS, 0, info, stream, p);
}
