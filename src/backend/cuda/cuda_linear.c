/* Linears as the checkpoint has them, [out][in] in bf16: what both cuBLASLt and the small kernel
 * read in whole lines. Nothing is packed, so a tied lm_head is the embedding table itself. */
#include <stdlib.h>

#include "backend/cuda/cuda_ops.h"
#include "backend/cuda/gemm.h"
#include "backend/cuda/staging.h"
#include "base/check.h"

static enum status copy_parts(struct cuda_backend *cuda, const struct linear_spec *spec,
                              struct linear *linear, struct err *err) {
    char *weight = linear->weight, *bias = linear->bias;
    for (uint32_t i = 0; i < spec->num_parts; i++) {
        enum status status = cuda_staging_copy(cuda->staging, weight, &spec->parts[i], err);
        if (!status && spec->biases) {
            status = cuda_staging_copy(cuda->staging, bias, &spec->biases[i], err);
        }
        if (status) return status;
        weight += (size_t)spec->parts[i].rows * linear->in * sizeof(uint16_t);
        bias += spec->biases ? (size_t)spec->parts[i].rows * sizeof(uint16_t) : 0;
    }
    return OK;
}

enum status cuda_linear_create(struct backend *backend, const struct linear_spec *spec,
                               struct linear **out, struct err *err) {
    struct cuda_backend *cuda = cuda_backend_of(backend);
    enum status status = OK;
    *out = NULL;
    struct linear *linear = calloc(1, sizeof *linear);
    if (!linear) return err_nomem(err, "linear");
    linear->in = spec->parts[0].cols;
    for (uint32_t i = 0; i < spec->num_parts; i++) linear->out += spec->parts[i].rows;
    if (linear->in % 8) {
        status = err_set(err, ERR_UNSUPPORTED,
                         "a matrix of %u columns: device cuda needs a multiple of 8", linear->in);
        goto fail;
    }
    CU(cudaMalloc(&linear->weight, (size_t)linear->out * linear->in * sizeof(uint16_t)));
    if (spec->biases) CU(cudaMalloc(&linear->bias, linear->out * sizeof(uint16_t)));
    status = copy_parts(cuda, spec, linear, err);
    if (status) goto fail;
    *out = linear;
    return OK;
fail:
    cuda_linear_destroy(backend, linear);
    return status;
}

void cuda_linear_destroy(struct backend *backend, struct linear *linear) {
    (void)backend;
    if (!linear) return;
    cudaFree(linear->weight);
    cudaFree(linear->bias);
    free(linear);
}

size_t cuda_linear_bytes(const struct backend *backend, uint32_t out, uint32_t in, bool bias) {
    (void)backend;
    return ((size_t)out * in + (bias ? out : 0)) * sizeof(uint16_t);
}

// Rows up to which linear_small.cu takes a linear, with its norm. Matrices of many inputs it reads
// at 3 TB/s, and the more slowly the more rows there are; the ways of many rows read the largest at
// 3.7 on a device that has linear_batch.cu, but want a kernel for the norm, which costs more than
// that where matrices are small. lm_head, which has no norm here, goes by the same limits
// (doc/kernels-cuda.md has what was measured). These are row counts of recorded steps, so that
// padding changes no way.
static uint32_t small_rows(const struct cuda_backend *cuda, const struct linear *linear) {
    enum { LARGE_BYTES = 32 << 20, HUGE_BYTES = 96 << 20, MANY_INPUTS = 2048 };
    enum { LARGE_ROWS = 8, HUGE_ROWS = 4 };
    const struct cuda_linear_task many = {.linear = cuda_linear_view_of(linear),
                                          .rows = CUDA_SMALL_ROWS};
    size_t bytes = (size_t)linear->out * linear->in * sizeof(uint16_t);
    if (bytes < LARGE_BYTES || !cuda_linear_batch_takes(&many, 1, &cuda->info)) {
        return CUDA_SMALL_ROWS;
    }
    return bytes < HUGE_BYTES || linear->in < MANY_INPUTS ? LARGE_ROWS : HUGE_ROWS;
}

uint32_t cuda_linear_norm_rows(const struct backend *backend, const struct linear *linear) {
    return small_rows((const struct cuda_backend *)backend, linear);
}

static void run_many(struct cuda_backend *cuda, const struct cuda_linear_task *task) {
    cuda->streams_weights = false;
    if (!cuda_gemm_run(cuda->gemm, task, cuda->stream)) {
        cuda_fail(cuda, "cuBLASLt refused a matrix product");
    }
}

static void run(struct backend *backend, const struct linear *linear, const void *x, void *out,
                uint32_t rows, bool out_is_float) {
    struct cuda_backend *cuda = cuda_backend_of(backend);
    const struct cuda_linear_view view = cuda_linear_view_of(linear);
    if (rows <= small_rows(cuda, linear)) {
        const struct cuda_small_linear small = {
            .linear = view, .x = x, .out = out, .rows = rows, .out_is_float = out_is_float};
        cuda->streams_weights = cuda_linear_small_launch(&small, &cuda->info, cuda->stream);
        return;
    }
    const struct cuda_linear_task task = {
        .linear = view, .x = x, .out = out, .rows = rows, .out_is_float = out_is_float};
    run_many(cuda, &task);
}

void cuda_linear(struct backend *backend, struct backend_stream *stream,
                 const struct linear_args *args) {
    (void)stream;
    run(backend, args->linear, args->x, args->out, args->rows, false);
}

void cuda_linear_fused(struct backend *backend, struct backend_stream *stream,
                       const struct linear_fused_args *args) {
    (void)stream;
    struct cuda_backend *cuda = cuda_backend_of(backend);
    if (args->rows > small_rows(cuda, args->linear)) {
        CHECK(!args->norm, "a norm with %u rows", args->rows);
        const struct cuda_linear_task task = {
            .linear = cuda_linear_view_of(args->linear),
            .x = args->x,
            .out = args->residual ? args->residual : args->out,
            .scratch = args->scratch,
            .rows = args->rows,
            .is_gated = args->is_gated,
            .is_added = args->residual != NULL,
        };
        run_many(cuda, &task);
        return;
    }
    const struct cuda_small_linear small = {
        .linear = cuda_linear_view_of(args->linear),
        .x = args->x,
        .norm = args->norm,
        .residual = args->residual,
        .out = args->out,
        .rows = args->rows,
        .is_gated = args->is_gated,
        .eps = args->eps,
    };
    cuda->streams_weights = cuda_linear_small_launch(&small, &cuda->info, cuda->stream);
}

void cuda_logits(struct backend *backend, struct backend_stream *stream,
                 const struct logits_args *args) {
    (void)stream;
    run(backend, args->linear, args->x, args->out, args->rows, true);
}
