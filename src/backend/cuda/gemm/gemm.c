#include "backend/cuda/gemm/gemm.h"

#include <stdlib.h>

#include "backend/cuda/gemm/gemm_trial.h"

// is_added is not part of the key: it does not change which way is fastest.
static struct gemm_key key_of(const struct cuda_linear_task *task) {
    return (struct gemm_key){
        .rows = gemm_bucket(task->rows),
        .out = task->linear.out,
        .in = task->linear.in,
        .out_is_float = task->out_is_float,
        .has_bias = task->linear.bias != NULL,
        .is_gated = task->is_gated ? 1 + (uint32_t)task->activation : 0,
    };
}

void cuda_gemm_expect(struct cuda_gemm *g, uint32_t out, uint32_t in) {
    gemm_preload_shape(&g->preload, g, out, in);
}

void cuda_gemm_wait_loaded(struct cuda_gemm *g) {
    gemm_preload_wait(g->preload);
}

size_t cuda_gemm_later_bytes(const struct cuda_gemm *g) {
    return gemm_preload_later_bytes(g->preload);
}

bool cuda_gemm_run(struct cuda_gemm *g, const struct cuda_linear_task *task, bool leaves_loading,
                   cudaStream_t stream) {
    const struct gemm_key key = key_of(task);
    struct gemm_way way;
    bool is_known = gemm_cache_get(g->cache, &key, &way);
    if (is_known && leaves_loading && gemm_preload_has(g->preload, &key)) return true;
    if (!is_known) {
        bool is_timed = false;
        gemm_preload_wait(g->preload); // loading would delay what is timed
        if (!gemm_choose(g, task, stream, &way, &is_timed)) return false;
        // An untimed choice is not kept for the next start.
        if (is_timed) gemm_cache_put(g->cache, &key, &way);
        g->num_timed += is_timed;
    }
    gemm_preload_need(g->preload, &key);
    if (gemm_run_way(g, task, &way, stream)) return true;
    // A cached algorithm may not support every row count of its bucket.
    const struct gemm_way any = {.kind = KERNEL_CUBLAS};
    return gemm_run_way(g, task, &any, stream);
}

void cuda_gemm_write_timings(struct cuda_gemm *g) {
    gemm_cache_write(g->cache);
}

void cuda_gemm_read_timings(struct cuda_gemm *g) {
    gemm_cache_read(g->cache);
}

uint32_t cuda_gemm_num_timed(const struct cuda_gemm *g) {
    return g->num_timed;
}

enum status cuda_gemm_create(struct cuda_gemm **out, const struct cuda_gemm_options *options,
                             struct err *err) {
    *out = NULL;
    struct cuda_gemm *g = calloc(1, sizeof *g);
    if (!g) return err_nomem(err, "matrix products");
    g->info = options->info;
    enum status status = gemm_library_open(&g->library, err);
    if (status) goto fail;
    if (g->library.create(&g->handle)) {
        status = err_set(err, ERR_DEVICE, "cuBLASLt could not be started");
        goto fail;
    }
    if (cudaMalloc(&g->workspace, GEMM_WORKSPACE_BYTES) || cudaEventCreate(&g->start) ||
        cudaEventCreate(&g->stop)) {
        status = err_set(err, ERR_NOMEM, "no device memory for cuBLASLt's workspace");
        goto fail;
    }
    status = gemm_cache_open(&g->cache, options->cache_path, options->device_name,
                             g->library.version(), err);
    if (status) goto fail;
    *out = g;
    return OK;
fail:
    cuda_gemm_destroy(g);
    return status;
}

void cuda_gemm_destroy(struct cuda_gemm *g) {
    if (!g) return;
    gemm_preload_destroy(g->preload);
    gemm_cache_close(g->cache);
    if (g->start) cudaEventDestroy(g->start);
    if (g->stop) cudaEventDestroy(g->stop);
    cudaFree(g->workspace);
    if (g->handle) g->library.destroy(g->handle);
    gemm_library_close(&g->library);
    free(g);
}
