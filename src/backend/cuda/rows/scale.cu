/* out = factor * x or out += factor * x, 8 elements per thread. scale_rows has a factor for each
 * row.
 *
 * Bytes: (2 or 3) x count x 2. Launch: as many blocks of 256 threads as the count needs. */
#include "backend/cuda/device.cuh"
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"

namespace {

constexpr int THREADS = 256;

__device__ __forceinline__ uint32_t scaled_pair(uint32_t x, uint32_t sum, float factor) {
    return pack_bf16(bf16_low(sum) + factor * bf16_low(x), bf16_high(sum) + factor * bf16_high(x));
}

__global__ void scale_kernel(const uint4 *x, uint4 *out, size_t vectors, float factor, bool adds) {
    let_next_start();
    wait_for_earlier();
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= vectors) return;
    uint4 v = of_step(x)[i];
    uint4 sum = adds ? of_step(out)[i] : make_uint4(0, 0, 0, 0);
    of_step(out)[i] = make_uint4(scaled_pair(v.x, sum.x, factor), scaled_pair(v.y, sum.y, factor),
                                 scaled_pair(v.z, sum.z, factor), scaled_pair(v.w, sum.w, factor));
}

__global__ void scale_rows_kernel(uint4 *x, const float *factors, size_t vectors, int row_vectors) {
    let_next_start();
    wait_for_earlier();
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= vectors) return;
    float factor = of_step(factors)[i / row_vectors];
    uint4 v = of_step(x)[i];
    of_step(x)[i] = make_uint4(scaled_pair(v.x, 0, factor), scaled_pair(v.y, 0, factor),
                               scaled_pair(v.z, 0, factor), scaled_pair(v.w, 0, factor));
}

} // namespace

extern "C" void cuda_scale_launch(const struct scale_args *args,
                                  const struct cuda_device_info *info, cudaStream_t stream) {
    size_t vectors = args->count / 8;
    launch_dependent(scale_kernel, dim3(static_cast<unsigned>((vectors + THREADS - 1) / THREADS)),
                     THREADS, 0, info, stream, static_cast<const uint4 *>(args->x),
                     static_cast<uint4 *>(args->out), vectors, args->factor, args->adds);
}

extern "C" void cuda_scale_rows_launch(const struct scale_rows_args *args,
                                       const struct cuda_device_info *info, cudaStream_t stream) {
    size_t vectors = (size_t)args->rows * (args->cols / 8);
    launch_dependent(scale_rows_kernel,
                     dim3(static_cast<unsigned>((vectors + THREADS - 1) / THREADS)), THREADS, 0,
                     info, stream, static_cast<uint4 *>(args->x), args->factors, vectors,
                     static_cast<int>(args->cols / 8));
}
