/* Writes what changed in the block tables: tables[to + i] = blocks[from + i], for each run of
 * entries. A step of decodes has a run of one entry for each sequence that begins a block; an
 * admitted sequence has one run with all its blocks.
 *
 * Launch: one block for each run, outside of recorded steps. Without runs it only loads the
 * kernel. */
#include "backend/cuda/device.cuh"
#include "backend/cuda/kernels.h"

namespace {

constexpr int THREADS = 128;

__global__ void __launch_bounds__(THREADS)
    update_tables_kernel(int32_t *tables, const table_run *runs, const int32_t *blocks,
                         uint32_t num_runs) {
    if (blockIdx.x >= num_runs) return;
    table_run run = runs[blockIdx.x];
    for (uint32_t i = threadIdx.x; i < run.count; i += THREADS) {
        tables[run.to + i] = blocks[run.from + i];
    }
}

} // namespace

extern "C" void cuda_update_tables_launch(const struct update_tables_args *args,
                                          cudaStream_t stream) {
    uint32_t blocks = args->num_runs ? args->num_runs : 1;
    update_tables_kernel<<<blocks, THREADS, 0, stream>>>(args->tables, args->runs, args->blocks,
                                                         args->num_runs);
}
