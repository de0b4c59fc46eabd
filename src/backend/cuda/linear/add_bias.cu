/* out += bias for float32 results of cuBLASLt, which adds no bfloat16 bias to them: those of
 * routers with biases.
 *
 * Bytes: 2 x rows x columns x 4. Launch: a thread per column, rows along y. */
#include "backend/cuda/device.cuh"
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"

namespace {

constexpr int THREADS = 128;

__global__ void add_bias_kernel(const __nv_bfloat16 *bias, float *out, int rows, int columns) {
    let_next_start();
    wait_for_earlier();
    int i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= columns) return;
    float value = __bfloat162float(bias[i]);
    for (int row = blockIdx.y; row < rows; row += gridDim.y) {
        of_step(out)[(size_t)row * columns + i] += value;
    }
}

} // namespace

extern "C" void cuda_add_bias_launch(const struct cuda_linear_task *task,
                                     const struct cuda_device_info *info, cudaStream_t stream) {
    int columns = static_cast<int>(task->linear.out);
    dim3 grid(static_cast<unsigned>((columns + THREADS - 1) / THREADS),
              task->rows < 65535 ? task->rows : 65535);
    launch_dependent(add_bias_kernel, grid, THREADS, 0, info, stream,
                     static_cast<const __nv_bfloat16 *>(task->linear.bias),
                     static_cast<float *>(task->out), static_cast<int>(task->rows), columns);
}
