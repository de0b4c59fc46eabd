/* Embedding: out[t] = table[tokens[t] - vocab_start], zeros for rows that other ranks hold. Token
 * id -1 - r stands for previous[r].token_id, which the host may not have read yet.
 *
 * Bytes: 2 x num_tokens x hidden x 2. Launch: a block per token, 16 bytes per thread. The next
 * kernel may start early and load its weights. */
#include "backend/cuda/device.cuh"
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"

namespace {

__global__ void embed_kernel(const uint4 *table, const int32_t *tokens,
                             const sample_result *previous, uint4 *out, int vocab_start,
                             int vocab_size, int vectors) {
    let_next_start(); // rule 6: an ordinary launch
    int token = tokens[blockIdx.x];
    if (token < 0 && previous) token = previous[-1 - token].token_id;
    int row = token - vocab_start;
    bool here = row >= 0 && row < vocab_size;
    for (int i = threadIdx.x; i < vectors; i += blockDim.x) {
        out[(size_t)blockIdx.x * vectors + i] =
            here ? table[(size_t)row * vectors + i] : make_uint4(0, 0, 0, 0);
    }
}

} // namespace

extern "C" void cuda_embed_launch(const struct embed_args *args,
                                  const struct cuda_linear_view *table, cudaStream_t stream) {
    int vectors = static_cast<int>(table->in / 8);
    int threads = vectors < 256 ? (vectors + 31) / 32 * 32 : 256;
    embed_kernel<<<args->step->num_tokens, threads, 0, stream>>>(
        static_cast<const uint4 *>(table->weight), args->step->tokens, args->step->previous,
        static_cast<uint4 *>(args->out), args->vocab_start, static_cast<int>(table->out), vectors);
}
