/* Memory of the paged cache and the attention ops. Decides which kernel handles which sequences. */
#include <stdlib.h>

#include "backend/cuda/attention/decode_shape.h"
#include "backend/cuda/cuda_ops.h"
#include "backend/kv_cache_dtype.h"
#include "base/check.h"

static bool has_shapes(const struct kv_cache_spec *spec) {
    return spec->num_shapes > 0;
}

static struct kv_shape shape_of(const struct kv_cache_spec *spec, uint32_t index) {
    if (has_shapes(spec)) return spec->shapes[index];
    return (struct kv_shape){spec->num_kv_heads, spec->head_dim};
}

// The rows of one layer: values are parts of keys (latent/latent.c).
static size_t latent_bytes(const struct kv_cache_spec *spec, size_t num_blocks) {
    return num_blocks * spec->block_size * spec->head_dim * sizeof(uint16_t);
}

// Size of the keys, or of the values, of one layer.
static size_t part_bytes(const struct kv_cache_spec *spec, struct kv_shape shape,
                         size_t num_blocks) {
    size_t tiles = num_blocks * (spec->block_size / CUDA_DECODE_TILE) * shape.num_kv_heads;
    return tiles * cuda_kv_tile_bytes(spec->dtype, shape.head_dim);
}

// Of keys and values of a block, before a place.
static size_t bytes_before(const struct kv_cache_spec *spec, const struct kv_place *place) {
    size_t scales = cuda_kv_tile_bytes(spec->dtype, 0),
           element = cuda_kv_tile_bytes(spec->dtype, 1);
    return 2 * (size_t)(spec->block_size / CUDA_DECODE_TILE) *
           (place->num_heads * scales + place->num_elements * (element - scales));
}

// The kernel for a step's decodes, or for its prompts. NULL: there is none for this head_dim.
static const struct kernel_row *row_for(const struct cuda_device_info *info, enum kernel_op op,
                                        const struct kv_cache_spec *spec, struct kv_shape shape,
                                        uint32_t num_seqs, uint32_t features) {
    uint32_t of_cache = (cuda_kv_has_codes(spec->dtype) ? FEATURE_KV_CODES : 0u) |
                        (has_shapes(spec) ? FEATURE_KV_SHAPES : 0u);
    const struct kernel_job job = {.op = op,
                                   .rows = num_seqs,
                                   .features = features | of_cache,
                                   .num_heads = spec->num_heads,
                                   .num_kv_heads = shape.num_kv_heads,
                                   .head_dim = shape.head_dim};
    return kernel_table_next(NULL, &job, info);
}

static struct kv_shape shape_of_plan(const struct cuda_attention_plan *plan) {
    return (struct kv_shape){plan->num_kv_heads, plan->head_dim};
}

static bool is_prefill_sm90(const struct cuda_device_info *info, const struct kv_cache_spec *spec,
                            struct kv_shape shape, uint32_t extras) {
    const struct kernel_row *row = row_for(info, OP_PREFILL, spec, shape, 1, extras);
    return row && row->kernel == KERNEL_PREFILL_SM90;
}

// Bytes of a block of the copy: its keys and its values.
static size_t copy_block_bytes(const struct kv_cache_spec *spec) {
    return 2 * (size_t)CUDA_KV_COPY_BLOCK * spec->num_kv_heads * spec->head_dim * sizeof(uint16_t);
}

// Blocks for the copy of a layer's prompts in bf16: the prompts of a large step, or a long prompt's
// positions.
static uint32_t copy_blocks(const struct cuda_device_info *info, const struct kv_cache_spec *spec) {
    enum { POSITIONS_MAX = 1 << 16, BYTES_MAX = 256 << 20 };
    if (!cuda_kv_has_codes(spec->dtype) || has_shapes(spec)) return 0;
    if (!is_prefill_sm90(info, spec, shape_of(spec, 0), 0)) return 0;
    uint64_t positions = 2 * (uint64_t)spec->limits.max_num_tokens + spec->limits.max_positions;
    if (positions > POSITIONS_MAX) positions = POSITIONS_MAX;
    uint64_t blocks = (positions + CUDA_KV_COPY_BLOCK - 1) / CUDA_KV_COPY_BLOCK;
    uint64_t most = BYTES_MAX / copy_block_bytes(spec);
    return (uint32_t)(blocks < most ? blocks : most);
}

// The step's prompts take at most so many blocks of the copy. 0: they are read from the cache,
// because the copy is too small or may cost more than it saves. The host knows the prompts' sums
// alone.
static uint32_t num_copies(const struct cuda_attention_plan *plan, const struct step *step) {
    enum { PRODUCTS_MIN = 256 }; // of a KV head's queries with each position (doc/log-cuda.md)
    if (!plan->can_copy || !step->num_prompts) return 0;
    uint32_t num_tokens = step->num_tokens - (step->num_seqs - step->num_prompts);
    uint32_t queries = num_tokens / step->num_prompts; // mean
    uint64_t positions = step->prompt_positions;
    if (plan->window) {
        if (queries > plan->window) queries = plan->window;
        uint64_t seen = num_tokens + (uint64_t)step->num_prompts * plan->window;
        if (positions > seen) positions = seen;
    }
    if (queries * (plan->num_heads / plan->num_kv_heads) < PRODUCTS_MIN) return 0;
    // A sequence's last block may be a part of one, and its first behind a window.
    uint64_t parts = (plan->window ? 2 : 1) * (uint64_t)step->num_prompts;
    uint64_t blocks = positions / CUDA_KV_COPY_BLOCK + parts;
    return blocks <= plan->max_copies ? (uint32_t)blocks : 0;
}

// What a plan's lists are made for. prefill_sm90.cu takes two heads that share K and V. If groups
// are odd it takes one head and twice the tokens.
static void plan_set(struct cuda_attention_plan *plan, const struct cuda_device_info *info,
                     const struct kv_cache_spec *spec, uint32_t window, uint32_t extras) {
    bool is_sm90 = is_prefill_sm90(info, spec, shape_of_plan(plan), extras);
    bool has_pairs = plan->num_heads / plan->num_kv_heads % 2 == 0;
    plan->window = window;
    plan->extras = extras;
    plan->tile_tokens = is_sm90 && !has_pairs ? 2 * CUDA_PREFILL_TILE : CUDA_PREFILL_TILE;
    plan->can_copy = is_sm90 && plan->max_copies;
}

static struct cuda_decode_shape decode_shape_of(const struct cuda_device_info *info,
                                                const struct kv_cache_spec *spec,
                                                struct kv_shape shape) {
    return cuda_decode_shape_of(info, spec->num_heads, shape.num_kv_heads, shape.head_dim,
                                spec->dtype);
}

// Slots for the results of shared prefixes in the largest step. 0: prefixes are not shared.
static uint32_t max_shared_slots(const struct cuda_device_info *info,
                                 const struct kv_cache_spec *spec, struct kv_shape shape) {
    if (!row_for(info, OP_SHARED, spec, shape, 1, 0)) return 0;
    return cuda_shared_slots_max(info, spec->num_heads, spec->limits.max_num_seqs);
}

// Bytes of the results that an attention leaves for its own end, in the largest step.
static size_t partial_bytes(const struct cuda_device_info *info, const struct kv_cache_spec *spec) {
    uint32_t num_shapes = has_shapes(spec) ? spec->num_shapes : 1;
    size_t most = 0;
    for (uint32_t i = 0; i < num_shapes; i++) {
        struct kv_shape shape = shape_of(spec, i);
        size_t results = (size_t)decode_shape_of(info, spec, shape).num_spans +
                         spec->limits.max_num_seqs + max_shared_slots(info, spec, shape);
        size_t bytes = results * spec->num_heads * (shape.head_dim + 2) * sizeof(float);
        if (bytes > most) most = bytes;
    }
    return most;
}

// Allocates work lists for the largest step.
static enum status plan_init(struct cuda_attention_plan *plan, const struct cuda_backend *cuda,
                             const struct kv_cache_spec *spec, struct kv_shape shape,
                             struct err *err) {
    enum status status = OK;
    plan->max_seqs = spec->limits.max_num_seqs;
    plan->num_heads = spec->num_heads;
    plan->num_kv_heads = shape.num_kv_heads;
    plan->head_dim = shape.head_dim;
    plan->kv_dtype = spec->dtype;
    plan->has_layers = !has_shapes(spec);
    struct cuda_decode_shape decode = decode_shape_of(&cuda->info, spec, shape);
    plan->max_items = spec->limits.max_num_seqs + (uint32_t)decode.num_spans;
    plan->max_tiles = spec->limits.max_num_tokens / CUDA_PREFILL_TILE + spec->limits.max_num_seqs;
    plan->max_copies = copy_blocks(&cuda->info, spec);
    plan_set(plan, &cuda->info, spec, 0, 0);
    plan->max_shared_slots = max_shared_slots(&cuda->info, spec, shape);
    CU(cudaMalloc((void **)&plan->items, plan->max_items * 8 * sizeof *plan->items));
    CU(cudaMalloc((void **)&plan->spans,
                  (size_t)decode.num_spans * sizeof(struct cuda_decode_span)));
    // A block loads a whole span; the plan does not write all fields of an empty one.
    CU(cudaMemsetAsync(plan->spans, 0, (size_t)decode.num_spans * sizeof(struct cuda_decode_span),
                       cuda->stream));
    CU(cudaMalloc((void **)&plan->tiles, plan->max_tiles * 4 * sizeof *plan->tiles));
    if (plan->max_copies) {
        CU(cudaMalloc((void **)&plan->copies, plan->max_copies * 4 * sizeof *plan->copies));
    }
    CU(cudaMalloc((void **)&plan->counts, 5 * sizeof *plan->counts));
    CU(cudaMalloc((void **)&plan->splits, plan->max_seqs * 4 * sizeof *plan->splits));
    return OK;
fail:
    return status;
}

static uint32_t num_plans(const struct kv_cache *cache) {
    return cache->num_groups * cache->num_shapes;
}

// One plan for each KV group and shape. They share the memory for what an attention leaves for its
// own end.
static enum status plans_init(struct kv_cache *cache, const struct cuda_backend *cuda,
                              struct err *err) {
    enum status status = OK;
    const struct kv_cache_spec *spec = &cache->spec;
    for (uint32_t i = 0; i < num_plans(cache); i++) {
        struct kv_shape shape = shape_of(spec, i % cache->num_shapes);
        status = plan_init(&cache->plans[i], cuda, spec, shape, err);
        if (status) return status;
    }
    struct cuda_attention_plan *first = &cache->plans[0];
    size_t arrived = (size_t)first->max_seqs * spec->num_heads * sizeof *first->arrived;
    CU(cudaMalloc((void **)&first->arrived, arrived));
    CU(cudaMalloc((void **)&first->partial, partial_bytes(&cuda->info, spec)));
    CU(cudaMemsetAsync(first->arrived, 0, arrived, cuda->stream));
    for (uint32_t i = 1; i < num_plans(cache); i++) {
        cache->plans[i].arrived = first->arrived;
        cache->plans[i].partial = first->partial;
    }
    return OK;
fail:
    return status;
}

static void plans_fini(struct kv_cache *cache) {
    for (uint32_t i = 0; i < num_plans(cache); i++) {
        cudaFree(cache->plans[i].items);
        cudaFree(cache->plans[i].spans);
        cudaFree(cache->plans[i].tiles);
        cudaFree(cache->plans[i].copies);
        cudaFree(cache->plans[i].counts);
        cudaFree(cache->plans[i].splits);
    }
    cudaFree(cache->plans[0].arrived);
    cudaFree(cache->plans[0].partial);
}

static enum status check_head_dim(const struct cuda_device_info *info,
                                  const struct kv_cache_spec *spec, struct kv_shape shape,
                                  struct err *err) {
    if (row_for(info, OP_DECODE, spec, shape, 1, 0) && row_for(info, OP_PREFILL, spec, shape, 1, 0))
        return OK;
    if (shape.head_dim == 512) {
        return err_set(err, ERR_UNSUPPORTED,
                       "head_dim 512: its kernels on device cuda take %d bytes of shared memory, "
                       "and this GPU has %d",
                       CUDA_WIDE_HEADS_BYTES, info->shared_bytes_max);
    }
    bool has_codes = cuda_kv_has_codes(spec->dtype);
    return err_set(err, ERR_UNSUPPORTED, "head_dim %u: device cuda has kernels for %s%s",
                   shape.head_dim, has_codes ? "32, 64" : "32, 64, 80",
                   has_codes ? ", 96, 128, 160, 256 and 512 with 8-bit keys and values"
                             : ", 96, 128, 160, 256 and 512");
}

static enum status create_latent(const struct kv_cache_spec *spec, struct kv_cache **out,
                                 struct err *err) {
    enum status status = OK;
    if (spec->dtype != DTYPE_NONE && spec->dtype != DTYPE_BF16) {
        return err_set(err, ERR_UNSUPPORTED, "a KV cache of latents in %s, device cuda stores BF16",
                       dtype_name(spec->dtype));
    }
    struct kv_cache *cache = calloc(1, sizeof *cache);
    if (!cache) return err_nomem(err, "KV cache");
    cache->spec = *spec;
    cache->part_bytes = latent_bytes(spec, spec->num_blocks);
    cache->block_bytes = latent_bytes(spec, 1) * spec->num_layers;
    CU(cudaMalloc((void **)&cache->data, cache->block_bytes * spec->num_blocks));
    *out = cache;
    return OK;
fail:
    free(cache);
    return status;
}

enum status cuda_kv_cache_create(struct backend *backend, const struct kv_cache_spec *spec,
                                 struct kv_cache **out, struct err *err) {
    enum status status = OK;
    *out = NULL;
    if (spec->latent_rank) return create_latent(spec, out, err);
    uint32_t num_shapes = has_shapes(spec) ? spec->num_shapes : 1;
    CHECK(num_shapes <= KV_SHAPES_MAX, "%u shapes", num_shapes);
    for (uint32_t i = 0; i < num_shapes; i++) {
        status = check_head_dim(&cuda_backend_of(backend)->info, spec, shape_of(spec, i), err);
        if (status) return status;
    }
    if (spec->dtype != DTYPE_NONE && !backend_has_kv_cache_dtype(backend, spec->dtype)) {
        return err_set(err, ERR_UNSUPPORTED,
                       "a KV cache of %s, device cuda stores BF16, I8 and F8_E4M3",
                       dtype_name(spec->dtype));
    }
    struct kv_cache *cache = calloc(1, sizeof *cache);
    if (!cache) return err_nomem(err, "KV cache");
    cache->spec = *spec;
    cache->num_shapes = num_shapes;
    cache->block_bytes = cuda_kv_cache_block_bytes(backend, spec);
    cache->part_bytes = part_bytes(spec, shape_of(spec, 0), spec->num_blocks);
    CU(cudaMalloc((void **)&cache->data, cache->block_bytes * spec->num_blocks));
    // The cache is not cleared, which would take a while: no position is read before it is written.
    cache->copy_blocks = copy_blocks(&cuda_backend_of(backend)->info, spec);
    if (cache->copy_blocks) {
        CU(cudaMalloc((void **)&cache->copy, cache->copy_blocks * copy_block_bytes(spec)));
    }
    cache->num_groups = spec->limits.num_kv_groups ? spec->limits.num_kv_groups : 1;
    CHECK(cache->num_groups <= KV_GROUPS_MAX, "%u KV groups", cache->num_groups);
    status = plans_init(cache, cuda_backend_of(backend), err);
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
    plans_fini(cache);
    cudaFree(cache->copy);
    cudaFree(cache->data);
    free(cache);
}

size_t cuda_kv_cache_block_bytes(const struct backend *backend, const struct kv_cache_spec *spec) {
    (void)backend;
    if (spec->latent_rank) return latent_bytes(spec, 1) * spec->num_layers;
    if (has_shapes(spec)) return bytes_before(spec, &spec->block_end);
    return 2 * part_bytes(spec, shape_of(spec, 0), 1) * spec->num_layers;
}

size_t cuda_kv_cache_workspace_bytes(const struct backend *backend,
                                     const struct kv_cache_spec *spec) {
    const struct cuda_device_info *info = &cuda_backend_of(backend)->info;
    if (spec->latent_rank) return 0; // latent/latent.c has scratch memory of its own
    uint32_t blocks = copy_blocks(info, spec);
    return partial_bytes(info, spec) + (blocks ? blocks * copy_block_bytes(spec) : 0);
}

static struct cuda_kv_view view_of(const struct attention_args *args) {
    const struct kv_cache *cache = args->cache;
    const struct kv_cache_spec *spec = &cache->spec;
    const struct kv_shape shape = {args->num_kv_heads, args->head_dim};
    size_t part_of_block = part_bytes(spec, shape, 1);
    size_t first = 2 * cache->part_bytes * args->layer, values = cache->part_bytes;
    size_t stride = part_of_block;
    if (has_shapes(spec)) {
        first = bytes_before(spec, &args->place);
        values = part_of_block;
        stride = cache->block_bytes;
        CHECK(first + 2 * part_of_block <= stride, "kv_heads=%u head_dim=%u place=%zu",
              args->num_kv_heads, args->head_dim, first);
    }
    return (struct cuda_kv_view){
        .keys = cache->data + first,
        .values = cache->data + first + values,
        .num_blocks = spec->num_blocks,
        .block_size = spec->block_size,
        .num_kv_heads = args->num_kv_heads,
        .head_dim = args->head_dim,
        .block_chunks = (uint32_t)(stride / 16),
        .dtype = spec->dtype,
    };
}

// The copy of a layer's prompts, as a cache of bf16.
static struct cuda_kv_view view_of_copy(const struct kv_cache *cache) {
    size_t part = copy_block_bytes(&cache->spec) / 2;
    return (struct cuda_kv_view){
        .keys = cache->copy,
        .values = cache->copy + cache->copy_blocks * part,
        .num_blocks = cache->copy_blocks,
        .block_size = CUDA_KV_COPY_BLOCK,
        .num_kv_heads = cache->spec.num_kv_heads,
        .head_dim = cache->spec.head_dim,
        .block_chunks = (uint32_t)(part / 16),
        .dtype = DTYPE_BF16,
    };
}

bool cuda_shares_prefixes(const struct backend *backend, const struct kv_cache_spec *spec) {
    const struct cuda_backend *cuda = cuda_backend_of(backend);
    if (spec->latent_rank) return false;
    return !has_shapes(spec) && row_for(&cuda->info, OP_SHARED, spec, shape_of(spec, 0), 1, 0);
}

void cuda_attention_prepare(struct backend *backend, const struct attention_args *args) {
    const struct cuda_kv_view view = view_of(args);
    struct cuda_backend *cuda = cuda_backend_of(backend);
    cuda_attention_prepare_launch(args, &view, &cuda->info, cuda->stream);
}

static void make_lists(const struct cuda_backend *cuda, struct cuda_attention_plan *plan,
                       uint32_t kv_group, const struct step *step) {
    plan->num_copies = num_copies(plan, step);
    bool shares =
        step->shared.num && plan->max_shared_slots && !kv_group && !plan->window && !plan->extras;
    plan->shared_tiles = shares
                             ? cuda_shared_item_tiles(&cuda->info, &step->shared, plan->num_heads,
                                                      plan->num_kv_heads, plan->max_shared_slots)
                             : 0;
    cuda_attention_plan_launch(step, plan, kv_group, &cuda->info, cuda->stream);
    plan->has_layers = plan->is_current = true;
}

static bool has_longer_queries(const struct step *step) {
    return step->num_tokens > step->num_seqs;
}

static uint32_t mixed_of(const struct step *step) {
    return (has_longer_queries(step) ? FEATURE_MIXED : 0u) |
           (step->shared.num ? FEATURE_SHARED : 0u);
}

static bool is_by_clusters(const struct kernel_row *row) {
    return row && row->kernel == KERNEL_DECODE_CLUSTER;
}

// Work lists are made here for the layers that the last step had: their groups, shapes and windows.
// These are the same in every step, so only a first step makes lists in plan_of.
void cuda_attention_begin(struct backend *backend, struct kv_cache *cache,
                          const struct step *step) {
    struct cuda_backend *cuda = cuda_backend_of(backend);
    const struct kv_cache_spec *spec = &cache->spec;
    const struct kv_shape shape = shape_of(spec, 0); // clusters take no other
    uint32_t mixed = mixed_of(step);
    cuda->step = (struct cuda_step){.is_compact = cuda->step.is_compact};
    if (spec->latent_rank) return;
    if (is_by_clusters(row_for(&cuda->info, OP_DECODE, spec, shape, step->num_seqs, mixed))) {
        cuda->step.cluster_size = cuda_attention_cluster_size(
            &cuda->info, step->num_seqs, spec->num_heads, shape.num_kv_heads, shape.head_dim);
    }
    for (uint32_t i = 0; i < num_plans(cache); i++) {
        struct cuda_attention_plan *plan = &cache->plans[i];
        const struct kernel_row *row = row_for(&cuda->info, OP_DECODE, spec, shape_of_plan(plan),
                                               step->num_seqs, mixed | plan->extras);
        plan->is_current = false;
        if (plan->has_layers && !is_by_clusters(row)) { // those need no lists
            make_lists(cuda, plan, i / cache->num_shapes, step);
        }
    }
}

// The plan of these layers.
static struct cuda_attention_plan *find_plan(const struct attention_args *args) {
    struct kv_cache *cache = args->cache;
    CHECK(args->kv_group < cache->num_groups, "KV group %u", args->kv_group);
    struct cuda_attention_plan *plans = &cache->plans[args->kv_group * cache->num_shapes];
    for (uint32_t i = 0; i < cache->num_shapes; i++) {
        if (plans[i].num_kv_heads == args->num_kv_heads && plans[i].head_dim == args->head_dim) {
            return &plans[i];
        }
    }
    CHECK(false, "kv_heads=%u head_dim=%u", args->num_kv_heads, args->head_dim);
    return NULL;
}

// The step's work lists for these layers.
static const struct cuda_attention_plan *plan_of(struct cuda_backend *cuda,
                                                 const struct attention_args *args,
                                                 uint32_t extras) {
    struct cuda_attention_plan *plan = find_plan(args);
    if (plan->is_current && plan->window == args->window && plan->extras == extras) {
        return plan;
    }
    plan_set(plan, &cuda->info, &args->cache->spec, args->window, extras);
    make_lists(cuda, plan, args->kv_group, args->step);
    cuda->step.has_attended = false; // the next attention waits for the lists
    return plan;
}

// Features that the kernel must have for these scores.
static uint32_t extras_of(const struct attention_args *args) {
    return (args->softcap != 0 ? FEATURE_SOFTCAP : 0u) | (args->sinks ? FEATURE_SINKS : 0u) |
           (args->is_chunked ? FEATURE_CHUNKS : 0u);
}

static uint32_t features_of(const struct attention_args *args) {
    return extras_of(args) | (args->window ? FEATURE_WINDOW : 0u) |
           (args->kv_group ? FEATURE_KV_GROUP : 0u);
}

static const struct kernel_row *decode_row(const struct cuda_backend *cuda,
                                           const struct attention_args *args) {
    const struct kv_shape shape = {args->num_kv_heads, args->head_dim};
    return row_for(&cuda->info, OP_DECODE, &args->cache->spec, shape, args->step->num_seqs,
                   features_of(args) | mixed_of(args->step));
}

// Sequences with one query token go to one kernel, those with more to another. Each kernel finds
// its own sequences in the work lists.
static void attend(struct cuda_backend *cuda, const struct attention_args *args, bool prepares) {
    const struct kv_cache_spec *spec = &args->cache->spec;
    const struct kv_shape shape = {args->num_kv_heads, args->head_dim};
    const struct step *step = args->step;
    CHECK(args->kv_group < args->cache->num_groups, "KV group %u", args->kv_group);
    const struct kernel_row *decode = decode_row(cuda, args);
    const struct cuda_kv_view view = view_of(args);
    int cluster_size = is_by_clusters(decode) ? cuda->step.cluster_size : 0;
    const struct cuda_attention_plan *plan =
        cluster_size ? NULL : plan_of(cuda, args, extras_of(args));
    const struct cuda_attention_choice choice = {
        .cluster_size = cluster_size,
        .is_compact = cuda->step.is_compact && !args->sinks,
        .prepares = prepares,
        .starts_early = prepares && cuda->step.has_attended,
    };
    cuda->step.has_attended = true;
    if (choice.cluster_size) {
        CHECK(!(choice.is_compact && args->sinks), "compact_kernel has no sinks: layer %u",
              args->layer);
        cuda_attention_cluster_launch(args, &view, &choice, &cuda->info, cuda->stream);
        return;
    }
    if (has_longer_queries(step)) {
        const struct kernel_row *prefill =
            row_for(&cuda->info, OP_PREFILL, spec, shape, step->num_seqs, features_of(args));
        if (prefill && prefill->kernel == KERNEL_PREFILL_SM90) {
            struct cuda_kv_view read = view;
            if (plan->num_copies) {
                read = view_of_copy(args->cache);
                cuda_attention_copy_codes_launch(args, &view, &read, plan, &cuda->info,
                                                 cuda->stream);
            }
            cuda_attention_prefill_sm90_launch(args, &read, plan, &cuda->info, cuda->stream);
        } else {
            cuda_attention_prefill_launch(args, &view, plan, &cuda->info, cuda->stream);
        }
    }
    if (plan->shared_tiles) {
        cuda_attention_shared_launch(args, &view, plan, &cuda->info, cuda->stream);
    }
    cuda_attention_decode_launch(args, &view, plan, &choice, &cuda->info, cuda->stream);
}

void cuda_attention(struct backend *backend, const struct attention_args *args) {
    attend(cuda_backend_of(backend), args, false);
}

// Where sequences are tokens of one, each reads what the others write. Only
// attention/decode_cluster.cu prepares those too.
static bool takes_queries(const struct cuda_backend *cuda, const struct attention_args *args) {
    const struct step *step = args->step;
    if (step->max_query_len == 1) return true;
    bool has_drafts = !has_longer_queries(step) && step->max_query_len <= STEP_SPLIT_MAX;
    return has_drafts && cuda->step.cluster_size && is_by_clusters(decode_row(cuda, args));
}

// Not where a prefix is shared: its kernel reads queries that are prepared. A layer that only reads
// the cache has no new token there that the kernel could take from qkv.
bool cuda_attend(struct backend *backend, const struct attention_args *args) {
    const struct step *step = args->step;
    struct cuda_backend *cuda = cuda_backend_of(backend);
    if (!takes_queries(cuda, args) || step->shared.num || args->q_rope || args->reads_kv) {
        return false;
    }
    if (args->has_norm_after_rope) return false;
    attend(cuda, args, true);
    return true;
}
