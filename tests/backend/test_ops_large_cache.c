/* A KV cache of more than 2^31 elements, so that offsets do not fit 32 bits (B25 of
 * doc/testing.md). Only what the test writes gets memory of the machine. */
#include <string.h>
#include <sys/resource.h>

#include "backend/ops_util.h"
#include "base/compiler.h"

enum { BLOCK_SIZE = 16, HEAD_DIM = 256, NUM_KV_HEADS = 8, NUM_BLOCKS = 70000 };

static long peak_kib(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

static void test_last_slot_of_a_large_cache_b25(void **state) {
    struct backend *backend = ops_backend(*state, 1, DTYPE_BF16);
    const struct kv_cache_spec spec = {.num_layers = 1,
                                       .num_blocks = NUM_BLOCKS,
                                       .block_size = BLOCK_SIZE,
                                       .num_kv_heads = NUM_KV_HEADS,
                                       .head_dim = HEAD_DIM,
                                       .num_heads = NUM_KV_HEADS,
                                       .limits = {1, 1, BLOCK_SIZE, 1, 1, 0},
                                       .dtype = DTYPE_F32};
    struct kv_cache *cache = NULL;
    if (backend->ops->kv_cache_create(backend, &spec, &cache, NULL)) {
        print_message("skipped: no 18 GiB of address space to be had\n");
        backend_destroy(backend);
        skip();
    }
    // One token in the last block, at position 0: its attention is its own value.
    const uint32_t width = (NUM_KV_HEADS * 3) * HEAD_DIM, out_width = NUM_KV_HEADS * HEAD_DIM;
    float *qkv = ops_guard_alloc(width), *out = ops_guard_alloc(out_width);
    float rope[HEAD_DIM];
    for (uint32_t i = 0; i < HEAD_DIM; i++) rope[i] = i < HEAD_DIM / 2 ? 1 : 0;
    struct ops_rng rng = ops_rng_of(25);
    ops_rng_fill(&rng, qkv, width);
    int32_t position = 0, slot = (NUM_BLOCKS - 1) * BLOCK_SIZE, block = NUM_BLOCKS - 1;
    int32_t query_start[] = {0, 1}, context_len = 1;
    const struct step step = {.num_tokens = 1,
                              .num_seqs = 1,
                              .table_stride = 1,
                              .max_query_len = 1,
                              .max_context_len = 1,
                              .positions = &position,
                              .slot_mapping = &slot,
                              .query_start = query_start,
                              .context_len = &context_len,
                              .block_tables = &block,
                              .table_row = query_start};
    const struct attention_args args = {.step = &step,
                                        .cache = cache,
                                        .num_heads = NUM_KV_HEADS,
                                        .num_kv_heads = NUM_KV_HEADS,
                                        .head_dim = HEAD_DIM,
                                        .qkv = qkv,
                                        .out = out,
                                        .rope = rope,
                                        .eps = 1e-6f,
                                        .scale = 0.0625f};
    long before = peak_kib();
    backend->ops->attention_prepare(backend, &args);
    backend->ops->attention(backend, &args);
    assert_in_range(peak_kib() - before, 0, 64 << 10); // a block is 512 KiB, a huge page 2 MiB
    const float *value = qkv + (size_t)2 * NUM_KV_HEADS * HEAD_DIM;
    assert_true(ops_nmse_f32(out, value, out_width) < 1e-12);
    ops_guard_free(qkv, width);
    ops_guard_free(out, out_width);
    backend->ops->kv_cache_destroy(backend, cache);
    backend_destroy(backend);
}

int main(void) {
    const struct ops_case cases[] = {
        {"last_slot_of_a_large_cache_b25", test_last_slot_of_a_large_cache_b25, ISA_ATTENTION}};
    return ops_run("large_cache", cases, ARRAY_LEN(cases));
}
