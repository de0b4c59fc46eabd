#include "backend/cuda/cuda_backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda_ops.h"
#include "backend/cuda/gemm.h"
#include "backend/cuda/staging.h"
#include "base/cpu.h"

enum { COPY_THREADS_MAX = 8 };

enum status cuda_error(struct err *err, cudaError_t error, const char *call) {
    enum status status = error == cudaErrorMemoryAllocation ? ERR_NOMEM : ERR_DEVICE;
    return err_set(err, status, "CUDA: %s: %s", call, cudaGetErrorString(error));
}

void cuda_fail(struct cuda_backend *cuda, const char *what) {
    if (cuda->failure) return;
    cuda->failure = ERR_DEVICE;
    snprintf(cuda->failure_text, sizeof cuda->failure_text, "CUDA: %s", what);
}

static void check(struct cuda_backend *cuda, cudaError_t error, const char *what) {
    if (error == cudaSuccess) return;
    char text[sizeof cuda->failure_text];
    snprintf(text, sizeof text, "%s: %s", what, cudaGetErrorString(error));
    cuda_fail(cuda, text);
}

static enum status cuda_alloc(struct backend *backend, size_t bytes, void **dev, struct err *err) {
    enum status status = OK;
    void *memory = NULL;
    CU(cudaMalloc(&memory, bytes ? bytes : 1));
    CU(cudaMemsetAsync(memory, 0, bytes, cuda_backend_of(backend)->stream));
    *dev = memory;
    return OK;
fail:
    cudaFree(memory);
    return status;
}

static void cuda_release(struct backend *backend, void *dev) {
    (void)backend;
    cudaFree(dev);
}

static void cuda_upload(struct backend *backend, struct backend_stream *stream, void *dev,
                        const void *host, size_t bytes) {
    (void)stream;
    struct cuda_backend *cuda = cuda_backend_of(backend);
    if (!bytes) return;
    check(cuda, cudaMemcpyAsync(dev, host, bytes, cudaMemcpyHostToDevice, cuda->stream), "upload");
}

static void cuda_download(struct backend *backend, struct backend_stream *stream, void *host,
                          const void *dev, size_t bytes) {
    (void)stream;
    struct cuda_backend *cuda = cuda_backend_of(backend);
    if (!bytes) return;
    check(cuda, cudaMemcpyAsync(host, dev, bytes, cudaMemcpyDeviceToHost, cuda->stream),
          "download");
}

static enum status cuda_synchronize(struct backend *backend, struct backend_stream *stream,
                                    struct err *err) {
    (void)stream;
    struct cuda_backend *cuda = cuda_backend_of(backend);
    check(cuda, cudaGetLastError(), "a kernel could not be started");
    check(cuda, cudaStreamSynchronize(cuda->stream), "the device failed");
    if (!cuda->failure) return OK;
    return err_set(err, cuda->failure, "%s", cuda->failure_text);
}

static enum status cuda_memory(struct backend *backend, size_t *free_bytes, size_t *total_bytes,
                               struct err *err) {
    (void)backend;
    enum status status = OK;
    CU(cudaMemGetInfo(free_bytes, total_bytes));
    return OK;
fail:
    return status;
}

// Room for the work lists of the largest step; lists are per sequence and per piece of one.
static enum status attention_plan_init(struct cuda_backend *cuda,
                                       const struct attention_limits *limits, struct err *err) {
    enum status status = OK;
    struct cuda_attention_plan *plan = &cuda->attention;
    uint32_t pieces = (uint32_t)cuda_attention_units_wanted(&cuda->info) / limits->num_kv_heads + 1;
    plan->max_seqs = limits->max_num_seqs;
    plan->max_items = limits->max_num_seqs + pieces;
    plan->max_tiles = limits->max_num_tokens / CUDA_PREFILL_TILE + limits->max_num_seqs;
    size_t arrived = (size_t)plan->max_seqs * limits->num_heads * sizeof *plan->arrived;
    size_t row = (size_t)limits->num_heads * (limits->head_dim + 2) * sizeof *plan->partial;
    CU(cudaMalloc((void **)&plan->items, plan->max_items * 4 * sizeof *plan->items));
    CU(cudaMalloc((void **)&plan->tiles, plan->max_tiles * 4 * sizeof *plan->tiles));
    CU(cudaMalloc((void **)&plan->counts, 2 * sizeof *plan->counts));
    CU(cudaMalloc((void **)&plan->splits, plan->max_seqs * 2 * sizeof *plan->splits));
    CU(cudaMalloc((void **)&plan->arrived, arrived));
    CU(cudaMalloc((void **)&plan->partial, plan->max_items * row));
    CU(cudaMemsetAsync(plan->arrived, 0, arrived, cuda->stream));
    return OK;
fail:
    return status;
}

static void attention_plan_fini(struct cuda_attention_plan *plan) {
    cudaFree(plan->items);
    cudaFree(plan->tiles);
    cudaFree(plan->counts);
    cudaFree(plan->splits);
    cudaFree(plan->arrived);
    cudaFree(plan->partial);
}

static void cuda_destroy(struct backend *backend) {
    struct cuda_backend *cuda = cuda_backend_of(backend);
    cuda_gemm_destroy(cuda->gemm);
    cuda_staging_destroy(cuda->staging);
    attention_plan_fini(&cuda->attention);
    if (cuda->stream) cudaStreamDestroy(cuda->stream);
    free(cuda);
}
