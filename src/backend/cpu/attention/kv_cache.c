/* The paged KV cache and the op that fills it. */
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/attention/attention.h"
#include "backend/cpu/cpu_memory.h"
#include "backend/cpu/linear/narrow.h"
#include "base/check.h"

static enum status grow_scratch(struct cpu_backend *cpu, uint32_t head_dim, struct err *err) {
    if (head_dim <= cpu->attention_scratch_head_dim) return OK;
    size_t floats = attention_scratch_floats(head_dim) * thread_pool_num_threads(cpu->pool);
    float *scratch = cpu_memory_alloc(floats * sizeof *scratch);
    if (!scratch) return err_nomem(err, "scratch memory of attention");
    cpu_memory_free(cpu->attention_scratch);
    cpu->attention_scratch = scratch;
    cpu->attention_scratch_head_dim = head_dim;
    return OK;
}

static enum status check_spec(const struct kv_cache_spec *spec, struct err *err) {
    if (spec->block_size == 0 || spec->block_size % LANES || spec->block_size > INT32_MAX / 2) {
        return err_set(err, ERR_INVALID, "KV blocks of %u tokens, want a multiple of %d",
                       spec->block_size, LANES);
    }
    if (spec->head_dim == 0 || spec->head_dim % LANES || spec->head_dim > UINT16_MAX) {
        return err_set(err, ERR_UNSUPPORTED, "head_dim %u, this backend needs a multiple of %d",
                       spec->head_dim, LANES);
    }
    if (spec->num_layers == 0 || spec->num_kv_heads == 0 || spec->num_blocks == 0) {
        return err_set(
            err, ERR_INVALID,
            "a KV cache of %u layers, %u kv heads and %u blocks, want at least 1 of each",
            spec->num_layers, spec->num_kv_heads, spec->num_blocks);
    }
    switch (spec->dtype) {
    case DTYPE_NONE:
    case DTYPE_BF16:
    case DTYPE_F32:
    case DTYPE_I8:
    case DTYPE_F8_E4M3:
        return OK;
    default:
        return err_set(err, ERR_UNSUPPORTED, "a KV cache of %s, want BF16, F32, I8 or F8_E4M3",
                       dtype_name(spec->dtype));
    }
}

static enum dtype dtype_of(const struct backend *backend, const struct kv_cache_spec *spec) {
    return spec->dtype == DTYPE_NONE ? backend->kv_cache_dtype : spec->dtype;
}

static size_t chunk_bytes(enum dtype dtype, uint32_t head_dim) {
    size_t scales = dtype_size(dtype) == 1 ? LANES * sizeof(float) : 0;
    return (size_t)LANES * head_dim * dtype_size(dtype) + scales;
}

static bool has_shapes(const struct kv_cache_spec *spec) {
    return spec->block_end.num_heads > 0;
}

// Of K and V of a block, before a place.
static size_t bytes_before(const struct kv_cache_spec *spec, enum dtype dtype,
                           const struct kv_place *place) {
    size_t scales = place->num_heads * chunk_bytes(dtype, 0);
    return 2 * (spec->block_size / LANES) *
           (LANES * place->num_elements * dtype_size(dtype) + scales);
}

size_t cpu_kv_cache_block_bytes(const struct backend *backend, const struct kv_cache_spec *spec) {
    enum dtype dtype = dtype_of(backend, spec);
    if (has_shapes(spec)) return bytes_before(spec, dtype, &spec->block_end);
    return (size_t)spec->num_layers * spec->num_kv_heads * (spec->block_size / LANES) * 2 *
           chunk_bytes(dtype, spec->head_dim);
}

static enum status allocate_data(const struct backend *backend, struct kv_cache *cache,
                                 struct err *err) {
    const struct kv_cache_spec *spec = &cache->spec;
    size_t bytes;
    cache->block_bytes = cpu_kv_cache_block_bytes(backend, spec);
    if (!__builtin_mul_overflow(cache->block_bytes, (size_t)spec->num_blocks, &bytes)) {
        cache->data = cpu_memory_alloc_on(bytes, cpu_backend_of_const(backend)->nodes);
    }
    if (cache->data) return OK;
    return err_set(err, ERR_NOMEM, "out of memory: KV cache of %u blocks of %zu bytes",
                   spec->num_blocks, cache->block_bytes);
}

// The working memory of cpu_attention.
static enum status allocate_plan(struct kv_cache *cache, struct err *err) {
    const struct kv_cache_spec *spec = &cache->spec;
    size_t num_seqs = spec->limits.max_num_seqs, counts = num_seqs * spec->num_kv_heads;
    cache->partials_floats = attention_partials_floats(spec);
    cache->seqs = calloc(num_seqs ? num_seqs : 1, sizeof *cache->seqs);
    cache->parts_left = calloc(counts ? counts : 1, sizeof *cache->parts_left);
    cache->partials = cpu_memory_alloc(cache->partials_floats * sizeof *cache->partials);
    if (cache->seqs && cache->parts_left && cache->partials) return OK;
    return err_nomem(err, "work list of attention");
}

enum status cpu_kv_cache_create(struct backend *backend, const struct kv_cache_spec *spec,
                                struct kv_cache **out, struct err *err) {
    enum status status = check_spec(spec, err);
    if (status != OK) return status;
    struct kv_cache *cache = calloc(1, sizeof *cache);
    if (!cache) return err_nomem(err, "KV cache");
    cache->spec = *spec;
    cache->spec.dtype = dtype_of(backend, spec);
    status = allocate_data(backend, cache, err);
    if (status == OK) status = allocate_plan(cache, err);
    if (status == OK) status = grow_scratch(cpu_backend_of(backend), spec->head_dim, err);
    if (status != OK) {
        cpu_kv_cache_destroy(backend, cache);
        return status;
    }
    *out = cache;
    return OK;
}

void cpu_kv_cache_destroy(struct backend *backend, struct kv_cache *cache) {
    (void)backend;
    if (!cache) return;
    cpu_memory_free(cache->data);
    cpu_memory_free(cache->partials);
    free(cache->seqs);
    free(cache->parts_left);
    free(cache);
}

struct kv_layer kv_cache_layer(const struct attention_args *args) {
    const struct kv_cache *cache = args->cache;
    const struct kv_cache_spec *spec = &cache->spec;
    struct kv_layer layer = {.spec = spec, .head_dim = args->head_dim};
    layer.chunk_bytes = chunk_bytes(spec->dtype, args->head_dim);
    layer.part_bytes = spec->block_size / LANES * layer.chunk_bytes;
    size_t bytes = args->num_kv_heads * 2 * layer.part_bytes; // in a block
    if (has_shapes(spec)) {
        size_t before = bytes_before(spec, spec->dtype, &args->place);
        CHECK(args->num_kv_heads <= spec->num_kv_heads && args->head_dim <= spec->head_dim &&
                  before + bytes <= cache->block_bytes,
              "kv_heads=%u head_dim=%u place=%zu", args->num_kv_heads, args->head_dim, before);
        layer.data = cache->data + before;
        layer.stride = cache->block_bytes;
    } else {
        CHECK(args->layer < spec->num_layers && args->num_kv_heads == spec->num_kv_heads &&
                  args->head_dim == spec->head_dim,
              "layer=%u kv_heads=%u head_dim=%u", args->layer, args->num_kv_heads, args->head_dim);
        layer.data = cache->data + args->layer * spec->num_blocks * bytes;
        layer.stride = bytes;
    }
    return layer;
}

struct prepare_job {
    const struct cpu_kernels *kernels;
    const struct attention_args *args;
    struct kv_layer layer;
    uint32_t tokens_per_item;
};

// Stores a position's key or value as bytes, `stride` apart, and its scale.
static void store_int8(const float *x, uint32_t head_dim, void *chunk, uint32_t position,
                       unsigned char *out, size_t stride) {
    float inverse, scale = narrow_scale(x, head_dim, &inverse);
    for (uint32_t d = 0; d < head_dim; d++) {
        out[d * stride] = narrow_byte(inverse > 0 ? x[d] * inverse : 0.0f) ^ 0x80; // signed
    }
    attention_scales(chunk, head_dim)[position] = scale;
}

static void store_e4m3(const float *x, uint32_t head_dim, void *chunk, uint32_t position,
                       unsigned char *out, size_t stride) {
    float inverse, scale = narrow_e4m3_scale(x, head_dim, &inverse);
    for (uint32_t d = 0; d < head_dim; d++) {
        out[d * stride] = inverse > 0 ? narrow_e4m3(x[d] * inverse) : 0;
    }
    attention_scales(chunk, head_dim)[position] = scale * ATTENTION_E4M3_FACTOR;
}

void kv_cache_store(const struct cpu_kernels *kernels, const struct kv_layer *layer, uint32_t slot,
                    uint32_t kv_head, const float *k, const float *v) {
    uint32_t block_size = layer->spec->block_size, head_dim = layer->head_dim;
    uint32_t block = slot / block_size, chunk = slot % block_size / LANES, position = slot % LANES;
    CHECK(block < layer->spec->num_blocks, "slot=%u num_blocks=%u", slot, layer->spec->num_blocks);
    void *keys = kv_layer_head(layer, block, kv_head) + chunk * layer->chunk_bytes;
    void *values = (char *)keys + layer->part_bytes;
    size_t row = (size_t)position * head_dim, pairs = (size_t)(position / 2) * 2 * head_dim;
    switch (layer->spec->dtype) {
    case DTYPE_F32:
        for (size_t d = 0; k && d < head_dim; d++) ((float *)keys)[d * LANES + position] = k[d];
        if (v) memcpy((float *)values + row, v, head_dim * sizeof *v);
        break;
    case DTYPE_I8:
        if (k) store_int8(k, head_dim, keys, position, (unsigned char *)keys + position, LANES);
        if (v) store_int8(v, head_dim, values, position, (unsigned char *)values + row, 1);
        break;
    case DTYPE_F8_E4M3:
        if (k) store_e4m3(k, head_dim, keys, position, (unsigned char *)keys + position, LANES);
        if (v) store_e4m3(v, head_dim, values, position, (unsigned char *)values + row, 1);
        break;
    default: // bf16
        if (k) kernels->store_key(k, head_dim, (uint16_t *)keys + (size_t)position * 2);
        if (v) kernels->store_value(v, head_dim, (uint16_t *)values + pairs + position % 2);
        break;
    }
}

static void prepare_head(const struct prepare_job *job, float *head, const float *norm,
                         const float *rope) {
    const struct attention_args *args = job->args;
    uint32_t head_dim = args->head_dim;
    bool is_last = norm && args->has_norm_after_rope;
    job->kernels->rope_head(head, is_last ? NULL : norm, rope, head_dim, args->eps);
    if (is_last) job->kernels->rms_norm(head, NULL, norm, head, head_dim, args->eps);
}

static void prepare_item(void *arg, uint32_t item, uint32_t thread) {
    (void)thread;
    const struct prepare_job *job = arg;
    const struct attention_args *args = job->args;
    uint32_t head_dim = args->head_dim;
    size_t row_floats = attention_row_heads(args) * head_dim;
    uint32_t begin = item * job->tokens_per_item;
    uint32_t left = args->step->num_tokens - begin;
    uint32_t end = begin + (left < job->tokens_per_item ? left : job->tokens_per_item);
    const int32_t *slots = step_slots(args->step, args->kv_group);
    for (uint32_t token = begin; token < end; token++) {
        float *q = (float *)args->qkv + token * row_floats;
        float *k = q + (size_t)args->num_heads * head_dim;
        float *v = k + (size_t)args->num_kv_heads * head_dim;
        CHECK(args->step->positions[token] >= 0, "token=%u position=%d", token,
              args->step->positions[token]);
        size_t row = (size_t)args->step->positions[token] * head_dim;
        const float *q_rope = attention_q_rope(args) + row;
        for (float *head = q; head < k; head += head_dim) {
            prepare_head(job, head, args->q_norm, q_rope);
        }
        if (args->reads_kv) continue;
        for (float *head = k; head < v; head += head_dim) {
            prepare_head(job, head, args->k_norm, args->rope + row);
        }
        int32_t slot = slots[token];
        for (uint32_t head = 0; slot >= 0 && head < args->num_kv_heads; head++) {
            size_t at = (size_t)head * head_dim;
            kv_cache_store(job->kernels, &job->layer, (uint32_t)slot, head, k + at, v + at);
        }
    }
}

enum { TOUCH_BYTES = 2 << 20, PAGE_BYTES = 4096 }; // a huge page, the smallest page

struct touch_job {
    const struct kv_cache *cache;
    size_t layer_bytes, begin, end; // what to touch of each layer, or of all together
    uint32_t items_per_layer;
};

static void touch_item(void *arg, uint32_t item, uint32_t thread) {
    (void)thread;
    const struct touch_job *job = arg;
    char *layer = job->cache->data + item / job->items_per_layer * job->layer_bytes;
    size_t begin = job->begin + (size_t)(item % job->items_per_layer) * TOUCH_BYTES;
    size_t end = job->end - begin < TOUCH_BYTES ? job->end : begin + TOUCH_BYTES;
    for (size_t at = begin; at < end; at += PAGE_BYTES) {
        // Writes, as reading would map a page of zeros, but changes nothing.
        __atomic_fetch_or(layer + at, 0, __ATOMIC_RELAXED);
    }
}

void kv_cache_touch(struct cpu_backend *cpu, struct kv_cache *cache, const struct step *step,
                    uint32_t kv_group) {
    const struct kv_cache_spec *spec = &cache->spec;
    const int32_t *slots = step_slots(step, kv_group);
    uint32_t begin = spec->num_blocks, end = 0;
    for (uint32_t token = 0; token < step->num_tokens; token++) {
        int32_t slot = slots[token];
        if (slot < 0) continue;
        uint32_t block = (uint32_t)slot / spec->block_size;
        if (block < cache->touched_end) continue;
        if (block < begin) begin = block;
        if (block >= end) end = block + 1;
    }
    if (begin >= end) return;
    // Layers of different shapes lie together in their block.
    uint32_t num_layers = has_shapes(spec) ? 1 : spec->num_layers;
    size_t block_bytes = cache->block_bytes / num_layers;
    // Whole huge pages, so that the next steps find theirs.
    uint64_t rounded = ((uint64_t)end * block_bytes / TOUCH_BYTES + 1) * TOUCH_BYTES / block_bytes;
    if (rounded > end) end = rounded < spec->num_blocks ? (uint32_t)rounded : spec->num_blocks;
    struct touch_job job = {.cache = cache,
                            .layer_bytes = block_bytes * spec->num_blocks,
                            .begin = block_bytes * begin,
                            .end = block_bytes * end};
    job.items_per_layer = (uint32_t)((job.end - job.begin + TOUCH_BYTES - 1) / TOUCH_BYTES);
    thread_pool_for(cpu->pool, job.items_per_layer * num_layers, touch_item, &job);
    cache->touched_end = end;
}

void cpu_attention_prepare(struct backend *backend, const struct attention_args *args) {
    struct cpu_backend *cpu = cpu_backend_of(backend);
    if (args->layer == 0) kv_cache_touch(cpu, args->cache, args->step, args->kv_group);
    struct prepare_job job = {&cpu->kernels, args, kv_cache_layer(args),
                              thread_pool_grain(cpu->pool, args->step->num_tokens, 1)};
    uint32_t num_items = (args->step->num_tokens + job.tokens_per_item - 1) / job.tokens_per_item;
    thread_pool_for(cpu->pool, num_items, prepare_item, &job);
}
