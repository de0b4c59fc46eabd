// Attention, and what prepares it: norms, rotation, the write to the cache.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu_memory.h"
#include "ops/ops.h"

static void attention_op(struct bench *bench, void *arg) {
    bench->backend->ops->attention(bench->backend, arg);
}

static void prepare_op(struct bench *bench, void *arg) {
    bench->backend->ops->attention_prepare(bench->backend, arg);
}

// Sequences with Qwen3-0.6B's heads, `query` new tokens each, the last at position context - 1.
static void bench_batch(struct bench *bench, uint32_t num_seqs, uint32_t query, uint32_t context) {
    enum {
        HEADS = 16,
        KV_HEADS = 8,
        HEAD_DIM = 128,
        BLOCK = 16,
        ROW = (HEADS + 2 * KV_HEADS) * HEAD_DIM
    };
    uint32_t stride = (context + BLOCK - 1) / BLOCK, tokens = num_seqs * query;
    const struct kv_cache_spec spec = {.num_layers = 1,
                                       .num_blocks = num_seqs * stride,
                                       .block_size = BLOCK,
                                       .num_kv_heads = KV_HEADS,
                                       .head_dim = HEAD_DIM,
                                       .num_heads = HEADS,
                                       .limits = {.max_num_tokens = tokens,
                                                  .max_num_seqs = num_seqs,
                                                  .max_positions = context,
                                                  .max_blocks_per_seq = stride},
                                       .dtype = bench->kv_dtype};
    struct kv_cache *cache = NULL;
    if (bench->backend->ops->kv_cache_create(bench->backend, &spec, &cache, NULL) != OK)
        bench_checked(NULL);
    float *qkv = bench_alloc(bench, (size_t)tokens * ROW * sizeof *qkv);
    float *out = bench_alloc(bench, (size_t)tokens * HEADS * HEAD_DIM * sizeof *out);
    float *rope = bench_alloc(bench, (size_t)context * HEAD_DIM * sizeof *rope);
    float *norm = bench_alloc(bench, HEAD_DIM * sizeof *norm);
    int32_t *tables = bench_checked(calloc((size_t)num_seqs * stride, sizeof *tables));
    int32_t *positions = bench_checked(calloc(tokens, sizeof *positions));
    int32_t *slots = bench_checked(calloc(tokens, sizeof *slots));
    int32_t *query_start = bench_checked(calloc(num_seqs + 1, sizeof *query_start));
    int32_t *context_len = bench_checked(calloc(num_seqs, sizeof *context_len));
    int32_t *table_row = bench_checked(calloc(num_seqs, sizeof *table_row));
    for (uint32_t i = 0; i < num_seqs * stride; i++) tables[i] = (int32_t)i;
    for (uint32_t i = 0; i < tokens; i++) {
        positions[i] = (int32_t)(context - query + i % query);
    }
    for (uint32_t s = 0; s < num_seqs; s++) {
        query_start[s + 1] = (int32_t)((s + 1) * query);
        context_len[s] = (int32_t)context;
        table_row[s] = (int32_t)s;
    }
    const struct step step = {.num_tokens = tokens,
                              .num_seqs = num_seqs,
                              .table_stride = stride,
                              .max_query_len = query,
                              .max_context_len = context,
                              .positions = positions,
                              .slot_mapping = slots,
                              .query_start = query_start,
                              .context_len = context_len,
                              .block_tables = tables,
                              .table_row = table_row};
    struct attention_args attention = {.step = &step,
                                       .cache = cache,
                                       .num_heads = HEADS,
                                       .num_kv_heads = KV_HEADS,
                                       .head_dim = HEAD_DIM,
                                       .qkv = qkv,
                                       .out = out,
                                       .q_norm = norm,
                                       .k_norm = norm,
                                       .rope = rope,
                                       .eps = 1e-6f,
                                       .scale = 0.088f};
    // Writes every position. Otherwise the whole cache would be the kernel's one page of zeros.
    for (int32_t back = 0; back < (int32_t)context; back += (int32_t)query) {
        for (uint32_t i = 0; i < tokens; i++) {
            int32_t position = (int32_t)(i % query) + back;
            slots[i] = (int32_t)(i / query * stride * BLOCK) + position % (int32_t)context;
        }
        bench->backend->ops->attention_prepare(bench->backend, &attention);
    }
    // Pairs of a query and a position that it sees: q k and p v are 2 operations per dimension
    // each.
    double pairs = (double)num_seqs * query * (context - (query - 1) / 2.0);
    double block_bytes = (double)bench->backend->ops->kv_cache_block_bytes(bench->backend, &spec);
    double kv_bytes = (double)num_seqs * context / BLOCK * block_bytes;
    char what[64];
    snprintf(what, sizeof what, "attention %u x %u, context %u, %s", num_seqs, query, context,
             dtype_name(bench->kv_dtype));
    bench_report(bench, what, bench_time(bench, attention_op, &attention), kv_bytes,
                 pairs * HEADS * HEAD_DIM * 4);
    snprintf(what, sizeof what, "attention_prepare %u tokens", tokens);
    bench_report(bench, what, bench_time(bench, prepare_op, &attention), (double)tokens * ROW * 4,
                 0);
    bench->backend->ops->kv_cache_destroy(bench->backend, cache);
    cpu_memory_free(qkv), cpu_memory_free(out), cpu_memory_free(rope), cpu_memory_free(norm);
    free(tables);
    free(positions), free(slots), free(query_start), free(context_len), free(table_row);
}

void bench_attention(struct bench *bench) {
    bench->kv_dtype = DTYPE_F32;
    bench_batch(bench, 1, 512, 4096);
    bench_batch(bench, 1, 1, 4096);
    const enum dtype narrow[] = {DTYPE_BF16, DTYPE_I8};
    for (size_t i = 0; i < ARRAY_LEN(narrow); i++) {
        bench->kv_dtype = narrow[i];
        bench_batch(bench, 1, 512, 512);
        bench_batch(bench, 1, 512, 4096);
        bench_batch(bench, 1, 1, 4096);
        bench_batch(bench, 1, 1, 16000);
        bench_batch(bench, 32, 1, 1024);
    }
}
