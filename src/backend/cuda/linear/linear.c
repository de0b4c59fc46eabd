/* Linear layers with bf16 weights [out][in], as in the checkpoint. cuBLASLt and our kernels read
 * this layout in whole lines. Nothing is repacked, so a tied lm_head is the embedding table
 * itself. */
#include <stdlib.h>

#include "backend/cuda/cuda_ops.h"
#include "backend/cuda/gemm/gemm.h"
#include "backend/cuda/linear/e4m3_run.h"
#include "backend/cuda/linear/packed.h"
#include "backend/cuda/linear/packed_load.h"
#include "base/check.h"

// Copies weights, unless they are packed, and biases.
static enum status copy_parts(struct cuda_backend *cuda, const struct linear_spec *spec,
                              struct linear *linear, bool is_packed, struct err *err) {
    char *weight = linear->weight, *bias = linear->bias;
    for (uint32_t i = 0; i < spec->num_parts; i++) {
        enum status status = is_packed ? OK : cuda_copy_weights(cuda, weight, &spec->parts[i], err);
        if (!status && spec->biases) {
            status = cuda_copy_weights(cuda, bias, &spec->biases[i], err);
        }
        if (status) return status;
        if (!is_packed) weight += (size_t)spec->parts[i].rows * linear->in * sizeof(uint16_t);
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
    cuda_gemm_expect(cuda->gemm, linear->out, linear->in);
    linear->format = cuda_packed_kept(spec->format, linear->out, linear->in);
    bool is_packed = weight_format_is_packed(linear->format);
    if (linear->in % 8) {
        status = err_set(err, ERR_UNSUPPORTED,
                         "a matrix of %u columns: device cuda needs a multiple of 8", linear->in);
        goto fail;
    }
    if (spec->biases) CU(cudaMalloc(&linear->bias, linear->out * sizeof(uint16_t)));
    if (!is_packed) {
        CU(cudaMalloc(&linear->weight, (size_t)linear->out * linear->in * sizeof(uint16_t)));
    }
    status = copy_parts(cuda, spec, linear, is_packed, err);
    if (!status && is_packed) status = cuda_packed_load(cuda, spec, linear, err);
    if (!status && is_packed) status = cuda_packed_grow_unpacked(cuda, linear, err);
    if (status) goto fail;
    if (is_packed) cuda_e4m3_wait(cuda, linear);
    *out = linear;
    return OK;
fail:
    cuda_linear_destroy(backend, linear);
    return status;
}

void cuda_linear_destroy(struct backend *backend, struct linear *linear) {
    if (!linear) return;
    cuda_e4m3_forget(cuda_backend_of(backend), linear);
    cudaFree(linear->weight);
    cudaFree(linear->scales);
    cudaFree(linear->block_scales);
    cudaFree(linear->plain);
    cudaFree(linear->bias);
    free(linear);
}

bool cuda_has_format(const struct backend *backend, struct weight_format format) {
    (void)backend;
    return kernel_format_bits(format) != 0;
}

size_t cuda_linear_bytes(const struct backend *backend, uint32_t out, uint32_t in, bool bias,
                         struct weight_format format) {
    (void)backend;
    size_t bias_bytes = (bias ? out : 0) * sizeof(uint16_t);
    format = cuda_packed_kept(format, out, in);
    if (weight_format_is_packed(format)) return cuda_packed_bytes(format, out, in) + bias_bytes;
    return (size_t)out * in * sizeof(uint16_t) + bias_bytes;
}

static struct kernel_job job_of(const struct linear *linear, uint32_t rows, uint32_t features) {
    return (struct kernel_job){.op = OP_LINEAR,
                               .rows = rows,
                               .features = features | (linear->bias ? FEATURE_BIAS : 0u),
                               .format = linear->format,
                               .out = linear->out,
                               .in = linear->in,
                               .has_plain = linear->plain != NULL,
                               .has_block_scales = linear->block_scales != NULL,
                               .split = 1};
}

static const struct kernel_row *row_for(const struct cuda_backend *cuda,
                                        const struct kernel_job *job) {
    const struct kernel_row *row = kernel_table_next(NULL, job, &cuda->info);
    CHECK(row, "no kernel: out=%u in=%u features=%x", job->out, job->in, job->features);
    return row;
}

static void run_many(struct cuda_backend *cuda, const struct cuda_linear_task *task) {
    bool adds_bias = task->linear.bias && task->out_is_float;
    struct cuda_linear_task product = *task;
    if (adds_bias) product.linear.bias = NULL;
    if (!cuda_gemm_run(cuda->gemm, &product, cuda->base.leaves_loading, cuda->stream)) {
        cuda_fail(cuda, "cuBLASLt refused a matrix product");
    }
    if (adds_bias) cuda_add_bias_launch(task, &cuda->info, cuda->stream);
    cuda->base.num_timed = cuda_gemm_num_timed(cuda->gemm);
}

// Writes the weights as bf16 first.
static void run_unpacked(struct cuda_backend *cuda, const struct cuda_linear_task *task) {
    struct cuda_linear_task unpacked = *task;
    cuda_packed_unpack_launch(cuda->unpacked, &task->linear, cuda->stream);
    unpacked.linear = (struct cuda_linear_view){.weight = cuda->unpacked,
                                                .bias = task->linear.bias,
                                                .out = task->linear.out,
                                                .in = task->linear.in};
    run_many(cuda, &unpacked);
}

// Runs the row's kernel. `scratch`: as in a task, for kernels of many rows, which do no norm.
static void run(struct cuda_backend *cuda, const struct kernel_row *row,
                const struct cuda_few_rows_linear *few, void *scratch) {
    const struct cuda_linear_task task = {
        .linear = few->linear,
        .x = few->x,
        .out = few->residual ? few->residual : few->out,
        .scratch = scratch,
        .rows = few->rows,
        .is_gated = few->is_gated,
        .activation = few->activation,
        .is_added = few->residual != NULL,
        .out_is_float = few->out_is_float,
    };
    switch (row->kernel) {
    case KERNEL_FEW_ROWS_SM90:
        cuda_linear_few_rows_sm90_launch(few, row->number, &cuda->info, cuda->stream);
        break;
    case KERNEL_FEW_ROWS_RING:
        cuda_linear_few_rows_ring_launch(few, &cuda->info, cuda->stream);
        break;
    case KERNEL_FEW_ROWS:
        cuda_linear_few_rows_launch(few, &cuda->info, cuda->stream);
        break;
    case KERNEL_PACKED_FEW_ROWS:
        cuda_packed_few_rows_launch(few, &cuda->info, cuda->stream);
        break;
    case KERNEL_E4M3_BATCH:
        cuda_e4m3_run(cuda, few, &task, true);
        break;
    case KERNEL_E4M3:
        cuda_e4m3_run(cuda, few, &task, false);
        break;
    case KERNEL_PACKED_BATCH:
        if (!cuda_packed_batch_launch(&task, 0, &cuda->info, cuda->stream)) {
            cuda_fail(cuda, "a product of packed weights was refused");
        }
        break;
    case KERNEL_UNPACKED:
        run_unpacked(cuda, &task);
        break;
    default:
        run_many(cuda, &task);
    }
}

void cuda_linear(struct backend *backend, const struct linear_args *args) {
    struct cuda_backend *cuda = cuda_backend_of(backend);
    const struct kernel_job job =
        job_of(args->linear, args->rows, args->out_is_float ? FEATURE_FLOAT_OUT : 0u);
    const struct cuda_few_rows_linear few = {.linear = cuda_linear_view_of(args->linear),
                                             .x = args->x,
                                             .out = args->out,
                                             .rows = args->rows,
                                             .out_is_float = args->out_is_float};
    run(cuda, row_for(cuda, &job), &few, NULL);
}

// Does the norm, and the sum before it, as an op of its own.
static void run_norm(struct cuda_backend *cuda, const struct project_in_args *args) {
    const struct rms_norm_args norm = {
        .x = args->unadded ? args->unadded : args->residual,
        .residual = args->unadded ? args->residual : NULL,
        .weight = args->norm,
        .out = args->hidden,
        .rows = args->rows,
        .cols = args->linear->in,
        .eps = args->eps,
    };
    cuda_rms_norm_launch(&norm, &cuda->info, cuda->stream);
}

static const struct kernel_row *row_of_project_out(const struct cuda_backend *cuda,
                                                   const struct linear *linear, uint32_t rows) {
    const struct kernel_job job = job_of(linear, rows, FEATURE_ADDED);
    return row_for(cuda, &job);
}

static bool rounds_rows(const struct kernel_row *row) {
    return row->kernel == KERNEL_E4M3_BATCH || row->kernel == KERNEL_E4M3;
}

bool cuda_project_in(struct backend *backend, const struct project_in_args *args) {
    struct cuda_backend *cuda = cuda_backend_of(backend);
    bool is_silu = args->activation == ACTIVATION_SILU;
    uint32_t gated = args->is_gated ? FEATURE_GATED : 0u;
    const struct kernel_job normed = job_of(args->linear, args->rows, gated | FEATURE_NORM);
    const struct kernel_job plain = job_of(args->linear, args->rows, gated);
    // No kernel adds `unadded`, and those for many rows have no norm.
    bool can_norm = args->norm && !args->unadded;
    const struct kernel_row *row = can_norm ? kernel_table_next(NULL, &normed, &cuda->info) : NULL;
    bool has_norm = row != NULL;
    if (!has_norm) row = row_for(cuda, &plain);
    if (!is_silu && !(row->features & FEATURE_ACTIVATION)) return false;
    if (args->norm && !has_norm) run_norm(cuda, args);
    cuda->step.leaves_gating = args->is_gated && args->reader && rounds_rows(row) &&
                               rounds_rows(row_of_project_out(cuda, args->reader, args->rows));
    cuda->step.is_compact = row->kernel == KERNEL_FEW_ROWS_SM90;
    const struct cuda_few_rows_linear few = {.linear = cuda_linear_view_of(args->linear),
                                             .x = has_norm ? args->residual : args->hidden,
                                             .norm = has_norm ? args->norm : NULL,
                                             .out = args->out,
                                             .rows = args->rows,
                                             .is_gated = args->is_gated,
                                             .activation = args->activation,
                                             .eps = args->eps};
    run(cuda, row, &few, args->gate_up);
    return true;
}

bool cuda_project_out(struct backend *backend, const struct project_out_args *args) {
    struct cuda_backend *cuda = cuda_backend_of(backend);
    const struct kernel_row *row = row_of_project_out(cuda, args->linear, args->rows);
    const struct cuda_few_rows_linear few = {.linear = cuda_linear_view_of(args->linear),
                                             .x = args->x,
                                             .residual = args->residual,
                                             .rows = args->rows};
    run(cuda, row, &few, args->projected);
    return true;
}
