// Making a backend, a linear, experts, a KV cache and memory while each allocation fails in turn;
// and ops, which allocate nothing.
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "support/alloc_hook.h"
#include "support/cmocka_all.h"

enum { OUT = 1000, IN = 600, SEQS = 2, HEADS = 4, KV_HEADS = 2, HEAD_DIM = 64, BLOCK_SIZE = 16 };
enum { EXPERTS = 6, TOP = 2, EXPERT_SIZE = 40 };
enum { ROW = (HEADS + 2 * KV_HEADS) * HEAD_DIM };

struct objects {
    struct backend *backend;
    struct linear *linear;
    struct experts *experts;
    struct kv_cache *cache;
    void *x, *out, *scratch;
};

static uint16_t weights[OUT * IN];

static void objects_fini(struct objects *objects) {
    struct backend *backend = objects->backend;
    if (!backend) return;
    backend->ops->linear_destroy(backend, objects->linear);
    backend->moe->experts_destroy(backend, objects->experts);
    backend->ops->release(backend, objects->scratch);
    backend->ops->kv_cache_destroy(backend, objects->cache);
    backend->ops->release(backend, objects->x);
    backend->ops->release(backend, objects->out);
    backend_destroy(backend);
}

static const struct experts_shape experts_shape = {EXPERTS, IN, EXPERT_SIZE, false, false};

static enum status make_experts(struct objects *objects, struct err *err) {
    struct backend *backend = objects->backend;
    struct matrix_slice in[EXPERTS], out[EXPERTS];
    for (int i = 0; i < EXPERTS; i++) {
        in[i] = (struct matrix_slice){.source = {.data = weights},
                                      .dtype = DTYPE_BF16,
                                      .rows = EXPERT_SIZE,
                                      .cols = IN,
                                      .row_stride = IN};
        out[i] = (struct matrix_slice){.source = {.data = weights},
                                       .dtype = DTYPE_BF16,
                                       .rows = IN,
                                       .cols = EXPERT_SIZE,
                                       .row_stride = EXPERT_SIZE};
    }
    const struct experts_spec spec = {
        .shape = experts_shape, .gate = in, .up = in, .down = out, .format = WEIGHTS_NATIVE};
    enum status status = backend->moe->experts_create(backend, &spec, &objects->experts, err);
    if (status) return status;
    size_t bytes = backend->moe->experts_scratch_bytes(backend, &experts_shape, 100, TOP);
    return backend->ops->alloc(backend, bytes, &objects->scratch, err);
}

static enum status objects_init(struct objects *objects, int threads, struct err *err) {
    struct backend_options options = {
        .device = "cpu", .cpu_isa = "auto", .threads = threads, .weight_dtype = DTYPE_BF16};
    struct matrix_slice part = {.source = {.data = weights},
                                .dtype = DTYPE_BF16,
                                .rows = OUT,
                                .cols = IN,
                                .row_stride = IN};
    struct linear_spec linear = {&part, NULL, 1, WEIGHTS_NATIVE};
    struct kv_cache_spec cache = {.num_layers = 2,
                                  .num_blocks = 40,
                                  .block_size = BLOCK_SIZE,
                                  .num_kv_heads = KV_HEADS,
                                  .head_dim = HEAD_DIM,
                                  .num_heads = HEADS,
                                  .limits = {100, 100, 640, 40, 1, 0}};
    *objects = (struct objects){0};
    enum status status = backend_create(&objects->backend, &options, err);
    if (status != OK) return status;
    struct backend *backend = objects->backend;
    status = backend->ops->linear_create(backend, &linear, &objects->linear, err);
    if (!status) status = make_experts(objects, err);
    if (!status) status = backend->ops->kv_cache_create(backend, &cache, &objects->cache, err);
    if (!status) status = backend->ops->alloc(backend, 100 * IN * 4, &objects->x, err);
    if (!status) status = backend->ops->alloc(backend, 100 * OUT * 4, &objects->out, err);
    return status;
}

static enum status make_and_destroy(void *context, struct err *err) {
    struct objects objects;
    enum status status = objects_init(&objects, *(const int *)context, err);
    objects_fini(&objects);
    return status;
}

static void test_allocations_fail(void **state) {
    (void)state;
    for (int threads = 1; threads <= 3; threads += 2) {
        struct alloc_sweep sweep = {.work = make_and_destroy, .context = &threads};
        // When the quota of cores cannot be read for lack of memory, the pool uses the affinity
        // mask instead.
        sweep.may_survive = threads > 1;
        assert_true(alloc_sweep_run(&sweep) >= 7);
    }
}

static void run_linear_ops(const struct objects *objects, uint32_t rows) {
    struct backend *backend = objects->backend;
    static int32_t tokens[100];
    static float norm[IN];
    const struct step step = {.num_tokens = rows, .tokens = tokens};
    struct embed_args embed = {&step, objects->linear, 0, objects->x};
    struct rms_norm_args rms_norm = {objects->x, NULL, norm, objects->x, rows, IN,
                                     1e-6f,      0,    0,    NULL,       false};
    struct linear_args linear = {objects->linear, objects->x, objects->out, rows, false};
    struct silu_mul_args silu_mul = {objects->out, objects->x, rows, OUT / 2, ACTIVATION_SILU};
    struct gather_rows_args gather_rows = {objects->out, tokens, objects->x, rows, IN};
    backend->ops->embed(backend, &embed);
    backend->ops->rms_norm(backend, &rms_norm);
    backend->ops->linear(backend, &linear);
    backend->ops->silu_mul(backend, &silu_mul);
    backend->ops->gather_rows(backend, &gather_rows);
}

static void run_experts_ops(const struct objects *objects, uint32_t rows) {
    struct backend *backend = objects->backend;
    static float logits[100 * EXPERTS], chosen[100 * TOP];
    static int32_t ids[100 * TOP];
    struct route_args route = {.logits = logits,
                               .ids = ids,
                               .weights = chosen,
                               .num_tokens = rows,
                               .num_experts = EXPERTS,
                               .top_k = TOP,
                               .normalize = true,
                               .factor = 1};
    struct experts_args experts = {.experts = objects->experts,
                                   .x = objects->x,
                                   .ids = ids,
                                   .weights = chosen,
                                   .out = objects->out,
                                   .scratch = objects->scratch,
                                   .num_tokens = rows,
                                   .top_k = TOP};
    backend->moe->route(backend, &route);
    backend->moe->experts(backend, &experts);
}

static void run_attention_ops(const struct objects *objects) {
    struct backend *backend = objects->backend;
    enum { TOKENS = 40 };
    static float rope[TOKENS * HEAD_DIM];
    static int32_t positions[TOKENS], slots[TOKENS], tables[SEQS * 4];
    static int32_t query_start[SEQS + 1] = {0, 30, TOKENS};
    static int32_t context_len[SEQS] = {30, 50}, table_row[SEQS] = {1, 0};
    for (int32_t i = 0; i < TOKENS; i++) positions[i] = slots[i] = i;
    const struct step step = {
        .num_tokens = TOKENS,
        .num_seqs = SEQS,
        .table_stride = 4,
        .max_query_len = 30,
        .max_context_len = 50,
        .positions = positions,
        .slot_mapping = slots,
        .query_start = query_start,
        .context_len = context_len,
        .block_tables = tables,
        .table_row = table_row,
    };
    const struct attention_args attention = {
        .step = &step,
        .cache = objects->cache,
        .num_heads = HEADS,
        .num_kv_heads = KV_HEADS,
        .head_dim = HEAD_DIM,
        .qkv = objects->x,
        .out = objects->out,
        .rope = rope,
        .scale = 0.125f,
    };
    backend->ops->attention_prepare(backend, &attention);
    backend->ops->attention(backend, &attention);
}

static void test_ops_do_not_allocate(void **state) {
    (void)state;
    struct objects objects;
    assert_int_equal(objects_init(&objects, 3, NULL), OK);
    alloc_hook_reset();
    run_linear_ops(&objects, 1);
    run_linear_ops(&objects, 100);
    run_experts_ops(&objects, 1);
    run_experts_ops(&objects, 100);
    run_attention_ops(&objects);
    assert_int_equal(alloc_hook_count(), 0);
    objects_fini(&objects);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_allocations_fail),
        cmocka_unit_test(test_ops_do_not_allocate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
