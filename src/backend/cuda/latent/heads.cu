/* A matrix for each head of some tokens: out[t][h] = W[h] x[t][h], in bf16. Latent attention has
 * two of these products, with `in` or `out` 512 and the other the length of a head.
 *
 * Bytes: all matrices once for each 64 tokens. Launch: a block for 64 outputs of a head and 64
 * tokens; a warp has 16 of the outputs and all tokens. The inputs come 64 at a time, in four
 * stages. Matrices do not depend on earlier kernels, so their first stages are fetched before the
 * wait. */
#include "backend/cuda/device.cuh"
#include "backend/cuda/launch.cuh"

namespace {

constexpr int TOKENS = 64, OUTS = 64, DEPTH = 64, THREADS = 128;
constexpr int ROW_CHUNKS = DEPTH / 8; // of 16 bytes
constexpr int STAGES = 4, STAGE_BYTES = (TOKENS + OUTS) * DEPTH * 2;

struct heads_params {
    const uint16_t *x, *weight; // [tokens][heads][in], [heads][out][in]
    uint16_t *out; // [tokens][heads][out]
    int tokens, heads, in, outs;
};

// Where a chunk of a stage's row is: the same chunk of 8 rows falls into different banks.
__device__ __forceinline__ uint32_t chunk_at(uint32_t base, int row, int chunk) {
    return base + (row * ROW_CHUNKS + (chunk ^ (row & 7))) * 16;
}

// Copies rows, `stride` elements apart, up to a multiple of 16, of which `rows` exist.
__device__ __forceinline__ void copy_rows(uint32_t base, const uint16_t *from, size_t stride,
                                          int rows) {
    for (int i = threadIdx.x; i < (rows + 15) / 16 * 16 * ROW_CHUNKS; i += THREADS) {
        int row = i / ROW_CHUNKS, chunk = i % ROW_CHUNKS;
        copy16_async(chunk_at(base, row, chunk),
                     from + (size_t)min(row, rows - 1) * stride + chunk * 8);
    }
}

__global__ void __launch_bounds__(THREADS) heads_kernel(heads_params p) {
    extern __shared__ __align__(128) unsigned char heads_memory[];
    let_next_start();
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, head = blockIdx.y;
    int first_out = blockIdx.x * OUTS, first_token = blockIdx.z * TOKENS;
    int tokens = min(TOKENS, p.tokens - first_token);
    size_t x_stride = (size_t)p.heads * p.in;
    const uint16_t *weight = p.weight + ((size_t)head * p.outs + first_out) * p.in;
    uint32_t base = shared_address(heads_memory), weights_at = TOKENS * DEPTH * 2;
    int steps = p.in / DEPTH;
    for (int k = 0; k < min(STAGES - 1, steps); k++) {
        copy_rows(base + k * STAGE_BYTES + weights_at, weight + k * DEPTH, p.in, OUTS);
    }
    wait_for_earlier();
    const uint16_t *x = of_step(p.x) + first_token * x_stride + (size_t)head * p.in;
    for (int k = 0; k < STAGES - 1; k++) {
        if (k < steps) copy_rows(base + k * STAGE_BYTES, x + k * DEPTH, x_stride, tokens);
        copy_commit();
    }
    float sums[TOKENS / 16][2][4] = {};
    for (int k = 0; k < steps; k++) {
        copy_wait<STAGES - 2>();
        __syncthreads(); // the stage is there, and the one before has been read
        int later = k + STAGES - 1;
        if (later < steps) {
            uint32_t next = base + later % STAGES * STAGE_BYTES;
            copy_rows(next, x + later * DEPTH, x_stride, tokens);
            copy_rows(next + weights_at, weight + later * DEPTH, p.in, OUTS);
        }
        copy_commit();
        uint32_t at = base + k % STAGES * STAGE_BYTES;
        for (int step = 0; step < DEPTH / 16; step++) {
            uint32_t b[4];
            load_matrix4(b, chunk_at(at + weights_at, warp * 16 + lane / 16 * 8 + lane % 8,
                                     step * 2 + lane / 8 % 2));
#pragma unroll
            for (int m = 0; m < TOKENS / 16; m++) {
                if (m * 16 >= tokens) break;
                uint32_t a[4];
                load_matrix4(a, chunk_at(at, m * 16 + lane % 16, step * 2 + lane / 16));
                multiply(sums[m][0], a, b[0], b[1]);
                multiply(sums[m][1], a, b[2], b[3]);
            }
        }
    }
#pragma unroll
    for (int m = 0; m < TOKENS / 16; m++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int token = m * 16 + half * 8 + lane / 4;
            if (token >= tokens) continue;
            size_t row = ((size_t)(first_token + token) * p.heads + head) * p.outs;
            uint16_t *out = of_step(p.out) + row + first_out + warp * 16 + lane % 4 * 2;
#pragma unroll
            for (int n = 0; n < 2; n++) {
                const float *sum = sums[m][n] + 2 * half;
                *reinterpret_cast<uint32_t *>(out + n * 8) = pack_bf16(sum[0], sum[1]);
            }
        }
    }
}

} // namespace

extern "C" void cuda_latent_heads_launch(const struct cuda_latent_heads *args,
                                         const struct cuda_device_info *info, cudaStream_t stream) {
    heads_params p = {};
    p.x = static_cast<const uint16_t *>(args->x);
    p.weight = static_cast<const uint16_t *>(args->weight);
    p.out = static_cast<uint16_t *>(args->out);
    p.tokens = static_cast<int>(args->num_tokens);
    p.heads = static_cast<int>(args->num_heads);
    p.in = static_cast<int>(args->in);
    p.outs = static_cast<int>(args->outs);
    dim3 grid(args->outs / OUTS, args->num_heads, (args->num_tokens + TOKENS - 1) / TOKENS);
    constexpr int BYTES = STAGES * STAGE_BYTES;
    allow_shared_bytes(heads_kernel, BYTES, info);
    launch_dependent(heads_kernel, grid, THREADS, BYTES, info, stream, p);
}
