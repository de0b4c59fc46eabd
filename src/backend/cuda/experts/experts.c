/* Mixture of experts: holds a layer's experts as two linears with the outputs of all experts, one
 * expert after the other, and launches the kernels. A few tokens use kernels that read only each
 * token's own experts. More tokens are sorted by expert and run as grouped matrix products. Very
 * long calls are split, which bounds the scratch memory. Launch sizes depend only on the host's
 * numbers, so a recorded graph serves every choice of experts.
 *
 * Experts of a quantized checkpoint stay packed (linear/packed.h) where the device has a kernel for
 * any number of tokens. Otherwise they become bf16. */
#include <stdlib.h>

#include "backend/cuda/cuda_ops.h"
#include "backend/cuda/linear/packed.h"
#include "backend/cuda/linear/packed_load.h"
#include "base/check.h"
#include "base/compiler.h"

enum {
    // Gives 128 experts 512 rows each if 8 are chosen: enough to hide reading the weights. A
    // multiple of 4, so that the ids of a part begin where sort.cu can load four at once.
    CHUNK_TOKENS = 8192,
};

struct experts {
    struct experts_shape shape;
    struct linear gate_up; // [num_experts][2 * intermediate], or up alone
    struct linear down; // [num_experts][hidden]
    enum activation activation;
    int32_t *arrived; // [2]: counters of experts/packed_few_tokens.cu; NULL: not packed
};

static void linear_free(struct linear *linear) {
    cudaFree(linear->weight);
    cudaFree(linear->scales);
    cudaFree(linear->bias);
}

void cuda_experts_destroy(struct backend *backend, struct experts *experts) {
    (void)backend;
    if (!experts) return;
    linear_free(&experts->gate_up);
    linear_free(&experts->down);
    cudaFree(experts->arrived);
    free(experts);
}

// Size of one of an expert's three matrices in bf16.
static size_t matrix_bytes(const struct experts_shape *shape) {
    return (size_t)shape->hidden * shape->intermediate * sizeof(uint16_t);
}

// Of an expert.
static size_t bias_bytes(const struct experts_shape *shape) {
    return (2 * (size_t)shape->intermediate + shape->hidden) * sizeof(uint16_t);
}

// Inputs of packed weights, with those that have no codes in the checkpoint.
static uint32_t packed_inputs(uint32_t in) {
    return (in + CUDA_PACKED_BLOCK - 1) / CUDA_PACKED_BLOCK * CUDA_PACKED_BLOCK;
}

// The format in which all experts are kept.
static struct weight_format kept_format(const struct cuda_backend *cuda,
                                        const struct experts_shape *shape,
                                        struct weight_format format) {
    const struct kernel_job job = {.op = OP_EXPERTS, .format = format};
    if (shape->lacks_gate) return WEIGHTS_NATIVE; // no kernel takes packed ones
    bool has_tiles =
        shape->hidden % CUDA_PACKED_TILE == 0 && shape->intermediate % CUDA_PACKED_TILE == 0;
    if (!has_tiles || !kernel_table_has(KERNEL_PACKED_SORTED, &job, &cuda->info)) {
        return WEIGHTS_NATIVE;
    }
    format.rounds_inputs = false; // no kernel here does
    return cuda_packed_kept(format, CUDA_PACKED_TILE, CUDA_PACKED_BLOCK);
}

size_t cuda_experts_bytes(const struct backend *backend, const struct experts_shape *shape,
                          struct weight_format format) {
    size_t biases = (shape->has_bias ? bias_bytes(shape) : 0) * shape->num_experts;
    uint32_t count = shape->num_experts;
    format = kept_format(cuda_backend_of(backend), shape, format);
    uint32_t matrices = shape->lacks_gate ? 2 : 3;
    if (!weight_format_is_packed(format)) return matrices * matrix_bytes(shape) * count + biases;
    return cuda_packed_bytes(format, 2 * count * shape->intermediate,
                             packed_inputs(shape->hidden)) +
           cuda_packed_bytes(format, count * shape->hidden, packed_inputs(shape->intermediate)) +
           biases;
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

static enum status check_slices(const struct experts_spec *spec, struct err *err) {
    uint32_t hidden = spec->shape.hidden, intermediate = spec->shape.intermediate;
    enum status status = OK;
    for (uint32_t i = 0; i < spec->shape.num_experts && !status; i++) {
        if (spec->gate) status = check_slice(&spec->gate[i], intermediate, hidden, "gate", err);
        if (!status) status = check_slice(&spec->up[i], intermediate, hidden, "up", err);
        if (!status) status = check_slice(&spec->down[i], hidden, intermediate, "down", err);
    }
    return status;
}

static enum status copy_floats(struct cuda_backend *cuda, const struct linear_spec *spec,
                               struct linear *linear, struct err *err) {
    enum status status = OK;
    char *to;
    CU(cudaMalloc(&linear->weight, (size_t)linear->out * linear->in * sizeof(uint16_t)));
    to = linear->weight;
    for (uint32_t i = 0; i < spec->num_parts && !status; i++) {
        status = cuda_copy_weights(cuda, to, &spec->parts[i], err);
        to += (size_t)spec->parts[i].rows * linear->in * sizeof(uint16_t);
    }
fail:
    return status;
}

// Fills a linear with the outputs of all parts.
static enum status load_parts(struct cuda_backend *cuda, const struct matrix_slice *parts,
                              uint32_t num_parts, const struct experts_spec *spec,
                              struct linear *linear, struct err *err) {
    const struct linear_spec all = {.parts = parts, .num_parts = num_parts, .format = spec->format};
    linear->format = kept_format(cuda, &spec->shape, spec->format);
    bool is_packed = weight_format_is_packed(linear->format);
    linear->out = num_parts * parts[0].rows;
    linear->in = is_packed ? packed_inputs(parts[0].cols) : parts[0].cols;
    return is_packed ? cuda_packed_load(cuda, &all, linear, err)
                     : copy_floats(cuda, &all, linear, err);
}

static enum status load_weights(struct cuda_backend *cuda, const struct experts_spec *spec,
                                struct experts *experts, struct err *err) {
    uint32_t count = spec->shape.num_experts;
    enum status status = check_slices(spec, err);
    if (status) return status;
    struct matrix_slice *gate_up = malloc(2 * (size_t)count * sizeof *gate_up);
    if (!gate_up) return err_nomem(err, "experts");
    uint32_t num_parts = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (spec->gate) gate_up[num_parts++] = spec->gate[i];
        gate_up[num_parts++] = spec->up[i];
    }
    status = load_parts(cuda, gate_up, num_parts, spec, &experts->gate_up, err);
    if (!status) status = load_parts(cuda, spec->down, count, spec, &experts->down, err);
    free(gate_up);
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
    uint16_t *biases;
    CU(cudaMalloc(&experts->gate_up.bias, 2 * (size_t)num * size * sizeof(uint16_t)));
    biases = experts->gate_up.bias;
    status = copy_biases(cuda, spec->gate_bias, num, size, biases, 2 * (size_t)size, err);
    if (!status) {
        status = copy_biases(cuda, spec->up_bias, num, size, biases + size, 2 * (size_t)size, err);
    }
    if (status || !spec->down_bias) return status;
    CU(cudaMalloc(&experts->down.bias, (size_t)num * hidden * sizeof(uint16_t)));
    status = copy_biases(cuda, spec->down_bias, num, hidden, experts->down.bias, hidden, err);
fail:
    return status;
}

static enum status create_counters(struct cuda_backend *cuda, struct experts *experts,
                                   struct err *err) {
    enum { BYTES = 2 * sizeof *experts->arrived };
    enum status status = OK;
    CU(cudaMalloc((void **)&experts->arrived, BYTES));
    CU(cudaMemsetAsync(experts->arrived, 0, BYTES, cuda->stream));
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
    status = load_weights(cuda, spec, experts, err);
    if (!status && spec->shape.has_bias) status = create_biases(cuda, spec, experts, err);
    if (!status && weight_format_is_packed(experts->gate_up.format)) {
        status = create_counters(cuda, experts, err);
    }
    if (status) {
        cuda_experts_destroy(backend, experts); // cudaFree waits for copies in flight
    } else {
        *out = experts;
    }
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
    // `activated` must be directly before `gathered` and `down`. With a shared expert few_tokens.cu
    // stores num_tokens rows behind its end; cuda_experts_take_shared checks that they fit there.
    s.activated = take(base, &at, rows * shape->intermediate * sizeof(uint16_t));
    s.gathered = s.down = take(base, &at, rows * shape->hidden * sizeof(uint16_t));
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
    struct cuda_backend *cuda = cuda_backend_of(backend);
    if (args->num_tokens) cuda_route_launch(args, &cuda->info, cuda->stream);
}

bool cuda_norm_route(struct backend *backend, const struct norm_route_args *args) {
    struct cuda_backend *cuda = cuda_backend_of(backend);
    const struct linear *router = args->router;
    const struct kernel_job job = {.op = OP_NORM_ROUTE,
                                   .rows = args->route.num_tokens,
                                   .features = router->bias ? FEATURE_BIAS : 0u,
                                   .format = router->format,
                                   .out = router->out,
                                   .in = router->in};
    if (!args->route.num_tokens || !kernel_table_next(NULL, &job, &cuda->info)) return false;
    const struct cuda_linear_view view = cuda_linear_view_of(router);
    return cuda_norm_route_launch(args, &view, &cuda->info, cuda->stream);
}

// The kernel for a call.
static enum cuda_kernel kernel_for(const struct cuda_backend *cuda, const struct experts_args *args,
                                   const struct cuda_experts_view *view) {
    const struct kernel_job job = {.op = OP_EXPERTS,
                                   .rows = args->num_tokens,
                                   .format = args->experts->gate_up.format,
                                   .top_k = args->top_k,
                                   .num_experts = view->shape.num_experts,
                                   .inputs = {view->gate_up.in, view->down.in}};
    const struct kernel_row *row = kernel_table_next(NULL, &job, &cuda->info);
    CHECK(row, "no kernel: %u tokens of %u", args->num_tokens, args->top_k);
    return row->kernel;
}

// The kernel that takes it reads it as one more of the experts.
bool cuda_experts_take_shared(const struct backend *backend, const struct experts_args *args) {
    const struct cuda_backend *cuda = cuda_backend_of(backend);
    const struct experts *experts = args->experts;
    const struct linear *all[] = {args->shared.gate_up, args->shared.down, args->shared.gate};
    const struct cuda_experts_view view = {.gate_up = cuda_linear_view_of(&experts->gate_up),
                                           .down = cuda_linear_view_of(&experts->down),
                                           .shape = experts->shape};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        if (all[i] && (weight_format_is_packed(all[i]->format) || all[i]->bias)) return false;
    }
    // few_tokens.cu then stores num_tokens rows more than scratch.activated has. They run into
    // `gathered` and `down`, which layout_of puts behind it and few_tokens.cu does not use.
    bool has_room = (size_t)args->top_k * experts->shape.hidden >= experts->shape.intermediate;
    return args->num_tokens && has_room && experts->activation == ACTIVATION_SILU &&
           args->shared.down->in == experts->shape.intermediate &&
           kernel_for(cuda, args, &view) == KERNEL_FEW_TOKENS;
}

bool cuda_experts_add_sums(const struct backend *backend, const struct experts_args *args) {
    const struct experts *experts = args->experts;
    const struct cuda_experts_view view = {.gate_up = cuda_linear_view_of(&experts->gate_up),
                                           .down = cuda_linear_view_of(&experts->down),
                                           .shape = experts->shape};
    enum cuda_kernel kernel = kernel_for(cuda_backend_of(backend), args, &view);
    return kernel == KERNEL_FEW_TOKENS || kernel == KERNEL_PACKED_FEW_TOKENS;
}

static uint32_t tile_rows_of(enum cuda_kernel kernel, uint32_t rows, uint32_t num_experts) {
    switch (kernel) {
    case KERNEL_SORTED_SM90:
        return cuda_experts_sm90_tile_rows(rows, num_experts);
    case KERNEL_PACKED_SORTED:
        return cuda_experts_packed_tile_rows(rows, num_experts);
    default:
        return cuda_experts_tile_rows(rows, num_experts);
    }
}

static void run_sorted(struct cuda_backend *cuda, enum cuda_kernel kernel,
                       const struct experts_args *args, const struct cuda_experts_view *view,
                       const struct cuda_experts_scratch *scratch) {
    uint32_t rows = args->num_tokens * args->top_k;
    uint32_t tile_rows = tile_rows_of(kernel, rows, view->shape.num_experts);
    CHECK((uintptr_t)args->ids % 16 == 0, "ids at %p", (const void *)args->ids);
    cuda_experts_sort_launch(args, view, scratch, tile_rows, &cuda->info, cuda->stream);
    if (kernel != KERNEL_SORTED) {
        cuda_experts_spread_launch(args, view, scratch, &cuda->info, cuda->stream);
    }
    if (kernel == KERNEL_PACKED_SORTED) {
        cuda_experts_packed_gemm_launch(args, view, scratch, tile_rows, &cuda->info, cuda->stream);
    } else if (kernel == KERNEL_SORTED) {
        cuda_experts_gemm_launch(args, view, scratch, tile_rows, &cuda->info, cuda->stream);
    } else if (!cuda_experts_gemm_sm90_launch(args, view, scratch, tile_rows, &cuda->info,
                                              cuda->stream)) {
        cuda_fail(cuda, "a product of experts was refused");
    }
    cuda_experts_combine_launch(args, view, scratch, &cuda->info, cuda->stream);
}

void cuda_experts(struct backend *backend, const struct experts_args *args) {
    struct cuda_backend *cuda = cuda_backend_of(backend);
    const struct experts *experts = args->experts;
    struct cuda_experts_view view = {.gate_up = cuda_linear_view_of(&experts->gate_up),
                                     .down = cuda_linear_view_of(&experts->down),
                                     .activation = experts->activation,
                                     .shape = experts->shape};
    if (args->shared.down) {
        view.shared_gate_up = cuda_linear_view_of(args->shared.gate_up);
        view.shared_down = cuda_linear_view_of(args->shared.down);
        if (args->shared.gate) view.shared_gate = cuda_linear_view_of(args->shared.gate);
    }
    size_t bytes, row_bytes = experts->shape.hidden * sizeof(uint16_t);
    struct cuda_experts_scratch scratch =
        layout_of(args->scratch, &experts->shape, args->num_tokens, args->top_k, &bytes);
    if (args->num_tokens == 0) return;
    enum cuda_kernel kernel = kernel_for(cuda, args, &view);
    if (kernel == KERNEL_FEW_TOKENS) {
        cuda_experts_few_tokens_launch(args, &view, &scratch, &cuda->info, cuda->stream);
        return;
    }
    if (kernel == KERNEL_PACKED_FEW_TOKENS) {
        scratch.num_items = experts->arrived;
        cuda_experts_packed_few_launch(args, &view, &scratch, &cuda->info, cuda->stream);
        return;
    }
    CHECK(!args->is_added, "%u tokens", args->num_tokens);
    for (uint32_t first = 0; first < args->num_tokens; first += CHUNK_TOKENS) {
        uint32_t left = args->num_tokens - first;
        struct experts_args part = *args;
        part.num_tokens = left < CHUNK_TOKENS ? left : CHUNK_TOKENS;
        part.x = (const char *)args->x + first * row_bytes;
        part.out = (char *)args->out + first * row_bytes;
        part.ids += (size_t)first * args->top_k;
        part.weights += (size_t)first * args->top_k;
        run_sorted(cuda, kernel, &part, &view, &scratch);
    }
}
