/* Latent attention (backend/latent.h): the products of the heads' matrices, and attention over the
 * rows of the cache between them. Tokens go through in parts, so that the scratch memory does not
 * grow with the step. */
#include "backend/cuda/latent/latent.h"

#include <stdlib.h>

#include "backend/cuda/cuda_ops.h"
#include "base/check.h"

enum { QUERIES_MAX = 1 << 16, HEAD_STEP = 64 }; // of a part; of the lengths of heads

struct latent {
    struct latent_shape shape;
    void *keys; // dev bf16 [num_heads][rank][nope_dim]
    void *values; // dev bf16 [num_heads][value_dim][rank]
};

static void cuda_latent_destroy(struct backend *backend, struct latent *latent) {
    (void)backend;
    if (!latent) return;
    cudaFree(latent->keys);
    cudaFree(latent->values);
    free(latent);
}

static enum status cuda_latent_check_shape(const struct backend *backend,
                                           const struct latent_shape *shape, struct err *err) {
    const struct cuda_device_info *info = &cuda_backend_of(backend)->info;
    if (shape->rank != CUDA_LATENT_RANK || shape->rope_dim != CUDA_LATENT_ROPE ||
        shape->nope_dim % HEAD_STEP || shape->value_dim % HEAD_STEP) {
        return err_set(err, ERR_UNSUPPORTED,
                       "latents of %u and heads of %u, %u and %u: device cuda has latent attention "
                       "for 512, multiples of 64, 64, and multiples of 64",
                       shape->rank, shape->nope_dim, shape->rope_dim, shape->value_dim);
    }
    if (shape->scales_queries) {
        return err_set(err, ERR_UNSUPPORTED,
                       "device cuda has no latent attention with q scaled by its position");
    }
    if (cuda_latent_fits(info)) return OK;
    return err_set(err, ERR_UNSUPPORTED,
                   "latent attention needs more shared memory than this GPU's %d bytes",
                   info->shared_bytes_max);
}

static enum status copy_heads(struct cuda_backend *cuda, const struct matrix_slice *heads,
                              uint32_t num_heads, void *dev, struct err *err) {
    enum status status = OK;
    for (uint32_t i = 0; i < num_heads && !status; i++) {
        size_t count = (size_t)heads[i].rows * heads[i].cols;
        status = cuda_copy_weights(cuda, (uint16_t *)dev + i * count, &heads[i], err);
    }
    return status;
}

static enum status cuda_latent_create(struct backend *backend, const struct latent_spec *spec,
                                      struct latent **out, struct err *err) {
    struct cuda_backend *cuda = cuda_enter(backend);
    const struct latent_shape *s = &spec->shape;
    size_t row_bytes = (size_t)s->num_heads * s->rank * sizeof(uint16_t);
    *out = NULL;
    enum status status = OK;
    struct latent *latent = calloc(1, sizeof *latent);
    if (!latent) return err_nomem(err, "latent attention");
    latent->shape = *s;
    CU(cudaMalloc(&latent->keys, row_bytes * s->nope_dim));
    CU(cudaMalloc(&latent->values, row_bytes * s->value_dim));
    status = copy_heads(cuda, spec->keys, s->num_heads, latent->keys, err);
    if (!status) status = copy_heads(cuda, spec->values, s->num_heads, latent->values, err);
    if (status) goto fail;
    *out = latent;
    return OK;
fail:
    cuda_latent_destroy(backend, latent);
    return status;
}

static size_t cuda_latent_bytes(const struct backend *backend, const struct latent_shape *s) {
    (void)backend;
    return (size_t)s->num_heads * s->rank * (s->nope_dim + s->value_dim) * sizeof(uint16_t);
}

// Tokens of a part.
static uint32_t part_tokens(const struct latent_shape *shape, uint32_t num_tokens) {
    uint32_t most = QUERIES_MAX / shape->num_heads;
    return most < num_tokens ? most : num_tokens;
}

// Of the latents of queries, or of results, of a part.
static size_t latents_bytes(const struct latent_shape *shape, uint32_t num_tokens) {
    return (size_t)part_tokens(shape, num_tokens) * shape->num_heads * shape->rank *
           sizeof(uint16_t);
}

static size_t cuda_latent_scratch_bytes(const struct backend *backend,
                                        const struct latent_shape *shape, uint32_t num_tokens) {
    const struct cuda_device_info *info = &cuda_backend_of(backend)->info;
    return 2 * latents_bytes(shape, num_tokens) + cuda_latent_partial_bytes(info);
}

static void *at(const void *array, size_t count) {
    return (uint16_t *)(uintptr_t)array + count;
}

static void run_part(struct cuda_backend *cuda, const struct latent_args *args, const void *rows,
                     uint32_t first, uint32_t num) {
    const struct latent_shape *s = &args->latent->shape;
    size_t queries = (size_t)first * s->num_heads;
    char *latents = args->scratch;
    size_t bytes = latents_bytes(s, args->step->num_tokens);
    const struct cuda_latent_heads keys = {.x = at(args->q_nope, queries * s->nope_dim),
                                           .weight = args->latent->keys,
                                           .out = latents,
                                           .num_tokens = num,
                                           .num_heads = s->num_heads,
                                           .in = s->nope_dim,
                                           .outs = s->rank};
    const struct cuda_latent_attend attend = {.step = args->step,
                                              .kv_group = args->kv_group,
                                              .latents = latents,
                                              .q_rope = at(args->q_rope, queries * s->rope_dim),
                                              .rows = rows,
                                              .out = latents + bytes,
                                              .partial = latents + 2 * bytes,
                                              .first_token = first,
                                              .num_tokens = num,
                                              .num_heads = s->num_heads,
                                              .block_size = args->cache->spec.block_size,
                                              .scale = args->scale};
    const struct cuda_latent_heads values = {.x = latents + bytes,
                                             .weight = args->latent->values,
                                             .out = at(args->out, queries * s->value_dim),
                                             .num_tokens = num,
                                             .num_heads = s->num_heads,
                                             .in = s->rank,
                                             .outs = s->value_dim};
    cuda_latent_heads_launch(&keys, &cuda->info, cuda->stream);
    cuda_latent_attend_launch(&attend, &cuda->info, cuda->stream);
    cuda_latent_heads_launch(&values, &cuda->info, cuda->stream);
}

static void cuda_latent_attend(struct backend *backend, const struct latent_args *args) {
    struct cuda_backend *cuda = cuda_backend_of(backend);
    const struct latent_shape *s = &args->latent->shape;
    const struct kv_cache_spec *spec = &args->cache->spec;
    CHECK(args->layer < spec->num_layers && spec->latent_rank == s->rank, "layer=%u", args->layer);
    void *rows = args->cache->data + args->layer * args->cache->part_bytes;
    cuda_latent_prepare_launch(args, rows, s->num_heads, &cuda->info, cuda->stream);
    uint32_t num_tokens = args->step->num_tokens, most = part_tokens(s, num_tokens);
    for (uint32_t first = 0; first < num_tokens; first += most) {
        uint32_t left = num_tokens - first;
        run_part(cuda, args, rows, first, left < most ? left : most);
    }
}

const struct backend_latent cuda_latent = {
    .check_shape = cuda_latent_check_shape,
    .create = cuda_latent_create,
    .destroy = cuda_latent_destroy,
    .bytes = cuda_latent_bytes,
    .scratch_bytes = cuda_latent_scratch_bytes,
    .attend = cuda_latent_attend,
};
