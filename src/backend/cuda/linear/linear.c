/* Linear layers with bf16 weights [out][in], as in the checkpoint. cuBLASLt and our kernels read
 * this layout in whole lines. Nothing is repacked, so a tied lm_head is the embedding table
 * itself. */
#include <stdlib.h>

#include "backend/cuda/cuda_ops.h"
#include "backend/cuda/linear/gemm.h"
#include "base/check.h"

static enum status copy_parts(struct cuda_backend *cuda, const struct linear_spec *spec,
                              struct linear *linear, struct err *err) {
    char *weight = linear->weight, *bias = linear->bias;
    for (uint32_t i = 0; i < spec->num_parts; i++) {
        enum status status = cuda_copy_weights(cuda, weight, &spec->parts[i], err);
        if (!status && spec->biases) {
            status = cuda_copy_weights(cuda, bias, &spec->biases[i], err);
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
    CHECK(cuda_has_format(backend, spec->format), "bits=%u", spec->format.bits);
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

bool cuda_has_format(const struct backend *backend, struct weight_format format) {
    (void)backend;
    return weight_format_is(format, WEIGHTS_NATIVE);
}

size_t cuda_linear_bytes(const struct backend *backend, uint32_t out, uint32_t in, bool bias,
                         struct weight_format format) {
    (void)backend, (void)format;
    return ((size_t)out * in + (bias ? out : 0)) * sizeof(uint16_t);
}

// Most rows of a linear that linear/few_rows.cu takes. With 5 to 8 rows, the kernels for many rows
// read huge matrices faster. But they need a separate kernel for the norm, which costs more than
// that on smaller matrices. lm_head has no norm here but uses the same limits (measurements:
// doc/log-cuda.md).
static uint32_t few_rows_max(const struct linear *linear) {
    enum { HUGE_BYTES = 96 << 20, MANY_INPUTS = 2048, HUGE_ROWS = 4 };
    size_t bytes = (size_t)linear->out * linear->in * sizeof(uint16_t);
    return bytes >= HUGE_BYTES && linear->in >= MANY_INPUTS ? HUGE_ROWS : CUDA_FEW_ROWS;
}

static void run_many(struct cuda_backend *cuda, const struct cuda_linear_task *task) {
    if (!cuda_gemm_run(cuda->gemm, task, cuda->stream)) {
        cuda_fail(cuda, "cuBLASLt refused a matrix product");
    }
    cuda->base.num_timed = cuda_gemm_num_timed(cuda->gemm);
}

void cuda_linear(struct backend *backend, const struct linear_args *args) {
    struct cuda_backend *cuda = cuda_backend_of(backend);
    const struct cuda_linear_view view = cuda_linear_view_of(args->linear);
    if (args->rows <= few_rows_max(args->linear)) {
        const struct cuda_few_rows_linear few = {.linear = view,
                                                 .x = args->x,
                                                 .out = args->out,
                                                 .rows = args->rows,
                                                 .out_is_float = args->out_is_float};
        cuda_linear_few_rows_launch(&few, &cuda->info, cuda->stream);
        return;
    }
    const struct cuda_linear_task task = {.linear = view,
                                          .x = args->x,
                                          .out = args->out,
                                          .rows = args->rows,
                                          .out_is_float = args->out_is_float};
    run_many(cuda, &task);
}

// Arguments for linear/few_rows.cu with the norm included. Valid only without `unadded`.
static struct cuda_few_rows_linear few_rows_in(const struct project_in_args *args) {
    return (struct cuda_few_rows_linear){
        .linear = cuda_linear_view_of(args->linear),
        .x = args->residual,
        .norm = args->norm,
        .out = args->out,
        .rows = args->rows,
        .is_gated = args->is_gated,
        .eps = args->eps,
    };
}

static void run_few_in(struct cuda_backend *cuda, const struct cuda_few_rows_linear *few) {
    cuda->step.is_compact = cuda_linear_few_rows_is_sm90(few, &cuda->info);
    cuda_linear_few_rows_launch(few, &cuda->info, cuda->stream);
}

bool cuda_project_in(struct backend *backend, const struct project_in_args *args) {
    struct cuda_backend *cuda = cuda_backend_of(backend);
    bool is_few = args->rows <= few_rows_max(args->linear);
    struct cuda_few_rows_linear few = few_rows_in(args);
    cuda->step.is_compact = false;
    if (is_few && args->norm && !args->unadded) {
        run_few_in(cuda, &few);
        return true;
    }
    const struct rms_norm_args norm = {
        .x = args->unadded ? args->unadded : args->residual,
        .residual = args->unadded ? args->residual : NULL,
        .weight = args->norm,
        .out = args->hidden,
        .rows = args->rows,
        .cols = args->linear->in,
        .eps = args->eps,
    };
    if (args->norm) cuda_rms_norm_launch(&norm, &cuda->info, cuda->stream);
    if (is_few) {
        few.x = args->hidden;
        few.norm = NULL;
        run_few_in(cuda, &few);
        return true;
    }
    const struct cuda_linear_task task = {
        .linear = cuda_linear_view_of(args->linear),
        .x = args->hidden,
        .out = args->out,
        .scratch = args->gate_up,
        .rows = args->rows,
        .is_gated = args->is_gated,
    };
    run_many(cuda, &task);
    return true;
}

bool cuda_project_out(struct backend *backend, const struct project_out_args *args) {
    struct cuda_backend *cuda = cuda_backend_of(backend);
    const struct cuda_linear_view view = cuda_linear_view_of(args->linear);
    if (args->rows <= few_rows_max(args->linear)) {
        const struct cuda_few_rows_linear few = {
            .linear = view, .x = args->x, .residual = args->residual, .rows = args->rows};
        cuda_linear_few_rows_launch(&few, &cuda->info, cuda->stream);
        return true;
    }
    const struct cuda_linear_task task = {
        .linear = view,
        .x = args->x,
        .out = args->residual,
        .scratch = args->projected,
        .rows = args->rows,
        .is_added = true,
    };
    run_many(cuda, &task);
    return true;
}
