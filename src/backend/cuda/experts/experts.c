/* Mixture of experts: holds a layer's experts in two arrays, expert by expert, and launches the
 * kernels. A few tokens use kernels that read only each token's own experts. More tokens are sorted
 * by expert and run as grouped matrix products. Very long calls are split, which bounds the scratch
 * memory. Launch sizes depend only on the host's numbers, so a recorded graph serves every choice
 * of experts. */
#include <stdlib.h>

#include "backend/cuda/cuda_ops.h"
#include "base/check.h"

enum {
    // Gives 128 experts 512 rows each if 8 are chosen: enough to hide reading the weights.
    CHUNK_TOKENS = 8192,
};

struct experts {
    struct experts_shape shape;
    void *gate_up; // dev bf16 [num_experts][2 * intermediate][hidden]
    void *down; // dev bf16 [num_experts][hidden][intermediate]
    uint16_t *gate_up_bias; // dev bf16 [num_experts][2 * intermediate] or NULL
    uint16_t *down_bias; // dev bf16 [num_experts][hidden] or NULL
    enum activation activation;
};

void cuda_experts_destroy(struct backend *backend, struct experts *experts) {
    (void)backend;
    if (!experts) return;
    cudaFree(experts->gate_up);
    cudaFree(experts->down);
    cudaFree(experts->gate_up_bias);
    cudaFree(experts->down_bias);
    free(experts);
}

// Size of one of an expert's three matrices.
static size_t matrix_bytes(const struct experts_shape *shape) {
    return (size_t)shape->hidden * shape->intermediate * sizeof(uint16_t);
}

// Of an expert.
static size_t bias_bytes(const struct experts_shape *shape) {
    return (2 * (size_t)shape->intermediate + shape->hidden) * sizeof(uint16_t);
}

size_t cuda_experts_bytes(const struct backend *backend, const struct experts_shape *shape,
                          struct weight_format format) {
    (void)backend, (void)format;
    size_t biases = shape->has_bias ? bias_bytes(shape) : 0;
    return (3 * matrix_bytes(shape) + biases) * shape->num_experts;
}

static enum status check_shape(const struct experts_shape *shape, struct err *err) {
    if (shape->hidden % 8 || shape->intermediate % 8) {
        return err_set(err, ERR_UNSUPPORTED,
                       "experts of hidden size %u and intermediate size %u: device cuda needs "
                       "multiples of 8",
                       shape->hidden, shape->intermediate);
    }
    if (shape->num_experts > CUDA_EXPERTS_MAX) {
        return err_set(err, ERR_UNSUPPORTED, "%u experts: device cuda takes at most %d",
                       shape->num_experts, CUDA_EXPERTS_MAX);
    }
    return OK;
}

static enum status check_slice(const struct matrix_slice *slice, uint32_t rows, uint32_t cols,
                               const char *name, struct err *err) {
    if (slice->rows != rows || slice->cols != cols) {
        return err_set(err, ERR_INVALID, "an expert's %s weights are [%u][%u], want [%u][%u]", name,
                       slice->rows, slice->cols, rows, cols);
    }
    if (slice->dtype != DTYPE_BF16 && slice->dtype != DTYPE_F16 && slice->dtype != DTYPE_F32) {
        return err_set(err, ERR_INVALID, "an expert's %s weights are %s, want BF16, F16 or F32",
                       name, dtype_name(slice->dtype));
    }
    return OK;
}

static enum status copy_expert(struct cuda_backend *cuda, const struct experts_spec *spec,
                               uint32_t i, struct experts *experts, struct err *err) {
    uint32_t hidden = spec->shape.hidden, intermediate = spec->shape.intermediate;
    size_t bytes = matrix_bytes(&spec->shape);
    char *gate = (char *)experts->gate_up + 2 * i * bytes, *up = gate + bytes;
    char *down = (char *)experts->down + i * bytes;
    enum status status = check_slice(&spec->gate[i], intermediate, hidden, "gate", err);
    if (!status) status = check_slice(&spec->up[i], intermediate, hidden, "up", err);
    if (!status) status = check_slice(&spec->down[i], hidden, intermediate, "down", err);
    if (!status) status = cuda_copy_weights(cuda, gate, &spec->gate[i], err);
    if (!status) status = cuda_copy_weights(cuda, up, &spec->up[i], err);
    if (!status) status = cuda_copy_weights(cuda, down, &spec->down[i], err);
    return status;
}

// Copies `biases` [num_experts] of `count` numbers each to rows that are `stride` numbers apart.
static enum status copy_biases(struct cuda_backend *cuda, const struct matrix_slice *biases,
                               uint32_t num_experts, uint32_t count, uint16_t *rows, size_t stride,
                               struct err *err) {
    for (uint32_t i = 0; i < num_experts; i++) {
        if (biases[i].rows != 1 || biases[i].cols != count) {
            return err_set(err, ERR_INVALID, "an expert's bias is [%u][%u], want [1][%u]",
                           biases[i].rows, biases[i].cols, count);
        }
        enum status status = cuda_copy_weights(cuda, rows + i * stride, &biases[i], err);
        if (status) return status;
    }
    return OK;
}

static enum status create_biases(struct cuda_backend *cuda, const struct experts_spec *spec,
                                 struct experts *experts, struct err *err) {
    uint32_t num = spec->shape.num_experts, hidden = spec->shape.hidden;
    uint32_t size = spec->shape.intermediate;
    enum status status = OK;
    CU(cudaMalloc((void **)&experts->gate_up_bias, 2 * (size_t)num * size * sizeof(uint16_t)));
    status =
        copy_biases(cuda, spec->gate_bias, num, size, experts->gate_up_bias, 2 * (size_t)size, err);
    if (!status) {
        status = copy_biases(cuda, spec->up_bias, num, size, experts->gate_up_bias + size,
                             2 * (size_t)size, err);
    }
    if (status || !spec->down_bias) return status;
    CU(cudaMalloc((void **)&experts->down_bias, (size_t)num * hidden * sizeof(uint16_t)));
    status = copy_biases(cuda, spec->down_bias, num, hidden, experts->down_bias, hidden, err);
fail:
    return status;
}

enum status cuda_experts_create(struct backend *backend, const struct experts_spec *spec,
                                struct experts **out, struct err *err) {
    struct cuda_backend *cuda = cuda_backend_of(backend);
    *out = NULL;
    enum status status = check_shape(&spec->shape, err);
    if (status) return status;
    struct experts *experts = calloc(1, sizeof *experts);
    if (!experts) return err_nomem(err, "experts");
    experts->shape = spec->shape;
    experts->activation = spec->activation;
    size_t all = matrix_bytes(&spec->shape) * spec->shape.num_experts;
    CU(cudaMalloc(&experts->gate_up, 2 * all));
    CU(cudaMalloc(&experts->down, all));
    for (uint32_t i = 0; i < spec->shape.num_experts; i++) {
        if ((status = copy_expert(cuda, spec, i, experts, err))) goto fail;
    }
    if (spec->shape.has_bias && (status = create_biases(cuda, spec, experts, err))) goto fail;
    *out = experts;
    return OK;
fail:
    cuda_experts_destroy(backend, experts); // cudaFree waits for copies in flight
    return status;
}

static void *take(char *base, size_t *offset, size_t bytes) {
    void *p = base ? base + *offset : NULL;
    *offset += (bytes + 63) & ~(size_t)63;
    return p;
}

// Divides the scratch memory. `base` may be NULL to compute only the size.
static struct cuda_experts_scratch layout_of(char *base, const struct experts_shape *shape,
                                             uint32_t num_tokens, uint32_t top_k, size_t *bytes) {
    size_t rows = (size_t)(num_tokens < CHUNK_TOKENS ? num_tokens : CHUNK_TOKENS) * top_k;
    CHECK(rows <= INT32_MAX, "num_tokens=%u top_k=%u", num_tokens, top_k);
    size_t count = shape->num_experts, used = rows < count ? rows : count;
    size_t items = rows / CUDA_EXPERTS_TILE_MIN + used; // at most one tile per expert is not full
    size_t at = 0;
    struct cuda_experts_scratch s;
    s.source = take(base, &at, rows * sizeof *s.source);
    s.position = take(base, &at, rows * sizeof *s.position);
    s.items = take(base, &at, items * 4 * sizeof *s.items);
    s.num_items = take(base, &at, sizeof *s.num_items);
    s.activated = take(base, &at, rows * shape->intermediate * sizeof(uint16_t));
    s.down = take(base, &at, rows * shape->hidden * sizeof(uint16_t));
    *bytes = at;
    return s;
}

size_t cuda_experts_scratch_bytes(const struct backend *backend, const struct experts_shape *shape,
                                  uint32_t num_tokens, uint32_t top_k) {
    (void)backend;
    size_t bytes;
    layout_of(NULL, shape, num_tokens, top_k, &bytes);
    return bytes;
}

void cuda_route(struct backend *backend, const struct route_args *args) {
    CHECK(args->top_k >= 1 && args->top_k <= args->num_experts, "top_k=%u", args->top_k);
    CHECK(args->num_experts <= CUDA_EXPERTS_MAX, "num_experts=%u", args->num_experts);
    if (args->num_tokens) cuda_route_launch(args, cuda_backend_of(backend)->stream);
}

static void run_sorted(struct cuda_backend *cuda, const struct experts_args *args,
                       const struct cuda_experts_view *view,
                       const struct cuda_experts_scratch *scratch) {
    uint32_t tile_rows =
        cuda_experts_tile_rows(args->num_tokens * args->top_k, view->shape.num_experts);
    cuda_experts_sort_launch(args, view, scratch, tile_rows, cuda->stream);
    cuda_experts_gemm_launch(args, view, scratch, tile_rows, &cuda->info, cuda->stream);
    cuda_experts_combine_launch(args, view, scratch, cuda->stream);
}

void cuda_experts(struct backend *backend, const struct experts_args *args) {
    struct cuda_backend *cuda = cuda_backend_of(backend);
    const struct experts *experts = args->experts;
    const struct cuda_experts_view view = {experts->gate_up,      experts->down,
                                           experts->gate_up_bias, experts->down_bias,
                                           experts->activation,   experts->shape};
    size_t bytes, row_bytes = experts->shape.hidden * sizeof(uint16_t);
    const struct cuda_experts_scratch scratch =
        layout_of(args->scratch, &experts->shape, args->num_tokens, args->top_k, &bytes);
    if (args->num_tokens == 0) return;
    const struct kernel_job job = {.op = OP_EXPERTS, .rows = args->num_tokens};
    const struct kernel_row *row = kernel_table_next(NULL, &job, &cuda->info);
    if (row && row->kernel == KERNEL_FEW_TOKENS) {
        cuda_experts_few_tokens_launch(args, &view, &scratch, cuda->stream);
        return;
    }
    for (uint32_t first = 0; first < args->num_tokens; first += CHUNK_TOKENS) {
        uint32_t left = args->num_tokens - first;
        struct experts_args part = *args;
        part.num_tokens = left < CHUNK_TOKENS ? left : CHUNK_TOKENS;
        part.x = (const char *)args->x + first * row_bytes;
        part.out = (char *)args->out + first * row_bytes;
        part.ids += (size_t)first * args->top_k;
        part.weights += (size_t)first * args->top_k;
        run_sorted(cuda, &part, &view, &scratch);
    }
}
