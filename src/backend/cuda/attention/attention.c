/* Memory of the paged cache and the attention ops. Decides which kernel handles which sequences. */
#include <stdlib.h>

#include "backend/cuda/attention/decode_shape.h"
#include "backend/cuda/cuda_ops.h"
#include "base/check.h"

// Size of all keys, or of all values, of one layer.
static size_t part_bytes(const struct kv_cache_spec *spec, size_t num_blocks) {
    return num_blocks * spec->block_size * spec->num_kv_heads * spec->head_dim * sizeof(uint16_t);
}

static bool has_kernels(uint32_t head_dim) {
    return head_dim == 32 || head_dim == 64 || head_dim == 96 || head_dim == 128 || head_dim == 256;
}

// Allocates work lists for the largest step.
static enum status plan_init(struct cuda_attention_plan *plan, const struct cuda_backend *cuda,
                             const struct kv_cache_spec *spec, struct err *err) {
    enum status status = OK;
    plan->max_seqs = spec->limits.max_num_seqs;
    struct cuda_decode_shape shape =
        cuda_decode_shape_of(&cuda->info, spec->num_heads, spec->num_kv_heads, spec->head_dim);
    plan->max_items = spec->limits.max_num_seqs + (uint32_t)shape.num_spans;
    plan->tile_tokens =
        cuda_prefill_tile(&cuda->info, spec->head_dim, spec->num_heads, spec->num_kv_heads);
    plan->max_tiles = spec->limits.max_num_tokens / plan->tile_tokens + spec->limits.max_num_seqs;
    size_t arrived = (size_t)plan->max_seqs * spec->num_heads * sizeof *plan->arrived;
    size_t piece = (size_t)spec->num_heads * (spec->head_dim + 2) * sizeof *plan->partial;
    CU(cudaMalloc((void **)&plan->items, plan->max_items * 8 * sizeof *plan->items));
    CU(cudaMalloc((void **)&plan->spans,
                  (size_t)shape.num_spans * sizeof(struct cuda_decode_span)));
    // A block loads a whole span; the plan does not write all fields of an empty one.
    CU(cudaMemsetAsync(plan->spans, 0, (size_t)shape.num_spans * sizeof(struct cuda_decode_span),
                       cuda->stream));
    CU(cudaMalloc((void **)&plan->tiles, plan->max_tiles * 4 * sizeof *plan->tiles));
    CU(cudaMalloc((void **)&plan->counts, 3 * sizeof *plan->counts));
    CU(cudaMalloc((void **)&plan->splits, plan->max_seqs * 2 * sizeof *plan->splits));
    CU(cudaMalloc((void **)&plan->arrived, arrived));
    CU(cudaMalloc((void **)&plan->partial, plan->max_items * piece));
    CU(cudaMemsetAsync(plan->arrived, 0, arrived, cuda->stream));
    return OK;
fail:
    return status;
}

static void plan_fini(struct cuda_attention_plan *plan) {
    cudaFree(plan->items);
    cudaFree(plan->spans);
    cudaFree(plan->tiles);
    cudaFree(plan->counts);
    cudaFree(plan->splits);
    cudaFree(plan->arrived);
    cudaFree(plan->partial);
}

enum status cuda_kv_cache_create(struct backend *backend, const struct kv_cache_spec *spec,
                                 struct kv_cache **out, struct err *err) {
    enum status status = OK;
    *out = NULL;
    if (!has_kernels(spec->head_dim)) {
        return err_set(err, ERR_UNSUPPORTED,
                       "head_dim %u: device cuda has kernels for 32, 64, 96, 128 and 256",
                       spec->head_dim);
    }
    if (spec->dtype != DTYPE_NONE && spec->dtype != DTYPE_BF16) {
        return err_set(err, ERR_UNSUPPORTED, "a KV cache of %s, device cuda stores BF16 only",
                       dtype_name(spec->dtype));
    }
    struct kv_cache *cache = calloc(1, sizeof *cache);
    if (!cache) return err_nomem(err, "KV cache");
    cache->spec = *spec;
    cache->part_bytes = part_bytes(spec, spec->num_blocks);
    size_t bytes = 2 * cache->part_bytes * spec->num_layers;
    CU(cudaMalloc((void **)&cache->data, bytes));
    // The cache is not cleared, which would take a while: no position is read before it is written.
    status = plan_init(&cache->plan, cuda_backend_of(backend), spec, err);
    if (status) goto fail;
    *out = cache;
    return OK;
fail:
    cuda_kv_cache_destroy(backend, cache);
    return status;
}

void cuda_kv_cache_destroy(struct backend *backend, struct kv_cache *cache) {
    (void)backend;
    if (!cache) return;
    plan_fini(&cache->plan);
    cudaFree(cache->data);
    free(cache);
}

size_t cuda_kv_cache_block_bytes(const struct backend *backend, const struct kv_cache_spec *spec) {
    (void)backend;
    return 2 * part_bytes(spec, 1) * spec->num_layers;
}

static struct cuda_kv_view view_of(const struct kv_cache *cache, uint32_t layer) {
    char *keys = cache->data + 2 * cache->part_bytes * layer;
    return (struct cuda_kv_view){
        .keys = keys,
        .values = keys + cache->part_bytes,
        .num_blocks = cache->spec.num_blocks,
        .block_size = cache->spec.block_size,
        .num_kv_heads = cache->spec.num_kv_heads,
        .head_dim = cache->spec.head_dim,
    };
}

void cuda_attention_prepare(struct backend *backend, const struct attention_args *args) {
    const struct cuda_kv_view view = view_of(args->cache, args->layer);
    struct cuda_backend *cuda = cuda_backend_of(backend);
    cuda_attention_prepare_launch(args, &view, &cuda->info, cuda->stream);
}

void cuda_attention_begin(struct backend *backend, struct kv_cache *cache,
                          const struct step *step) {
    struct cuda_backend *cuda = cuda_backend_of(backend);
    const struct kv_cache_spec *spec = &cache->spec;
    cuda->step = (struct cuda_step){.is_compact = cuda->step.is_compact};
    if (step->max_query_len == 1) {
        cuda->step.cluster_size = cuda_attention_cluster_size(
            &cuda->info, step->num_seqs, spec->num_heads, spec->num_kv_heads, spec->head_dim);
    }
    if (cuda->step.cluster_size) return; // needs no work lists
    cuda_attention_plan_launch(step, &cache->plan, spec, &cuda->info, cuda->stream);
}

// Sequences with one query token go to one kernel, those with more to another. Each kernel finds
// its own sequences in the work lists.
static void attend(struct cuda_backend *cuda, const struct attention_args *args, bool prepares) {
    CHECK(args->window == 0 && args->softcap == 0 && !args->sinks,
          "cuda has no window, softcap or sinks");
    const struct cuda_kv_view view = view_of(args->cache, args->layer);
    const struct cuda_attention_plan *plan = &args->cache->plan;
    const struct cuda_attention_choice choice = {
        .cluster_size = cuda->step.cluster_size,
        .is_compact = cuda->step.is_compact,
        .prepares = prepares,
        .starts_early = prepares && cuda->step.has_attended,
    };
    cuda->step.has_attended = true;
    if (choice.cluster_size) {
        cuda_attention_cluster_launch(args, &view, &choice, cuda->stream);
        return;
    }
    if (args->step->max_query_len > 1 && cuda_prefill_is_sm90(&cuda->info, args->head_dim)) {
        cuda_attention_prefill_sm90_launch(args, &view, plan, &cuda->info, cuda->stream);
    } else if (args->step->max_query_len > 1) {
        cuda_attention_prefill_launch(args, &view, plan, &cuda->info, cuda->stream);
    }
    cuda_attention_decode_launch(args, &view, plan, &choice, &cuda->info, cuda->stream);
}

void cuda_attention(struct backend *backend, const struct attention_args *args) {
    attend(cuda_backend_of(backend), args, false);
}

bool cuda_attend(struct backend *backend, const struct attention_args *args) {
    if (args->step->max_query_len > 1) return false;
    attend(cuda_backend_of(backend), args, true);
    return true;
}
