/* The paged KV cache and the op that fills it. */
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu_memory.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/ops.h"
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
        return err_set(err, ERR_INVALID, "a KV cache of %u layers, %u kv heads, %u blocks",
                       spec->num_layers, spec->num_kv_heads, spec->num_blocks);
    }
    return OK;
}

size_t cpu_kv_cache_block_bytes(const struct backend *backend, const struct kv_cache_spec *spec) {
    (void)backend;
    return (size_t)spec->num_layers * spec->num_kv_heads * spec->block_size * spec->head_dim * 2 *
           sizeof(float);
}

enum status cpu_kv_cache_create(struct backend *backend, const struct kv_cache_spec *spec,
                                struct kv_cache **out, struct err *err) {
    enum status status = check_spec(spec, err);
    if (status != OK) return status;
    struct kv_cache *cache = calloc(1, sizeof *cache);
    if (!cache) return err_nomem(err, "KV cache");
    cache->spec = *spec;
    cache->part_floats = (size_t)spec->block_size * spec->head_dim;
    size_t bytes;
    bool fits = !__builtin_mul_overflow(cpu_kv_cache_block_bytes(backend, spec),
                                        (size_t)spec->num_blocks, &bytes);
    if (fits) cache->data = cpu_memory_alloc(bytes);
    if (!cache->data) {
        status = err_set(err, ERR_NOMEM, "out of memory: KV cache of %u blocks of %zu bytes",
                         spec->num_blocks, cpu_kv_cache_block_bytes(backend, spec));
        goto fail;
    }
    status = grow_scratch(cpu_backend_of(backend), spec->head_dim, err);
    if (status != OK) goto fail;
    *out = cache;
    return OK;

fail:
    cpu_kv_cache_destroy(backend, cache);
    return status;
}

void cpu_kv_cache_destroy(struct backend *backend, struct kv_cache *cache) {
    (void)backend;
    if (!cache) return;
    cpu_memory_free(cache->data);
    free(cache);
}

struct prepare_job {
    const struct cpu_kernels *kernels;
    const struct attention_prepare_args *args;
    uint32_t tokens_per_item;
};

static void write_slot(const struct attention_prepare_args *args, uint32_t slot, const float *k,
                       const float *v) {
    const struct kv_cache *cache = args->cache;
    uint32_t head_dim = args->head_dim, block_size = cache->spec.block_size;
    uint32_t block = slot / block_size, offset = slot % block_size;
    CHECK(block < cache->spec.num_blocks, "slot=%u num_blocks=%u", slot, cache->spec.num_blocks);
    for (uint32_t head = 0; head < args->num_kv_heads; head++) {
        float *base = kv_cache_head(cache, args->layer, block, head);
        float *k_lane = base + (size_t)(offset / LANES) * LANES * head_dim + offset % LANES;
        for (size_t d = 0; d < head_dim; d++) k_lane[d * LANES] = k[head * head_dim + d];
        memcpy(base + cache->part_floats + (size_t)offset * head_dim, v + head * head_dim,
               head_dim * sizeof *v);
    }
}

static void prepare_item(void *arg, uint32_t item, uint32_t thread) {
    (void)thread;
    const struct prepare_job *job = arg;
    const struct attention_prepare_args *args = job->args;
    uint32_t head_dim = args->head_dim;
    size_t row_floats = ((size_t)args->num_heads + 2 * (size_t)args->num_kv_heads) * head_dim;
    uint32_t begin = item * job->tokens_per_item;
    uint32_t left = args->num_tokens - begin;
    uint32_t end = begin + (left < job->tokens_per_item ? left : job->tokens_per_item);
    for (uint32_t token = begin; token < end; token++) {
        float *q = (float *)args->qkv + token * row_floats;
        float *k = q + (size_t)args->num_heads * head_dim;
        float *v = k + (size_t)args->num_kv_heads * head_dim;
        CHECK(args->positions[token] >= 0, "token=%u position=%d", token, args->positions[token]);
        const float *rope = args->rope + (size_t)args->positions[token] * head_dim;
        for (float *head = q; head < k; head += head_dim) {
            job->kernels->rope_head(head, args->q_norm, rope, head_dim, args->eps);
        }
        for (float *head = k; head < v; head += head_dim) {
            job->kernels->rope_head(head, args->k_norm, rope, head_dim, args->eps);
        }
        int32_t slot = args->slot_mapping[token];
        if (slot >= 0) write_slot(args, (uint32_t)slot, k, v);
    }
}

void cpu_attention_prepare(struct backend *backend, struct backend_stream *stream,
                           const struct attention_prepare_args *args) {
    (void)stream;
    struct cpu_backend *cpu = cpu_backend_of(backend);
    const struct kv_cache_spec *spec = &args->cache->spec;
    CHECK(args->layer < spec->num_layers && args->num_kv_heads == spec->num_kv_heads &&
              args->head_dim == spec->head_dim,
          "layer=%u kv_heads=%u head_dim=%u", args->layer, args->num_kv_heads, args->head_dim);
    struct prepare_job job = {cpu->kernels, args,
                              thread_pool_grain(cpu->pool, args->num_tokens, 1)};
    uint32_t num_items = (args->num_tokens + job.tokens_per_item - 1) / job.tokens_per_item;
    thread_pool_for(cpu->pool, num_items, prepare_item, &job);
}
