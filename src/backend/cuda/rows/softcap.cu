/* x = cap * tanh(x / cap), in place: Gemma's limit of logits.
 *
 * Bytes: 2 x count x 4. Launch: as many blocks of 256 threads as the count needs. */
#include "backend/cuda/device.cuh"
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"

namespace {

constexpr int THREADS = 256;

__global__ void softcap_kernel(float *x, size_t count, float cap) {
    let_next_start();
    wait_for_earlier();
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < count) of_step(x)[i] = cap * tanhf(of_step(x)[i] / cap);
}

} // namespace

extern "C" void cuda_softcap_launch(const struct softcap_args *args,
                                    const struct cuda_device_info *info, cudaStream_t stream) {
    launch_dependent(softcap_kernel,
                     dim3(static_cast<unsigned>((args->count + THREADS - 1) / THREADS)), THREADS, 0,
                     info, stream, args->x, args->count, args->cap);
}
