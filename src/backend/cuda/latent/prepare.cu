/* Latent attention before its products (backend/latent.h): norms a token's latent, rotates the
 * other part of its key and writes both to the cache at the token's slot; rotates q_rope in place.
 * A row of the cache is CUDA_LATENT_DIM bf16, one slot's after the other.
 *
 * Bytes: a token's row twice and its q_rope twice, which is little. Launch: a block per token. */
#include "backend/cuda/device.cuh"
#include "backend/cuda/launch.cuh"

namespace {

constexpr int THREADS = CUDA_LATENT_RANK / 4, PAIRS = CUDA_LATENT_ROPE / 2;

struct prepare_params {
    const uint16_t *kv; // [num_tokens][CUDA_LATENT_DIM]
    uint16_t *q_rope; // [num_tokens][heads][CUDA_LATENT_ROPE]
    uint16_t *rows; // [slots][CUDA_LATENT_DIM]
    const float *norm, *rope;
    const int32_t *positions, *slots;
    int heads;
    float eps;
};

// Rotates the pair (x[0], x[PAIRS]) and writes it to `out`.
__device__ __forceinline__ void rotate(const uint16_t *x, const float *rope, uint16_t *out) {
    float first = bf16_low(x[0]), second = bf16_low(x[PAIRS]), cosine = rope[0], sine = rope[PAIRS];
    uint32_t pair = pack_bf16(first * cosine - second * sine, second * cosine + first * sine);
    out[0] = static_cast<uint16_t>(pair);
    out[PAIRS] = static_cast<uint16_t>(pair >> 16);
}

__global__ void __launch_bounds__(THREADS) prepare_kernel(prepare_params p) {
    __shared__ float squares[THREADS / 32];
    let_next_start();
    wait_for_earlier();
    size_t token = blockIdx.x;
    int thread = threadIdx.x, slot = of_step(p.slots)[token];
    const uint16_t *kv = of_step(p.kv) + token * CUDA_LATENT_DIM;
    const float *rope = p.rope + (size_t)of_step(p.positions)[token] * CUDA_LATENT_ROPE;
    uint2 pairs = *reinterpret_cast<const uint2 *>(kv + thread * 4);
    float v[4] = {bf16_low(pairs.x), bf16_high(pairs.x), bf16_low(pairs.y), bf16_high(pairs.y)};
    float square = warp_sum(v[0] * v[0] + v[1] * v[1] + v[2] * v[2] + v[3] * v[3]);
    if (thread % 32 == 0) squares[thread / 32] = square;
    __syncthreads();
    square = 0.0f;
    for (int i = 0; i < THREADS / 32; i++) square += squares[i];
    float scale = rsqrtf(square / CUDA_LATENT_RANK + p.eps);
    if (slot >= 0) {
        uint16_t *row = of_step(p.rows) + (size_t)slot * CUDA_LATENT_DIM;
        float4 norm = *reinterpret_cast<const float4 *>(p.norm + thread * 4);
        *reinterpret_cast<uint2 *>(row + thread * 4) =
            make_uint2(pack_bf16(v[0] * scale * norm.x, v[1] * scale * norm.y),
                       pack_bf16(v[2] * scale * norm.z, v[3] * scale * norm.w));
        if (thread < PAIRS) {
            int at = CUDA_LATENT_RANK + thread;
            rotate(kv + at, rope + thread, row + at);
        }
    }
    uint16_t *q = of_step(p.q_rope) + token * p.heads * CUDA_LATENT_ROPE;
    for (int i = thread; i < p.heads * PAIRS; i += THREADS) {
        uint16_t *x = q + i / PAIRS * CUDA_LATENT_ROPE + i % PAIRS;
        rotate(x, rope + i % PAIRS, x);
    }
}

} // namespace

extern "C" void cuda_latent_prepare_launch(const struct latent_args *args, void *rows,
                                           uint32_t num_heads, const struct cuda_device_info *info,
                                           cudaStream_t stream) {
    prepare_params p = {};
    p.kv = static_cast<const uint16_t *>(args->kv);
    p.q_rope = static_cast<uint16_t *>(args->q_rope);
    p.rows = static_cast<uint16_t *>(rows);
    p.norm = args->norm;
    p.rope = args->rope;
    p.positions = args->step->positions;
    p.slots = step_slots(args->step, args->kv_group);
    p.heads = static_cast<int>(num_heads);
    p.eps = args->eps;
    launch_dependent(prepare_kernel, dim3(args->step->num_tokens), THREADS, 0, info, stream, p);
}
